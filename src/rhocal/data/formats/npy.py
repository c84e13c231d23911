"""NumPy's format of a single array."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.base import Arrays, Names, RawArray, StoredArray, StoredFile, UnreadableArray, check_shape
from rhocal.errors import FileError

if TYPE_CHECKING:
    from pathlib import Path

    from rhocal.data.checksums import Member

Header = tuple[tuple[int, ...], bool, np.dtype[Any]]
"""Shape, whether the array is stored column by column, and type."""


def open_npy(path: Path, names: Names) -> StoredFile:
    """A file of logits."""
    return StoredFile(path, {names.logits: npy_array(path, 0, path.stat().st_size)})


def npy_array(path: Path, start: int, size: int, member: Member | None = None) -> StoredArray:
    """The array of a ``.npy`` file, or of one that lies inside another file; the header must account for every byte."""
    with path.open("rb") as file:
        file.seek(start)
        shape, is_fortran, dtype = read_header(file)
        offset = file.tell()
    if dtype.hasobject:
        return with_objects(path, shape, dtype)
    array = RawArray(path, offset, dtype, shape, is_fortran and len(shape) > 1, member)
    check_size(offset - start, size, array)
    return array


def check_size(n_header: int, size: int, array: StoredArray) -> None:
    """Raise an error if an array and its header have not as many bytes as the file."""
    needed = n_header + math.prod(array.shape) * array.dtype.itemsize
    if needed != size:
        what = "ends before its last row; it is cut off" if needed > size else "has bytes behind its last row"
        raise FileError(
            f"damaged, {what}: shape {tuple(array.shape)} of {array.dtype} takes {needed:,} bytes, there are {size:,}"
        )


def read_header(file: Any) -> Header:
    """Read what stands before the numbers of an array."""
    version = np.lib.format.read_magic(file)
    if version not in {(1, 0), (2, 0), (3, 0)}:
        raise FileError(f"version {version[0]}.{version[1]} of the format is not known")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(file)
    return check_shape(shape), is_fortran, dtype


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
