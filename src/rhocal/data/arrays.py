"""What kind of array came in, and the shape in which its results go back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.numerics.special import Floats


def is_tensor(values: Any) -> bool:
    """Whether it is a torch tensor, without importing torch."""
    return type(values).__module__.partition(".")[0] == "torch" and hasattr(values, "detach")


def is_dask(logits: Any) -> bool:
    """Whether it is a Dask array, without importing Dask."""
    return type(logits).__module__.split(".")[0] == "dask"


def in_memory(logits: Any) -> bool:
    """Whether it is neither a stream of blocks nor a Dask array."""
    return not is_dask(logits) and type(logits).__module__ != "rhocal.data.streams"


def required(labels: Any) -> Any:
    """The labels, which must be there."""
    if labels is None:
        raise InputError("labels are missing; a fit needs one label for each sample")
    return labels


def restore_shape(out: Floats, came: Any, class_axis: int) -> Floats:
    """Rows of results in the shape in which the logits came."""
    shape = np.shape(came)
    if len(shape) <= 2 and class_axis % max(len(shape), 1) == len(shape) - 1:
        return out
    axis = class_axis % len(shape)
    rest = [n for i, n in enumerate(shape) if i != axis]
    return np.moveaxis(out.reshape([*rest, out.shape[1]]), -1, axis)
