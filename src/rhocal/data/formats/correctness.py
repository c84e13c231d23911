"""Answers with a score and whether they are right: judges, reward models, confidence in words.

``{"question_id": "q1", "score": 1.3, "correct": true}``. The key of the score states what it is: ``confidence`` and
``probability`` are probabilities that the answer is right, ``logprob`` their logarithm, ``score`` any number.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.base import LogFacts
from rhocal.data.formats.copies import written_values
from rhocal.data.formats.questions import CORRECT, QUESTION_IDS, as_score, first_key, log_file, right_or_wrong
from rhocal.data.language_models.verbal_confidence import verbal_confidence
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rhocal.data.formats.base import Names, StoredFile
    from rhocal.data.formats.lines import Lines, Row
    from rhocal.data.spec import Kind

SCORES: dict[str, Kind | None] = {
    "score": None, "reward": "logits", "logit": "logits", "confidence": "probs", "probability": "probs", "prob": "probs",
    "p_correct": "probs", "p_true": "probs", "logprob": "log_probs", "log_prob": "log_probs",
}  # fmt: skip
"""Keys of the score of an answer in order of preference, and what it is; None: not stated."""

MAX_NUMBER = 1e300
"""Larger whole numbers are no floats."""

PLAIN_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?")

IN_WORDS: dict[Kind | None, str] = {
    None: "scores of answers",
    "logits": "scores of answers",
    "probs": "probabilities that the answer is right",
    "log_probs": "log-probabilities of answers",
}


def is_answer(row: Mapping[str, Any]) -> bool:
    """Whether an object is an answer with a score."""
    return first_key(row, CORRECT) is not None and first_key(row, tuple(SCORES)) is not None and "labels" not in row


def is_unlabeled_answer(row: Mapping[str, Any], names: Names) -> bool:
    """Whether an object is an answer that a calibrator of answers, whose classes are 0 and 1, is applied to."""
    has_score = first_key(row, tuple(SCORES)) is not None
    return names.classes == ("0", "1") and has_score and not {names.logits, names.labels} & row.keys()


def correctness_file(lines: Lines, names: Names) -> StoredFile:
    """Answers as arrays: ``logits`` (the score), ``labels`` (1: right), and every other column of numbers or texts."""
    has_labels = any(first_key(row, CORRECT) is not None for row in lines.rows)
    keys = [key for key in SCORES if key in lines.rows[0]]
    if names.logits in lines.rows[0] and names.logits not in keys:
        keys.insert(0, names.logits)
    if not keys:
        raise FileError(f"{lines.path}: line {lines.numbers[0]} has no score; need one of the keys {', '.join(SCORES)}")
    for key in (key for key in keys if SCORES.get(key) == "probs"):
        check_scale(lines, key, (row.get(key) for row in lines.rows))
    read = lines.read(lambda row: _read(row, keys, has_labels=has_labels))
    arrays: dict[str, Any] = {key: np.array([scores[key] for scores, _ in read]) for key in keys}
    arrays["logits"] = arrays[keys[0]]
    if has_labels:
        arrays[names.labels] = np.array([label for _, label in read])
    used = {*keys, *CORRECT, *QUESTION_IDS}  # identifiers are texts: large numbers are not the same as floats
    others = {name: values for name, values in other_columns(lines.rows).items() if name not in used | arrays.keys()}
    arrays |= others
    kinds: dict[str, Kind] = {key: kind for key in keys if (kind := SCORES.get(key)) is not None}
    if keys[0] in kinds:
        kinds["logits"] = kinds[keys[0]]
    scores = {"logits": f"{IN_WORDS[SCORES.get(keys[0])]} ({keys[0]})"}
    scores |= {key: IN_WORDS[SCORES.get(key)] for key in keys[1:]}
    facts = LogFacts("answers that are right or wrong", scores, kinds, positive=1)
    written = {name: partial(written_values, [row[name] for row in lines.rows]) for name in others}
    return replace(log_file(lines, arrays, facts, lines.rows, names.groups), written=written)


def check_scale(lines: Lines, key: str, values: Iterable[Any]) -> None:
    """Raise an error where confidences are 0, 1 or numbers above 1: of a scale up to 100, 1 would be read as certain."""
    numbers = [(_plain(value), number) for value, number in zip(values, lines.numbers, strict=True)]
    above = next(((value, number) for value, number in numbers if value > 1), None)
    if above is None or any(0 < value < 1 for value, _ in numbers) or not any(value in {0, 1} for value, _ in numbers):
        return
    raise FileError(
        f"{lines.path}: {lines.unit} {above[1]}: {key} is {above[0]:g}, and others are 0 or 1, which may be of the same scale; "
        'write numbers from 0 to 1, texts with a percentage ("85 %"), or call a number on another scale score'
    )


def _plain(value: Any) -> float:
    """A number, or a text that is nothing else; not a number for everything else."""
    if isinstance(value, str):
        return float(value) if PLAIN_NUMBER.fullmatch(value.strip().rstrip(".")) else np.nan
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_NUMBER
    return float(value) if is_number else np.nan


def _read(row: Row, keys: list[str], *, has_labels: bool) -> tuple[dict[str, float], int]:
    """The scores of an answer, and whether it is right; 0 where no line states it."""
    scores = {key: answer_score(row.get(key), key) for key in keys}
    if not has_labels:
        return scores, 0
    key = first_key(row, CORRECT)
    if key is None:
        raise FileError(f"does not state whether the answer is right; need one of the keys {', '.join(CORRECT)}")
    return scores, right_or_wrong(row[key], key)


def answer_score(value: Any, key: str) -> float:
    """The score of an answer; a confidence may be in words."""
    if value is None:
        raise FileError(f"has no {key}, which the first line has")
    kind = SCORES.get(key)
    if kind == "probs":
        try:
            return verbal_confidence(value)
        except InputError as error:
            raise FileError(error.message) from error
    number = as_score(value, key)
    if kind == "log_probs" and number > 0:
        raise FileError(f"{key} is {number:g}; a log-probability is at most 0")
    return number


def other_columns(rows: list[Row]) -> dict[str, Any]:
    """Keys that hold a number in every row, or a text in every row: features, subjects, identifiers."""
    columns: dict[str, Any] = {}
    for name in rows[0]:
        values = [row.get(name) for row in rows]
        is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        if is_number or all(isinstance(value, str) for value in values):
            columns[name] = np.array(values)
    return columns
