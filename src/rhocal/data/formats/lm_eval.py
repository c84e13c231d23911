"""Samples of lm-evaluation-harness (``samples_*.jsonl``): one question a line, with the log-likelihood of every option.

Only multiple-choice tasks have options. Options have no fixed meaning, and questions may have different numbers of them: rows
are filled up with ``NO_OPTION``, which no method gives any probability.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rhocal.data.formats.base import LogFacts
from rhocal.data.formats.lines import OutcomeError
from rhocal.data.formats.option_numbers import label_array
from rhocal.data.formats.questions import MAX_DIGITS, check_possible, filled, log_file, name_of
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from rhocal.data.formats.base import Names, StoredFile
    from rhocal.data.formats.lines import Lines

KEYS = {"doc_id", "arguments", "target"}
"""Keys that every line of such a file has, besides ``filtered_resps`` or ``resps``."""

NORMALIZED: dict[str, Callable[[str], int]] = {
    "logits_per_character": len,
    "logits_per_byte": lambda text: len(text.encode()),
}
"""Arrays of log-likelihoods divided by the length of the option; ``acc_norm`` counts characters."""

SCORES = {
    "logits": "log-likelihoods of the options, as in acc",
    "logits_per_character": "those divided by the characters of the option, as in acc_norm",
    "logits_per_byte": "those divided by its bytes",
    "logits_mutual_info": "those minus the log-likelihood without the question, as in acc_mutual_info",
}
"""The arrays of scores in words, with the accuracy of lm-evaluation-harness that is computed from them."""


def is_lm_eval(row: Mapping[str, Any]) -> bool:
    """Whether an object is a sample of lm-evaluation-harness."""
    return row.keys() >= KEYS and ("filtered_resps" in row or "resps" in row)


def lm_eval_file(lines: Lines, names: Names) -> StoredFile:
    """Samples as arrays: ``logits``, the same by length, ``labels``, ``doc_id``, and ``subject`` where questions have one."""
    filters = sorted({str(row.get("filter", "")) for row in lines.rows})
    if len(filters) > 1:
        raise FileError(
            f"{lines.path}: holds questions under several filters ({', '.join(filters)}); keep the lines of one"
        )
    samples = lines.read(_read_sample)
    rows = lines.rows
    n_options = 0 if names.classes is None else len(names.classes)
    arrays: dict[str, Any] = {"logits": filled([sample.scores for sample in samples], n_options)}
    arrays["labels"] = label_array([sample.label for sample in samples], names.classes)
    if all(sample.unconditional for sample in samples):
        gains = [list(np.subtract(sample.scores, sample.unconditional)) for sample in samples]
        arrays["logits_mutual_info"] = filled(gains, n_options)
    elif any(sample.unconditional for sample in samples):
        raise FileError(f"{lines.path}: some questions have log-likelihoods for acc_mutual_info, others have not")
    if all(len(sample.options) == len(sample.scores) for sample in samples):
        for name, length in NORMALIZED.items():
            divided = [
                [value / max(length(text), 1) for value, text in zip(sample.scores, sample.options, strict=True)]
                for sample in samples
            ]
            arrays[name] = filled(divided, n_options)
    arrays["doc_id"] = np.array([str(row["doc_id"]) for row in rows])
    known = {name: text for name, text in SCORES.items() if name in arrays}
    facts = LogFacts("samples of lm-evaluation-harness", known, dict.fromkeys(known, "logits"), holds_options=True)
    docs = [{"doc_id": row["doc_id"]} | (row["doc"] if isinstance(row.get("doc"), dict) else {}) for row in rows]
    return log_file(lines, arrays | {"question_id": _question_ids(rows)}, facts, docs)


def _question_ids(rows: Sequence[Mapping[str, Any]]) -> NDArray[Any]:
    """``doc_id``; with a digest of the question where it stands for several, as in files of tasks that were put together."""
    ids = [name_of(row["doc_id"]) or str(row["doc_id"]) for row in rows]
    contents = [
        json.dumps(row["doc"] if row.get("doc") is not None else row["arguments"], sort_keys=True, default=str)
        for row in rows
    ]
    if len(set(zip(ids, contents, strict=True))) == len(set(ids)):
        return np.array(ids)
    digests = (hashlib.sha256(content.encode()).hexdigest()[:8] for content in contents)
    return np.array([f"{name}-{digest}" for name, digest in zip(ids, digests, strict=True)])


class Sample(NamedTuple):
    """A question."""

    scores: list[float]
    """The log-likelihood of every option."""
    label: int
    options: list[str]
    """Texts of the options."""
    unconditional: list[float]
    """Log-likelihoods of the options without the question, for ``acc_mutual_info``; usually empty."""


def _read_sample(row: Mapping[str, Any]) -> Sample:
    """The log-likelihoods of a question, its correct option, and the texts of its options."""
    if not is_lm_eval(row):
        raise FileError(f"lacks {', '.join(sorted(KEYS - row.keys())) or 'filtered_resps'}")
    where = f"doc_id {row['doc_id']}"
    scores, options = log_likelihoods(row, where), option_texts(row["arguments"])
    unconditional: list[float] = []
    if has_unconditional(row["arguments"]):
        middle = len(options) // 2
        if len(scores) != len(options):
            raise FileError(f"{where}: has {len(scores)} log-likelihoods for {len(options)} requests (acc_mutual_info)")
        scores, unconditional, options = scores[:middle], scores[middle:], options[:middle]
    if len(options) == len(scores) and len(set(options)) == 1:
        label = _column_by_accuracy(row, scores, where)
    else:
        label = target_column(row, len(scores), options, where)
        check_accuracy(row, scores, label, where)
        if row.get("acc") is None and row.get("acc_norm") in {0, 1} and len(options) == len(scores):
            divided = [value / max(len(text), 1) for value, text in zip(scores, options, strict=True)]
            check_accuracy({"acc": row["acc_norm"]}, divided, label, f"{where}, by acc_norm")
    check_possible(scores, label)
    if not np.isfinite(unconditional).all():
        raise FileError(f"{where}: holds a log-likelihood without the question that is not finite")
    return Sample(scores, label, options, unconditional)


def log_likelihoods(row: Mapping[str, Any], where: str) -> list[float]:
    """The log-likelihood of every option of a question."""
    responses = row["filtered_resps"] if "filtered_resps" in row else row["resps"]
    if any(isinstance(argument, dict) for request in _arguments(row["arguments"]) for argument in request):
        raise FileError(
            f"{where}: holds a generated answer, not the log-likelihoods of options; only samples of multiple-choice tasks can "
            "be calibrated"
        )
    values = []
    for entry in responses if isinstance(responses, list) else ():
        first = entry
        while isinstance(first, list) and first:  # [value, is greedy], inside a list for each repetition
            first = first[0]
        try:
            values.append(float(first))
        except OverflowError:
            values.append(np.inf)
        except (TypeError, ValueError):
            raise FileError(
                f"{where}: holds {str(first)[:40]!r}, not the log-likelihoods of options; only samples of multiple-choice "
                "tasks can be calibrated"
            ) from None
    if len(values) < 2:
        raise FileError(f"{where}: has {len(values)} log-likelihoods; a question needs at least 2 options")
    if not (np.isfinite(values) | np.isneginf(values)).all():
        raise FileError(f"{where}: holds a log-likelihood that is not finite")
    return values


def option_texts(arguments: Any) -> list[str]:
    """The text of every option, without the space before it: the second argument of each request."""
    return [text.strip() for _, text in _requests(arguments)]


def has_unconditional(arguments: Any) -> bool:
    """Whether the second half of the requests are the options again without the question, as ``acc_mutual_info`` asks for."""
    requests = _requests(arguments)
    first, second = requests[: len(requests) // 2], requests[len(requests) // 2 :]
    are_same = [text.strip() for _, text in first] == [text.strip() for _, text in second]
    return are_same and not any(context for context, _ in second) and any(context for context, _ in first)


def _requests(arguments: Any) -> list[tuple[Any, str]]:
    """Context and continuation of each request that has a continuation."""
    return [(pair[0], pair[1]) for pair in _arguments(arguments) if len(pair) > 1 and isinstance(pair[1], str)]


def _arguments(arguments: Any) -> list[list[Any]]:
    """The arguments of each request."""
    requests = list(arguments.values()) if isinstance(arguments, dict) else arguments
    pairs = [
        list(one.values()) if isinstance(one, dict) else one for one in (requests if isinstance(requests, list) else ())
    ]
    return [pair for pair in pairs if isinstance(pair, list)]


def target_column(row: Mapping[str, Any], n_options: int, options: Sequence[str], where: str) -> int:
    """The place of the correct option: a number, a letter, or its text."""
    target = row["target"]
    if isinstance(target, list) and len(target) == 1:
        target = target[0]
    text = str(target).strip()
    column = -1
    if (isinstance(target, int) and not isinstance(target, bool)) or text.isdecimal():
        column = int(text) if len(text) <= MAX_DIGITS else -1
    elif text in options:
        column = options.index(text)
    elif len(text) == 1 and text.isalpha():
        column = ord(text.upper()) - ord("A")
    if not 0 <= column < n_options:
        raise FileError(
            f"{where}: target is {repr(target)[:40]}, which is none of the {n_options} options (numbers from 0)"
        )
    return column


def _column_by_accuracy(row: Mapping[str, Any], scores: Sequence[float], where: str) -> int:
    """The correct one of two contexts with the same continuation (as winogrande): the target is the text of both."""
    acc, best = row.get("acc"), int(np.argmax(scores))
    if len(scores) != 2 or not isinstance(acc, int | float) or acc not in {0, 1}:
        raise FileError(
            f"{where}: all {len(scores)} options have the same text, so that the target names none; of two options, acc tells "
            "which is correct"
        )
    return best if acc else 1 - best


def check_accuracy(row: Mapping[str, Any], scores: Sequence[float], label: int, where: str) -> None:
    """Raise an error where the file's own accuracy says that the target was read wrongly."""
    best = int(np.argmax(scores))
    if not isinstance(row.get("acc"), int | float):
        return
    if row["acc"] not in {0, 1}:
        raise OutcomeError(
            f"{where}: acc is {row['acc']:g}, which a question with several correct options has (as truthfulqa_mc2); only "
            "tasks with one correct option can be calibrated"
        )
    if (best == label) == bool(row["acc"]):
        return
    if np.sum(np.asarray(scores) == max(scores)) == 1:  # not a tie
        raise OutcomeError(
            f"{where}: acc is {row['acc']:g}, but the option with the largest log-likelihood is {best} and the target is "
            f"{label}"
        )


