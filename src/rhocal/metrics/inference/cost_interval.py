"""Intervals of mean costs, and of differences between the costs of two rules on the same samples.

Costs come from a table, so that a sample costs one of few values, and the rarest are often the largest. The mean is
Σ value·share, and the shares are drawn from their posterior: Dirichlet with the counts of the values and ½ for each of those
that are possible (Jeffreys), observed or not. An error that costs 50 and has not occurred yet is then not taken for impossible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL, JEFFREYS
from rhocal.metrics.inference.mean_interval import N_DRAWS

if TYPE_CHECKING:
    from rhocal.numerics.special import Vector

MAX_VALUES = 200
"""Different values whose shares are drawn; with more, the mean of the samples is nearly normal."""
MAX_PRIOR = 2.0
"""Samples that the prior of all values together stands for at most."""


@dataclass(frozen=True)
class MeanCost:
    """A mean cost (or difference) per sample with its 95 % interval."""

    value: float
    low: float
    high: float


def mean_cost(
    values: Vector, possible: Vector, weights: Vector, *, level: float = CONFIDENCE_LEVEL, seed: int = 0
) -> MeanCost:
    """The mean of values with an interval; ``possible`` are values that samples may have."""
    total = float(weights.sum())
    mean = float(weights @ values) / total
    rng = np.random.default_rng(seed)
    if len(kinds := np.unique(np.concatenate([values, possible]))) > MAX_VALUES:
        spread = np.sqrt(float(weights @ (values - mean) ** 2)) / total
        drawn = mean + spread * rng.standard_normal(N_DRAWS)
    else:
        counts = np.bincount(np.searchsorted(kinds, values), weights, len(kinds))
        shares = rng.standard_gamma(counts + min(JEFFREYS, MAX_PRIOR / len(kinds)), (N_DRAWS, len(kinds)))
        drawn = shares @ kinds / shares.sum(axis=1)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return MeanCost(mean, min(float(low), mean), max(float(high), mean))
