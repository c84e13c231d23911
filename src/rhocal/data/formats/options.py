"""JSON Lines of questions with options: one question a line, with a score of every option.

``{"question_id": "q1", "options": ["red", "blue"], "logprobs": [-1.2, -0.4], "answer": "blue"}``. Scores may also stand in the
options (``{"options": {"A": -1.2, "B": -0.4}}``, or a list of objects). Questions may have different numbers of options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rhocal.data.formats.base import LogFacts
from rhocal.data.formats.option_numbers import Number, label_array, settle_numbers
from rhocal.data.formats.questions import (
    LABELS,
    NO_OPTION,
    as_score,
    check_possible,
    filled,
    first_key,
    log_file,
    option_column,
)
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.data.formats.base import Names, StoredFile
    from rhocal.data.formats.lines import Lines
    from rhocal.data.spec import Kind

OPTIONS = ("options", "choices")
"""Keys of the options of a question."""

SCORE_KINDS: dict[str, Kind | None] = {
    "logits": "logits", "logprobs": "logits", "log_probs": "logits", "loglikelihoods": "logits",
    "log_likelihoods": "logits", "probs": "probs", "probabilities": "probs", "scores": None,
}  # fmt: skip
"""Keys of the scores of all options, and what they are. Log-probabilities of options need not sum to 1: they are logits."""

OPTION_SCORE_KINDS: dict[str, Kind | None] = {
    "logit": "logits", "logprob": "logits", "log_prob": "logits", "loglikelihood": "logits", "log_likelihood": "logits",
    "prob": "probs", "probability": "probs", "score": None,
}  # fmt: skip
"""The same of an option that is an object."""

TEXTS = ("text", "option", "label", "name", "key")
"""Keys of the text of such an option."""

SUM_TOLERANCE = 1e-3
"""How far the numbers of a line may be from a sum of 1 to look like probabilities."""


@dataclass(frozen=True)
class Question:
    """The options of a line."""

    scores: list[float]
    names: list[str]
    """Keys or texts of the options; empty if they only have numbers."""
    key: str
    """What the line calls the scores."""
    kind: Kind | None
    label: int | None
    number: Number | None = None
    """The correct answer, where it is a number."""


def is_question(row: Mapping[str, Any]) -> bool:
    """Whether an object is a question with options."""
    has_scores = any(isinstance(row.get(key), list | dict) for key in SCORE_KINDS)
    options = row.get(first_key(row, OPTIONS) or "")
    if isinstance(options, dict):
        return bool(options)
    if isinstance(options, list) and options:
        if isinstance(options[0], dict):
            return first_key(options[0], tuple(OPTION_SCORE_KINDS)) is not None or has_scores
        return has_scores or not isinstance(options[0], str)
    return has_scores and "question_id" in row


def options_file(lines: Lines, names: Names) -> StoredFile:
    """Questions as arrays: ``logits``, ``labels`` where all lines have one, ``question_id``, ``subject``."""
    label_keys = (names.labels, *LABELS)
    has_labels = any(first_key(row, label_keys) is not None for row in lines.rows)
    questions = lines.read(lambda row: read_question(row, names, label_keys if has_labels else None))
    first = questions[0]
    for question in questions:
        if (question.key, question.kind) != (first.key, first.kind):
            raise FileError(
                f"{lines.path}: scores of options are called {first.key} and {question.key}; keep one of them"
            )
    if first.kind is None and all(_sums_to_one(question.scores) for question in questions):
        raise FileError(
            f"{lines.path}: the numbers of the options ({first.key}) sum to 1 in every line, as probabilities do, and nothing "
            "states what they are; call them probs, or logits"
        )
    n_options = 0 if names.classes is None else len(names.classes)
    value = 0.0 if first.kind == "probs" else NO_OPTION
    arrays: dict[str, Any] = {"logits": filled([question.scores for question in questions], n_options, value)}
    if has_labels:
        labels = [question.label for question in questions if question.label is not None]
        settled = settle_numbers(lines, labels, [question.number for question in questions])
        arrays[names.labels] = label_array(settled, names.classes)
    what = "probabilities of the options" if first.kind == "probs" else f"scores of the options ({first.key})"
    facts = LogFacts(
        "questions with options",
        {"logits": what},
        {} if first.kind is None else {"logits": first.kind},
        holds_options=True,
    )
    return log_file(lines, arrays, facts, lines.rows, names.groups)


def read_question(row: Mapping[str, Any], names: Names, label_keys: tuple[str, ...] | None) -> Question:
    """The options of a line, with the correct one unless no line has it."""
    scores, texts, key, kind = _option_scores(row, names)
    if len(scores) < 2:
        raise FileError(f"has {len(scores)} options; a question needs at least 2")
    if kind == "probs" and not (min(scores) >= 0 and _sums_to_one(scores)):
        raise FileError(
            f"{key} must be at least 0 and sum to 1 (within {SUM_TOLERANCE:g}); they sum to {sum(scores):g}"
        )
    if label_keys is None:
        check_possible(scores, None)
        return Question(scores, texts, key, kind, None)
    label_key = first_key(row, label_keys)
    if label_key is None:
        raise FileError(f"has no correct answer; need one of the keys {', '.join(dict.fromkeys(label_keys))}")
    label = option_column(row[label_key], len(scores), texts)
    check_possible(scores, label)
    return Question(scores, texts, key, kind, label, Number.from_target(row[label_key], texts, len(scores)))


def _option_scores(row: Mapping[str, Any], names: Names) -> tuple[list[float], list[str], str, Kind | None]:
    """The scores of a line, the names of their options, what it calls the scores, and what they are."""
    option_key = first_key(row, OPTIONS)
    options = row.get(option_key) if option_key else None
    keys = (names.logits, *SCORE_KINDS)
    key = next((key for key in keys if isinstance(row.get(key), list | dict)), None)
    if key is not None:
        return *_beside(row[key], options, key), key, SCORE_KINDS.get(key)
    if isinstance(options, dict):
        return (
            [as_score(value, f"option {name!r}", may_be_zero=True) for name, value in options.items()],
            list(options),
            option_key or "",
            None,
        )
    if isinstance(options, list) and options and all(isinstance(option, dict) for option in options):
        return _inside(options)
    if isinstance(options, list) and options and not any(isinstance(option, str) for option in options):
        return (
            [as_score(value, f"option {k}", may_be_zero=True) for k, value in enumerate(options)],
            [],
            option_key or "",
            None,
        )
    raise FileError(f"has no scores of options; need a list under one of the keys {', '.join(SCORE_KINDS)}")


def _beside(scores: Any, options: Any, key: str) -> tuple[list[float], list[str]]:
    """Scores that stand beside the options, by name or in their order."""
    may_be_zero = SCORE_KINDS.get(key) != "probs"
    texts = [str(option) for option in options] if isinstance(options, list) and not _are_objects(options) else []
    if isinstance(options, dict):
        texts = list(options)
    if _are_objects(options):
        texts = [str(option.get(first_key(option, TEXTS) or "", "")) for option in options]
    if isinstance(scores, dict):
        if texts and set(texts) != set(scores):
            raise FileError(f"{key} names the options {', '.join(scores)}, but the options are {', '.join(texts)}")
        texts = texts or list(scores)
        return [as_score(scores[name], f"{key} of {name!r}", may_be_zero=may_be_zero) for name in texts], texts
    if texts and len(texts) != len(scores):
        raise FileError(f"has {len(texts)} options and {len(scores)} {key}")
    return [as_score(value, f"{key}[{k}]", may_be_zero=may_be_zero) for k, value in enumerate(scores)], texts


def _are_objects(options: Any) -> bool:
    return isinstance(options, list) and bool(options) and all(isinstance(option, dict) for option in options)


def _inside(options: list[dict[str, Any]]) -> tuple[list[float], list[str], str, Kind | None]:
    """Scores that are a key of every option."""
    key = first_key(options[0], tuple(OPTION_SCORE_KINDS))
    if key is None:
        raise FileError(f"options have no score; need one of the keys {', '.join(OPTION_SCORE_KINDS)}")
    scores = [
        as_score(option.get(key), f"{key} of option {k}", may_be_zero=OPTION_SCORE_KINDS[key] != "probs")
        for k, option in enumerate(options)
    ]
    text = first_key(options[0], TEXTS)
    texts = [] if text is None else [str(option.get(text, "")) for option in options]
    return scores, texts, key, OPTION_SCORE_KINDS[key]


def _sums_to_one(scores: list[float]) -> bool:
    return min(scores) >= 0 and abs(sum(scores) - 1) <= SUM_TOLERANCE
