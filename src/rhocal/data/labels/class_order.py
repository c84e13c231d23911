"""Named columns in the order of the classes, and labels that count columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.columns import check_classes_named, match_columns, name_key, order_of_fit, shown, spellings
from rhocal.data.labels.columns import label_values
from rhocal.data.score_names import score_class, score_name
from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    order, names = _order(columns, names, values, spec)
    if order is None:
        return table, names, None
    table = np.ascontiguousarray(table[:, order])
    if values is None or values.dtype.kind not in "iu":
        return table, names, None
    if names is not None and are_class_names(columns, names):
        if not _count_columns(values, names):
            return table, names, None
        if spec.labels_count_columns:
            return table, names, np.argsort(order).astype(np.intp)
    elif names is None or names.dtype.kind in "iu":
        return table, names, None  # labels are classes that are numbers, whatever columns they came with
    other = f"the classes ({shown(names.tolist())})"
    if spec.columns_of_fit is not None and not are_class_names(columns, names):
        other = f"those of the fit ({shown(spec.columns_of_fit)})"
    raise InputError(
        f"labels are whole numbers, and the columns ({shown(columns)}) stand in another order than {other}: unclear which of "
        "them labels count; give labels by name",
        argument="columns" if spec.columns is not None else None,
        remedy="name the columns in the order that labels count",
    )


def _order(
    columns: tuple[str, ...], names: NDArray[Any] | None, values: NDArray[Any] | None, spec: InputSpec
) -> tuple[NDArray[np.intp] | None, NDArray[Any] | None]:
    """Where the columns of the classes stand: those of the fit first, whose names need not be those of the classes."""
    is_frame = spec.columns is None
    fitted = spec.columns_of_fit
    if fitted is not None and len(fitted) == 1 and names is not None:
        check_classes_named(fitted[0], columns, names, is_frame=is_frame)
    if names is None or fitted is None or set(fitted) != set(columns):
        return match_columns(columns, names, values, is_frame=is_frame, are_stated=not spec.classes_of_labels)
    order = order_of_fit(fitted, names)
    places = np.array([columns.index(name) for name in fitted], np.intp)
    places = places if order is None else places[order]
    return None if (places == np.arange(len(places))).all() else places, names


def are_class_names(columns: Sequence[str], classes: NDArray[Any]) -> bool:
    """Whether columns are named as the classes, as they are or within what all of them share."""
    wanted = {name_key(name) for name in classes.tolist()}
    return any({name_key(name) for name in names} == wanted for names in spellings(columns))


def counted_names(values: NDArray[Any], spec: InputSpec) -> NDArray[Any] | None:
    """The classes of labels that count named columns; None for other labels, and where it is unclear what they count."""
    if spec.classes is None:
        return None
    names = (
        np.asarray(spec.classes).astype(str) if np.asarray(spec.classes).dtype.kind == "O" else np.asarray(spec.classes)
    )
    if not _count_columns(values, names) or not ((values >= 0) & (values < len(names))).all():
        return None
    if spec.columns is None:
        return names[values]
    if len(spec.columns) != len(names):
        return None
    order, _ = _order(spec.columns, names, None, spec)
    if order is None:
        return names[values]
    is_clear = spec.labels_count_columns and are_class_names(spec.columns, names)
    return names[np.argsort(order)][values] if is_clear else None


def positive_class(
    stated: Any,
    score_column: str | None,
    labels: Any,
    names: NDArray[Any] | None,
    n_classes: int,
    *,
    is_single: bool,
) -> tuple[Any, bool]:
    """The name of the positive class, if it is known, and whether a single column of scores is that of the first class.

    ``stated`` is what the caller states; else the name of the column of scores may.
    """
    if stated is None and score_column is None:
        return None, False
    classes = np.arange(n_classes) if names is None else names
    column = score_class(stated, score_column, classes)
    if column is None:
        return None, False
    positive, is_reversed = classes[column].item(), column == 0 and is_single
    if is_reversed and names is not None and labels is not None and are_column_numbers(labels, names):
        raise InputError(
            f"positive={positive!r} is the first of the named classes and labels are column numbers; name "
            "the positive class second, or give labels by name"
        )
    return positive, is_reversed


def single_column_name(scores: Any, spec: InputSpec) -> str | None:
    """The name of a single column of scores, in the file or the data frame that it came from; None if it has none."""
    own = score_name(scores)
    stated = spec.columns[0] if spec.columns is not None and len(spec.columns) == 1 else None
    if own is not None and stated is not None and own != stated:
        raise InputError(f"blocks differ in the column of scores: {stated!r} and {own!r}")
    return stated if own is None else own
