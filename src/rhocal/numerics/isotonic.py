"""Isotonic regression of every row along the order of its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics import kernels

if TYPE_CHECKING:
    from rhocal.numerics.special import Vector


def isotonic_rows(values: Vector, keys: Vector) -> Vector:
    """The row nearest to the values of those that do not decrease with the keys; equal keys get one value.

    It is nearest under every Bregman divergence, in least squares and in KL at once, and keeps the sum.

    >>> isotonic_rows(np.array([[0.5, 0.3, 0.2]]), np.array([[1.0, 2.0, 0.0]])).tolist()
    [[0.4, 0.4, 0.2]]
    """
    order = np.argsort(-keys, axis=1)
    ranked, ranked_keys = np.take_along_axis(values, order, axis=1), np.take_along_axis(keys, order, axis=1)
    is_tied = ranked_keys[:, 1:] == ranked_keys[:, :-1]
    rises = ranked[:, 1:] > ranked[:, :-1]
    rows = np.flatnonzero((rises | is_tied).any(axis=1))
    if not len(rows):
        return values
    pooled = np.ascontiguousarray(ranked[rows])
    row_keys = np.ascontiguousarray(ranked_keys[rows], np.float64)
    if kernels.pool(pooled, row_keys) is None:
        for row, key in zip(pooled, row_keys, strict=True):
            pool(row, key)
    out = values.copy()
    part = np.empty_like(pooled)
    np.put_along_axis(part, order[rows], pooled, axis=1)
    out[rows] = part
    return out


def pool(values: Vector, keys: Vector) -> None:
    """Pool adjacent violators of a non-increasing row, in place; equal keys, which lie side by side, get one value."""
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    sizes = np.diff(np.append(starts, len(values)))
    means: list[float] = []
    counts: list[int] = []
    for total, size in zip(np.add.reduceat(values, starts).tolist(), sizes.tolist(), strict=True):
        mean, n = total / size, size
        while means and means[-1] < mean:
            n_before = counts.pop()
            mean = (mean * n + means.pop() * n_before) / (n + n_before)
            n += n_before
        means.append(mean)
        counts.append(n)
    values[:] = np.repeat(means, counts)
