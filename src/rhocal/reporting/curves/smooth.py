"""Reliability without bins: a kernel or an ascending curve through right and wrong, with a bootstrap band."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal import optimize
from rhocal.errors import InputError
from rhocal.metrics.inference.defaults import TAILS
from rhocal.metrics.metric import validate_options
from rhocal.metrics.scored import Scored
from rhocal.metrics.smooth import smooth_ece
from rhocal.numerics.bins import BinSums

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

N_CELLS = 400
"""Cells of confidence that samples are put into first; a cell of .0025 is finer than any curve worth drawing."""
N_POINTS = 201
N_REPLICATES = 200
SMOOTHERS = ("kernel", "isotonic")
NARROWEST = 0.02
"""Bandwidth of the kernel, at least; where the smooth ECE is larger, that is the bandwidth."""
LEAST_SHARE = 1e-3
"""The curve is drawn between the confidences that leave this share of samples outside on each side."""


@dataclass(frozen=True)
class SmoothReliability:
    """A curve of accuracy over confidence."""

    smoother: str
    confidence: Vector
    accuracy: Vector
    low: Vector
    high: Vector
    """95 % bootstrap band, point by point."""
    density: Vector
    """Share of samples, per unit of confidence."""
    error: float
    """Smooth ECE for the kernel; mean |curve − confidence| for the ascending curve."""


def smooth_reliability(
    probs: Any,
    labels: Any,
    *,
    smoother: str = "kernel",
    bandwidth: float | None = None,
    sample_weight: Any = None,
    kind: Kind = "probs",
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> SmoothReliability:
    """A smooth reliability curve: Gaussian ``kernel`` (reflected at 0 and 1) or ``isotonic``."""
    if smoother not in SMOOTHERS:
        raise InputError(f"smoother is one of {', '.join(SMOOTHERS)}; got {smoother!r}")
    if bandwidth is not None:
        validate_options({"bandwidth": bandwidth})
    return smooth_of(Scored.from_arrays(probs, labels, sample_weight, kind), smoother, bandwidth, n_replicates, seed)


def smooth_of(
    scored: Scored, smoother: str, bandwidth: float | None, n_replicates: int, seed: int
) -> SmoothReliability:
    """The same behind the border."""
    cells = BinSums.of(scored.confidence, scored.correct, n_bins=N_CELLS, weights=scored.weights).nonempty()
    x, total = cells.mean, float(cells.weight.sum())
    reached = np.cumsum(cells.weight) / total
    first = int(np.searchsorted(reached, LEAST_SHARE))
    last = int(np.searchsorted(reached, 1 - LEAST_SHARE))
    at = np.linspace(x[first], x[min(last, len(x) - 1)], N_POINTS)
    error = smooth_ece(scored).value
    width = max(error, NARROWEST) if bandwidth is None else bandwidth
    kernel = reflected(at, x, width)
    curve: Callable[[Vector, Vector], Vector]
    if smoother == "kernel":

        def curve(right: Vector, weight: Vector) -> Vector:
            mass = kernel @ weight
            return np.asarray(kernel @ right / np.where(mass > 0, mass, 1))
    else:

        def curve(right: Vector, weight: Vector) -> Vector:
            seen = weight > 0
            return np.interp(at, x[seen], optimize.isotonic(right[seen] / weight[seen], weight[seen])[0])

    accuracy = curve(cells.correct, cells.weight)
    if smoother == "isotonic":
        fitted = np.interp(x, at, accuracy)
        error = float(cells.weight @ np.abs(fitted - x) / total)
    low, high = _band(cells, curve, n_replicates, seed)
    return SmoothReliability(smoother, at, accuracy, low, high, kernel @ cells.weight / total, error)


def reflected(at: Vector, x: Vector, width: float) -> Vector:
    """The density at ``at`` of normal numbers around each ``x`` that turn back at 0 and 1; shape (points, cells)."""
    images = (x, -x, 2 - x)
    away = [np.exp(-0.5 * ((at[:, None] - image) / width) ** 2) for image in images]
    return np.asarray(sum(away)) / (width * np.sqrt(2 * np.pi))


def _band(
    cells: BinSums, curve: Callable[[Vector, Vector], Vector], n_replicates: int, seed: int
) -> tuple[Vector, Vector]:
    """Resampled samples fall into (cell, right) and (cell, wrong) as a multinomial draw says."""
    both = np.r_[cells.correct, np.maximum(cells.weight - cells.correct, 0)]
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(max(1, round(float(both.sum()))), both / both.sum(), n_replicates).astype(np.float64)
    n = len(cells.weight)
    curves = np.array([curve(row[:n], row[:n] + row[n:]) for row in drawn])
    low, high = np.quantile(curves, TAILS, axis=0)
    return low, high
