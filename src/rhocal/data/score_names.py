"""A single column of scores: the class of two that its name states."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.arrays import is_tensor
from rhocal.data.columns import frame_columns, name_key
from rhocal.data.labels.per_sample import positive_column
from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

NEGATIONS = frozenset({"not", "non", "no", "never", "without", "anti"})
"""Words that turn the name of a class into that of the other one."""

SCORE_WORDS = frozenset({
    "p", "pr", "prob", "probs", "proba", "probability", "probabilities", "score", "scores", "logit", "logits", "log", "logprob",
    "logprobs", "margin", "odds", "confidence", "pred", "prediction", "predicted", "risk", "raw", "hat", "model", "output",
})  # fmt: skip
"""Words that stand behind the name of a class in the name of its score (``fraud_score``)."""

FIRST_NUMBERS = ("0", "1")
"""What columns without a meaning are counted from."""


def score_name(scores: Any) -> str | None:
    """The name of a series, or of the only column of a data frame; None for arrays, and for a name that only counts."""
    if isinstance(scores, np.ndarray) or is_tensor(scores):
        return None
    if hasattr(scores, "columns"):
        is_arrow = type(scores).__module__.partition(".")[0] == "pyarrow"  # there `columns` are the data
        names = list(scores.schema.names if is_arrow else scores.columns)
        name = names[0] if len(names) == 1 else None
    else:
        name = getattr(scores, "name", None)
    is_name = isinstance(name, str | int) and not isinstance(name, bool) and name not in {"", 0}
    return str(name) if is_name else None


def column_names(scores: Any) -> tuple[str, ...] | None:
    """The names of the columns of a data frame, or of its only one; None for arrays, and for names that only count."""
    columns = frame_columns(scores)
    if columns is not None:
        return columns
    name = score_name(scores)
    return None if name is None else (name,)


def score_class(positive: Any, name: str | None, classes: NDArray[Any]) -> int | None:
    """The column of the class that a single column of scores belongs to; None if neither its name nor the caller states it.

    ``positive`` is what the caller states. It is an error if the name states another class, and if a name that mentions
    classes leaves open which it means.
    """
    by_name, is_unclear = (None, False) if name is None else named_class(name, classes.tolist())
    if positive is not None:
        stated = positive_column(positive, classes)
        if by_name is not None and by_name != stated:
            raise InputError(
                f"the column of scores {name!r} is named after class {classes[by_name]}, but the positive class is "
                f"{classes[stated]}; rename the column if its scores are those of {classes[stated]}",
                argument="positive",
                remedy=f"state {classes[by_name]} otherwise",
            )
        return stated
    if is_unclear:
        raise InputError(
            f"unclear whether the column of scores {name!r} holds those of class {classes[0]} or of {classes[1]}",
            argument="positive",
            remedy="name the class",
        )
    return by_name


def named_class(name: str, classes: Sequence[Any]) -> tuple[int | None, bool]:
    """The class of two that a name states, behind any prefix (``p_fraud``), and whether it mentions classes and states none.

    >>> named_class("p_fraud", ["fraud", "legit"]), named_class("not_fraud", ["fraud", "legit"])
    ((0, False), (None, True))
    """
    texts = [str(one) for one in classes]
    for spelled in (str, str.casefold):
        exact = [k for k, text in enumerate(texts) if spelled(name_key(name.strip())) == spelled(name_key(text))]
        if len(exact) == 1:
            return _named_by_number(name, exact[0], texts) if texts[exact[0]] in FIRST_NUMBERS else (exact[0], False)
    parts = _words(name)
    if any(text.isdecimal() for text in texts):
        parts = [piece for part in parts for piece in _without_number(part)]
    places = [_places(parts, _words(text)) for text in texts]
    for k in (0, 1):  # "fraud" within "not_fraud", where both are classes, is no mention of its own
        longer, shorter = places[k], places[1 - k]
        if longer and shorter and all(any(a <= c and d <= b for a, b in longer) for c, d in shorter):
            places[1 - k] = []
    mentioned = [k for k in (0, 1) if places[k]]
    if len(mentioned) != 1:
        return None, len(mentioned) == 2
    (k,) = mentioned
    start, stop = places[k][-1]
    before, behind = parts[:start], parts[stop:]
    if re.fullmatch(r"\d+", texts[k]):
        return _named_by_number(name, k, texts) if not behind else (None, False)
    is_stated = not NEGATIONS & {*before, *behind} and SCORE_WORDS.issuperset(behind)
    return (k, False) if is_stated else (None, True)


def _named_by_number(name: str, column: int, texts: Sequence[str]) -> tuple[int | None, bool]:
    """A number that ends a name: ``score_1`` may be the score of class 1, or the first of several scores.

    Both are the same for the second class. A column called 0 has no name.
    """
    if column == 1 or texts[column] not in FIRST_NUMBERS:
        return column, False
    return None, name.strip() != "0"


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", text.casefold()) if word]


def _without_number(part: str) -> Sequence[str]:
    """A word of scores and the number that it ends in (``p0``), as ``p_0`` has them."""
    match = re.fullmatch(r"([^\W\d]+)(\d+)", part)
    return (match[1], match[2]) if match and match[1] in {*SCORE_WORDS, "class", "label", "y"} else (part,)


def _places(parts: Sequence[str], wanted: Sequence[str]) -> list[tuple[int, int]]:
    """Where some parts stand in others."""
    n = len(wanted)
    return [(k, k + n) for k in range(len(parts) - n + 1) if n and list(parts[k : k + n]) == list(wanted)]
