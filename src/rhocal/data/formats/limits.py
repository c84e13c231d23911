"""How far a file may expand: a few megabytes of an archive can hold zeros that fill any memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import FileError

if TYPE_CHECKING:
    from rhocal.data.formats.base import StoredFile

MAX_EXPANSION = 100
"""Bytes of arrays for each byte of their file. Scores of real classifiers compress by a factor of 2 to 10."""

MIN_CHECKED_BYTES = 1 << 28
"""Arrays up to this size may come from a file of any size."""


def check_expansion(stored: StoredFile) -> None:
    """Raise an error if the arrays of a file are large, and far larger than the file."""
    n_bytes = sum(math.prod(array.shape) * _item_bytes(array.dtype) for array in stored.arrays.values())
    if n_bytes <= MIN_CHECKED_BYTES:
        return
    path = stored.path
    n_stored = sum(part.stat().st_size for part in (path.rglob("*") if path.is_dir() else [path]) if part.is_file())
    if n_bytes > MAX_EXPANSION * n_stored:
        raise FileError(
            f"{path}: {n_stored:,} bytes that expand to {n_bytes:,}, more than {MAX_EXPANSION} times as many; damaged or "
            "hostile. Store the arrays without compression if they are meant to be so"
        )


def _item_bytes(dtype: Any) -> int:
    """Bytes of an entry; 8 for types that are not NumPy's, such as those of tables and tensors."""
    return dtype.itemsize if isinstance(dtype, np.dtype) else int(getattr(dtype, "itemsize", 8))
