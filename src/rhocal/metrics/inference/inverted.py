"""An interval for the true ECE that holds near zero too.

What is estimated: θ = Σ_b |E[correct − confidence; bin b]|, the ECE of the same model, with the same bins, on endlessly many
samples. The ECE of a sample is above it by about the floor, and so are all its bootstrap replicates; a plain bootstrap
interval therefore never holds the θ = 0 of a perfect model (experiments/coverage).

The interval is a test turned around. The sums Z_b of the bins are nearly normal with standard deviations s_b. The statistic
is T = Σ s_b g(Z_b/s_b), whose bias depends little on how θ is shared out over the bins (``sizes.py``); what is left
of it is averaged over the shares that the sample and a candidate θ allow (``shares.py``). A candidate is kept if
T is not far out in its distribution. At θ = 0 that is a one-sided test; far from 0 both tails count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference import sizes
from rhocal.metrics.inference.shares import Sums, expect
from rhocal.numerics.special import normal_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

LEVEL = 0.95
N_CANDIDATES = 48
REACH = 7.0
"""Candidates lie within so many standard deviations of T."""
PRIOR = 2.0
"""Samples' worth of c (1 − c) added to each bin's variance, so that a bin of few, all right, is not thought exact."""

DISTANCE = np.array([0, 0.3, 0.6, 0.9, 1.3, 1.8, 3, 5, 8])
UPPER = np.array([0.95, 0.80, 0.69, 0.55, 0.43, 0.40, 0.42, 0.48, 0.50])
LOWER = np.array([0.00, 0.03, 0.21, 0.36, 0.39, 0.38, 0.40, 0.48, 0.50])
"""Shares of the error rate 1 − level that go to either tail, when θ is so many standard deviations of T from 0. Below 0
there is nothing, so near it nearly all goes to the upper tail. Between, where the shares of the bins are least known, some
is kept back."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval, and the estimate it belongs to."""

    low: float
    high: float
    estimate: float
    method: str


def ece_interval(scored: Scored, bins: NDArray[np.intp], n_bins: int, level: float) -> Interval:
    """For the ECE over these bins, on endlessly many samples."""
    sums, deviations = bin_moments(scored, bins, n_bins)
    found = invert(sums, deviations, level)
    return replace(found, high=max(found.high, unseen(scored, bins, n_bins, level)))


def bin_moments(scored: Scored, bins: NDArray[np.intp], n_bins: int) -> tuple[Vector, Vector]:
    """Σ w d / Σ w of every bin that holds a sample, with d = correct − confidence, and its standard deviation."""
    w, c, total = scored.weights, scored.confidence, scored.weights.sum()
    d = scored.correct - c
    weight, first, second, perfect = (
        np.bincount(bins, values, n_bins) for values in (w, w * d, w * d**2, w * c * (1 - c))
    )
    held = weight > 0
    weight, first, second, perfect = weight[held], first[held], second[held], perfect[held]
    smoothed = (second + PRIOR * perfect / weight) / (weight + PRIOR) * weight
    variance = smoothed - first**2 / total
    # No error rate is known better than to one sample; bins in which less is in doubt share it.
    short = variance < 1
    least = np.where(short, weight / max(weight[short].sum(), 1e-300), 0.0)
    return first / total, np.sqrt(np.maximum(variance, least)) / total


def unseen(scored: Scored, bins: NDArray[np.intp], n_bins: int, level: float) -> float:
    """What bins in which all is right, as it nearly should be, may still add.

    n of n right allow an error rate r with (1 − r)^n = 1 − level. Sums that hold no error are not normal, and twenty of
    twenty right at confidence 1 do not prove that all will be.
    """
    w = scored.weights
    weight, wrong, expected = (
        np.bincount(bins, values, n_bins) for values in (w, w * (1 - scored.correct), w * (1 - scored.confidence))
    )
    n = float(weight[(wrong == 0) & (expected < 1)].sum())
    return float(n / w.sum() * (1 - (1 - level) ** (1 / n))) if n > 0 else 0.0


def invert(sums: Vector, deviations: Vector, level: float) -> Interval:
    """Keep every candidate that the observed sums do not contradict."""
    reach = REACH * float(np.sqrt((deviations**2).sum()))
    middle = statistic(sums, deviations)
    low, high = max(0.0, middle - reach), min(1.0, max(middle, 0.0) + reach)
    candidates = np.linspace(low, max(low, high), N_CANDIDATES)
    chance, upper, lower = chances(sums, deviations, candidates, level)
    return Interval(
        _crossing(candidates, normal_quantile(chance) - normal_quantile(1 - upper)),
        _crossing(candidates, normal_quantile(chance) - normal_quantile(np.maximum(lower, 1e-12))),
        _crossing(candidates, normal_quantile(chance)),
        "inverted",
    )


def statistic(sums: Vector, deviations: Vector) -> float:
    """T."""
    return float(deviations @ sizes.size(np.abs(sums) / deviations))


def chances(sums: Vector, deviations: Vector, totals: Vector, level: float) -> tuple[Vector, Vector, Vector]:
    """For each θ the chance of a T below that seen; and of either tail, how much is not believed."""
    seen = Sums.of(sums, deviations)
    s = seen.all_deviations
    wanted = [lambda t: t, sizes.bias, lambda t: sizes.bias(t) ** 2, sizes.variance]
    mean, bias, squared, variance = expect(seen, totals, wanted)
    # At totals that the sample rules out, what is left is rounding.
    mean = np.clip(mean, 0, sizes.TABLE[-1])
    bias, squared = np.clip(bias, -sizes.MOST_BIAS, 0), np.clip(squared, 0, sizes.MOST_BIAS**2)
    variance = np.clip(variance, 1, sizes.MOST_VARIANCE)
    if seen.n_known:  # a normal sum
        mean[:, -1], bias[:, -1], squared[:, -1], variance[:, -1] = sizes.TABLE[-1], 0, 0, 1
    doubt = np.maximum(squared - bias**2, 0) @ s**2
    deviation = np.sqrt(variance @ s**2)
    scores = (statistic(sums, deviations) - totals - bias @ s) / np.sqrt(deviation**2 + doubt)
    distance = totals / deviation
    tails = ((1 - level) * np.interp(distance, DISTANCE, share) for share in (UPPER, LOWER))
    return sizes.chance_below(scores, mean, s), *tails


def _crossing(candidates: Vector, heights: Vector) -> float:
    """Where heights, which fall, first come to 0 (between candidates: a straight line)."""
    below = np.flatnonzero(heights <= 0)
    if not len(below):
        return float(candidates[-1])
    k = int(below[0])
    if k == 0:
        return float(candidates[0])
    inner, outer = heights[k - 1], heights[k]
    return float(candidates[k - 1] + (candidates[k] - candidates[k - 1]) * inner / (inner - outer))
