"""Labels as column numbers: whole numbers are numbers in whatever type they come, texts are names, and nothing is guessed."""

from __future__ import annotations

import re
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.columns import name_key, shown
from rhocal.errors import InputError, counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from rhocal.data.blocks import BlockRef

NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
"""A text that is a number."""

MISSING_LABELS = "labels hold missing values (None or NaN); leave those samples out"

NAME_EACH_COLUMN = {"argument": "classes", "remedy": "name the label of each column, in order"}


def as_label_array(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels of one kind: integers for whole numbers of any type, texts for bytes and objects that are texts."""
    if labels.dtype.kind == "O" and labels.size and all(isinstance(label, bytes) for label in labels.tolist()):
        labels = labels.astype("S")
    if labels.dtype.kind == "S":
        return np.char.decode(labels, "utf-8", "replace")
    if labels.dtype.kind == "O" and labels.size:
        labels = _as_one_kind(labels)
    if labels.dtype.kind == "f" and (np.isfinite(labels) & (labels == np.round(labels))).all():
        return _as_integers(labels)
    return labels


def _as_integers(labels: NDArray[Any]) -> NDArray[Any]:
    wide = labels.astype(np.float64)
    large = np.abs(wide) >= 2.0**53  # neighboring whole numbers are one float
    if large.any():
        raise InputError(f"labels must be column numbers or names of classes; got {wide[large][0]:g}")
    return wide.astype(np.int64)


def _as_one_kind(labels: NDArray[Any]) -> NDArray[Any]:
    values = labels.tolist()
    if all(isinstance(value, str) for value in values):
        return labels.astype(str)
    if all(isinstance(value, bool | np.bool_) for value in values):
        return labels.astype(bool)
    for kinds, dtype in (((Integral,), np.int64), ((Real, Decimal), np.float64)):
        if all(isinstance(value, kinds) and not isinstance(value, bool | np.bool_) for value in values):
            try:
                return labels.astype(dtype)
            except OverflowError as error:
                raise InputError(f"labels must be column numbers or names of classes: {error}") from error
    return labels


def label_values(labels: Any, ignore_index: int | None) -> NDArray[Any] | None:
    """Labels that names of columns can be compared with; None where there are none to compare."""
    if labels is None:
        return None
    array = np.asarray(labels.detach().cpu() if hasattr(labels, "detach") else labels).reshape(-1)
    array = as_label_array(array)
    array = array[is_kept(array, ignore_index)]
    return array if array.dtype.kind in "iubU" and array.size else None


def is_kept(labels: NDArray[Any], ignore_index: int | None) -> NDArray[np.bool_]:
    """Which labels are not ``ignore_index``; texts never are."""
    if ignore_index is None or labels.dtype.kind not in "iufb":
        return np.ones(len(labels), bool)
    return np.asarray(labels != ignore_index)


def kept_label_columns(
    labels: NDArray[Any], names: NDArray[Any] | None, m: int, name: str, ignore_index: int | None
) -> tuple[NDArray[np.intp], NDArray[Any] | None, NDArray[np.intp] | None]:
    """Labels that are not ``ignore_index`` as column numbers, the names of the columns, and the rows; None for all of them."""
    labels = as_label_array(labels)
    kept = is_kept(labels, ignore_index)
    if kept.all():
        return *label_columns(labels, names, m), None
    rows = np.flatnonzero(kept)
    if not len(rows):
        raise InputError(f"{name} has no samples: every one of the {len(labels)} labels is ignore_index={ignore_index}")
    return *label_columns(labels[rows], names, m), rows


def label_columns(
    labels: NDArray[Any], names: NDArray[Any] | None, m: int
) -> tuple[NDArray[np.intp], NDArray[Any] | None]:
    """Labels as column numbers, and the names of the columns."""
    labels = as_label_array(labels)
    _refuse_empty(labels, names)
    if labels.dtype.kind == "f":
        bad = labels[~(np.isfinite(labels) & (labels == np.round(labels)))][0]
        if np.isnan(labels).any():
            raise InputError(MISSING_LABELS)
        raise InputError(
            f"labels must be column numbers or names of classes; got {bad!r}. Unknown label type: continuous"
        )
    if labels.dtype.kind == "b" and names is None:
        if m > 2:
            raise InputError(f"labels are true or false, but there are {m} columns", **NAME_EACH_COLUMN)
        labels = labels.astype(np.int64)
    by_number = names is None or names.dtype.kind in "US"  # a number is never one of the texts
    if by_number and labels.dtype.kind in "iu":
        _refuse_numbers_as_names(names, labels)
        return _column_numbers(labels, m), names
    return _columns_by_name(labels, names, m)


def _refuse_empty(labels: NDArray[Any], names: NDArray[Any] | None) -> None:
    """Raise an error for texts without a letter, as cells of a table that were left empty, unless a class is named so."""
    if labels.dtype.kind != "U" or (names is not None and "" in names.tolist()):
        return
    empty = np.char.strip(labels) == ""
    if empty.any():
        raise InputError(
            f"labels are empty in {counted(int(empty.sum()), 'row')}, the first is row {int(empty.argmax())}; leave those "
            "samples out"
        )


def _refuse_numbers_as_names(names: NDArray[Any] | None, labels: NDArray[Any]) -> None:
    """Raise an error if names are texts of numbers other than those of the columns: a label 1 may mean either.

    A label that is no name (0, where names count from 1) shows that labels are column numbers.
    """
    if names is None or not all(NUMBER.fullmatch(name) for name in names.tolist()):
        return
    known = [float(name) for name in names.tolist()]
    if known != list(range(len(names))) and np.isin(labels, known).all():
        raise InputError(
            f"labels are whole numbers and classes are texts of numbers ({shown(names.tolist())}): unclear whether a label "
            "is the name of a column or its number; give classes as numbers, or labels as texts",
        )


def _column_numbers(labels: NDArray[Any], m: int) -> NDArray[np.intp]:
    if labels.size and not (labels.min() >= 0 and labels.max() < m):
        bad = (labels < 0) | (labels >= m)
        row = int(bad.argmax())
        ignored = labels[row] == -100
        counts_from_1 = labels.min() >= 1 and labels.max() == m
        hint = f". They seem to count from 1: subtract 1, or name the columns 1 to {m}" if counts_from_1 else ""
        raise InputError(
            f"labels must be column numbers from 0 to {m - 1}; {int(bad.sum())} are not, the first is "
            f"{labels[row]} at row {row}{hint}",
            argument="ignore_index=-100" if ignored else "classes",
            remedy="leave such samples out" if ignored else "name the columns",
        )
    return labels.astype(np.intp, copy=False)


def _columns_by_name(labels: NDArray[Any], names: NDArray[Any] | None, m: int) -> tuple[NDArray[np.intp], NDArray[Any]]:
    if labels.dtype.kind == "O" and any(label is None or label != label for label in labels.flat):  # noqa: PLR0124 - NaN
        raise InputError(MISSING_LABELS)
    try:
        if names is None:
            names = _sorted_values(labels, m)
        if labels.dtype.kind == "U" and names.dtype.kind in "iu":  # "1" and 1 are one name
            known, labels = _same_spelling(names, labels)
        else:
            known = names
        order = np.argsort(known, kind="stable")
        positions = np.searchsorted(known[order], labels)
    except TypeError as error:
        raise InputError(f"labels and classes must be of one sortable type: {error}") from error
    codes = order[np.minimum(positions, m - 1)]
    unseen = known[codes] != labels
    if np.any(unseen):
        examples = ", ".join(repr(value) for value in np.unique(labels[unseen])[:5].tolist())
        raise InputError(f"labels hold {int(np.sum(unseen))} values that are not in classes, such as {examples}")
    return codes.astype(np.intp), names


def _same_spelling(names: NDArray[Any], labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Names that are numbers and labels that are texts, both as texts in one spelling."""
    texts, places = np.unique(labels, return_inverse=True)
    spelled = np.array([name_key(text.strip()) for text in texts.tolist()])
    return names.astype(str), spelled[places.reshape(-1)]


def _sorted_values(labels: NDArray[Any], m: int) -> NDArray[Any]:
    """The different labels in order, one for each column; texts whose order is unclear are an error."""
    values = np.unique(labels)
    if values.dtype.kind == "U":
        values = sorted_texts(values)
    if len(values) != m:
        raise InputError(
            f"labels show {counted(len(values), 'different value')}, but there are {m} columns", **NAME_EACH_COLUMN
        )
    return values


def sorted_texts(values: NDArray[Any]) -> NDArray[Any]:
    """Texts in order; an error for texts of numbers, and for texts that are in another order if their numbers are compared."""
    texts = sorted(values.tolist())
    numbers = [text for text in texts if NUMBER.fullmatch(text)]
    if numbers:
        raise InputError(
            f"labels are texts of numbers ({shown(numbers)}): unclear which column each belongs to; give whole numbers",
            **NAME_EACH_COLUMN,
        )
    if (by_number := sorted(texts, key=_natural)) != texts:
        raise InputError(
            f"labels have another order as texts ({shown(texts)}) than by their numbers ({shown(by_number)}): unclear which "
            "column each belongs to",
            **NAME_EACH_COLUMN,
        )
    return np.array(texts)


def text_classes(blocks: Iterable[BlockRef]) -> NDArray[Any] | None:
    """The classes that texts as labels show, in all blocks together: a block need not show every class. None for others."""
    values: set[str] = set()
    for block in blocks:
        labels = as_label_array(np.asarray(getattr(block, "text_labels", None)).reshape(-1))
        if labels.dtype.kind != "U":
            return None
        values.update(np.unique(labels).tolist())
    return sorted_texts(np.array(sorted(values))) if values else None


def _natural(text: str) -> list[tuple[int, int, str]]:
    """A key that compares numbers inside texts by value: c2 before c10."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part]
