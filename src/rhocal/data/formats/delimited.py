"""CSV and TSV: a row of column names, then one row a sample. Files are read whole, because their rows have no known place."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.copies import cells, written_texts
from rhocal.data.formats.correctness import correctness_file, is_answer, is_unlabeled_answer
from rhocal.data.formats.lines import Lines, read_lines
from rhocal.data.formats.questions import QUESTION_IDS, SUBJECTS, name_of
from rhocal.data.formats.tables import columns_of, is_number, table_file
from rhocal.data.spreadsheet_cells import cell_text, text_cell
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from rhocal.data.formats.base import Arrays, Names, StoredFile

WHOLE_WITH_POINT = re.compile(r"^([-+]?\d+)\.0*$")
DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")


def open_csv(path: Path, names: Names) -> StoredFile:
    """Columns separated by commas, semicolons or tabs, whichever the first row has."""
    return csv_file(path, path.read_bytes(), names)


def csv_file(path: Path, content: bytes, names: Names) -> StoredFile:
    """The same for the bytes of a file."""
    try:
        text = content.decode("utf-8-sig")
        separator = _separator(path, text.partition("\n")[0])
        rows, lines = _rows(text, separator)
    except (csv.Error, UnicodeDecodeError) as error:
        raise FileError(f"{path}: not a readable CSV file: {error}") from error
    if len(rows) < 2:
        raise FileError(f"{path}: needs a row of column names and at least one row of numbers")
    header, *body = rows
    header = [cell_text(name.strip()) for name in header]
    if not _are_names(header, names):
        raise FileError(
            f"{path}: the first row must hold column names (such as logit_0, …, {names.labels}), and holds numbers; if "
            "these are names of classes, the column of the labels must be among them",
            argument="labels_name",
            remedy="name it",
        )
    for line, row in zip(lines[1:], body, strict=True):
        if len(row) != len(header):
            raise FileError(f"{path}: line {line} has {len(row)} fields, the first line has {len(header)}")
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise FileError(f"{path}: column {twice!r} stands there more than once")
    columns = {
        name: column_values([_point(cell_text(value), separator) for value in values])
        for name, values in zip(header, zip(*body, strict=True), strict=True)
    }
    known = {*QUESTION_IDS, *SUBJECTS, names.groups} - {names.logits, names.labels, names.weights}
    names_of_rows = {
        name: identifiers(_texts(body, k), columns[name]) for k, name in enumerate(header) if name in known
    }
    first = {name: values[0] for name, values in columns.items()}
    is_stated = names.columns is not None or names.labels in columns or names.logits in columns
    if not is_stated and (is_answer(first) or is_unlabeled_answer(first, names)):
        columns |= names_of_rows
        entries = zip(*(values.tolist() for values in columns.values()), strict=True)
        answers = (dict(zip(columns, row, strict=True)) for row in entries)
        known_rows = Lines.from_rows(path, answers, names, "row")
        file = read_lines(correctness_file, known_rows, names)
        return replace(
            file, written=_written(header, [body[number - 1] for number in known_rows.numbers], file.written)
        )
    file = table_file(path, columns, names, lambda row: f"line {lines[row + 1]}")
    beside = {name: values for name, values in names_of_rows.items() if name in file.arrays}
    texts = [name for name in file.arrays if name in columns]
    return replace(file, arrays={**file.arrays, **beside}, written=_written(header, body, texts))


def _rows(text: str, separator: str) -> tuple[list[list[str]], list[int]]:
    """The rows that are not empty, and the line that each of them begins on."""
    rows, lines, n_lines = [], [], 0
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    for row in reader:
        if row:
            rows.append(row)
            lines.append(n_lines + 1)
        n_lines = reader.line_num
    return rows, lines


def _texts(body: Sequence[Sequence[str]], column: int) -> list[str]:
    return [cell_text(row[column]) for row in body]


def _written(
    header: Sequence[str], body: Sequence[Sequence[str]], names: Iterable[str]
) -> dict[str, Callable[[], NDArray[Any]]]:
    """Columns as they are copied to another file; their texts are parsed when they are."""
    return {name: partial(_written_column, body, header.index(name)) for name in names}


def _written_column(body: Sequence[Sequence[str]], column: int) -> NDArray[Any]:
    return written_texts(_texts(body, column))


def identifiers(texts: Sequence[str], values: NDArray[Any]) -> NDArray[Any]:
    """Names of questions, subjects or groups: numbers only if these are written as the texts are, so that 01 stays 01.

    A whole number with a point (1.0) is the number, as where tables have missing values.
    """
    if values.dtype.kind not in "iuf":
        return values
    stripped = [WHOLE_WITH_POINT.sub(r"\1", text.strip()) for text in texts]
    return values if stripped == [name_of(value) for value in values.tolist()] else np.array(stripped)


def _are_names(header: Sequence[str], names: Names) -> bool:
    """Whether the first row holds names and no data: those that the caller states, or none that is a fraction."""
    present = set(header)
    is_stated = bool({*names.beside, names.logits} & present) or (
        names.columns is not None and present >= {*names.columns}
    )
    if is_stated or header == [str(k) for k in range(len(header))]:
        return True
    return not all(map(is_number, header)) and all(not is_number(name) or name.isdecimal() for name in header)


def _separator(path: Path, header: str) -> str:
    if path.suffix == ".tsv":
        return "\t"
    return max(",;\t", key=header.count)


def _point(value: str, separator: str) -> str:
    """A number with a decimal comma as one with a point; with commas as separators there is none."""
    return value.replace(",", ".") if separator != "," and DECIMAL_COMMA.fullmatch(value) else value


def column_values(texts: Sequence[str]) -> NDArray[Any]:
    """Texts as whole numbers, as numbers, as lists, or as they are; "3.0" is a whole number if all are."""
    if any("_" in text for text in texts):  # 1_0 is a number in Python only
        return _lists(texts)
    try:
        numbers = np.asarray(texts, np.float64)
    except ValueError:
        return _lists(texts)
    if np.isfinite(numbers).all() and (numbers == np.round(numbers)).all() and np.abs(numbers).max() < 2**53:
        return numbers.astype(np.int64)
    return numbers


def _lists(texts: Sequence[str]) -> NDArray[Any]:
    if all(text.lstrip().startswith("[") for text in texts):
        try:
            lists = [json.loads(text) for text in texts]
        except ValueError:
            return np.asarray(texts)
        if len({len(values) for values in lists}) == 1:
            return np.asarray(lists)
        ragged = np.empty(len(lists), object)
        ragged[:] = lists
        return ragged
    return np.asarray(texts)


def write_tsv(path: Path, arrays: Arrays) -> None:
    """Write as ``write_csv`` with tabs."""
    write_csv(path, arrays, "\t")


def write_csv(path: Path, arrays: Arrays, separator: str = ",") -> None:
    """Write one column a class, one for each vector, and numbered ones for copied lists of one length."""
    columns = columns_of(arrays)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(map(text_cell, columns))
        writer.writerows(map(text_cell, row) for row in zip(*map(cells, columns.values()), strict=True))
