"""Where a ridge pulls to: 0, or in replicates of a fit a draw from the prior that the ridge stands for.

A ridge moves an estimate toward its center, and reweighted samples do not show by how much: their fits are all moved alike, so
that an interval from them is too narrow. If the center is drawn too, replicates of a linear model are draws from its posterior,
whose intervals have their level on average over the prior (randomized maximum a posteriori).
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rhocal.numerics.special import Vector

_SEED: ContextVar[tuple[int, ...] | None] = ContextVar("ridge_centers", default=None)


@contextmanager
def drawn_centers(*seed: int) -> Iterator[None]:
    """Draw the centers of all ridges inside; fits of as many parameters have the same draws."""
    token = _SEED.set(seed)
    try:
        yield
    finally:
        _SEED.reset(token)


def ridge_centers(precision: Vector) -> Vector:
    """The center of each parameter. A ridge precision/2·x², beside a sum over samples, is a normal prior of this precision."""
    seed = _SEED.get()
    if seed is None:
        return np.zeros_like(precision)
    drawn = np.random.default_rng((*seed, precision.size)).standard_normal(precision.shape)
    with np.errstate(divide="ignore"):
        return np.where(precision > 0, drawn / np.sqrt(precision), 0.0)
