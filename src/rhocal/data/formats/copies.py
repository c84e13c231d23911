"""Columns that are copied from one file to another: they keep what was written.

A reader states a column as it was written where its arrays hold another form of it (``StoredFile.written``). A writer takes
any column: ``json_values`` and ``cells`` are its values as plain ones, ``storable`` is an array of numbers or texts.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SECONDS: dict[str, Decimal] = {
    "W": Decimal(604800), "D": Decimal(86400), "h": Decimal(3600), "m": Decimal(60), "s": Decimal(1),
    "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "ns": Decimal("1e-9"),
}  # fmt: skip
"""Of a unit of time."""

NO_FRACTION = re.compile(r"\.0+(?=[-+Z]|$)")
ZONE = re.compile(r"([-+]\d\d)(\d\d)$")


def written_texts(texts: Sequence[str]) -> NDArray[Any]:
    """Numbers where each text is exactly that of its number, so that it is written again as it was; else the texts.

    Whole numbers beside fractions are objects, as 1 is not the text of 1.0.

    >>> written_texts(["421", "7"]), written_texts(["0.5", "2.0"]), written_texts(["421", "00421"])
    (array([421,   7]), array([0.5, 2. ]), array(['421', '00421'], dtype='<U5'))
    """
    numbers = [_number(text) for text in texts]
    known = [number for number in numbers if number is not None]
    if len(known) < len(texts):
        return np.array(texts)
    values = written_values(known)
    return np.array(texts) if values.dtype.kind == "O" and _as_floats(known) is None else values


def _number(text: str) -> int | float | None:
    """The number whose text this is, if NumPy has a type for it."""
    for kind in (int, float):
        try:
            number = kind(text)
        except (ValueError, OverflowError):
            continue
        if str(number) == text and (-(2**63) <= number < 2**63 if kind is int else np.isfinite(number)):
            return number
    return None


def _as_floats(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Whole numbers and fractions as floats, if no two of different texts become one."""
    whole = [value for value in values if type(value) is int]
    fractions = [value for value in values if type(value) is float and not value.is_integer()]
    if len(whole) + len(fractions) < len(values) or any(abs(value) > 2**53 for value in whole):
        return None
    return np.array(values, np.float64)


def written_values(values: Sequence[Any]) -> NDArray[Any]:
    """Values of JSON as an array that has the same values; of objects where they are not of one type."""
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and kinds <= {bool, int, float, str}:
        array = np.array(values)
        if array.dtype.kind in "biuU" or kinds == {float}:
            return array
    return as_objects(values)


def as_objects(values: Sequence[Any]) -> NDArray[Any]:
    """An array with one object a row, also where all of them are lists of one length."""
    return np.fromiter(values, object, len(values))


class CopiedArray(np.ndarray[Any, Any]):
    """An array of a file that is copied to another one: the columns of a matrix are no classes, however many they are."""


@dataclass(frozen=True)
class ArrowColumn:
    """A column of a Parquet file: copied to Parquet as it is, and to other files by its values."""

    name: str
    column: Any

    ndim = 1

    @property
    def shape(self) -> tuple[int]:
        """Its rows."""
        return (len(self.column),)

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, rows: Any) -> ArrowColumn:
        return ArrowColumn(self.name, self.column.take(rows))

    def __arrow_array__(self, type: Any = None) -> Any:  # noqa: A002 - Arrow's protocol
        return self.column if type is None else self.column.cast(type)

    @property
    def values(self) -> NDArray[Any]:
        """The values as NumPy has them; objects where it has no type for them, texts for times and for dates with gaps."""
        from pyarrow import DictionaryType, types  # noqa: PLC0415

        column = self.column
        if isinstance(column.type, DictionaryType):
            column = column.cast(column.type.value_type)
        kind = column.type
        if types.is_floating(kind) or types.is_duration(kind):
            return np.asarray(column.to_numpy())
        if (types.is_integer(kind) or types.is_boolean(kind)) and not column.null_count:
            return np.asarray(column.to_numpy())
        try:
            return as_objects(_times(column) if _is_time(kind) else column.to_pylist())
        except ValueError as error:
            reason = f"holds {kind}, which has no plain text: {one_line(error)}; write .parquet, or leave it out"
            raise InputError(f"column {self.name!r} {reason}") from error

    @property
    def matrix(self) -> NDArray[Any] | None:
        """Lists of numbers of one length, of the type that they are stored in; None of other columns."""
        from pyarrow import types  # noqa: PLC0415

        kind = self.column.type
        if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
            return None
        of_values = kind.value_type
        is_number = types.is_integer(of_values) or types.is_floating(of_values) or types.is_boolean(of_values)
        if not is_number or self.column.null_count:
            return None
        lists = self.column.combine_chunks()
        lengths, flat = lists.value_lengths().unique().to_pylist(), lists.flatten()
        if len(lengths) != 1 or flat.null_count:
            return None
        matrix: NDArray[Any] = flat.to_numpy(zero_copy_only=False).reshape(len(lists), *lengths)
        return matrix


def _is_time(kind: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415

    return types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind)


