"""NumPy's format of a single array."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rhocal.data.formats.base import Arrays, Names, RawArray, StoredArray, StoredFile, UnreadableArray
from rhocal.errors import FileError

if TYPE_CHECKING:
    from pathlib import Path

    from rhocal.data.storage.checksums import Member


class Header(NamedTuple):
    """What stands before the numbers of an array."""

    shape: tuple[int, ...]
    is_fortran: bool
    """Stored column by column."""
    dtype: np.dtype[Any]
    n_bytes: int
    """How long it is itself."""


def open_npy(path: Path, names: Names) -> StoredFile:
    """A file of logits."""
    with path.open("rb") as file:
        return StoredFile(path, {names.logits: npy_array(path, file, path.stat().st_size)})


def npy_array(path: Path, file: Any, size: int, member: Member | None = None) -> StoredArray:
    """The array that begins where an open file is: a ``.npy`` file of so many bytes, or one that lies inside another file."""
    header = read_header(file, size)
    if header.dtype.hasobject:
        return with_objects(path, header)
    return RawArray(path, file.tell(), header.dtype, header.shape, header.is_fortran, member)


def read_header(file: Any, size: int) -> Header:
    """Read what stands before the numbers of an array; both together must be every byte of the file."""
    start = file.tell()
    version = np.lib.format.read_magic(file)
    if version not in {(1, 0), (2, 0), (3, 0)}:
        raise FileError(f"version {version[0]}.{version[1]} of the format is not known")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(file)
    header = Header(check_shape(shape), is_fortran and len(shape) > 1, dtype, file.tell() - start)
    needed = header.n_bytes + math.prod(shape) * dtype.itemsize
    if needed != size and not dtype.hasobject:
        what = "ends before its last row; it is cut off" if needed > size else "has bytes behind its last row"
        raise FileError(f"damaged, {what}: shape {shape} of {dtype} takes {needed:,} bytes, there are {size:,}")
    return header


def check_shape(shape: Any) -> tuple[int, ...]:
    """A shape from a header: whole numbers that are not negative."""
    if not isinstance(shape, list | tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise FileError(f"a shape is a list of whole numbers; got {shape!r}")
    return tuple(shape)


def with_objects(path: Path, header: Header) -> UnreadableArray:
    """An array of Python objects."""
    reason = f"{path}: holds Python objects, which are never unpickled"
    return UnreadableArray(reason, header.shape, header.dtype)


def write_npy(path: Path, arrays: Arrays) -> None:
    """Write the first array."""
    np.save(path, next(iter(arrays.values())), allow_pickle=False)


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The bytes before the numbers of an array in C order (format 1.0), a multiple of 64."""
    file = io.BytesIO()
    entries = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, entries)
    return file.getvalue()
