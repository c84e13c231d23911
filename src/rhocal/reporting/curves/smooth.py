"""Reliability without bins: a kernel or an isotonic estimate of accuracy over confidence, with a bootstrap band."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal import optimize
from rhocal.errors import InputError
from rhocal.metrics.binned import equal_width_sums
from rhocal.metrics.inference.bands import curve_band
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.metric import validate_options
from rhocal.metrics.scored import Scored
from rhocal.metrics.smooth import smooth_ece

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

N_CELLS = 400
"""Cells of confidence into which samples are put first; a cell of 0.0025 is finer than a plot shows."""
N_POINTS = 201
N_REPLICATES = 200
SMOOTHERS = ("kernel", "isotonic")
MIN_BANDWIDTH = 0.02
"""Bandwidth of the kernel, at least; where the smooth ECE is larger, that is the bandwidth."""
TAIL_SHARE = 1e-3
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
    """Smooth ECE for the kernel; mean |curve − confidence| for the isotonic curve."""


def smooth_reliability(
    probs: Any,
    labels: Any,
    *,
    smoother: str = "kernel",
    bandwidth: float | None = None,
    sample_weight: Any = None,
    weight_kind: str | None = "frequency",
    clusters: Any = None,
    kind: Kind = "probs",
    classes: Any = None,
    positive: Any = None,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> SmoothReliability:
    """A smooth reliability curve: Gaussian ``kernel`` (reflected at 0 and 1) or ``isotonic``.

    ``weight_kind`` and ``clusters`` are those of ``rhocal.evaluate``.
    """
    if smoother not in SMOOTHERS:
        raise InputError(f"smoother is one of {', '.join(SMOOTHERS)}; got {smoother!r}")
    if bandwidth is not None:
        validate_options({"bandwidth": bandwidth})
    scored = Scored.from_arrays(probs, labels, sample_weight, kind, classes=classes, positive=positive)
    scored = SamplingDesign(weight_kind, clusters).apply(scored)
    cells = equal_width_sums(scored, N_CELLS).nonempty()
    x, total = cells.mean, float(cells.weight.sum())
    cumulative = np.cumsum(cells.weight) / total
    first = int(np.searchsorted(cumulative, TAIL_SHARE))
    last = int(np.searchsorted(cumulative, 1 - TAIL_SHARE))
    at = np.linspace(x[first], x[min(last, len(x) - 1)], N_POINTS)
    error = smooth_ece(scored).value
    width = max(error, MIN_BANDWIDTH) if bandwidth is None else bandwidth
    kernel = reflected_kernel(at, x, width)
    curve: Callable[[Vector, Vector], Vector]
    if smoother == "kernel":

        def curve(right: Vector, weight: Vector) -> Vector:
            mass = kernel @ weight
            return np.asarray(kernel @ right / np.where(mass > 0, mass, 1))
    else:

        def curve(right: Vector, weight: Vector) -> Vector:
            held = weight > 0
            return np.interp(at, x[held], optimize.isotonic(right[held] / weight[held], weight[held])[0])

    accuracy = curve(cells.correct, cells.weight)
    if smoother == "isotonic":
        fitted = np.interp(x, at, accuracy)
        error = float(cells.weight @ np.abs(fitted - x) / total)
    low, high = curve_band(cells, curve, n_replicates, seed)
    return SmoothReliability(smoother, at, accuracy, low, high, kernel @ cells.weight / total, error)


def reflected_kernel(at: Vector, x: Vector, width: float) -> Vector:
    """The density at ``at`` of normal distributions around each ``x``, reflected at 0 and 1; shape (points, cells)."""
    images = (x, -x, 2 - x)
    densities = [np.exp(-0.5 * ((at[:, None] - image) / width) ** 2) for image in images]
    return np.asarray(sum(densities)) / (width * np.sqrt(2 * np.pi))