def _times(column: Any) -> list[str | None]:
    """Times and dates in ISO 8601, with their zone."""
    from pyarrow import ArrowInvalid, string, timestamp, types  # noqa: PLC0415

    try:
        texts = column.cast(string())
    except ArrowInvalid:  # no data of time zones on this machine
        if not types.is_timestamp(column.type):
            raise
        texts = column.cast(timestamp(column.type.unit, "UTC")).cast(string())
    return [None if text is None else iso_time(text) for text in texts.to_pylist()]


def iso_time(text: str) -> str:
    """A time of Arrow or NumPy in ISO 8601, without a fraction of zeros.

    >>> iso_time("2026-01-02 05:00:00.000000+0200"), iso_time("2026-01-02 03:00:00.500Z")
    ('2026-01-02T05:00:00+02:00', '2026-01-02T03:00:00.500+00:00')
    """
    text = NO_FRACTION.sub("", text.replace(" ", "T", 1))
    if "T" not in text:
        return text
    return f"{text[:-1]}+00:00" if text.endswith("Z") else ZONE.sub(r"\1:\2", text)


def duration_text(ticks: int, unit: str) -> str:
    """A duration in ISO 8601, in seconds.

    >>> duration_text(1_500, "ms"), duration_text(-2, "D")
    ('PT1.5S', '-PT172800S')
    """
    if unit not in SECONDS:  # months differ in length
        return f"{ticks} {unit}"
    seconds = Decimal(ticks) * SECONDS[unit]
    return f"{'-' if seconds < 0 else ''}PT{abs(seconds).normalize():f}S"


def json_values(array: Any) -> list[Any]:
    """The values of a column or matrix as JSON has them: other types as their plain text, missing ones as None."""
    values = array.values if isinstance(array, ArrowColumn) else array
    kind = values.dtype.kind
    if kind == "M":
        return [None if text == "NaT" else iso_time(text) for text in np.datetime_as_string(values).tolist()]
    if kind == "m":
        unit, count = np.datetime_data(values.dtype)
        is_known = ~np.isnat(values)
        ticks = zip(values.astype(np.int64).tolist(), is_known.tolist(), strict=True)
        return [duration_text(tick * count, unit) if known else None for tick, known in ticks]
    if isinstance(array, ArrowColumn) and kind == "f":  # where a value may be missing and another not a number
        return list(array.column.to_pylist())
    if kind not in "OSc":
        return list(values.tolist())
    entries = values.tolist()
    is_text = all(map(_is_utf8, entries))
    return [_plain(value, is_text=is_text) for value in entries]


def _is_utf8(value: Any) -> bool:
    try:
        return not isinstance(value, bytes) or value.decode() is not None
    except UnicodeDecodeError:
        return False


def _plain(value: Any, *, is_text: bool) -> Any:
    """A value as JSON has it; bytes that are no text in hexadecimal digits."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(one, is_text=is_text) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one, is_text=is_text) for key, one in value.items()}
    if isinstance(value, bytes):
        return value.decode() if is_text else value.hex()
    return _text(value)


def _text(value: Any) -> str:
    """The text of a value that JSON does not have."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return duration_text(value // timedelta(microseconds=1), "us")
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def matrix_of(column: Any) -> NDArray[Any] | None:
    """A copied column of lists of one length as a matrix with the same values; None of other columns.

    >>> matrix_of(as_objects([[1, 2], [3, 4]])).shape, matrix_of(as_objects([[1, 2], [3]])), matrix_of(np.zeros((2, 2)))
    ((2, 2), None, None)
    """
    if isinstance(column, ArrowColumn):
        return column.matrix
    if isinstance(column, CopiedArray) and column.ndim == 2:
        return np.asarray(column)
    if column.dtype.kind != "O" or column.ndim != 1:
        return None
    lists = column.tolist()
    if not all(isinstance(one, list) for one in lists) or len({len(one) for one in lists}) != 1:
        return None
    try:
        matrix = np.array(lists)
    except (ValueError, OverflowError):  # lists in lists, of different lengths
        return None
    is_plain = matrix.ndim == 2 and matrix.dtype.kind in "biufU"
    return matrix if is_plain and all(map(_are_same, matrix.tolist(), lists)) else None


def _are_same(row: Sequence[Any], entries: Sequence[Any]) -> bool:
    """Whether values are equal, or not numbers (NaN) in both."""
    pairs = zip(row, entries, strict=True)
    return all(
        (one == other and isinstance(one, bool) == isinstance(other, bool)) or (one != one and other != other)  # noqa: PLR0124
        for one, other in pairs
    )


def cells(array: Any) -> list[Any]:
    """The values of a column for a table of texts: missing ones are empty, lists and objects are JSON."""
    values = json_values(array)
    if not isinstance(array, ArrowColumn) and array.dtype.kind in "biufU":
        return values
    return [cell(value) for value in values]


def cell(value: Any) -> Any:
    """A value of JSON for a table of texts."""
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def storable(array: Any) -> NDArray[Any]:
    """An array without objects, for files of arrays: lists of one length are rows, values without a type are texts."""
    array = array if isinstance(array, ArrowColumn) else np.asarray(array)
    if (matrix := matrix_of(array)) is not None:
        return matrix
    values = array.values if isinstance(array, ArrowColumn) else array
    if values.dtype.kind != "O":
        return values
    numbers = _as_floats(values.tolist())
    return np.array([str(value) for value in cells(array)]) if numbers is None else numbers
