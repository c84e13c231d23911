"""Parquet: a column of lists of logits, or one column a class; blocks are the row groups of the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.blocks import Block
from rhocal.data.formats.base import Arrays, Names, StoredFile
from rhocal.data.formats.copies import ArrowColumn, cell, json_values
from rhocal.data.formats.tables import FRACTIONS, LISTS, NUMBER_KINDS, TEXT, WHOLE, class_columns, columns_of
from rhocal.errors import FileError, InputError, MissingExtraError, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from rhocal.data.blocks import BlockRef


def open_parquet(path: Path, names: Names) -> StoredFile:
    """Its columns; those of classes together are the logits."""
    try:
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", f"reading {path.name}") from error
    with ParquetFile(path) as file:
        metadata, schema = file.metadata, file.schema_arrow
    if len(set(schema.names)) < len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise FileError(f"{path}: column {twice!r} stands there more than once")
    sizes = tuple(metadata.row_group(k).num_rows for k in range(metadata.num_row_groups))
    if sum(sizes) != metadata.num_rows:
        raise FileError(f"{path}: damaged, its row groups have {sum(sizes):,} rows, the file {metadata.num_rows:,}")
    columns = {one.name: Columns(path, (one.name,), metadata.num_rows, str(one.type)) for one in schema}
    kinds = {one.name: _kind(one.type) for one in schema}
    label_column = columns.get(names.labels)
    classes = class_columns(path, kinds, names, lambda: None if label_column is None else label_column[:])
    if classes is None:
        others = tuple(name for name in columns if name not in {names.logits, *names.beside})
        return ParquetStoredFile(path, columns, sizes=sizes, unused=others)
    for name in classes:
        if kinds[name] not in NUMBER_KINDS:
            raise FileError(f"{path}: column {name!r} is not numbers, but {columns[name].dtype}")
    arrays = {name: column for name, column in columns.items() if name not in classes}
    arrays[names.logits] = Columns(path, classes, metadata.num_rows, "columns")
    unused = tuple(name for name in columns if name not in {*classes, *names.beside})
    return ParquetStoredFile(path, arrays, columns=classes, unused=unused, sizes=sizes)


def _kind(dtype: Any) -> str:
    """What a column holds, by its type."""
    from pyarrow import types  # noqa: PLC0415

    if types.is_floating(dtype) or types.is_decimal(dtype):
        return FRACTIONS
    if types.is_integer(dtype):
        return WHOLE
    is_list = types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype)
    return LISTS if is_list else TEXT


def write_parquet(path: Path, arrays: Arrays) -> None:
    """Write a row of a matrix as a list, or as one column a class where classes have names; copied lists stay lists."""
    try:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", f"writing {path.name}") from error
    columns = columns_of(arrays, has_lists=True) if "classes" in arrays else arrays
    columns = {name: list(array) if array.ndim > 1 else array for name, array in columns.items()}
    table = pa.table({name: _arrow(column) for name, column in columns.items()})
    parquet.write_table(table, path, write_page_checksum=True)


def _arrow(column: Any) -> Any:
    """A column as Arrow has it; values that have no type there, or no common one, as texts."""
    from pyarrow import ArrowException, array  # noqa: PLC0415

    try:
        return array(column)
    except (ArrowException, OverflowError):
        return array([None if value is None else str(cell(value)) for value in json_values(column)])


@dataclass(frozen=True)
class Columns:
    """A column, or several columns of numbers as a matrix."""

    path: Path
    columns: tuple[str, ...]
    n_rows: int
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and columns if there are several; the lengths of lists are not known before they are read."""
        return (self.n_rows,) if len(self.columns) == 1 else (self.n_rows, len(self.columns))

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        return self.values(read_table(self.path, self.columns, n_rows=self.n_rows), str(self.path))[rows]

    def lists(self) -> NDArray[Any]:
        """The lists of a column, which may differ in length or be missing."""
        (name,) = self.columns
        out = np.empty(self.n_rows, object)
        out[:] = read_table(self.path, self.columns).column(name).to_pylist()
        return out

    def values(self, table: Any, location: str) -> NDArray[Any]:
        """The numbers in a table that holds these columns."""
        if len(self.columns) > 1:
            return np.column_stack([table.column(name).to_numpy() for name in self.columns])
        (name,) = self.columns
        if "list" not in self.dtype:
            values: NDArray[Any] = table.column(name).to_numpy()
            return values
        lists = table.column(name).combine_chunks()
        lengths = set(lists.value_lengths().unique().to_pylist())
        flat = lists.flatten()
        if not len(lists):
            lengths = {0}
        if len(lengths) > 1 or None in lengths or flat.null_count:
            raise FileError(f"{location}: the lists of column {name!r} differ in length or are missing")
        matrix: NDArray[Any] = flat.to_numpy(zero_copy_only=False).reshape(len(lists), *lengths)
        return matrix


