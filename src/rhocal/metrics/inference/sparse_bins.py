"""The error of bins in which nearly all samples are right, or nearly all wrong: exact, as few errors are not normal.

One error of 100 at a confidence of 0.99 is what a perfect model makes, and what one with twice as many errors often makes too.
In units of a standard deviation that is estimated from one error, the second looks impossible.

The rate of errors, or of right samples where these are few, has a mid-p interval in each bin (Lancaster 1961): p is kept if
P(K < k) + P(K = k)/2 is not in the tails of the binomial distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics.special import binomial_cdf

if TYPE_CHECKING:
    from rhocal.numerics.special import Vector

MAX_ERRORS = 10.0
"""Errors of a bin, observed and expected, from which on their sum is taken as normal."""
MAX_RATE = 0.1
"""The largest share of errors in a bin of few: beyond, a bin has few samples and not few errors."""
N_HALVINGS = 60


@dataclass(frozen=True)
class RareErrors:
    """A bin with few errors, or with few right samples."""

    n: float
    observed: float
    expected: float

    def gap_interval(self, level: float) -> tuple[float, float]:
        """The interval of |rate − expected rate| among these samples."""
        low, high = rate_interval(self.observed, self.n, level)
        rate = self.expected / self.n
        if low <= rate <= high:
            return 0.0, max(high - rate, rate - low)
        return (low - rate, high - rate) if low > rate else (rate - high, rate - low)


def rare_errors(weight: Vector, right: Vector, confident: Vector) -> dict[int, RareErrors]:
    """The bins with few errors or few right samples, by their number.

    ``right`` and ``confident`` are the sums of correct and of confidence in each bin.
    """
    sparse = {}
    for observed, expected in ((weight - right, weight - confident), (right, confident)):
        larger = np.maximum(observed, expected)
        for k in np.flatnonzero((weight > 0) & (larger <= MAX_RATE * weight) & (larger < MAX_ERRORS)).tolist():
            sparse[k] = RareErrors(float(weight[k]), float(observed[k]), float(expected[k]))
    return sparse


def rate_interval(k: float, n: float, level: float) -> tuple[float, float]:
    """The mid-p interval of a rate, of k in n; k and n may be fractions.

    >>> [round(limit, 4) for limit in rate_interval(0, 300, 0.95)]
    [0.0, 0.0099]
    """
    tail = (1 - level) / 2
    low = 0.0 if k <= 0 else _rate_where(k, n, 1 - tail)
    return low, 1.0 if k >= n else _rate_where(k, n, tail)


def _rate_where(k: float, n: float, chance: float) -> float:
    """The rate at which P(K < k) + P(K = k)/2 is ``chance``; it falls with the rate."""
    low, high = 0.0, 1.0
    counts, trials = np.array([k, k - 1 if k > 0 else 0.0]), np.full(2, n)
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        at_most, below = binomial_cdf(counts, trials, middle)
        chance_below = (at_most + (below if k > 0 else 0.0)) / 2
        low, high = (middle, high) if chance_below > chance else (low, middle)
    return (low + high) / 2
