"""Dask data frames and columns of lists as Dask arrays."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.arrays import unpack_lists
from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable


def is_frame(values: Any) -> bool:
    """Whether it is a Dask data frame or a column of one."""
    return hasattr(values, "to_dask_array")


def as_array(scores: Any) -> Any:
    """A Dask array of the scores of a frame, one column for each class, or of a column of lists. Arrays stay as they are."""
    if not is_frame(scores):
        return scores
    if scores.ndim == 2 and len(scores.columns) > 1:
        return scores.to_dask_array(lengths=True)
    check_lists(scores)
    first = list_matrix(scores.head(1, npartitions=-1))
    return of_partitions(partial(list_matrix, n_columns=first.shape[1]), scores, first.dtype, first.shape[1])


def check_lists(frame: Any) -> None:
    """Raise an error for a single column whose lists Dask has turned into texts."""
    dtypes = [frame.dtype] if frame.ndim == 1 else list(frame.dtypes)
    if len(dtypes) == 1 and str(dtypes[0]).startswith(("string", "str")):
        raise not_lists(dtypes[0])


def not_lists(dtype: Any) -> InputError:
    """The error for a column that holds no lists."""
    return InputError(
        f"logits: a Dask column of {dtype} holds no lists of numbers; where Dask turned them into text, set "
        "dask.config.set({'dataframe.convert-string': False}) before the frame is made"
    )


def column_array(values: Any) -> Any:
    """A column of labels or weights as a Dask array, whose chunks are the partitions."""
    dtype = np.asarray(values.head(1, npartitions=-1)).dtype
    return of_partitions(np.asarray, values, dtype).compute_chunk_sizes()


def of_partitions(work: Callable[[Any], Any], frame: Any, dtype: np.dtype[Any], n_columns: int | None = None) -> Any:
    """A Dask array of what a function gives for every partition of a frame."""
    import dask  # noqa: PLC0415 - `rhocal.dask` checks that it is installed
    import dask.array as da  # noqa: PLC0415

    engine: Any = dask  # it comes with half of its types
    shape = (np.nan,) if n_columns is None else (np.nan, n_columns)
    parts = [engine.delayed(work)(part) for part in frame.to_delayed()]
    return da.concatenate([da.from_delayed(part, shape, dtype=dtype) for part in parts], allow_unknown_chunksizes=True)  # type: ignore[no-untyped-call]


def list_matrix(column: Any, n_columns: int = 0) -> Any:
    """The lists of a partition as a matrix; of an empty partition one of so many columns."""
    if not len(column) and n_columns:
        return np.empty((0, n_columns))
    matrix = np.asarray(unpack_lists(column, "logits"))
    if matrix.ndim != 2 or matrix.dtype.kind == "O":
        raise not_lists(getattr(column, "dtype", "objects"))
    return matrix
