"""An interval for the population ECE that is valid near zero.

The estimand is θ = Σ_b |E[correct − confidence; bin b]|, the population ECE of the model with the same bins. The ECE of a
sample is above it by about the floor, and so are all its bootstrap replicates; a plain bootstrap interval therefore never
contains the θ = 0 of a perfect model (experiments/coverage).

The interval is an inverted test. The sums Z_b of the bins are nearly normal with standard deviations s_b. The statistic
is T = Σ s_b g(Z_b/s_b), whose bias depends little on how θ is shared out over the bins (``absolute_mean.py``);
the remaining bias is averaged over the shares that the sample and a candidate θ allow (``shares.py``). A candidate is kept
if T is not in the tails of its distribution. At θ = 0 that is a one-sided test; far from 0 both tails count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference import absolute_mean
from rhocal.metrics.inference.shares import NoisyBinSums, posterior_means
from rhocal.metrics.inference.sparse_bins import RareErrors, rare_errors
from rhocal.numerics.bins import bin_totals
from rhocal.numerics.special import normal_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

N_CANDIDATES = 48
MAX_DEVIATIONS = 7.0
"""Standard deviations of T within which candidates lie."""
MAX_BELOW = 2.0
"""Standard deviations of T at θ = 0 by which it counts as below 0."""
PRIOR_SAMPLES = 2.0
"""Samples of variance c (1 − c) that are added to each bin, so that a bin of few samples, all right, is not taken as exact."""

DISTANCE = np.array([0, 0.3, 0.6, 0.9, 1.3, 1.8, 3, 5, 8])
UPPER = np.array([0.95, 0.80, 0.69, 0.55, 0.43, 0.40, 0.42, 0.48, 0.50])
LOWER = np.array([0.00, 0.03, 0.21, 0.36, 0.39, 0.38, 0.40, 0.48, 0.50])
"""Shares of the error rate 1 − level for either tail, by the distance of θ from 0 in standard deviations of T. θ is not
negative, so near 0 nearly all goes to the upper tail. In between, where the shares of the bins are least certain, the two do
not add up to 1."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval, and the estimate it belongs to."""

    low: float
    high: float
    estimate: float
    method: str
    reason: str = ""
    """Why low and high are NaN: the metric has no interval with the stated coverage."""


@dataclass(frozen=True, eq=False)
class BinMoments:
    """Sums over the samples of every bin, with d = correct − confidence. Those of two batches add."""

    weight: Vector
    first: Vector
    """Σ w d."""
    second: Vector
    """Σ w d²."""
    perfect: Vector
    """Σ w c (1 − c): the variance of the first if the model is perfectly calibrated."""

    @classmethod
    def of(cls, scored: Scored, bins: NDArray[np.intp], n_bins: int) -> BinMoments:
        """The sums of one batch."""
        w, c = scored.weights, scored.confidence
        d = scored.correct - c
        return cls(*(bin_totals(bins, values, n_bins) for values in (w, w * d, w * d**2, w * c * (1 - c))))

    def __add__(self, other: BinMoments) -> BinMoments:
        return BinMoments(
            self.weight + other.weight,
            self.first + other.first,
            self.second + other.second,
            self.perfect + other.perfect,
        )

    @property
    def value(self) -> float:
        """The debiased ECE: an estimate of the population ECE, as often too large as too small."""
        return invert(*self.normal_sums, level=0.95).estimate

    @property
    def normal_sums(self) -> tuple[Vector, Vector]:
        """Σ w d / Σ w of every bin that holds a sample, and its standard deviation."""
        return self.normal_sums_of(self.weight > 0)

    def normal_sums_of(self, held: NDArray[np.bool_]) -> tuple[Vector, Vector]:
        """The same for some of the bins; the share is that of all samples."""
        total = self.weight.sum()
        weight, first, second, perfect = (x[held] for x in (self.weight, self.first, self.second, self.perfect))
        smoothed = (second + PRIOR_SAMPLES * perfect / weight) / (weight + PRIOR_SAMPLES) * weight
        variance = smoothed - first**2 / total
        # No error rate is known better than to one sample; bins with less variance share it.
        short = variance < 1
        least = np.where(short, weight / max(weight[short].sum(), 1e-300), 0.0)
        return first / total, np.sqrt(np.maximum(variance, least)) / total


