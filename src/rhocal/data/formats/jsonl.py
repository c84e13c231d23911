"""JSON Lines: one object a sample. Files are read whole."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.completions import completions_file, is_completion
from rhocal.data.formats.copies import json_values, written_values
from rhocal.data.formats.correctness import correctness_file, is_answer, is_unlabeled_answer
from rhocal.data.formats.inspect_log import inspect_file, is_inspect_log
from rhocal.data.formats.lines import Lines, Row, read_lines
from rhocal.data.formats.lm_eval import is_lm_eval, lm_eval_file
from rhocal.data.formats.options import is_question, options_file
from rhocal.data.formats.tables import columns_of, table_file
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from rhocal.data.formats.base import Arrays, Names, StoredFile


LOGS: tuple[tuple[Callable[[Mapping[str, Any]], bool], Callable[[Lines, Names], StoredFile]], ...] = (
    (is_lm_eval, lm_eval_file),
    (is_completion, completions_file),
    (is_question, options_file),
    (is_answer, correctness_file),
)
"""Logs of language models: how the first object of a file is recognized, and what reads it."""


N_RECOGNIZED = 100
"""Lines by which a log is recognized: those with the keys of the first, which may lack values."""


def open_jsonl(path: Path, names: Names) -> StoredFile:
    """Keys are columns; logits are a list, an object with a key for each class, or one key a class."""
    return jsonl_file(path, path.read_bytes(), names)


def jsonl_file(path: Path, content: bytes, names: Names) -> StoredFile:
    """The same for the bytes of a file."""
    return read_lines(lines_file, Lines.from_bytes(path, content, names), names)


def open_json(path: Path, names: Names) -> StoredFile:
    """A log of Inspect, a list of objects, or a single response."""
    return json_file(path, path.read_bytes(), names)


def json_file(path: Path, content: bytes, names: Names) -> StoredFile:
    """The same for the bytes of a file."""
    try:
        document = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        hint = "; one object a line is JSON Lines (.jsonl)" if content.count(b"\n") else ""
        raise FileError(f"{path}: is not JSON: {error}{hint}") from error
    if is_inspect_log(document):
        samples = Lines.from_rows(path, document["samples"] or [], names, "sample")
        return read_lines(inspect_file, samples, names)
    if isinstance(document, dict):
        document = [document]
    if not isinstance(document, list):
        raise FileError(f"{path}: holds {type(document).__name__}; need a log of Inspect, or a list of objects")
    return read_lines(lines_file, Lines.from_rows(path, document, names, "object"), names)


def is_log(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a log of a language model."""
    return is_inspect_log(document) or any(is_known(document) for is_known, _ in LOGS)


def lines_file(lines: Lines, names: Names) -> StoredFile:
    """A log of a language model, or a table with a row for each object."""
    like_first = [row for row in lines.rows[:N_RECOGNIZED] if row.keys() == lines.rows[0].keys()]
    for is_log, read in LOGS:
        if any(is_log(row) for row in like_first):
            return read(lines, names)
    if is_unlabeled_answer(lines.rows[0], names):
        return correctness_file(lines, names)
    for row in lines.rows:
        if isinstance(row.get(names.logits), dict):
            row |= {f"{names.logits}_{name}": value for name, value in row.pop(names.logits).items()}
    first, number = lines.rows[0], lines.numbers[0]

    def check(row: Row) -> None:
        if row.keys() != first.keys():
            raise FileError(
                f"has other keys than {lines.unit} {number}: {', '.join(sorted(row.keys() ^ first.keys()))}"
            )

    lines.read(check)
    values = {name: [row[name] for row in lines.rows] for name in first}
    columns = {name: _values(entries) for name, entries in values.items()}
    table = table_file(lines.path, columns, names, lambda row: f"{lines.unit} {lines.numbers[row]}")
    written = {name: partial(written_values, values[name]) for name in table.arrays if name in columns}
    return replace(table, bad_lines=tuple(lines.bad), written=written)


def _values(values: list[Any]) -> NDArray[Any]:
    if all(isinstance(value, list) for value in values) and len({len(value) for value in values}) > 1:
        ragged = np.empty(len(values), object)
        ragged[:] = values
        return ragged
    if any(value is None or isinstance(value, dict) for value in values):
        return np.array(["" if value is None else str(value) for value in values])
    return np.array(values)


def write_jsonl(path: Path, arrays: Arrays) -> None:
    """Write one object a sample; rows of a matrix are lists, or one key a class where these have names; copied lists stay."""
    columns = columns_of(arrays, has_lists=True) if "classes" in arrays else arrays
    with path.open("w", encoding="utf-8") as file:
        for row in zip(*map(json_values, columns.values()), strict=True):
            file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")
