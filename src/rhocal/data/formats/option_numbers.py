"""Correct answers that are numbers: the place of an option, or its text. All lines of a log decide together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.questions import MAX_DIGITS
from rhocal.data.labels.columns import NUMBER
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.data.formats.lines import Lines

REMEDY = "write its letter, or its text in quotes"


@dataclass(frozen=True)
class Number:
    """A correct answer that is a number: the place of an option from 0, the text of an option ("2"), or either."""

    target: int
    place: int | None
    text_place: int | None
    """The place of the option that has this number as its text."""
    is_text: bool

    @classmethod
    def from_target(cls, target: Any, names: Sequence[str], n_options: int, texts: Sequence[str] = ()) -> Number | None:
        """None if the answer is no number."""
        target = target[0] if isinstance(target, list) and len(target) == 1 else target
        target = int(target) if isinstance(target, float) and target.is_integer() else target
        text = str(target).strip()
        if isinstance(target, bool) or not text.isdecimal() or len(text) > MAX_DIGITS:
            return None
        number = int(text)
        known = names if text in names else texts
        text_place = list(known).index(text) if text in known else None
        return cls(number, number if number < n_options else None, text_place, isinstance(target, str))


def settle_numbers(lines: Lines, labels: Sequence[int], numbers: Sequence[Number | None]) -> list[int]:
    """Correct options, where a number may be the place of one and the text of another, as other lines of the file have it.

    If these do not tell, a text is a text, and a number is an error. Lines that contradict each other are an error.
    """
    known = [(line, one) for line, one in zip(lines.numbers, numbers, strict=True) if one is not None]
    place = next(((line, one) for line, one in known if one.text_place is None), None)
    text = next(((line, one) for line, one in known if one.place is None), None)
    if place is not None and text is not None:
        raise FileError(
            f"{lines.path}: the correct answer {place[1].target} of line {place[0]} is the number (from 0) of an option, and "
            f"{text[1].target} of line {text[0]} is the text of one; {REMEDY}"
        )
    settled = []
    for label, number, line in zip(labels, numbers, lines.numbers, strict=True):
        if number is None or number.place is None or number.text_place in {None, number.place}:
            settled.append(label)
        elif place is not None:
            settled.append(number.place)
        elif text is not None or number.is_text:
            settled.append(number.text_place)
        else:
            raise FileError(
                f"{lines.path}: line {line}: the correct answer {number.target} is the number (from 0) of one option and the "
                f"text of another; {REMEDY}"
            )
    return settled


def label_array(columns: Sequence[int], classes: Sequence[str] | None) -> NDArray[Any]:
    """The columns of the correct options; their classes where these are other numbers, which a column would be taken for."""
    labels = np.array(columns)
    if classes is None or labels.max() >= len(classes) or not all(NUMBER.fullmatch(name) for name in classes):
        return labels
    return labels if [float(name) for name in classes] == list(range(len(classes))) else np.array(classes)[labels]
