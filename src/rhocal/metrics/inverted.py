"""An interval for the true ECE that holds near zero too.

What is estimated: θ = Σ_b |E[correct − confidence; bin b]|, the ECE of the same model, with the same bins, on endlessly many
samples. The ECE of a sample is above it by about the floor, and so are all its bootstrap replicates; a plain bootstrap
interval therefore never holds the θ = 0 of a perfect model (experiments/coverage).

The interval is a test turned around. The sums Z_b of the bins are nearly normal with standard deviations s_b. For a candidate
θ the means most likely given Z with Σ|μ_b| = θ are |Z_b| moved by λ·s_b² each (not below 0); they are made less uneven. Draws
of Σ|N(μ_b, s_b²)| then say where the ECE of a sample lies if θ is true. Reading off the θ whose median is the observed
ECE corrects the bias; the candidates kept are those from which the corrected estimate is no farther than in 95 % of
their own draws. At θ = 0 that is a one-sided floor test; far from 0 it is the usual two-sided interval; it always holds
the corrected estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.metrics.scored import Scored
    from rhocal.special import Vector

LEVEL = 0.95
N_CANDIDATES = 41
N_DRAWS = 2000
SPREAD = 0.3
"""How far the likeliest gaps are pulled toward gaps proportional to those observed. The likeliest are too few and too large,
as after any soft threshold; taken as they are, slightly miscalibrated models are held in 98 % instead of 95 %."""
PRIOR = 2.0
"""Samples' worth of c (1 − c) added to each bin's variance, so that a bin of few, all right, is not thought exact."""


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
    return invert(sums, deviations, level)


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
    variance = (smoothed / total - (first / total) ** 2) / total
    # No bin is known better than to one sample: twenty of twenty right at confidence 1 do not prove that all will be.
    return first / total, np.sqrt(np.maximum(variance, 1 / total**2))


def invert(sums: Vector, deviations: Vector, level: float) -> Interval:
    """Keep every candidate that the observed Σ|Z_b| does not contradict."""
    sizes, observed = np.abs(sums), float(np.abs(sums).sum())
    candidates = np.linspace(0, min(1.0, observed + 4 * float(np.sqrt((deviations**2).sum()))), N_CANDIDATES)
    means = _means(sizes, deviations, candidates)
    if observed > 0:
        means = (1 - SPREAD) * means + SPREAD * candidates[:, None] * sizes / observed
    noise = deviations[:, None] * _standard_normals(len(deviations))
    drawn = np.stack([np.abs(mean[:, None] + noise).sum(axis=0) for mean in means])
    # rising, so that it can be read backwards
    medians = np.maximum.accumulate(np.median(drawn, axis=1)) + np.arange(N_CANDIDATES) * 1e-15
    distances = np.abs(np.interp(drawn, medians, candidates) - candidates[:, None])
    reach = np.quantile(distances, level, axis=1)
    estimate = float(np.interp(observed, medians, candidates))
    spare = reach - np.abs(estimate - candidates)
    low = _last_kept(candidates[::-1], spare[::-1], estimate)
    high = _last_kept(candidates, spare, estimate)
    return Interval(low, high, estimate, "inverted")


def _means(sizes: Vector, deviations: Vector, totals: Vector) -> Vector:
    """For each total the most likely |μ_b| that add up to it: max(|Z_b| − λ s_b², 0), shape (n_totals, n_bins)."""
    unit = deviations**2 / deviations.max()
    steps = np.geomspace(1e-4, 60, 120) * max(1.0, float(sizes.sum() / deviations.sum()))
    multipliers = np.concatenate([steps[::-1], [0.0], -steps])  # totals rise
    means = np.maximum(sizes - multipliers[:, None] * unit, 0)
    reached = means.sum(axis=1)
    return np.stack([np.interp(totals, reached, column) for column in means.T], axis=1)


def _last_kept(candidates: Vector, spare: Vector, estimate: float) -> float:
    """Going outward from the estimate, where ``spare`` first falls below 0 (between candidates: a straight line)."""
    outward = candidates >= estimate if candidates[-1] > candidates[0] else candidates <= estimate
    beyond, left = candidates[outward], spare[outward]
    if not len(beyond) or not (left < 0).any():
        return float(candidates[-1])
    first = int((left < 0).argmax())
    if first == 0:
        return estimate
    inner, outer = left[first - 1], left[first]
    return float(beyond[first - 1] + (beyond[first] - beyond[first - 1]) * inner / (inner - outer))


@cache
def _standard_normals(n_bins: int) -> Vector:
    half = np.random.default_rng(0).standard_normal((n_bins, N_DRAWS // 2))
    return np.concatenate([half, -half], axis=1)
