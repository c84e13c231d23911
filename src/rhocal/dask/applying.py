"""A calibrator on Dask arrays and data frames: computed when asked for, block by block."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.applying import OUTPUT_METHODS
from rhocal.dask.frames import check_lists, is_frame, of_partitions
from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator


def apply_lazily(
    calibrator: Calibrator, scores: Any, output: str, kind: Any = None, class_axis: int = -1, groups: Any = None
) -> Any:
    """Calibrated probabilities or logits, or predicted classes, as a Dask array.

    A frame is calibrated partition by partition, with columns matched by name as in memory.
    """
    m = len(calibrator.classes_)
    if groups is not None:
        raise InputError(
            "groups: a Dask array is calibrated without groups; apply the calibrator to each block with its own"
        )
    n_columns = m if is_frame(scores) else (scores.shape[1] if scores.ndim == 2 else None)
    if n_columns != m or class_axis not in {-1, 1}:
        raise InputError(
            f"a Dask array of logits has shape (n_samples, {m}) here, with class_axis=-1; got {scores.shape}"
        )
    apply = getattr(calibrator, OUTPUT_METHODS[output])
    is_single = not is_frame(scores) and scores.dtype.itemsize <= 4 and scores.dtype.kind == "f"
    dtype = calibrator.classes_.dtype if output == "predicted" else np.dtype(np.float32 if is_single else np.float64)
    empty = np.empty((0,) if output == "predicted" else (0, m), dtype)
    work = partial(_apply_to_part, apply, kind, empty)
    if is_frame(scores):
        check_lists(scores)
        return of_partitions(work, scores, dtype, None if output == "predicted" else m)
    return scores.rechunk({1: -1}).map_blocks(
        work, dtype=dtype, meta=empty, drop_axis=1 if output == "predicted" else None
    )


def _apply_to_part(apply: Any, kind: Any, empty: Any, part: Any) -> Any:
    """The result for a chunk or partition, which may be empty: a filter leaves such."""
    return np.asarray(apply(part, kind=kind), empty.dtype) if len(part) else empty
