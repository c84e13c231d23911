"""A file whose arrays are known and not yet read, and blocks of its rows."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rhocal.data.blocks import Block
from rhocal.data.formats.copies import CopiedArray
from rhocal.data.labels.columns import as_label_array
from rhocal.data.spec import KINDS
from rhocal.data.storage.checksums import Piece, verify
from rhocal.errors import FileError, MissingArrayError, RhocalError, one_line
from rhocal.numerics.special import widened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from rhocal.data.blocks import BlockRef
    from rhocal.data.spec import Kind
    from rhocal.data.storage.checksums import Member

Arrays = dict[str, Any]

BFLOAT16 = np.dtype("V2")
"""What NumPy writes for bfloat16, a type that it does not have: two bytes without a meaning. No other type looks so."""

BLOCK_ENTRIES = 1 << 24
"""Logits of a block: 32 MB in half precision."""


@dataclass(frozen=True)
class Names:
    """Names of the arrays or columns of a file."""

    logits: str = "logits"
    labels: str = "labels"
    groups: str | None = None
    """The group of each sample, where a method uses groups."""

    weights: str | None = None
    """The weight of each sample."""
    columns: tuple[str, ...] | None = None
    """The columns of a table that hold one class each; None: they are inferred."""
    classes: tuple[str, ...] | None = None
    """The classes where they are known before the file is read, as texts."""
    skip_bad: bool = False
    """Leave out lines of a log that cannot be used, and count them."""
    in_table_order: bool = False
    """Take ``columns`` in the order in which they stand in the table."""

    def with_suffix(self, suffix: str) -> Names:
        """The names of a split."""
        groups, weights = (name and name + suffix for name in (self.groups, self.weights))
        return replace(self, logits=self.logits + suffix, labels=self.labels + suffix, groups=groups, weights=weights)

    @property
    def beside(self) -> set[str]:
        """The columns of a table that are no classes."""
        return {name for name in (self.labels, self.groups, self.weights) if name is not None}


class StoredArray(Protocol):
    """An array whose rows are read when they are needed. NumPy arrays and tensors are such arrays too."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def dtype(self) -> Any:
        """Its type in the file."""

    def __getitem__(self, rows: slice) -> Any: ...


