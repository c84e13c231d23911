"""Named columns in the order of the classes, and labels that count columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.columns import match_columns, shown
from rhocal.data.label_columns import label_values
from rhocal.data.score_names import score_name
from rhocal.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.arrays import Scores
    from rhocal.data.spec import InputSpec


def are_column_numbers(labels: Any, names: NDArray[Any]) -> bool:
    """Whether labels are column numbers of named columns."""
    values = label_values(labels, None)
    return values is not None and _count_columns(values, names)


def _count_columns(labels: NDArray[Any], names: NDArray[Any]) -> bool:
    """Whether labels are whole numbers, and names texts."""
    return names.dtype.kind in "US" and labels.dtype.kind in "iu"


def in_class_order(
    table: Scores, names: NDArray[Any] | None, labels: Any, spec: InputSpec, columns: tuple[str, ...]
) -> tuple[Scores, NDArray[Any] | None, NDArray[np.intp] | None]:
    """The table with named columns in the order of the classes, the classes, and where columns that labels count now stand.

    It is an error if columns move and labels may count either columns or classes.
    """
    if len(columns) != table.shape[1] or not isinstance(table, np.ndarray):
        return table, names, None
    values = label_values(labels, spec.ignore_index)
    order, names = match_columns(columns, names, values, is_frame=spec.columns is None)
    if order is None:
        return table, names, None
    table = np.ascontiguousarray(table[:, order])
    if names is None or values is None or not _count_columns(values, names):
        return table, names, None
    if not spec.labels_count_columns:
        raise InputError(
            f"labels are whole numbers, and the columns ({shown(columns)}) stand in another order than the classes "
            f"({shown(names.tolist())}): unclear which of them labels count; give labels by name"
        )
    return table, names, np.argsort(order).astype(np.intp)


def single_column_name(scores: Any, spec: InputSpec) -> str | None:
    """The name of a single column of scores, in the file or the data frame that it came from; None if it has none."""
    own = score_name(scores)
    stated = spec.columns[0] if spec.columns is not None and len(spec.columns) == 1 else None
    if own is not None and stated is not None and own != stated:
        raise InputError(f"blocks differ in the column of scores: {stated!r} and {own!r}")
    return stated if own is None else own
