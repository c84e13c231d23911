"""An interval for the population RMSCE over bins that is valid near zero.

The estimand is θ with θ² = Σ_b share_b·δ_b², δ_b the population gap of bin b. The observed gaps are nearly normal around δ_b
with variances v_b, so that Q = Σ_b share_b·gap_b² is a sum of non-central χ² variables. Its first two cumulants are matched
by a χ² variable with a factor. A candidate θ is kept if Q is not in the tails of its distribution; the gaps are taken in
proportion to those observed, less their noise. At θ = 0 only the upper tail counts: θ is not negative.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference.ece_interval import BinMoments, Interval
from rhocal.numerics.bins import N_BINS, equal_width
from rhocal.numerics.special import chi2_cdf

if TYPE_CHECKING:
    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

N_CANDIDATES = 400
MAX_DEVIATIONS = 6.0
"""Standard deviations of Q within which candidates lie."""


def rmsce_interval(scored: Scored, estimate: float, level: float) -> Interval:
    """The interval for the population RMSCE over bins of equal width."""
    moments = BinMoments.of(scored, equal_width(scored.confidence, N_BINS), N_BINS)
    share = moments.weight[moments.weight > 0] / moments.weight.sum()
    sums, deviations = moments.normal_sums  # of share·gap
    gap_squares, variances = (sums / share) ** 2, (deviations / share) ** 2
    low, high = invert(share, gap_squares, variances, level)
    return Interval(min(low, estimate), max(high, estimate), estimate, "inverted")


def invert(share: Vector, gap_squares: Vector, variances: Vector, level: float) -> tuple[float, float]:
    """The smallest and the largest θ that the observed gaps do not reject."""
    observed = float(share @ gap_squares)
    noise = float(share @ variances)
    likely = np.maximum(gap_squares - variances, 0) + variances / len(share)  # no bin is known to have no gap
    shape = likely / (share @ likely)
    deviation = math.sqrt(2 * float(share**2 @ variances**2) + 4 * float(share**2 @ (shape * variances)) * observed)
    squares = np.linspace(0, max(observed - noise, 0.0) + MAX_DEVIATIONS * deviation, N_CANDIDATES)
    tail = (1 - level) / 2
    below = _below(observed, share, squares[:, None] * shape, variances)
    # Gaps smaller than their noise, such as those of samples without an error, do not show that θ is 0.
    above = _below(max(observed, noise), share, squares[:, None] * shape, variances)
    low, high = squares[below < 1 - tail], squares[above > tail]
    return math.sqrt(low[0] if len(low) else squares[-1]), math.sqrt(high[-1] if len(high) else 0.0)


def _below(observed: float, share: Vector, delta_squares: Vector, variances: Vector) -> Vector:
    """The chance of a Q below the observed one, for every row of squared gaps."""
    mean = (share * (delta_squares + variances)).sum(axis=1)
    variance = (share**2 * variances * (2 * variances + 4 * delta_squares)).sum(axis=1)
    factor = variance / (2 * mean)
    return chi2_cdf(observed / factor, mean / factor)
