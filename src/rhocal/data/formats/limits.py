"""How far a file may expand: a few megabytes of an archive can hold zeros that fill any memory."""

from __future__ import annotations

import gzip
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import FileError

if TYPE_CHECKING:
    from pathlib import Path

    from rhocal.data.formats.base import StoredFile

MAX_EXPANSION = 100
"""Bytes of arrays for each byte of their file. Scores of real classifiers compress by a factor of 2 to 10."""

MIN_CHECKED_BYTES = 1 << 28
"""Arrays up to this size may come from a file of any size."""


def check_expansion(stored: StoredFile) -> None:
    """Raise an error if the arrays of a file are large, and far larger than the file."""
    check_expanded(
        stored.path, sum(math.prod(array.shape) * _item_bytes(array.dtype) for array in stored.arrays.values())
    )


def check_expanded(path: Path, n_bytes: int) -> None:
    """Raise an error if so many bytes are far more than those of their file."""
    if n_bytes <= MIN_CHECKED_BYTES:
        return
    n_stored = sum(part.stat().st_size for part in (path.rglob("*") if path.is_dir() else [path]) if part.is_file())
    if n_bytes > MAX_EXPANSION * n_stored:
        raise FileError(
            f"{path}: {n_stored:,} bytes that expand to {n_bytes:,}, more than {MAX_EXPANSION} times as many; damaged or "
            "hostile. Store the arrays without compression if they are meant to be so"
        )


def gunzip(path: Path) -> bytes:
    """The bytes of a text that is compressed with gzip, if they are not far more than its file has."""
    n_stored = path.stat().st_size
    limit = max(MIN_CHECKED_BYTES, MAX_EXPANSION * n_stored)
    with gzip.open(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise FileError(f"{path}: {n_stored:,} bytes that expand to more than {limit:,}; damaged or hostile")
    return content


def _item_bytes(dtype: Any) -> int:
    """Bytes of an entry; 8 for types that are not NumPy's, such as those of tables and tensors."""
    return dtype.itemsize if isinstance(dtype, np.dtype) else int(getattr(dtype, "itemsize", 8))
