"""What stands beside scores, one value for each sample: labels, weights, groups; and names of columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.columns import name_key
from rhocal.data.labels.columns import kept_label_columns
from rhocal.data.scores import first_no_number
from rhocal.errors import InputError, counted, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


NOUNS = {
    "labels": ("label", "labels"),
    "sample_weight": ("weight", "weights"),
    "clusters": ("cluster", "clusters"),
    "groups": ("group", "groups"),
}
"""What arguments hold one of for each sample."""


def per_sample(values: Any, what: str, shape: int | tuple[int, ...], name: str) -> NDArray[Any]:
    """One value for each sample of scores whose samples have this shape (an int: that many, in one row)."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{what} is not one value for each sample: {one_line(error)}") from error
    if array.dtype.kind == "c":
        raise InputError(f"{what} has complex numbers (dtype {array.dtype})")
    wanted = (shape,) if isinstance(shape, int) else shape
    n = math.prod(wanted)
    if array.size != n or array.ndim == 0:
        if what == "labels" and array.ndim == 2 and min(array.shape) > 1:
            raise InputError(
                f"labels has shape {array.shape}, and {name} has {n:,} samples: swapped with the scores, or one-hot? One-hot "
                "labels become classes with argmax(1)"
            )
        given = counted(array.size, *NOUNS.get(what, (what, what)))
        raise InputError(f"{what} and {name} differ in length: {given}, {counted(n, 'sample')}")
    check_sample_shape(array.shape, what, wanted, name)
    return array.reshape(-1)


def check_sample_shape(shape: Sequence[int], what: str, wanted: Sequence[int], name: str) -> None:
    """Raise an error for values on several axes that are not those of the samples: flattened, they would be paired wrongly."""
    axes = [size for size in shape if size != 1]
    samples = [size for size in wanted if size != 1]
    if len(axes) < 2 or axes == samples:
        return
    remedy = f"transpose {what}" if sorted(axes) == sorted(samples) else f"flatten {what} in the order of the samples"
    raise InputError(
        f"{what} has shape {tuple(shape)}, but the samples of {name} have shape {tuple(wanted)} (without the classes): {remedy}"
    )


MAX_WEIGHT = 1e100
"""The largest weight, and the inverse of the smallest that may be the largest: products of three are finite."""


def sample_weights(values: Any, shape: int | tuple[int, ...], name: str) -> NDArray[np.float64]:
    """Finite weights, none negative, one for each sample."""
    flat = per_sample(values, "sample_weight", shape, name)
    try:
        weights = flat.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"sample_weight must hold numbers, and some values are none: {first_no_number(flat, error)}"
        ) from error
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"sample_weight must be finite and not negative; {int(bad.sum())} are not, the first is "
            f"{weights[row]:g} at row {row}"
        )
    largest = float(weights.max(initial=0.0))
    if largest and not 1 / MAX_WEIGHT <= largest <= MAX_WEIGHT:
        raise InputError(
            f"sample_weight has {largest:g} as its largest value, beyond {1 / MAX_WEIGHT:g} to {MAX_WEIGHT:g}; a weight is how "
            "often a sample counts: multiply all by one number"
        )
    return weights


def sample_groups(values: Any, shape: int | tuple[int, ...], name: str, argument: str = "groups") -> NDArray[Any]:
    """Texts or whole numbers, one for each sample."""
    flat = per_sample(values, argument, shape, name)
    if flat.dtype.kind == "O" and all(isinstance(group, str) for group in flat):
        flat = flat.astype(str)
    if flat.dtype.kind == "O" and all(isinstance(group, int | np.integer) for group in flat):
        flat = flat.astype(np.int64)
    if flat.dtype.kind == "f" and (np.isfinite(flat) & (flat == np.round(flat))).all():
        flat = flat.astype(np.int64)
    if flat.dtype.kind not in "iubU":
        raise InputError(
            f"{argument} must be texts or whole numbers, one for each sample and none missing; got dtype {flat.dtype}"
        )
    return flat if flat.dtype.kind == "U" else flat.astype(np.int64)


def refuse_empty_clusters(names: NDArray[Any]) -> None:
    """An empty text, as a table has where nothing is known, is not the name of a cluster."""
    if names.dtype.kind == "U" and (names == "").any():
        raise InputError("clusters has empty names; every sample needs a cluster, if need be one of its own")


def cluster_numbers(values: Any, shape: int | tuple[int, ...], name: str) -> NDArray[np.intp] | None:
    """The number of the cluster of each sample; None where every sample is a cluster of its own."""
    names, numbers = np.unique(sample_groups(values, shape, name, "clusters"), return_inverse=True)
    refuse_empty_clusters(names)
    return None if len(names) == len(numbers) else numbers.astype(np.intp)


def class_names(classes: Any, m: int) -> NDArray[Any]:
    """The names of m columns, all different."""
    names = np.asarray(classes)
    if names.dtype.kind == "S":
        names = np.char.decode(names, "utf-8", "replace")
    if names.dtype.kind == "O" and all(isinstance(name, str) for name in names.flat):
        names = names.astype(str)
    if names.ndim != 1 or len(names) != m:
        got = f"{len(names)} names" if names.ndim == 1 else f"shape {names.shape}"
        raise InputError(
            f"classes must name the {m} columns; got {got}. Unless stated, they are those of the calibrator"
        )
    try:
        unique, counts = np.unique(names, return_counts=True)
    except TypeError as error:
        raise InputError(f"classes must be all texts or all numbers: {one_line(error)}") from error
    if len(unique) != m:
        raise InputError(f"classes must differ; {unique[counts > 1].tolist()[0]!r} stands there {counts.max()} times")
    return names


def sample_labels(
    labels: Any,
    names: NDArray[Any] | None,
    shape: int | tuple[int, ...],
    m: int,
    name: str,
    ignore_index: int | None,
) -> tuple[NDArray[np.intp], NDArray[Any] | None, NDArray[np.intp] | None]:
    """Labels as numbers of m columns, the names of these, and the rows whose label is not ignored; None for all of them."""
    return kept_label_columns(per_sample(labels, "labels", shape, name), names, m, name, ignore_index)


def positive_column(positive: Any, classes: NDArray[Any]) -> int:
    """The column of the positive class, given by its name or else by its number."""
    if len(classes) != 2:
        raise InputError(f"positive is for two classes; there are {len(classes)}")
    names = classes.tolist()
    texts = [str(name) for name in names]
    if positive in names:
        return names.index(positive)
    keys = [name_key(text) for text in texts]
    if name_key(positive) in keys:  # 1 and "1" are one name, which comes before the number of a column
        return keys.index(name_key(positive))
    is_text = isinstance(positive, str)
    number: Any = int(positive) if is_text and positive.isdecimal() else None if is_text else positive
    if isinstance(number, int | np.integer) and number in {0, 1}:
        return int(number)
    raise InputError(
        f"positive must be one of the classes {texts[0]} and {texts[1]}, or a column, 0 or 1; got {positive!r}"
    )
