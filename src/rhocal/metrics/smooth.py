"""Calibration errors without bins: smooth ECE, cumulative differences, and a smooth calibration curve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.sums import MetricSums, Sketch
from rhocal.numerics.bins import bin_totals

if TYPE_CHECKING:
    from rhocal.metrics.scored import Scored
    from rhocal.numerics.bins import BinSums
    from rhocal.numerics.special import Vector

GRID_INTERVALS = 4096
"""Intervals of the grid on which residuals are smoothed: 2.4e−4 wide, far below any bandwidth that noise allows."""

N_CURVE_POINTS = 257
"""Points at which the smooth calibration curve is fitted; it is interpolated linearly in between."""


@dataclass(frozen=True)
class ResidualGrid:
    """Σ w (correct − confidence) shared out between the two nearest points of the grid, and Σ w."""

    residual: Vector
    weight: float

    @classmethod
    def of(cls, scored: Scored) -> ResidualGrid:
        """The sums of one batch."""
        place = np.clip(scored.confidence, 0, 1) * GRID_INTERVALS
        left = np.minimum(place.astype(np.intp), GRID_INTERVALS - 1)
        d = scored.weights * (scored.correct - scored.confidence)
        residual = bin_totals(left, d * (left + 1 - place), GRID_INTERVALS + 1) + bin_totals(
            left + 1, d * (place - left), GRID_INTERVALS + 1
        )
        return cls(residual, float(scored.weights.sum()))

    def __add__(self, other: ResidualGrid) -> ResidualGrid:
        return ResidualGrid(self.residual + other.residual, self.weight + other.weight)


def smooth_ece(scored: Scored) -> MetricSums:
    """Smooth ECE: ∫|r_σ(t)|dt at the bandwidth σ that equals it.

    r_σ(t) is the mean of K_σ(t, confidence)·(correct − confidence), K a Gaussian reflected at 0 and 1.
    """
    return MetricSums(ResidualGrid.of(scored), smooth_error)


def smooth_error(grid: ResidualGrid) -> float:
    """The fixed point of σ ↦ ∫|r_σ|: the integral falls as σ grows, so there is one."""
    if not np.abs(grid.residual).max() > 0:
        return 0.0
    # A Gaussian reflected at both ends multiplies the k-th cosine by exp(−(πkσ)²/2): even extension, then a plain FFT.
    even = np.r_[grid.residual, grid.residual[-2:0:-1]]
    even[[0, GRID_INTERVALS]] *= 2
    waves = np.fft.rfft(even) / grid.weight
    k = np.arange(len(waves))

    def integral(sigma: float) -> float:
        r = np.abs(np.fft.irfft(waves * np.exp(-0.5 * (np.pi * k * sigma) ** 2))[: GRID_INTERVALS + 1])
        return float(r.sum() - (r[0] + r[-1]) / 2)  # trapezoids; the grid's width is in the density of the residuals

    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if integral(middle) > middle else (low, middle)
    return (low + high) / 2


def cumulative(ranked: BinSums) -> Vector:
    """Mean of correct − confidence over the samples up to each confidence, as a share of all."""
    return np.cumsum(ranked.correct - ranked.confidence) / ranked.weight.sum()


def ks(ranked: BinSums) -> float:
    """Kolmogorov–Smirnov calibration error: the largest |mean of (correct − confidence)·1[confidence ≤ t]| over t."""
    return float(np.abs(cumulative(ranked)).max())


def kuiper(ranked: BinSums) -> float:
    """Kuiper calibration error: the largest |mean of (correct − confidence)·1[s < confidence ≤ t]| over s < t."""
    path = cumulative(ranked)
    return float(max(path.max(), 0.0) - min(path.min(), 0.0))


def cumulative_bound(sketch: Sketch, *, n_ends: int) -> float:
    """Inside a cell the cumulative differences leave their values at its ends by at most the sum of |d| there."""
    return float(n_ends * sketch.max_residual.max() / sketch.sums.weight.sum())


def spiegelhalter_z(scored: Scored) -> MetricSums:
    """Spiegelhalter's Z: the distance of the Brier score from its expectation, in standard deviations.

    Σ(correct − c)(1 − 2c) / sqrt(Σ(1 − 2c)² c(1 − c)); standard normal for a calibrated model, positive where over-confident.
    """
    return standardized_residual(scored, 1 - 2 * scored.confidence)


def standardized_residual(scored: Scored, direction: Vector) -> MetricSums:
    """Σ w·direction·(correct − c) in units of its standard deviation for a calibrated model."""
    c, w = scored.confidence, scored.weights
    return MetricSums(np.array([w @ (direction * (scored.correct - c)), w @ (direction**2 * c * (1 - c))]), _z)


def _z(totals: Vector) -> float:
    shift, variance = (float(part) for part in totals)
    if variance > 0:
        return shift / math.sqrt(variance)
    # every confidence is 0 or 1 (or the direction is 0): nothing is left to chance
    return 0.0 if abs(shift) < 1e-9 else math.copysign(math.inf, shift)


def ici(scored: Scored, *, span: float = 0.75) -> MetricSums:
    """Integrated calibration index: mean |smooth calibration curve − confidence|.

    The curve is a local line (lowess): tricube weights over the nearest ``span`` of the samples, fitted at 257 points. Samples
    are first put into the cells of the sketch, none wider than 9e−4.
    """
    return MetricSums(Sketch.of(scored), partial(_ici, span=span))


def _ici(sketch: Sketch, *, span: float) -> float:
    ranked = sketch.ranked
    x = ranked.mean
    at = np.unique(np.interp(np.linspace(0, 1, N_CURVE_POINTS), np.linspace(0, 1, len(x)), x))
    curve = np.interp(x, at, np.array([_local_line(ranked, x, point, span) for point in at]))
    return float(ranked.weight @ np.abs(curve - x) / ranked.weight.sum())


def _local_line(ranked: BinSums, x: Vector, point: float, span: float) -> float:
    """The height at a point of the line fitted around it."""
    away = np.abs(x - point)
    order = np.argsort(away, kind="stable")
    reach = np.searchsorted(np.cumsum(ranked.weight[order]), span * ranked.weight.sum() * (1 - 1e-12))
    width = away[order[min(int(reach), len(x) - 1)]]
    near = np.maximum(1 - (away / width) ** 3, 0) ** 3 if width > 0 else (away <= 0).astype(np.float64)
    if not near.any():  # the two nearest are equally far, and at the end of the reach
        near = (away <= away.min() * (1 + 1e-9)).astype(np.float64)
    w, t, y = ranked.weight * near, x - point, ranked.accuracy
    total, first, second = w.sum(), w @ t, w @ t**2
    spread = second * total - first**2
    if spread <= 1e-10 * (total * max(width, 1e-6)) ** 2:  # one place only: a line has no slope there
        height = w @ y / total
    else:
        height = (second * (w @ y) - first * (w @ (t * y))) / spread
    return float(np.clip(height, 0, 1))