def ece_interval(scored: Scored, bins: NDArray[np.intp], n_bins: int, level: float) -> Interval:
    """The interval for the population ECE over these bins.

    Bins with few errors have exact intervals (``sparse_bins.py``). The errors of the parts add up, and so do the squares of
    what their intervals reach beyond the estimates (Zou & Donner 2008).
    """
    moments = BinMoments.of(scored, bins, n_bins)
    right = bin_totals(bins, scored.weights * scored.correct, n_bins)
    rare = rare_errors(moments.weight, right, right - moments.first)
    everything = invert(*moments.normal_sums, level)
    if not rare:
        return everything
    total, dense = float(moments.weight.sum()), moments.weight > 0
    dense[list(rare)] = False
    parts = [_part(few, total, level) for few in rare.values()]
    if dense.any():
        parts.append(invert(*moments.normal_sums_of(dense), level))
    low, high, estimate = (np.array([getattr(part, name) for part in parts]) for name in ("low", "high", "estimate"))
    middle = float(estimate.sum())
    below, above = (float(np.sqrt(((limit - estimate) ** 2).sum())) for limit in (low, high))
    # Estimates are not negative: those of two parts that may both be 0 exceed the root of their squares.
    low_end = max(0.0, min(everything.low, middle - below))
    return replace(everything, low=low_end, high=min(1.0, max(everything.high, middle + above)))


def _part(few: RareErrors, total: float, level: float) -> Interval:
    """What a bin with few errors adds to the ECE."""
    low, high = (few.n / total * limit for limit in few.gap_interval(level))
    rate = (few.observed + 1) / (few.n + 2)
    gap, deviation = (few.observed - few.expected) / total, np.sqrt(few.n * rate * (1 - rate)) / total
    debiased = statistic(np.array([gap]), np.array([deviation]))
    return Interval(low, high, min(max(debiased, low), high), "exact")


def invert(sums: Vector, deviations: Vector, level: float) -> Interval:
    """Keep every candidate that the observed sums do not reject."""
    reach = MAX_DEVIATIONS * float(np.sqrt((deviations**2).sum()))
    middle = bounded_statistic(sums, deviations)
    low, high = max(0.0, middle - reach), min(1.0, max(middle, 0.0) + reach)
    candidates = np.linspace(low, max(low, high), N_CANDIDATES)
    chance, upper, lower = tail_probabilities(sums, deviations, candidates, level)
    return Interval(
        _crossing(candidates, normal_quantile(chance) - normal_quantile(1 - upper)),
        _crossing(candidates, normal_quantile(chance) - normal_quantile(np.maximum(lower, 1e-12))),
        _crossing(candidates, normal_quantile(chance)),
        "inverted",
    )


def bounded_statistic(sums: Vector, deviations: Vector) -> float:
    """The statistic T, but not further below 0 than by chance.

    Where the noise of the bins is overstated (few clusters, weights), a T that is far too small would rule out every error: an
    upper limit that no sample of a perfect model gives.
    """
    least = -MAX_BELOW * float(np.sqrt(absolute_mean.variance(np.zeros(1))[0] * (deviations**2).sum()))
    return max(statistic(sums, deviations), least)


def statistic(sums: Vector, deviations: Vector) -> float:
    """The statistic T."""
    return float(deviations @ absolute_mean.statistic(np.abs(sums) / deviations))


def tail_probabilities(sums: Vector, deviations: Vector, totals: Vector, level: float) -> tuple[Vector, Vector, Vector]:
    """For each θ the probability of a T below the observed one, and the error rates of the upper and the lower tail."""
    observed = NoisyBinSums.from_bins(sums, deviations)
    s = observed.all_deviations
    functions = [lambda t: t, absolute_mean.bias, lambda t: absolute_mean.bias(t) ** 2, absolute_mean.variance]
    mean, bias, squared, variance = posterior_means(observed, totals, functions)
    # At totals that the sample rules out, the means are rounding errors.
    mean = np.clip(mean, 0, absolute_mean.TABLE[-1])
    bias, squared = np.clip(bias, -absolute_mean.MAX_BIAS, 0), np.clip(squared, 0, absolute_mean.MAX_BIAS**2)
    variance = np.clip(variance, 1, absolute_mean.MAX_VARIANCE)
    if observed.n_known:  # a normal sum
        mean[:, -1], bias[:, -1], squared[:, -1], variance[:, -1] = absolute_mean.TABLE[-1], 0, 0, 1
    extra = np.maximum(squared - bias**2, 0) @ s**2
    deviation = np.sqrt(variance @ s**2)
    scores = (bounded_statistic(sums, deviations) - totals - bias @ s) / np.sqrt(deviation**2 + extra)
    distance = totals / deviation
    tails = ((1 - level) * np.interp(distance, DISTANCE, share) for share in (UPPER, LOWER))
    return absolute_mean.probability_below(scores, mean, s), *tails


def _crossing(candidates: Vector, heights: Vector) -> float:
    """Where descending heights first reach 0, by linear interpolation between candidates."""
    below = np.flatnonzero(heights <= 0)
    if not len(below):
        return float(candidates[-1])
    k = int(below[0])
    if k == 0:
        return float(candidates[0])
    inner, outer = heights[k - 1], heights[k]
    return float(candidates[k - 1] + (candidates[k] - candidates[k - 1]) * inner / (inner - outer))
