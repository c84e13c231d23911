"""Features of samples of two populations as numbers: columns matched by name, categories as indicators, gaps marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.arrays import check_tensor, is_tensor
from rhocal.data.columns import frame_columns, shown
from rhocal.data.files import SUFFIXES
from rhocal.data.formats import is_delimited, open_file
from rhocal.data.formats.base import Names, read_all
from rhocal.data.formats.delimited import column_values
from rhocal.errors import FileError, InputError, MissingArrayError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from rhocal.data.files import Split
    from rhocal.data.formats.base import StoredFile
    from rhocal.numerics.special import Floats

MAX_LEVELS = 50
"""Categories of a column that have an indicator each, the most frequent ones."""

MAX_SCORE = 4.0
"""Standardized features beyond this count as this: a square would follow a single outlier."""

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
"""Cells of CSV, in lower case, that hold no number; in a column of texts they are texts."""

Columns = dict[str, "NDArray[Any]"]


def feature_matrices(source: Any, target: Any) -> tuple[Floats, Floats, list[str]]:
    """The features of both samples as standardized numbers, and their names; the unit is that of both together.

    Accepts arrays of shape (n_samples,) or (n_samples, n_features), tensors, and data frames. Columns of a data frame are
    matched by name. A text or category becomes an indicator of each of its values, and a missing number an indicator too.
    """
    ours, theirs = _columns(source, "source"), _columns(target, "target")
    if len(ours) == len(theirs) and (_are_counted(ours) or _are_counted(theirs)):
        theirs = dict(zip(ours, theirs.values(), strict=True))
    missing = [name for name in ours if name not in theirs] + [name for name in theirs if name not in ours]
    if missing:
        raise InputError(
            f"features must be the same in both samples; {shown(missing)} is in one of them only "
            f"(source: {shown(ours)}; target: {shown(theirs)})"
        )
    n_source, n_target = (len(next(iter(columns.values()))) for columns in (ours, theirs))
    if min(n_source, n_target) < 2:
        raise InputError(f"at least two samples of each are needed; got {n_source:,} and {n_target:,}")
    values: list[Floats] = []
    names: list[str] = []
    for name, own in ours.items():
        for part, column in _numbers(own, theirs[name], name):
            low, high = column.min(), column.max()
            if low < high:
                values.append(_standardized(column, low, high))
                names.append(part)
    if not values:
        raise InputError("features do not vary: every sample of both has the same ones")
    table = np.column_stack(values)
    return table[:n_source], table[n_source:], names


def _standardized(column: Floats, low: float, high: float) -> Floats:
    """Mean 0 and spread 1, and no value far out. Numbers are divided by their range first, which cannot overflow."""
    unit = column / max(abs(low), abs(high))
    centered = unit - unit.mean()
    return np.clip(centered / max(float(np.sqrt((centered**2).mean())), 1e-300), -MAX_SCORE, MAX_SCORE)


def _are_counted(columns: Columns) -> bool:
    return list(columns) == [f"feature {k}" for k in range(len(columns))]


def _columns(features: Any, name: str) -> Columns:
    """Columns by name; those of an array are counted."""
    if is_tensor(check_tensor(features, name)):
        features = features.detach().cpu().numpy()
    if isinstance(features, Mapping):
        return _from_mapping(features, name)
    names = frame_columns(features)
    if names is not None:
        if len(set(names)) < len(names):
            raise InputError(f"{name}: columns of features must have different names; got {shown(names)}")
        is_arrow = not hasattr(features, "__getitem__") or type(features).__module__.partition(".")[0] == "pyarrow"
        given = features.schema.names if is_arrow else list(features.columns)
        return {text: np.asarray(features[key]) for text, key in zip(names, given, strict=True)}
    single = list(getattr(features, "columns", ()))
    if len(single) == 1 and isinstance(single[0], str):  # of an Arrow table they are the data
        return {single[0]: np.asarray(features).reshape(len(features), -1)[:, 0]}
    table = np.asarray(features)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or 0 in table.shape:
        raise InputError(f"{name}: features have shape (n_samples, n_features); got {np.shape(features)}")
    return {f"feature {k}": table[:, k] for k in range(table.shape[1])}


def _from_mapping(features: Mapping[str, Any], name: str) -> Columns:
    """Columns by name, those of a matrix with their number."""
    columns: Columns = {}
    for key, array in features.items():
        values = np.asarray(array)
        if values.ndim == 1:
            columns[str(key)] = values
        elif values.ndim == 2:
            columns |= {f"{key} {k}": values[:, k] for k in range(values.shape[1])}
        else:
            raise InputError(f"{name}: features {key} have shape {values.shape}; need (n_samples, n_features)")
    if not columns or len({len(values) for values in columns.values()}) > 1:
        sizes = ", ".join(f"{key}: {len(values):,}" for key, values in columns.items())
        raise InputError(f"{name}: features must have as many values each; got {sizes or 'none'}")
    return columns


def read_features(path: Path, names: Sequence[str], split: Split) -> dict[str, Any]:
    """The named arrays or columns of a file; of a file with two splits, those of one."""
    try:
        file = open_file(path, Names(names[0], names[0]))
    except FileError as error:
        if "unclear which columns" not in str(error):
            raise
        raise FileError(f"{path}: there is no column {names[0]!r} of features") from error
    return {name: cell_numbers(read_all(_array(file, name, split), path), path) for name in names}


def cell_numbers(values: Any, path: Path) -> Any:
    """A column of a file; cells of CSV that are numbers or empty are numbers, of which some are missing."""
    if not is_delimited(path) or np.ndim(values) != 1 or np.asarray(values).dtype.kind != "U":
        return values
    texts = [text.strip() for text in np.asarray(values).tolist()]
    known = [text for text in texts if text.lower() not in MISSING]
    if known and column_values(known).dtype.kind not in "if":
        return values
    return np.array([np.nan if text.lower() in MISSING else float(text) for text in texts])


def _array(file: StoredFile, name: str, split: Split) -> Any:
    for suffix in (*SUFFIXES[split], ""):
        if name + suffix in file.arrays:
            return file.arrays[name + suffix]
    raise MissingArrayError.in_file(file.path, file.describe(), repr(name))


def _numbers(source: NDArray[Any], target: NDArray[Any], name: str) -> list[tuple[str, Floats]]:
    """The numbers that stand for a column of both samples."""
    both = [np.asarray(part) for part in (source, target)]
    if any(part.ndim != 1 for part in both):
        raise InputError(
            f"features: column {name} has {max(part.ndim for part in both)} axes; give one number a sample"
        )
    if any(part.dtype.kind in "mM" for part in both):
        raise InputError(f"features: column {name} holds dates; convert them to numbers, such as days")
    if any(part.dtype.kind == "c" for part in both):
        raise InputError(f"features: column {name} holds complex numbers; give their real and imaginary parts")
    if all(part.dtype.kind in "biuf" for part in both):
        return _with_gaps(np.concatenate([part.astype(np.float64) for part in both]), name)
    try:
        return _with_gaps(np.concatenate([_as_floats(part) for part in both]), name)
    except (TypeError, ValueError):
        texts = np.concatenate([np.array(["" if _is_missing(v) else _text(v) for v in part.tolist()]) for part in both])
    levels, counts = np.unique(texts, return_counts=True)
    chosen = levels[np.lexsort((levels, -counts))[:MAX_LEVELS]]
    return [
        (f"{name} = {level}" if level else f"{name} is missing", (texts == level).astype(float)) for level in chosen
    ]


def _as_floats(part: NDArray[Any]) -> Floats:
    """Numbers among objects; texts are categories, even texts of numbers."""
    values = part.tolist()
    if any(isinstance(value, str | bytes) for value in values):
        raise TypeError
    return np.array([np.nan if _is_missing(value) else value for value in values], np.float64)


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ == "NAType":  # pandas' NA is neither equal nor unequal to itself
        return True
    return bool(value != value)  # noqa: PLR0124 - NaN is not itself


def _text(value: Any) -> str:
    """A category; whole numbers, which gaps make floats, without a point."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _with_gaps(column: Floats, name: str) -> list[tuple[str, Floats]]:
    """A column of numbers; one with missing values has their mean there, and an indicator of them beside it."""
    if np.isinf(column).any():
        raise InputError(f"features: column {name} holds infinite numbers; clip them or leave the column out")
    absent = np.isnan(column)
    if not absent.any():
        return [(name, column)]
    known = column[~absent]
    filled = np.where(absent, known.mean() if known.size else 0.0, column)
    return [(name, filled), (f"{name} is missing", absent.astype(float))]
