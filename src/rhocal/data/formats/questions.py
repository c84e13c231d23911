"""What logs of language models have in common: questions with options, their correct answers, identifiers and subjects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.base import StoredFile
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rhocal.data.formats.base import LogFacts
    from rhocal.data.formats.lines import Lines

NO_OPTION = -1e9
"""The logit where a question has no such option."""

SUBJECTS = ("subject", "category", "subtask", "task", "topic")
"""Keys of a question by which results are grouped."""

LABELS = ("labels", "label", "target", "answer", "gold", "answer_key", "answerKey", "correct_answer")
"""Keys of the correct option."""

QUESTION_IDS = ("question_id", "doc_id", "custom_id", "id")
"""Keys of the identifier of a question."""

CORRECT = ("correct", "is_correct")
"""Keys that state whether an answer is right."""

RIGHT = {"true": 1, "yes": 1, "c": 1, "correct": 1, "right": 1, "1": 1, "1.0": 1}
WRONG = {"false": 0, "no": 0, "i": 0, "incorrect": 0, "wrong": 0, "0": 0, "0.0": 0}
"""How a log writes that an answer is right or wrong; C and I are Inspect's."""


def log_file(lines: Lines, arrays: Mapping[str, Any], facts: LogFacts, docs: Sequence[Mapping[str, Any]]) -> StoredFile:
    """A log whose arrays are read. ``docs`` are the objects that hold the identifier and the subject of each question."""
    arrays = dict(arrays)
    for name, keys in (("question_id", QUESTION_IDS), ("subject", SUBJECTS)):
        key = next((key for key in keys if all(_is_name(doc.get(key)) for doc in docs)), None)
        if key is not None and name not in arrays:
            arrays[name] = np.array([str(doc[key]) for doc in docs])
    ids = arrays.get("question_id")
    is_repeated = ids is not None and len(np.unique(ids)) < len(ids)
    facts = replace(facts, clusters="question_id" if is_repeated else None)
    return StoredFile(lines.path, arrays, has_blocks=False, log=facts, bad_lines=tuple(lines.bad))


def _is_name(value: Any) -> bool:
    return (isinstance(value, str) and bool(value)) or (isinstance(value, int) and not isinstance(value, bool))


def first_key(row: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """The first of these keys that an object has a value for."""
    return next((key for key in keys if row.get(key) is not None), None)


def filled(rows: Sequence[Sequence[float]], n_options: int = 0, value: float = NO_OPTION) -> NDArray[np.float64]:
    """Rows of different lengths as a matrix of at least ``n_options`` columns."""
    out = np.full((len(rows), max(n_options, *map(len, rows))), value)
    for row, values in zip(out, rows, strict=True):
        row[: len(values)] = values
    return out


def option_column(target: Any, n_options: int, names: Sequence[str], texts: Sequence[str] = ()) -> int:
    """The place of the correct option: its name, its number from 0, its text, or its letter."""
    if isinstance(target, list) and len(target) == 1:
        target = target[0]
    if isinstance(target, float) and target.is_integer():  # tables with missing values write 1.0
        target = int(target)
    text = str(target).strip()
    for known in (names, texts):
        if list(known).count(text) > 1:
            raise FileError(
                f"the correct answer {text[:40]!r} is the text of more than one option; give its number from 0"
            )
    column = _place(target, text, names, texts)
    if isinstance(target, bool) or not 0 <= column < n_options:
        options = ", ".join([*names][:8]) if names else f"{n_options} options (numbers from 0)"
        raise FileError(f"the correct answer is {str(target)[:40]!r}, which is none of the options: {options}")
    return column


def _place(target: Any, text: str, names: Sequence[str], texts: Sequence[str]) -> int:
    """The number that a target stands for; −1 if it stands for none."""
    if text in names:
        return list(names).index(text)
    if isinstance(target, int):
        return target
    if text in texts:
        return list(texts).index(text)
    if text.isdecimal():
        return int(text)
    is_letter = len(text) == 1 and text.isascii() and text.isalpha()
    return ord(text.upper()) - ord("A") if is_letter else -1


def right_or_wrong(value: Any, key: str = "correct") -> int:
    """1 for a right answer and 0 for a wrong one."""
    text = str(value).strip().lower()
    if text in RIGHT:
        return 1
    if text in WRONG:
        return 0
    raise FileError(f"{key} is {str(value)[:40]!r}; need true or false, 1 or 0 (partial credit cannot be calibrated)")


def as_score(value: Any, key: str) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FileError(f"{key} is {str(value)[:40]!r}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = np.inf
    if not np.isfinite(number):
        raise FileError(f"{key} is {str(value)[:40]}, not a finite number")
    return number
