"""NumPy's archive of arrays: a ZIP file of ``.npy`` files."""

from __future__ import annotations

import struct
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.base import Arrays, Names, StoredArray, StoredFile, without_bfloat16
from rhocal.data.formats.npy import npy_arrays, read_header, with_objects
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

SKIPPED_BYTES = 1 << 24
"""Bytes that are decompressed at a time in front of the rows that are read."""


def open_npz(path: Path, _names: Names) -> StoredFile:
    """Its arrays. Members that are not compressed are read at their place in the file."""
    with zipfile.ZipFile(path) as archive:
        members = {
            info.filename.removesuffix(".npy"): info for info in archive.infolist() if info.filename.endswith(".npy")
        }
        stored = {name: info for name, info in members.items() if info.compress_type == zipfile.ZIP_STORED}
        arrays = dict(zip(stored, npy_arrays(path, _starts(path, stored.values())), strict=True))
        return StoredFile(
            path, {name: arrays.get(name) or _compressed(path, archive, members[name]) for name in members}
        )


def _starts(path: Path, members: Iterable[zipfile.ZipInfo]) -> list[int]:
    """Where members that are not compressed begin in the file."""
    starts = []
    with path.open("rb") as file:
        for info in members:
            file.seek(info.header_offset + 26)
            name_length, extra_length = struct.unpack("<HH", file.read(4))
            starts.append(info.header_offset + 30 + name_length + extra_length)
    return starts


def _compressed(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> StoredArray:
    with archive.open(info) as member:
        shape, is_fortran, dtype = read_header(member)
    if dtype.hasobject:
        return with_objects(path, shape, dtype)
    return CompressedArray(path, info.filename, shape, dtype, is_fortran=is_fortran and len(shape) > 1)


class CompressedArray:
    """An array that is decompressed from its beginning on, never held whole. Rows are read in order."""

    def __init__(
        self, path: Path, member: str, shape: tuple[int, ...], dtype: np.dtype[Any], *, is_fortran: bool
    ) -> None:
        self.path, self.member, self.shape, self.dtype, self.is_fortran = path, member, shape, dtype, is_fortran
        self._next_row = 0
        self._file: Any = None

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, _ = rows.indices(self.shape[0])
        if self.is_fortran and stop - start < self.shape[0]:
            raise FileError(
                f"{self.path}: {self.member} is compressed and stored column by column (Fortran order), so that its rows "
                "cannot be read block by block; save np.ascontiguousarray(logits) instead"
            )
        row_bytes = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        if self._file is None or start < self._next_row:
            self._file = zipfile.ZipFile(self.path).open(self.member)  # noqa: SIM115 - stays open from block to block
            read_header(self._file)
            self._next_row = 0
        while self._next_row < start:
            n = min(start - self._next_row, max(1, SKIPPED_BYTES // max(row_bytes, 1)))
            self._file.read(n * row_bytes)
            self._next_row += n
        out = np.empty((stop - start) * row_bytes, np.uint8)
        n_read = 0
        while n_read < len(out):  # in pieces: compressed and decompressed bytes are not held twice
            piece = self._file.read(min(SKIPPED_BYTES, len(out) - n_read))
            if not piece:
                raise FileError(f"{self.path}: ends before row {stop} of {self.member}; it is cut off")
            out[n_read : n_read + len(piece)] = np.frombuffer(piece, np.uint8)
            n_read += len(piece)
        self._next_row = stop
        order: Any = "F" if self.is_fortran else "C"
        return without_bfloat16(out.view(self.dtype).reshape((stop - start, *self.shape[1:]), order=order))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_next_row": 0, "_file": None}


def write_npz(path: Path, arrays: Arrays) -> None:
    """Write all arrays, not compressed."""
    np.savez(path, **arrays)
