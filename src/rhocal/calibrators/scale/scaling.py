"""Logits times a scale for each sample, such that rounding never changes the decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics import kernels
from rhocal.numerics.special import Floats, exp_normal, row_argmax, row_max, row_sum
from rhocal.numerics.threads import over_blocks, row_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


AT_A_TIME = 1 << 22
"""Entries whose scales are found together before their probabilities: a small share of any large output."""


def scaled(logits: Floats, scale_of: Callable[[slice], NDArray[np.float64]]) -> Floats:
    """Every sample's logits times its scale, block by block."""
    out = np.empty_like(logits)
    for rows in row_blocks(*logits.shape):
        block = logits[rows]
        np.multiply(block, scale_of(rows).astype(block.dtype)[:, None], out=out[rows])
        keep_decision(out[rows], block)
    return out


def scaled_probs(logits: Floats, scale_of: Callable[[slice], NDArray[np.float64]]) -> Floats:
    """Softmax of every sample's logits times its scale, block by block."""
    out = np.empty_like(logits)
    if kernels.supports_matrix(logits):
        for rows in row_blocks(len(logits), logits.shape[1], AT_A_TIME):
            kernels.softmax(logits[rows], scale_of(rows), out[rows])
        return out
    almost = 1 - 8 * np.finfo(logits.dtype).eps

    def work(rows: slice) -> None:
        block, p = logits[rows], out[rows]
        # The maximum goes first: scaled logits of 1e30 would overflow their differences otherwise.
        np.subtract(block, row_max(block)[:, None], out=p)
        scale = scale_of(rows).astype(p.dtype)
        p *= scale[0] if (scale == scale[0]).all() else scale[:, None]
        exp_normal(p)
        # The top class is at exactly 1. Only others that come close to it could be rounded to the same.
        close = np.count_nonzero(p > almost) > len(p)
        p /= row_sum(p)[:, None]
        if close:
            keep_decision(p, block)

    over_blocks(logits.shape, work)
    return out


def keep_decision(out: Floats, logits: Floats) -> None:
    """Where rounding made two classes equal, lift the one that was ahead (and its ties) by the smallest step there is."""
    top = row_argmax(logits)
    rounded = np.flatnonzero(row_argmax(out) != top)
    if len(rounded):
        block, chosen = logits[rounded], out[rounded]
        lifted = np.nextafter(chosen.max(axis=1, keepdims=True), np.asarray(np.inf, out.dtype))
        out[rounded] = np.where(block == block.max(axis=1, keepdims=True), lifted, chosen)
