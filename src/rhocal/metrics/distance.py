"""How far predictions are from the nearest calibrated ones.

The distance to calibration is the least mean |c − g| over all calibrated predictors g (Błasiok, Gopalan, Hu & Nakkiran
2023). It cannot be computed from samples, but it has bounds on both sides that can:

* Let f be a function of the confidence with |f| ≤ 1 and slope at most 1. Then mean f(c)·(correct − c) is at most twice the
  distance. Its maximum over f is the smooth calibration error, so half of it is a lower bound.
* The mean accuracy of a group of samples, as their confidence, is calibrated. So the mean |c − accuracy of the group| is an
  upper bound for every grouping by confidence.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.decompositions import isotonic_accuracy
from rhocal.metrics.smooth import GRID_INTERVALS, ResidualGrid
from rhocal.metrics.sums import MetricSums

if TYPE_CHECKING:
    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

STEPS = 1024
"""Intervals of the grid between whose points f is linear: the value is too small by at most 1/2,048."""


def smooth_calibration(scored: Scored) -> MetricSums:
    """Smooth calibration error: the largest mean f(c)·(correct − c) over functions with |f| ≤ 1 and slope at most 1.

    Half of it is at most the distance to calibration. Not to be confused with ``smooth_ece``, which smooths with a kernel.
    """
    return MetricSums(ResidualGrid.of(scored), largest_lipschitz_mean)


def largest_lipschitz_mean(grid: ResidualGrid) -> float:
    """The maximum, by dynamic programming from the left to the right.

    V(f) is the best sum so far if the function ends at height f. It is concave, and linear between multiples of a step, because
    the best f has such heights. ``slopes`` are those of V. A step to the right may change f by one step of height: the slopes
    above and below the maximum move apart, two of slope 0 come in between, and one on either side leaves |f| ≤ 1. The next
    point adds its residual to every slope: it is kept apart as ``shift``.
    """
    residual = _coarser(grid.residual) / grid.weight
    slopes, shift = [0.0] * (2 * STEPS), float(residual[0])
    at_least = -float(residual[0])  # V(−1)
    for r in residual[1:].tolist():
        steepest = -(slopes[0] - shift)  # kept with the other sign: they ascend
        at_least += max(steepest, 0.0) / STEPS - r
        insort(slopes, shift)
        insort(slopes, shift)
        del slopes[0], slopes[-1]
        shift += r
    return at_least + float(np.maximum(shift - np.array(slopes), 0).sum()) / STEPS


def _coarser(residual: Vector) -> Vector:
    """Shared out between the points of the grid of ``STEPS``, as they would have been from the samples."""
    width = GRID_INTERVALS // STEPS
    inner = residual[:-1].reshape(STEPS, width)
    right = np.arange(width) / width
    coarse = np.zeros(STEPS + 1)
    coarse[:-1] += inner @ (1 - right)
    coarse[1:] += inner @ right
    coarse[-1] += residual[-1]
    return coarse


def distance_bounds(scored: Scored) -> tuple[float, float]:
    """A lower and an upper bound of the distance to calibration: see above; groups are those of the isotonic accuracy."""
    ranked = scored.ranked
    upper = ranked.weight @ np.abs(isotonic_accuracy(ranked) - ranked.mean) / ranked.weight.sum()
    lower = smooth_calibration(scored).value / 2
    return min(lower, float(upper)), float(upper)
