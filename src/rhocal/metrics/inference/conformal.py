"""Split conformal prediction: the limit of a score that covers new samples with a stated probability.

If n scores and that of a new sample are exchangeable, the new one is at most the k-th smallest with a probability of at least
k / (n + 1), and without ties of exactly that. With k = ⌈(n + 1) · coverage⌉ the coverage is between ``coverage`` and
``coverage + 1 / (n + 1)`` (Vovk, Gammerman and Shafer 2005; Lei and others 2018). That is the mean over draws of the n samples;
for one draw it has the distribution Beta(k, n + 1 − k).
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL
from rhocal.numerics.special import binomial_upper

if TYPE_CHECKING:
    from rhocal.numerics.special import Vector


def conformal_rank(n: int, coverage: float) -> int:
    """⌈(n + 1) · coverage⌉, of the coverage as it is written: 100 · 0.07 is 7, though not in binary.

    >>> conformal_rank(99, 0.9), conformal_rank(99, 0.07)
    (90, 7)
    """
    return ceil((n + 1) * Fraction(str(coverage)))


def samples_for(coverage: float) -> int:
    """The fewest samples whose largest score is a limit for this coverage.

    >>> samples_for(0.9), samples_for(0.99)
    (9, 99)
    """
    return ceil(1 / (1 - Fraction(str(coverage)))) - 1


def conformal_limit(scores: Vector, weights: Vector, coverage: float) -> float | None:
    """The score that covers; None if there are too few samples. Weights are counts of samples."""
    rank = conformal_rank(int(weights.sum()), coverage)
    if rank > weights.sum():
        return None
    order = np.argsort(scores, kind="stable")
    at = int(np.searchsorted(np.cumsum(weights[order]), rank))
    return float(scores[order][at])


def coverage_range(n: int, coverage: float, n_covered: float = 0.0) -> tuple[float, float]:
    """Between which coverages 95 % of draws of n samples are.

    Where scores are tied, more samples are covered (``n_covered``) than the rank, and the upper end is that of these.
    """
    rank, level = conformal_rank(n, coverage), (1 + CONFIDENCE_LEVEL) / 2
    if rank > n:
        return 1.0, 1.0
    low = 1 - float(binomial_upper(np.array(n - rank), np.array(n), level))
    return low, float(binomial_upper(np.array(max(rank, n_covered) - 1), np.array(n), level))
