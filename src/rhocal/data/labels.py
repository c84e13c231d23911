"""What stands beside scores, one value for each sample: labels as column numbers, weights, groups; and names of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def per_sample(values: Any, what: str, n: int, name: str) -> NDArray[Any]:
    """One value for each sample."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.size != n or array.ndim == 0:
        raise InputError(f"{what} and {name} differ in length: {array.size} {what}, {n} samples")
    return array.reshape(-1)


def sample_weights(values: Any, n: int, name: str) -> NDArray[np.float64]:
    """Finite weights, none negative, one for each sample."""
    flat = per_sample(values, "sample_weight", n, name)
    try:
        weights = flat.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must hold numbers: {error}") from error
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"sample_weight must be finite and not negative; {int(bad.sum())} are not, the first is "
            f"{weights[row]:g} at row {row}"
        )
    return weights


def sample_groups(values: Any, n: int, name: str) -> NDArray[Any]:
    """Texts or whole numbers, one for each sample."""
    flat = per_sample(values, "groups", n, name)
    if flat.dtype.kind == "O" and all(isinstance(group, str) for group in flat):
        flat = flat.astype(str)
    if flat.dtype.kind == "O" and all(isinstance(group, int | np.integer) for group in flat):
        flat = flat.astype(np.int64)
    if flat.dtype.kind == "f" and (np.isfinite(flat) & (flat == np.round(flat))).all():
        flat = flat.astype(np.int64)
    if flat.dtype.kind not in "iubU":
        raise InputError(
            f"groups must be texts or whole numbers, one for each sample and none missing; got dtype {flat.dtype}"
        )
    return flat if flat.dtype.kind == "U" else flat.astype(np.int64)


def class_names(classes: Any, m: int) -> NDArray[Any]:
    """The names of m columns, all different."""
    names = np.asarray(classes)
    if names.dtype.kind == "O" and all(isinstance(name, str) for name in names.flat):
        names = names.astype(str)
    if names.ndim != 1 or len(names) != m:
        raise InputError(f"classes must name the {m} columns; got shape {names.shape}")
    unique, counts = np.unique(names, return_counts=True)
    if len(unique) != m:
        raise InputError(f"classes must differ; {unique[counts > 1].tolist()[0]!r} stands there {counts.max()} times")
    return names


def sample_labels(
    labels: Any, names: NDArray[Any] | None, shape: tuple[int, int], name: str, ignore_index: int | None
) -> tuple[NDArray[np.intp], NDArray[Any] | None, NDArray[np.intp] | None]:
    """Labels as column numbers, the names of the columns, and the rows whose label is not ignored; None for all of them."""
    n, m = shape
    flat, rows = per_sample(labels, "labels", n, name), None
    if ignore_index is not None and not (kept := flat != ignore_index).all():
        rows = np.flatnonzero(kept)
        if not len(rows):
            raise InputError(f"{name} has no samples: every one of the {n} labels is ignore_index={ignore_index}")
        flat = flat[rows]
    return *label_columns(flat, names, m), rows


def label_values(labels: Any, ignore_index: int | None) -> NDArray[Any] | None:
    """Labels that names of columns can be compared with, whole numbers as such; None where there are none to compare."""
    if labels is None:
        return None
    array = np.asarray(labels.detach().cpu() if hasattr(labels, "detach") else labels).reshape(-1)
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array):
        array = array.astype(str)
    if array.dtype.kind == "f" and (np.isfinite(array) & (array == np.round(array))).all():
        array = array.astype(np.int64)
    if ignore_index is not None:
        array = array[array != ignore_index]
    return array if array.dtype.kind in "iubU" and array.size else None


def label_columns(
    labels: NDArray[Any], names: NDArray[Any] | None, m: int
) -> tuple[NDArray[np.intp], NDArray[Any] | None]:
    """Labels as column numbers."""
    if labels.dtype.kind == "f":
        if not (np.isfinite(labels) & (labels == np.round(labels))).all():
            bad = labels[~(np.isfinite(labels) & (labels == np.round(labels)))][0]
            raise InputError(
                f"labels must be column numbers or names of classes; got {bad!r}. Unknown label type: continuous"
            )
        labels = labels.astype(np.int64)
    if labels.dtype.kind == "b" and names is None:
        labels = labels.astype(np.int64)
    by_number = names is None or names.dtype.kind in "US"  # a number is never one of the texts
    if by_number and labels.dtype.kind in "iu":
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
        return labels.astype(np.intp, copy=False), names
    return _columns_by_name(labels, names, m)


def positive_column(positive: Any, classes: NDArray[Any]) -> int:
    """The column of the positive class, given by its name or else by its number."""
    if len(classes) != 2:
        raise InputError(f"positive is for two classes; there are {len(classes)}")
    names = classes.tolist()
    texts = [str(name) for name in names]
    if isinstance(positive, str):  # as the command line gives it: a number may be a name or a column
        if positive in texts:
            return texts.index(positive)
        number: Any = int(positive) if positive.isdecimal() else None
    else:
        if positive in names:
            return names.index(positive)
        number = positive
    if isinstance(number, int | np.integer) and number in {0, 1}:
        return int(number)
    raise InputError(
        f"positive must be one of the classes {texts[0]} and {texts[1]}, or a column, 0 or 1; got {positive!r}"
    )


def _columns_by_name(labels: NDArray[Any], names: NDArray[Any] | None, m: int) -> tuple[NDArray[np.intp], NDArray[Any]]:
    if labels.dtype.kind == "O":
        if any(label is None or label != label for label in labels.flat):  # noqa: PLR0124 - NaN is not itself
            raise InputError("labels hold missing values (None or NaN); leave those samples out")
        if all(isinstance(label, str) for label in labels.flat):
            labels = labels.astype(str)
    try:
        if names is None:
            names = _sorted_values(labels)
            if len(names) != m:
                raise InputError(
                    f"labels show {len(names)} different values, but there are {m} columns",
                    argument="classes",
                    remedy="name the label of each column, in order",
                )
        order = np.argsort(names, kind="stable")
        positions = np.searchsorted(names[order], labels)
    except TypeError as error:
        raise InputError(f"labels and classes must be of one sortable type: {error}") from error
    codes = order[np.minimum(positions, m - 1)]
    unseen = names[codes] != labels
    if np.any(unseen):
        shown = ", ".join(repr(value) for value in np.unique(labels[unseen])[:5].tolist())
        raise InputError(f"labels hold {int(unseen.sum())} values that are not in classes, such as {shown}")
    return codes.astype(np.intp), names


def _sorted_values(labels: NDArray[Any]) -> NDArray[Any]:
    """The different labels in order; texts of digits in the order of their numbers."""
    values = np.unique(labels)
    if values.dtype.kind == "U" and all(value.isdecimal() for value in values.tolist()):
        return values[np.argsort([int(value) for value in values.tolist()], kind="stable")]
    return values
