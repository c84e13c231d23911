"""CSV: one column a class, and one column of labels. The file is read whole, because its rows have no known place."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.base import Arrays, Names, StoredFile
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def open_csv(path: Path, names: Names) -> StoredFile:
    """Columns of labels and groups by name; all others are logits, in order. The first row holds the names."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            rows = [row for row in csv.reader(file) if row]
        except (csv.Error, UnicodeDecodeError) as error:
            raise FileError(f"{path}: not a readable CSV file: {error}") from error
    if len(rows) < 2:
        raise FileError(f"{path}: needs a row of column names and at least one row of numbers")
    header, *body = rows
    if _is_number(header[0]) and _is_number(header[-1]):
        raise FileError(f"{path}: the first row must hold column names (such as logit_0, …, {names.labels})")
    for line, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise FileError(f"{path}: line {line} has {len(row)} fields, the first line has {len(header)}")
    columns = dict(zip(header, zip(*body, strict=True), strict=True))
    beside = {name: columns.pop(name) for name in (names.labels, names.groups) if name in columns}
    arrays: Arrays = {}
    if columns:
        try:
            arrays[names.logits] = np.array([np.asarray(values, np.float64) for values in columns.values()]).T
        except ValueError as error:
            raise FileError(f"{path}: a column besides {names.labels!r} is not numbers: {error}") from error
    arrays |= {name: _integers_or_texts(values) for name, values in beside.items()}
    return StoredFile(path, arrays, has_blocks=False)


def _integers_or_texts(values: Sequence[str]) -> Any:
    try:
        return np.array([int(value) for value in values])
    except ValueError:
        return np.asarray(values)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_csv(path: Path, arrays: Arrays) -> None:
    """Write one column a class and one for each vector."""
    header: list[str] = []
    columns: list[Any] = []
    for name, array in arrays.items():
        if array.ndim == 2:
            header += [f"{name}_{j}" for j in range(array.shape[1])]
            columns += list(array.T)
        elif len(array) == len(next(iter(arrays.values()))):
            header.append(name)
            columns.append(array)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(zip(*(column.tolist() for column in columns), strict=True))