@dataclass(frozen=True)
class RawArray:
    """An array whose numbers stand one after the other in a file.

    Rows are read and not mapped: mapped pages count as memory of the process, and a row is read only once.
    """

    path: Path
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool = False
    """Stored column by column."""
    member: Member | None = None
    """The part of the file with a checksum that the array lies in."""

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        if not self.shape:  # a single number
            return replace(self, shape=(1,))[rows].reshape(())
        values, pieces = self.read(rows)
        if len(values) == self.shape[0]:
            verify(pieces)
        return values

    def read(self, rows: slice) -> tuple[NDArray[Any], tuple[Piece, ...]]:
        """Some rows, and the checksum of their bytes where the file has one to compare with."""
        start, stop, _ = rows.indices(self.shape[0])
        n_columns = math.prod(self.shape[1:])
        runs = n_columns if self.is_fortran else 1  # stretches of the file that hold the rows
        step = self.shape[0] if self.is_fortran else n_columns
        first = start if self.is_fortran else start * n_columns
        out = np.empty((runs, (stop - start) * n_columns // max(runs, 1)), self.dtype)
        pieces = []
        with self.path.open("rb", buffering=0) as file:
            for k in range(runs):
                place = self.offset + (k * step + first) * self.dtype.itemsize
                file.seek(place)
                target = memoryview(out[k].view(np.uint8).data)
                self._read_into(file, target, stop)
                if self.member is not None and runs == 1:
                    pieces.append(Piece(self.member, place, len(target), zlib.crc32(target)))
        if self.member is not None and not pieces:  # strips of columns: the bytes are read again in their order
            pieces.append(Piece(self.member, self.member.start, 0, 0))
        shape = (stop - start, *self.shape[1:])
        shaped = out.T.reshape(shape, order="F") if self.is_fortran else out.reshape(shape)
        return without_bfloat16(shaped), tuple(pieces)

    def _read_into(self, file: Any, target: Any, stop: int) -> None:
        n_read = 0
        while n_read < len(target):
            n = file.readinto(target[n_read:])
            if not n:
                raise FileError(f"{self.path}: ends before row {stop}; it is cut off")
            n_read += n


@dataclass(frozen=True)
class UnreadableArray:
    """An array of a type that is not read; other arrays of its file are."""

    reason: str
    shape: tuple[int, ...]
    dtype: Any

    def __getitem__(self, rows: slice) -> Any:
        raise FileError(self.reason)


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys all differ: of equal keys one value would be lost."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        keys = [key for key, _ in pairs]
        raise FileError(f"key {next(key for key in keys if keys.count(key) > 1)!r} stands there more than once")
    return entries


def read_all(array: StoredArray, path: Path) -> Any:
    """All rows of an array; whatever a reader raises is an error about the file."""
    try:
        return array[:]
    except RhocalError:
        raise
    except Exception as error:  # a reader of a foreign format may raise anything
        raise FileError(f"{path}: damaged: {one_line(error)}") from error


def without_bfloat16(array: NDArray[Any]) -> NDArray[Any]:
    """The array, bfloat16 as float32."""
    return widened(np.ascontiguousarray(array).view(np.uint16)) if array.dtype == BFLOAT16 else array


@dataclass(frozen=True)
class ArrayBlock:
    """Rows of an array, and their labels."""

    logits: StoredArray
    labels: Any
    rows: slice
    file: str
    weights: Any = None

    @property
    def n_rows(self) -> int:
        return self.rows.stop - self.rows.start

    @property
    def location(self) -> str:
        return f"{self.file}, rows {self.rows.start:,} to {self.rows.stop:,}"

    @property
    def arrays_read(self) -> str:
        """Which array of the file it is, and which labels, for the comparison of two runs."""
        array = self.logits
        where = getattr(array, "offset", getattr(array, "member", ""))
        labels = "" if self.labels is None else zlib.crc32(as_label_array(np.asarray(self.labels)).tobytes())
        return f"{where}|{array.dtype}|{array.shape}|{labels}"

    @property
    def text_labels(self) -> Any:
        """The labels, which are in memory."""
        return self.labels

    def read(self) -> Block:
        pieces: tuple[Piece, ...] = ()
        if isinstance(self.logits, RawArray):
            values, pieces = self.logits.read(self.rows)
        else:
            values = np.asarray(self.logits[self.rows])
        stored_bytes = values.size * 2 if self.logits.dtype == BFLOAT16 else None
        return Block(values, self.labels, self.location, self.weights, stored_bytes=stored_bytes, pieces=pieces)


@dataclass(frozen=True)
class LogFacts:
    """What a log of a language model states about its arrays."""

    source: str
    """What wrote it, or its form, for messages."""
    scores: Mapping[str, str]
    """The arrays of scores in words, that of ``logits`` first."""
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    """What the scores of an array are, where the log states it."""
    holds_options: bool = False
    """Whether columns are the options of questions, which have no meaning of their own."""
    positive: Any = None
    """The positive class where the answer is right (1) or wrong (0)."""
    clusters: str | None = None
    """The array of question identifiers, where a question occurs more than once."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoredFile:
    """A file whose arrays are known and not yet read."""

    path: Path
    arrays: Mapping[str, StoredArray]
    has_blocks: bool = True
    """Whether blocks can be read without the whole file in memory."""
    columns: tuple[str, ...] | None = None
    """The columns of a table that hold one class each, in the order of the logits."""
    unused: tuple[str, ...] = ()
    """Other columns of a table."""
    log: LogFacts | None = None
    """What is known of a log of a language model."""
    bad_lines: tuple[str, ...] = ()
    """What is wrong with the lines that were left out."""
    written: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    """Columns as they were written, where ``arrays`` hold another form of them."""

    @property
    def holds_options(self) -> bool:
        """Whether columns are the options of questions, which have no meaning of their own."""
        return self.log is not None and self.log.holds_options

    def describe(self) -> list[str]:
        """The arrays with their shapes, for messages."""
        return [f"{name} {tuple(array.shape)}" for name, array in self.arrays.items()]

    def refuse_profile(self) -> None:
        """Raise an error if the file, which has no logits of the name that was asked for, is a profile."""
        if {"label_gap", "top", "weights"} <= set(self.arrays):
            raise FileError(
                f"{self.path}: this is a profile, without logits. Fit a calibrator on it (rhocal fit), and use that with a "
                "file of scores"
            )

    def check(self, names: Names) -> None:
        """Raise an error if the file has no logits of that name."""
        if names.logits not in self.arrays:
            self.refuse_profile()
            raise MissingArrayError.in_file(self.path, self.describe(), repr(names.logits))
        if not self.arrays[names.logits].shape:
            raise FileError(f"{self.path}: {names.logits} is a single number; need shape (n_samples, n_classes)")
        if names.weights is not None and names.weights not in self.arrays:
            raise FileError(f"{self.path}: no array or column {names.weights!r}; found {', '.join(self.describe())}")

    def copied(self, name: str) -> Any:
        """An array or column as it is copied to another file: with what was written in this one."""
        if name in self.written:
            return self.written[name]()
        return np.asarray(read_all(self.arrays[name], self.path)).view(CopiedArray)

    @property
    def classes(self) -> Any:
        """The names of the columns, if the file has them."""
        if self.columns is not None or "classes" not in self.arrays:  # of a table it is one more column
            return None
        return read_all(self.arrays["classes"], self.path)

    @property
    def kind(self) -> Kind | None:
        """What the scores are, if the file states it in an array ``kind`` with one text, as `rhocal split --kind` writes it."""
        array = None if self.columns is not None else self.arrays.get("kind")
        if array is None or tuple(array.shape) not in {(), (1,)}:
            return None
        text = str(np.asarray(read_all(array, self.path)).reshape(-1)[0])
        return next((kind for kind in KINDS if kind == text), None)

    def read(self, names: Names) -> Block:
        """Read all rows as one block."""
        self.check(names)
        wanted = (names.logits, names.labels, names.groups, names.weights)
        stored = (None if name is None else self.arrays.get(name) for name in wanted)  # "" is the index of pandas
        logits, labels, groups, weights = (None if array is None else read_all(array, self.path) for array in stored)
        return Block(logits, labels, str(self.path), groups=groups, weights=weights)

    def blocks(self, names: Names, labels: Any = None) -> Sequence[BlockRef]:
        """References to blocks of rows; ``labels`` come from another file."""
        self.check(names)
        if not self.has_blocks:
            raise FileError(f"{self.path}: a {self.path.suffix} file cannot be read block by block; convert it to .npz")
        logits = self.arrays[names.logits]
        n = logits.shape[0]
        if labels is None and names.labels in self.arrays:
            labels = read_all(self.arrays[names.labels], self.path)
        weights = None if names.weights is None else read_all(self.arrays[names.weights], self.path)
        for name, values in ((names.labels, labels), (names.weights, weights)):
            if values is not None and (np.ndim(values) == 0 or len(values) != n):
                raise FileError(f"{self.path}: {names.logits} and {name} differ in length: {n} and {np.size(values)}")
        step = max(1, BLOCK_ENTRIES // max(1, math.prod(logits.shape[1:])))
        rows_of_blocks = [slice(start, min(start + step, n)) for start in range(0, n, step)]
        return [
            ArrayBlock(logits, _some(labels, rows), rows, str(self.path), _some(weights, rows))
            for rows in rows_of_blocks
        ]


def _some(values: Any, rows: slice) -> Any:
    return None if values is None else values[rows]


def blocks_of_files(files: Iterable[StoredFile], names: Names, labels: Any = None) -> tuple[list[BlockRef], Any]:
    """The blocks of files, one file after the other, and the names of the columns from the first file that has them."""
    blocks: list[BlockRef] = []
    classes, first = None, None
    for file in files:
        first = first or file
        if file.columns != first.columns:
            raise FileError(f"{file.path}: its columns of classes differ from those of {first.path}")
        blocks += file.blocks(names, labels)
        classes = file.classes if classes is None else classes
    return blocks, classes
