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


MAX_DIGITS = 18
"""Digits of the number of an option; Python refuses to convert thousands of them."""


def log_file(
    lines: Lines,
    arrays: Mapping[str, Any],
    facts: LogFacts,
    docs: Sequence[Mapping[str, Any]],
    groups: str | None = None,
) -> StoredFile:
    """A log whose arrays are read. ``docs`` are the objects that hold the identifier and the subject of each question.

    ``groups`` is the key that the caller names for groups or clusters, which may be that of an identifier.
    """
    arrays, notes = dict(arrays), list(facts.notes)
    subject = next((key for key in SUBJECTS if all(name_of(doc.get(key)) for doc in docs)), None)
    if subject is not None and "subject" not in arrays:
        arrays["subject"] = np.array([name_of(doc[subject]) for doc in docs])
    if "question_id" not in arrays:
        ids, n_missing = _question_ids(lines, docs, QUESTION_IDS)
        if ids is not None:
            arrays["question_id"] = ids
        if n_missing:
            notes.append(
                f"{n_missing:,} of {len(docs):,} {lines.unit}s name no question: each counts as one of its own"
            )
    ids = arrays.get("question_id")
    subjects = arrays.get("subject")
    if ids is not None and subjects is not None and _is_shared(ids, subjects):
        ids = arrays["question_id"] = np.array([f"{part}/{name}" for part, name in zip(subjects, ids, strict=True)])
        notes.append("questions of different subjects have the same identifier: the subject is part of it")
    if groups in QUESTION_IDS and groups not in arrays:
        is_used = groups == _id_key(docs, QUESTION_IDS)
        group_ids = ids if is_used else _question_ids(lines, docs, (groups,))[0]
        arrays |= {} if group_ids is None else {groups: group_ids}
    is_repeated = ids is not None and len(np.unique(ids)) < len(ids)
    facts = replace(facts, clusters="question_id" if is_repeated else None, notes=tuple(notes))
    return StoredFile(lines.path, arrays, has_blocks=False, log=facts, bad_lines=tuple(lines.bad))


def _id_key(docs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str | None:
    """The first of these keys under which some object has an identifier."""
    return next((key for key in keys if any(name_of(doc.get(key)) for doc in docs)), None)


def _question_ids(
    lines: Lines, docs: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> tuple[NDArray[Any] | None, int]:
    """The identifier of each question, and how many lines have none; None if no line has one.

    A line without an identifier is a question of its own: the others keep theirs.
    """
    key = _id_key(docs, keys)
    if key is None:
        return None, 0
    names = [name_of(doc.get(key)) for doc in docs]
    own = (f"({lines.unit} {number} of {lines.path.name})" for number in lines.numbers)
    return np.array([name or other for name, other in zip(names, own, strict=True)]), names.count("")


def _is_shared(ids: NDArray[Any], subjects: NDArray[Any]) -> bool:
    """Whether questions of different subjects have the same identifier."""
    pairs = set(zip(ids.tolist(), subjects.tolist(), strict=True))
    return len(pairs) > len(set(ids.tolist()))


def name_of(value: Any) -> str:
    """An identifier as a text, whole numbers without a point; empty if it is none."""
    if isinstance(value, float) and np.isfinite(value):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def first_key(row: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """The first of these keys that an object has a value for."""
    return next((key for key in keys if row.get(key) is not None), None)


def filled(rows: Sequence[Sequence[float]], n_options: int = 0, value: float = NO_OPTION) -> NDArray[np.float64]:
    """Rows of different lengths as a matrix of at least ``n_options`` columns; an option of probability 0 is none."""
    out = np.full((len(rows), max(n_options, *map(len, rows))), value)
    for row, values in zip(out, rows, strict=True):
        row[: len(values)] = values
    return np.where(np.isneginf(out), NO_OPTION, out)


def check_possible(scores: Sequence[float], label: int | None) -> None:
    """Raise an error unless some option has a probability, and the correct one has."""
    if not np.isfinite(scores).any():
        raise FileError("has no option whose score is finite")
    if label is not None and np.isneginf(scores[label]):
        raise FileError(
            "the correct answer has the log-probability -inf: a label of probability 0 cannot be calibrated"
        )


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
        return int(text) if len(text) <= MAX_DIGITS else -1
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


def as_score(value: Any, key: str, *, may_be_zero: bool = False) -> float:
    """A finite number; −inf where it may be the logarithm of 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FileError(f"{key} is {str(value)[:40]!r}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = np.inf
    if not np.isfinite(number) and not (may_be_zero and value == -np.inf):
        raise FileError(f"{key} is {str(value)[:40]}, not a finite number")
    return number
