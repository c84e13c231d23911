"""Logits times a scale for each sample, such that rounding never changes the decision, and the order of rows."""

from __future__ import annotations

import numpy as np

from rhocal.numerics import kernels
from rhocal.numerics.special import Floats, Vector, exp_normal, row_argmax, row_max, row_sum
from rhocal.numerics.threads import over_blocks, row_blocks


def scaled(logits: Floats, scale: Vector, out: Floats | None = None) -> Floats:
    """Every sample's logits times its scale (one a row, or one for all)."""
    out = np.empty_like(logits) if out is None else out
    factors = np.broadcast_to(finite_scale(scale, logits).astype(logits.dtype), len(logits))
    end = 0.5 * float(np.finfo(out.dtype).max)
    for rows in row_blocks(*logits.shape):
        with np.errstate(over="ignore"):
            np.multiply(logits[rows], factors[rows, None], out=out[rows])
        if not -end <= out[rows].min() <= out[rows].max() <= end:
            np.clip(out[rows], -end, end, out=out[rows])
        keep_decision(out[rows], logits[rows])
    return out


def scaled_softmax(logits: Floats, scale: Vector, out: Floats | None = None) -> Floats:
    """Softmax of every sample's logits times its scale (one a row, or one for all)."""
    out = np.empty_like(logits) if out is None else out
    if kernels.softmax(logits, finite_scale(scale, logits), out) is not None:
        return out
    almost = 1 - 8 * np.finfo(logits.dtype).eps
    factors = np.broadcast_to(finite_scale(scale, logits).astype(logits.dtype), len(logits))

    def work(rows: slice) -> None:
        block, p, factor = logits[rows], out[rows], factors[rows]
        # The maximum goes first: scaled logits of 1e30 would overflow their differences otherwise.
        np.subtract(block, row_max(block)[:, None], out=p)
        p *= factor[0] if (factor == factor[0]).all() else factor[:, None]
        exp_normal(p)
        # The top class is at exactly 1. Only others that come close to it could be rounded to the same.
        close = np.count_nonzero(p > almost) > len(p)
        p /= row_sum(p)[:, None]
        if close:
            keep_decision(p, block)

    over_blocks(logits.shape, work)
    return out


def finite_scale(scale: Vector, logits: Floats) -> Vector:
    """The scale, at most the largest number of the logits' type: near 0 it can be larger, and infinity · 0 is NaN."""
    return np.minimum(scale, np.finfo(logits.dtype).max)


def keep_decision(out: Floats, logits: Floats) -> None:
    """Where rounding made two classes equal, lift the one that was ahead (and its ties) by the smallest step there is."""
    top = row_argmax(logits)
    rounded = np.flatnonzero(row_argmax(out) != top)
    if len(rounded):
        block, chosen = logits[rounded], out[rounded]
        lifted = np.nextafter(chosen.max(axis=1, keepdims=True), np.asarray(np.inf, out.dtype))
        out[rounded] = np.where(block == block.max(axis=1, keepdims=True), lifted, chosen)


def keep_order(out: Vector, logits: Vector) -> Vector:
    """Undo what rounding did to the order of a row: where a larger logit got less, it gets as much as the smaller one.

    >>> keep_order(np.array([[0.3, 0.2, 0.1]]), np.array([[1.0, 2.0, 0.0]])).tolist()
    [[0.3, 0.3, 0.1]]
    """
    order = np.argsort(logits, axis=1, kind="stable")
    sorted_out = np.maximum.accumulate(np.take_along_axis(out, order, axis=1), axis=1)
    kept = np.empty_like(out)
    np.put_along_axis(kept, order, sorted_out, axis=1)
    return kept
