"""Matrices on disk whose rows can be read in pieces: where they lie in each format. Nothing is ever unpickled.

Nothing is mapped into memory either: mapped pages count as memory of the process, and a row is read only once anyway.
"""

from __future__ import annotations

import ast
import json
import struct
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rhocal.data.blocks import Block, BlockRef
from rhocal.data.files import BFLOAT16_IN_NPY
from rhocal.errors import FileError, InputError, MissingArrayError, MissingExtraError, one_line
from rhocal.numerics.special import widened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from rhocal.data.files import Names

CHUNK_ENTRIES = 1 << 24
"""Logits that are read at a time: 32 MB in half precision."""


class Columns(Protocol):
    """A matrix on disk whose rows can be read in pieces."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    def __getitem__(self, rows: slice) -> Any: ...


@dataclass(frozen=True)
class RawRows:
    """Rows of plain numbers somewhere in a file."""

    path: Path
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_bfloat16: bool = False

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, _ = rows.indices(self.shape[0])
        row = int(np.prod(self.shape[1:], dtype=np.int64))
        out = np.empty((stop - start) * row, self.dtype)
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.offset + start * row * self.dtype.itemsize)
            view: Any = memoryview(out.view(np.uint8).data)
            got = 0
            while got < len(view):
                n = file.readinto(view[got:])
                if not n:
                    raise FileError(f"{self.path}: ends before row {stop}; it is cut off")
                got += n
        shaped = out.reshape(stop - start, *self.shape[1:])
        return widened(shaped) if self.is_bfloat16 else shaped


@dataclass(frozen=True)
class ArrayBlock:
    """Rows of a matrix, and their labels."""

    logits: Columns
    labels: Any
    rows: slice
    file: str

    @property
    def n_rows(self) -> int:
        return self.rows.stop - self.rows.start

    @property
    def location(self) -> str:
        return f"{self.file}, rows {self.rows.start:,} to {self.rows.stop:,}"

    def read(self) -> Block:
        values = np.asarray(self.logits[self.rows])
        is_short = isinstance(self.logits, RawRows) and self.logits.is_bfloat16
        return Block(values, self.labels, self.location, stored_bytes=values.size * 2 if is_short else None)


@dataclass(frozen=True)
class ParquetBlock:
    """A row group of a Parquet file."""

    path: Path
    group: int
    names: Names
    n_rows: int
    columns: tuple[str, ...]
    """Those that are read: of others not a byte."""

    @property
    def location(self) -> str:
        return f"{self.path}, row group {self.group}"

    def read(self) -> Block:
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415

        with ParquetFile(self.path) as file:
            table = file.read_row_group(self.group, columns=list(self.columns))
        if self.names.logits in self.columns:
            column = table.column(self.names.logits).combine_chunks()
            flat = column.flatten()
            if flat.null_count or column.null_count or len(flat) % self.n_rows:
                raise FileError(
                    f"{self.location}: the lists of column {self.names.logits!r} differ in length or are missing"
                )
            logits = flat.to_numpy(zero_copy_only=False).reshape(self.n_rows, -1)
        else:
            rest = [name for name in self.columns if name != self.names.labels]
            logits = np.column_stack([table.column(name).to_numpy() for name in rest])
        has_labels = self.names.labels in self.columns
        return Block(logits, table.column(self.names.labels).to_numpy() if has_labels else None, self.location)


@dataclass(frozen=True)
class Opened:
    """A file whose arrays are known and not yet read."""

    path: Path
    logits: Columns | None
    labels: Any = None
    classes: Any = None
    groups: tuple[ParquetBlock, ...] = ()

    def blocks(self, labels: Any) -> list[BlockRef]:
        """Its blocks."""
        if self.logits is None:
            if labels is not None:
                raise InputError(f"{self.path}: a file of labels does not go with Parquet; put them into a column")
            return list(self.groups)
        labels = self.labels if labels is None else np.asarray(labels)
        n = self.logits.shape[0]
        if labels is not None and len(labels) != n:
            raise FileError(f"{self.path}: logits and labels differ in length: {n} and {len(labels)}")
        step = max(1, CHUNK_ENTRIES // max(1, int(np.prod(self.logits.shape[1:], dtype=np.int64))))
        return [
            ArrayBlock(self.logits, None if labels is None else labels[rows], rows, str(self.path))
            for rows in (slice(start, min(start + step, n)) for start in range(0, n, step))
        ]


def open_file(path: Path, names: Names) -> Opened:
    """Look where the arrays of a file lie, without reading them."""
    if not path.exists():
        raise FileError(f"{path}: no such file")
    if path.is_file() and not path.stat().st_size:
        raise FileError(f"{path}: empty, not a single byte")
    opener = OPENERS.get(path.suffix)
    if opener is None:
        raise FileError(f"{path}: cannot be read block by block; understood are {', '.join(OPENERS)}")
    try:
        return opener(path, names)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, struct.error) as error:
        if isinstance(error, FileError | InputError):
            raise
        raise FileError(f"{path}: damaged, or not what its ending says: {one_line(error)}") from error


def _raw_npy(path: Path, start: int) -> RawRows:
    """The rows of a .npy file, or of one that lies inside another from a position on."""
    with path.open("rb") as file:
        file.seek(start)
        if file.read(6) != b"\x93NUMPY":
            raise FileError(f"{path}: damaged, or not a .npy file")
        major, _ = file.read(2)
        (length,) = struct.unpack("<H" if major == 1 else "<I", file.read(2 if major == 1 else 4))
        header = ast.literal_eval(file.read(length).decode("latin1" if major < 3 else "utf-8"))
        offset = file.tell()
    dtype = np.dtype(header["descr"])
    if dtype.hasobject:
        raise FileError(f"{path}: with objects in it, which are never unpickled")
    if header["fortran_order"] and len(header["shape"]) > 1:
        raise FileError(f"{path}: stored column by column (Fortran order); save np.ascontiguousarray(logits) instead")
    if dtype == BFLOAT16_IN_NPY:
        return RawRows(path, offset, np.dtype("<u2"), tuple(header["shape"]), is_bfloat16=True)
    return RawRows(path, offset, dtype, tuple(header["shape"]))


def _open_npy(path: Path, _names: Names) -> Opened:
    return Opened(path, _raw_npy(path, 0))


def _open_npz(path: Path, names: Names) -> Opened:
    """Members that are stored as they are can be read in pieces; compressed ones cannot be entered in the middle."""
    found: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if names.logits not in members:
            raise MissingArrayError.in_file(path, members, names.logits)
        for name in (names.logits, names.labels, "classes"):
            if name in members:
                found[name] = _member(path, archive, members[name])
    classes = found.get("classes")
    return Opened(path, found[names.logits], _whole(found.get(names.labels)), None if classes is None else classes[:])


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    if info.compress_type != zipfile.ZIP_STORED:
        return Inflated.of(path, archive, info)
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        name_length, extra_length = struct.unpack("<HH", file.read(4))
    return _raw_npy(path, info.header_offset + 30 + name_length + extra_length)


class Inflated:
    """Rows of a compressed member: decompressed from its beginning on, never held whole. Rows are asked for in order."""

    def __init__(self, path: Path, member: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.path, self.member, self.shape, self.dtype = path, member, shape, dtype
        self._at = 0
        self._file: Any = None

    @classmethod
    def of(cls, path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Inflated:
        """Look at its beginning."""
        with archive.open(info) as file:
            shape, fortran, dtype = _header(file)
        if dtype.hasobject or (fortran and len(shape) > 1):
            raise FileError(f"{path}: {info.filename} holds objects, or is stored column by column; save it again")
        return cls(path, info.filename, shape, dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, _ = rows.indices(self.shape[0])
        row = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        if self._file is None or start < self._at:
            self._file = zipfile.ZipFile(self.path).open(self.member)  # noqa: SIM115 - it stays open from block to block
            _header(self._file)
            self._at = 0
        while self._at < start:
            n = min(start - self._at, max(1, (1 << 24) // max(row, 1)))
            self._file.read(n * row)
            self._at += n
        data = self._file.read((stop - start) * row)
        self._at = stop
        return np.frombuffer(data, self.dtype).reshape(stop - start, *self.shape[1:])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_at": 0, "_file": None}


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    return shape, fortran, dtype


def _whole(labels: Any) -> Any:
    return None if labels is None else labels[0 : labels.shape[0]]


SAFETENSORS = {
    "F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8",
}  # fmt: skip


def _open_safetensors(path: Path, names: Names) -> Opened:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > 100_000_000:
            raise FileError(f"{path}: damaged, or not a safetensors file")
        header = json.loads(file.read(length))
    if names.logits not in header:
        raise MissingArrayError.in_file(path, [name for name in header if name != "__metadata__"], names.logits)

    def rows(name: str) -> RawRows:
        about = header[name]
        if about["dtype"] not in SAFETENSORS:
            raise FileError(f"{path}: {name} has type {about['dtype']}; convert it to float16 or float32")
        start = 8 + length + about["data_offsets"][0]
        dtype = np.dtype(SAFETENSORS[about["dtype"]])
        return RawRows(path, start, dtype, tuple(about["shape"]), is_bfloat16=about["dtype"] == "BF16")

    labels = rows(names.labels) if names.labels in header else None
    return Opened(path, rows(names.logits), _whole(labels))


def _open_parquet(path: Path, names: Names) -> Opened:
    try:
        from pyarrow import ArrowException  # noqa: PLC0415
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415
        from pyarrow.types import is_floating, is_integer  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", f"reading {path.name}") from error
    try:
        with ParquetFile(path) as file:
            about, schema = file.metadata, file.schema_arrow
    except ArrowException as error:
        raise FileError(f"{path}: damaged, or not a Parquet file: {one_line(error)}") from error
    columns = [name for name in (names.logits, names.labels) if name in schema.names]
    if names.logits not in columns:  # one column a class
        others = [field for field in schema if field.name != names.labels]
        if not others or not all(is_floating(field.type) or is_integer(field.type) for field in others):
            found = [f"{field.name} ({field.type})" for field in schema]
            raise MissingArrayError.in_file(path, found, names.logits)
        columns = schema.names
    sizes = [about.row_group(k).num_rows for k in range(about.num_row_groups)]
    groups = tuple(ParquetBlock(path, k, names, n, tuple(columns)) for k, n in enumerate(sizes) if n)
    return Opened(path, None, groups=groups)


def _open_zarr(path: Path, names: Names) -> Opened:
    try:
        import zarr  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("zarr", "zarr", f"reading {path.name}") from error
    store: Any = zarr.open(str(path), mode="r")
    if not hasattr(store, "array_keys"):
        return Opened(path, store)
    arrays = set(store.array_keys())
    if names.logits not in arrays:
        raise MissingArrayError.in_file(path, sorted(arrays), names.logits)
    labels = store[names.labels][:] if names.labels in arrays else None
    return Opened(path, store[names.logits], labels, store["classes"][:] if "classes" in arrays else None)


OPENERS: dict[str, Callable[[Path, Names], Opened]] = {
    ".npy": _open_npy,
    ".npz": _open_npz,
    ".safetensors": _open_safetensors,
    ".parquet": _open_parquet,
    ".zarr": _open_zarr,
}