def read_lm_eval(path: str | PathLike[str]) -> dict[str, NDArray[Any]]:
    """The arrays of a ``samples_*.jsonl`` file of lm-evaluation-harness.

    Parameters
    ----------
    path
        A file that ``lm_eval --log_samples`` wrote for a multiple-choice task.

    Returns
    -------
    dict
        ``logits``: the log-likelihood of every option, a row a question (``acc``). ``logits_per_character`` (``acc_norm``) and
        ``logits_per_byte``: the same divided by the length of the option. ``labels``: the correct option. ``doc_id``, and
        ``subject`` where questions have one.

    Examples
    --------
    >>> arrays = rhocal.read_lm_eval("samples_hellaswag.jsonl")  # doctest: +SKIP
    >>> cal = rhocal.AutoCalibrator(exchangeable=True).fit(arrays["logits"], arrays["labels"])  # doctest: +SKIP
    """
    from rhocal.data.formats import open_file  # noqa: PLC0415 - the table of formats knows this module
    from rhocal.data.formats.base import Names  # noqa: PLC0415

    file = open_file(Path(path), Names())
    if "doc_id" not in file.arrays or "logits" not in file.arrays:
        raise FileError(f"{path}: holds no samples of lm-evaluation-harness")
    return {name: np.asarray(array[:]) for name, array in file.arrays.items()}
