"""Samples of lm-evaluation-harness (``samples_*.jsonl``): one question a line, with the log-likelihood of every option.

Only multiple-choice tasks have options. Options have no fixed meaning, and questions may have different numbers of them: rows
are filled up with ``NO_OPTION``, which no method gives any probability.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.base import StoredFile
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from numpy.typing import NDArray

NO_OPTION = -1e9
"""The score where a question has no such option."""

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
}
"""The arrays of scores in words, with the accuracy of lm-evaluation-harness that is computed from them."""

SUBJECTS = ("subject", "category", "subtask", "task")
"""Keys of a question by which results are grouped."""


def is_lm_eval(row: Mapping[str, Any]) -> bool:
    """Whether an object is a sample of lm-evaluation-harness."""
    return row.keys() >= KEYS and ("filtered_resps" in row or "resps" in row)


def lm_eval_file(path: Path, rows: Sequence[Mapping[str, Any]]) -> StoredFile:
    """Samples as arrays: ``logits``, the same by length, ``labels``, ``doc_id``, and ``subject`` where questions have one."""
    filters = sorted({str(row.get("filter", "")) for row in rows})
    if len(filters) > 1:
        raise FileError(f"{path}: holds questions under several filters ({', '.join(filters)}); keep the lines of one")
    scores, labels, lengths = [], [], []
    for number, row in enumerate(rows, start=1):
        if not is_lm_eval(row):
            raise FileError(f"{path}: line {number} lacks {', '.join(sorted(KEYS - row.keys())) or 'filtered_resps'}")
        where = f"{path}: line {number} (doc_id {row['doc_id']})"
        scores.append(log_likelihoods(row, where))
        options = option_texts(row["arguments"])
        labels.append(target_column(row, len(scores[-1]), options, where))
        lengths.append([{name: length(text) for name, length in NORMALIZED.items()} for text in options])
    arrays: dict[str, Any] = {"logits": filled(scores), "labels": np.array(labels)}
    check_accuracy(path, rows, arrays)
    if all(len(texts) == len(values) for texts, values in zip(lengths, scores, strict=True)):
        for name in NORMALIZED:
            divided = [
                [value / max(text[name], 1) for value, text in zip(values, texts, strict=True)]
                for values, texts in zip(scores, lengths, strict=True)
            ]
            arrays[name] = filled(divided)
    arrays["doc_id"] = np.array([str(row["doc_id"]) for row in rows])
    docs: list[dict[str, Any]] = [row["doc"] if isinstance(row.get("doc"), dict) else {} for row in rows]
    subject = next((key for key in SUBJECTS if all(doc.get(key) for doc in docs)), None)
    if subject is not None:
        arrays["subject"] = np.array([str(doc[subject]) for doc in docs])
    return StoredFile(path, arrays, has_blocks=False, holds_options=True)


def log_likelihoods(row: Mapping[str, Any], where: str) -> list[float]:
    """The log-likelihood of every option of a question."""
    found = row["filtered_resps"] if "filtered_resps" in row else row["resps"]
    values = []
    for entry in found if isinstance(found, list) else ():
        first = entry
        while isinstance(first, list) and first:  # [value, is greedy], inside a list for each repetition
            first = first[0]
        try:
            values.append(float(first))
        except (TypeError, ValueError):
            raise FileError(
                f"{where}: holds {str(first)[:40]!r}, not the log-likelihoods of options; only samples of multiple-choice "
                "tasks can be calibrated"
            ) from None
    if len(values) < 2:
        raise FileError(f"{where}: has {len(values)} log-likelihoods; a question needs at least 2 options")
    if not np.isfinite(values).all():
        raise FileError(f"{where}: holds a log-likelihood that is not finite")
    return values


def option_texts(arguments: Any) -> list[str]:
    """The text of every option, without the space before it: the second argument of each request."""
    requests = list(arguments.values()) if isinstance(arguments, dict) else arguments
    texts = []
    for request in requests if isinstance(requests, list) else ():
        pair = list(request.values()) if isinstance(request, dict) else request
        if isinstance(pair, list) and len(pair) > 1 and isinstance(pair[1], str):
            texts.append(pair[1].strip())
    return texts


def target_column(row: Mapping[str, Any], n_options: int, options: Sequence[str], where: str) -> int:
    """The place of the correct option: a number, a letter, or its text."""
    target = row["target"]
    if isinstance(target, list) and len(target) == 1:
        target = target[0]
    text = str(target).strip()
    column = -1
    if isinstance(target, int) or text.isdecimal():
        column = int(text)
    elif text in options:
        column = options.index(text)
    elif len(text) == 1 and text.isalpha():
        column = ord(text.upper()) - ord("A")
    if not 0 <= column < n_options:
        raise FileError(f"{where}: target is {target!r}, which is none of the {n_options} options (numbers from 0)")
    return column


def check_accuracy(path: Path, rows: Sequence[Mapping[str, Any]], arrays: Mapping[str, Any]) -> None:
    """Raise an error where the file's own accuracy says that the targets were read wrongly."""
    logits, labels = arrays["logits"], arrays["labels"]
    for number, (row, scores, label) in enumerate(zip(rows, logits, labels, strict=True), start=1):
        if isinstance(row.get("acc"), int | float) and (scores.argmax() == label) != bool(row["acc"]):
            if np.sum(scores == scores.max()) > 1:
                continue  # a tie
            raise FileError(
                f"{path}: line {number} (doc_id {row['doc_id']}): acc is {row['acc']:g}, but the option with the largest "
                f"log-likelihood is {scores.argmax()} and the target is {label}"
            )


def filled(rows: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Rows of different lengths as a matrix."""
    out = np.full((len(rows), max(map(len, rows))), NO_OPTION)
    for row, values in zip(out, rows, strict=True):
        row[: len(values)] = values
    return out


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
