"""A table of costs from a .csv file: a row for each class, a column for each decision, and one for a review."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

REVIEW = "review"


def read_costs(path: Path, classes: Sequence[object]) -> NDArray[np.float64]:
    """The costs in order of the classes.

    With a first row of names, columns are matched with the classes by name, and so are rows, whose first cell is the name of
    the class; a column ``review`` is the cost of a review. Without names the order is that of the classes.
    """
    if not Path(path).is_file():
        raise FileError(f"{path}: no such file")
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: cannot be read as a table: {error}") from error
    if not rows or len({len(row) for row in rows}) > 1:
        raise FileError(f"{path}: costs need as many numbers in every row")
    names = [str(name) for name in classes]
    if len(rows) == len(names):  # no header: a table of numbers
        return _numbers(path, rows)
    header, body = rows[0][1:], {row[0]: row[1:] for row in rows[1:]}
    if set(body) != set(names) or len(rows) != len(names) + 1 or set(header) - {REVIEW} != set(names):
        raise FileError(
            f"{path}: costs need {len(names)} rows of numbers, or a first row and a first column with the classes "
            f"{', '.join(names[:20])} (and a column {REVIEW})"
        )
    if len(set(header)) < len(header):
        raise FileError(f"{path}: two columns have the same name")
    order = [header.index(name) for name in [*names, *([REVIEW] if REVIEW in header else [])]]
    return _numbers(path, [[body[name][k] for k in order] for name in names])


def _numbers(path: Path, rows: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    try:
        return np.array([[float(cell) for cell in row] for row in rows])
    except ValueError as error:
        raise FileError(f"{path}: a cost is no number: {error}") from error