@dataclass(frozen=True)
class ParquetStoredFile(StoredFile):
    """A Parquet file whose columns are known and not yet read."""

    arrays: dict[str, Columns] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    """Rows of every row group."""

    def describe(self) -> list[str]:
        """The columns with their types, for messages."""
        return [f"{name} ({column.dtype})" for name, column in self.arrays.items()]

    @property
    def classes(self) -> Any:
        """None: columns have one value a row."""
        return None

    def copied(self, name: str) -> Any:
        """A column with the types of the file."""
        return ArrowColumn(name, read_table(self.path, (name,), n_rows=self.arrays[name].n_rows).column(name))

    def blocks(self, names: Names, labels: Any = None) -> Sequence[BlockRef]:
        """References to the row groups."""
        self.check(names)
        if labels is not None:
            raise InputError(f"{self.path}: a file of labels does not go with Parquet; put them into a column")
        logits, beside = self.arrays[names.logits], self.arrays.get(names.labels)
        weights, groups = (None if name is None else self.arrays.get(name) for name in (names.weights, names.groups))
        return [ParquetBlock(self.path, k, n, logits, beside, weights, groups) for k, n in enumerate(self.sizes) if n]


@dataclass(frozen=True)
class ParquetBlock:
    """A row group of a Parquet file."""

    path: Path
    group: int
    n_rows: int
    logits: Columns
    labels: Columns | None
    weights: Columns | None = None
    groups: Columns | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are read; of others not a byte."""
        beside = [array.columns for array in (self.labels, self.weights, self.groups) if array is not None]
        return (*self.logits.columns, *(name for names in beside for name in names))

    @property
    def arrays_read(self) -> str:
        """The columns, for the comparison of two runs."""
        return ",".join(self.columns)

    @property
    def location(self) -> str:
        return f"{self.path}, row group {self.group}"

    @property
    def text_labels(self) -> Any:
        """The labels if they are texts; of numbers not a byte is read."""
        if self.labels is None or not any(kind in self.labels.dtype for kind in ("string", "binary", "dictionary")):
            return None
        return self.labels.values(
            read_table(self.path, self.labels.columns, self.group, n_rows=self.n_rows), self.location
        )

    def read(self) -> Block:
        table = read_table(self.path, self.columns, self.group, n_rows=self.n_rows)
        labels = None if self.labels is None else self.labels.values(table, self.location)
        weights = None if self.weights is None else self.weights.values(table, self.location)
        groups = None if self.groups is None else exact_values(table.column(*self.groups.columns))
        return Block(self.logits.values(table, self.location), labels, self.location, weights, groups)


def exact_values(column: Any) -> NDArray[Any]:
    """The values of a column that names samples: no integer is rounded where a value is missing (None, or NaN of floats).

    Times are texts: NumPy and Python have no common type for all of them.
    """
    from pyarrow import int64, types  # noqa: PLC0415

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_floating(kind) or (types.is_integer(kind) and not column.null_count):
        values: NDArray[Any] = column.to_numpy()
        return values
    out = np.empty(len(column), object)
    if types.is_timestamp(kind):
        ticks = column.cast(int64()).to_pylist()
        out[:] = [None if tick is None else time_text(tick, kind.unit, has_zone=kind.tz is not None) for tick in ticks]
    else:
        out[:] = column.to_pylist()
    return out


NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Of a unit of time."""


def time_text(tick: int, unit: str, *, has_zone: bool) -> str:
    """A time since 1970 as Python prints it, with nanoseconds if it has some; times with a zone in UTC.

    >>> time_text(1_500_000, "us", has_zone=False), time_text(1, "ns", has_zone=True)
    ('1970-01-01 00:00:01.500000', '1970-01-01 00:00:00.000000001+00:00')
    """
    microseconds, nanoseconds = divmod(tick * NANOSECONDS[unit], 1000)
    try:
        time = datetime(1970, 1, 1) + timedelta(microseconds=microseconds)  # noqa: DTZ001 - the zone is in the text
    except OverflowError:  # a year that Python does not have
        return f"{tick} {unit}"
    whole = time.replace(microsecond=0)
    text = f"{whole}.{time.microsecond:06d}{nanoseconds:03d}" if nanoseconds else str(time)
    return text + ("+00:00" if has_zone else "")


def read_table(path: Path, columns: Sequence[str], group: int | None = None, *, n_rows: int | None = None) -> Any:
    """Some columns of a row group, or of all rows; checksums of pages are compared where the file has them."""
    from pyarrow import concat_tables  # noqa: PLC0415
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415

    location = str(path) if group is None else f"{path}, row group {group}"
    try:
        with ParquetFile(path, page_checksum_verification=True) as file:
            wanted = list(columns)
            groups = range(file.num_row_groups) if group is None else [group]
            tables = [file.read_row_group(k, columns=wanted) for k in groups]  # whole files too: one way to read
            table = concat_tables(tables) if tables else file.read(columns=wanted)
    except Exception as error:  # the decoders raise errors of many types
        raise FileError(f"{location}: cannot be read: {one_line(error)}") from error
    if n_rows is not None and len(table) != n_rows:
        raise FileError(f"{location}: damaged, it has {len(table):,} rows and declares {n_rows:,}")
    return table
