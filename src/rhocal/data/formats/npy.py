"""NumPy's format of a single array."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.base import Arrays, Names, RawArray, StoredArray, StoredFile, UnreadableArray

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Header = tuple[tuple[int, ...], bool, np.dtype[Any]]
"""Shape, whether the array is stored column by column, and type."""


def open_npy(path: Path, names: Names) -> StoredFile:
    """A file of logits."""
    return StoredFile(path, {names.logits: npy_arrays(path, [0])[0]})


def npy_arrays(path: Path, starts: Iterable[int]) -> list[StoredArray]:
    """The array of a ``.npy`` file, which starts at 0, or arrays of several that lie inside another file."""
    arrays: list[StoredArray] = []
    with path.open("rb") as file:
        for start in starts:
            file.seek(start)
            shape, is_fortran, dtype = read_header(file)
            arrays.append(
                with_objects(path, shape, dtype)
                if dtype.hasobject
                else RawArray(path, file.tell(), dtype, shape, is_fortran and len(shape) > 1)
            )
    return arrays


def read_header(file: Any) -> Header:
    """Read what stands before the numbers of an array."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(file)
    return shape, is_fortran, dtype


def with_objects(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> UnreadableArray:
    """An array of Python objects."""
    return UnreadableArray(f"{path}: holds Python objects, which are never unpickled", shape, dtype)


def write_npy(path: Path, arrays: Arrays) -> None:
    """Write the first array."""
    np.save(path, next(iter(arrays.values())), allow_pickle=False)


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The bytes before the numbers of an array in C order (format 1.0), a multiple of 64."""
    file = io.BytesIO()
    entries = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, entries)
    return file.getvalue()
