"""NumPy's archive of arrays: a ZIP file of ``.npy`` files."""

from __future__ import annotations

import math
import struct
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.archives import check_directory
from rhocal.data.formats.base import Arrays, Names, StoredArray, StoredFile, without_bfloat16
from rhocal.data.formats.copies import storable
from rhocal.data.formats.npy import Header, npy_array, read_header, with_objects
from rhocal.data.storage.checksums import Member
from rhocal.errors import FileError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

    from numpy.typing import NDArray

SKIPPED_BYTES = 1 << 24
"""Bytes that are decompressed at a time in front of the rows that are read."""


def open_npz(path: Path, _names: Names) -> StoredFile:
    """Its arrays. Members that are not compressed are read at their place in the file."""
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        file.seek(0)
        if file.read(4) != b"PK\x03\x04":
            raise FileError("damaged, or not a .npz file: it does not begin with an array")
        check_directory(file, archive)
        arrays: dict[str, StoredArray] = {}
        for info in archive.infolist():  # other members are opened too: a name may be damaged
            with archive.open(info) as packed:  # compares the header of the member with that of the archive
                if not info.filename.endswith(".npy"):
                    continue
                name = info.filename.removesuffix(".npy")
                if name in arrays:
                    raise FileError("an array stands there more than once")
                arrays[name] = _array(path, file, packed, info)
        return StoredFile(path, arrays)


def _array(path: Path, file: IO[bytes], packed: IO[bytes], info: zipfile.ZipInfo) -> StoredArray:
    if info.compress_type == zipfile.ZIP_STORED:
        file.seek(start := _start(file, info))
        return npy_array(path, file, info.file_size, _member(path, info, start))
    header = read_header(packed, info.file_size)
    return with_objects(path, header) if header.dtype.hasobject else CompressedArray(path, info.filename, header)


def _start(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    """Where a member that is not compressed begins in the file."""
    file.seek(info.header_offset + 26)
    name_length, extra_length = struct.unpack("<HH", file.read(4))
    return info.header_offset + 30 + int(name_length) + int(extra_length)


def _member(path: Path, info: zipfile.ZipInfo, start: int) -> Member:
    if info.compress_size != info.file_size:
        raise FileError(f"{info.filename} is not compressed, but its two sizes differ")
    return Member(path, info.filename, start, info.file_size, info.CRC)


class CompressedArray:
    """An array that is decompressed from its beginning on, never held whole. Rows are read in order."""

    def __init__(self, path: Path, member: str, header: Header) -> None:
        self.path, self.member = path, member
        self.shape, self.is_fortran, self.dtype, self._n_header = header
        self._next_row = 0
        self._file: Any = None

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, _ = rows.indices(self.shape[0])
        if self.is_fortran and stop - start < self.shape[0]:
            raise FileError(
                f"{self.path}: {self.member} is compressed and stored column by column (Fortran order), so that its rows "
                "cannot be read block by block; save np.ascontiguousarray(logits) instead"
            )
        try:
            out = self._read(start, stop)
        except BaseException:
            self._close()
            raise
        if stop == self.shape[0]:
            self._close()
        order: Any = "F" if self.is_fortran else "C"
        return without_bfloat16(out.view(self.dtype).reshape((stop - start, *self.shape[1:]), order=order))

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        """The bytes of some rows; behind the last one the checksum is compared."""
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        if self._file is None or start < self._next_row:
            self._close()
            with zipfile.ZipFile(self.path) as archive:
                self._file = archive.open(self.member)  # stays open from block to block
            self._file.read(self._n_header)
        while self._next_row < start:
            n = min(start - self._next_row, max(1, SKIPPED_BYTES // max(row_bytes, 1)))
            if len(self._file.read(n * row_bytes)) < n * row_bytes:
                raise FileError(f"{self.path}: ends before row {start} of {self.member}; it is cut off")
            self._next_row += n
        out = np.empty((stop - start) * row_bytes, np.uint8)
        n_read = 0
        while n_read < len(out):  # in pieces: compressed and decompressed bytes are not held twice
            piece = self._file.read(min(SKIPPED_BYTES, len(out) - n_read))
            if not piece:
                raise FileError(f"{self.path}: ends before row {stop} of {self.member}; it is cut off")
            out[n_read : n_read + len(piece)] = np.frombuffer(piece, np.uint8)
            n_read += len(piece)
        if stop == self.shape[0] and self._file.read(1):
            raise FileError(f"{self.path}: {self.member} has bytes behind its last row")
        self._next_row = stop
        return out

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._next_row = None, 0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_next_row": 0, "_file": None}


def write_npz(path: Path, arrays: Arrays) -> None:
    """Write all arrays, not compressed."""
    stored: Arrays = {name: storable(array) for name, array in arrays.items()}
    np.savez(path, **stored)
