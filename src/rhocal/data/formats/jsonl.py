"""JSON Lines: one object a sample. Files are read whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.base import without_duplicates
from rhocal.data.formats.lm_eval import is_lm_eval, lm_eval_file
from rhocal.data.formats.tables import columns_of, table_file
from rhocal.errors import FileError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from rhocal.data.formats.base import Arrays, Names, StoredFile


def open_jsonl(path: Path, names: Names) -> StoredFile:
    """Keys are columns; logits are a list, an object with a key for each class, or one key a class."""
    return jsonl_file(path, path.read_bytes(), names)


def jsonl_file(path: Path, content: bytes, names: Names) -> StoredFile:
    """The same for the bytes of a file."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(content.decode("utf-8-sig").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=without_duplicates)
        except FileError as error:
            raise error.at(f"{path}: line {number}") from error
        except (ValueError, RecursionError) as error:
            raise FileError(f"{path}: line {number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise FileError(f"{path}: line {number} holds no object ({{…}}), but {type(row).__name__}")
        if isinstance(row.get(names.logits), dict):
            row |= {f"{names.logits}_{name}": value for name, value in row.pop(names.logits).items()}
        if rows and row.keys() != rows[0].keys() and not is_lm_eval(rows[0]):
            differing = sorted(row.keys() ^ rows[0].keys())
            raise FileError(f"{path}: line {number} has other keys than line 1: {', '.join(differing)}")
        rows.append(row)
    if not rows:
        raise FileError(f"{path}: has no line with an object")
    if is_lm_eval(rows[0]):
        return lm_eval_file(path, rows)
    return table_file(path, {name: _values([row[name] for row in rows]) for name in rows[0]}, names)


def _values(values: list[Any]) -> NDArray[Any]:
    if all(isinstance(value, list) for value in values) and len({len(value) for value in values}) > 1:
        ragged = np.empty(len(values), object)
        ragged[:] = values
        return ragged
    if any(value is None or isinstance(value, dict) for value in values):
        return np.array(["" if value is None else str(value) for value in values])
    return np.array(values)


def write_jsonl(path: Path, arrays: Arrays) -> None:
    """Write one object a sample; a row of a matrix is a list, or one key a class where classes have names."""
    columns = columns_of(arrays) if "classes" in arrays else {name: array.tolist() for name, array in arrays.items()}
    with path.open("w", encoding="utf-8") as file:
        for row in zip(*columns.values(), strict=True):
            file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")
