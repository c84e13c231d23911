"""Objectives of the gap between confidence and correctness, as functions of the two numbers of a fixed norm.

SCE, the top-label Brier score, NLL and their sums are a·mean(d)² + b·mean(d²) + c·NLL with d = correct − confidence. So one
walk through the samples gives their value, gradient and Hessian in (v, w), the coordinates of ``FixedNorm``, and Newton's
method needs two or three of these where a search by gradients needs five.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics import kernels
from rhocal.profile.curve_table import Table, derivatives

if TYPE_CHECKING:
    from rhocal.calibrators.scale.scale_search import ScaleSearch
    from rhocal.numerics.special import Vector
    from rhocal.objectives import Objective
    from rhocal.optimize import Curved
    from rhocal.profile.statistics import HasCurve

SMALLEST_DENOMINATOR = 1e-150
"""A row of zeros has norm 0; with β = 0 its scale would be infinite. Any finite one gives the same uniform row."""


class GapObjective:
    """Such an objective of the scales e^v / ((1 − w)·r + w), where r is one number a sample (``relative``)."""

    def __init__(self, search: ScaleSearch, objective: Objective, relative: Vector, *, exact: bool = False) -> None:
        assert objective.gap_weights is not None
        self.weights, self.relative = objective.gap_weights, relative
        direct = exact and search.profile.passes is not None  # a saved profile has nothing but its table
        self.curves: HasCurve = search.profile if direct else search.tabled or search.profile
        self.samples = search.profile.label_gap, search.profile.correct, search.profile.weights
        self.compiled = all(kernels.supports_vectors(part, relative) for part in self.samples)
        self.range = kernels.ends(relative) if self.compiled else (float(relative.min()), float(relative.max()))
        self.seen: tuple[tuple[float, float], Vector] | None = None
        """A point, and the confidences there."""

    def __call__(self, v: float, w: float) -> Curved:
        """Value, gradient (2) and Hessian (vv, vw, ww)."""
        curves, middle = self._curves(v, w)
        a, *shares = self.weights
        parts, confidence = sums(
            curves, self.relative, (v, w), self.samples, (shares[0], shares[1]), middle, compiled=self.compiled
        )
        self.seen = (v, w), confidence
        (d, d_v, d_w, d_vv, d_vw, d_ww), rest = parts.reshape(2, 6).tolist()
        return (
            a * d * d + rest[0],
            (2 * a * d * d_v + rest[1], 2 * a * d * d_w + rest[2]),
            (
                2 * a * (d_v * d_v + d * d_vv) + rest[3],
                2 * a * (d_v * d_w + d * d_vw) + rest[4],
                2 * a * (d_w * d_w + d * d_ww) + rest[5],
            ),
        )

    def confidence(self, v: float, w: float) -> Vector:
        """Confidence of every sample; known already where it was the last to be asked about."""
        if self.seen is None or self.seen[0] != (v, w):
            self(v, w)
        assert self.seen is not None
        return self.seen[1]

    def _curves(self, v: float, w: float) -> tuple[Vector, float | None]:
        """A ring that holds every scale and its middle; or, where there is none, L and its derivatives at the scales."""
        ring = self._ring(v, w)
        if ring is not None:
            return ring
        scale = math.exp(v) / np.maximum((1 - w) * self.relative + w, SMALLEST_DENOMINATOR)
        return np.stack(self.curves.curve(scale, order=2).orders), None

    def _ring(self, v: float, w: float) -> tuple[Vector, float] | None:
        if not isinstance(self.curves, Table):
            return None
        least, most = self.range
        low = v - math.log(max((1 - w) * most + w, SMALLEST_DENOMINATOR))
        high = v - math.log(max((1 - w) * least + w, SMALLEST_DENOMINATOR))
        return self.curves.ring_around(low, high)


def sums(
    curves: Vector,
    relative: Vector,
    x: tuple[float, float],
    samples: tuple[Vector, Vector, Vector],
    shares: tuple[float, float],
    middle: float | None,
    *,
    compiled: bool,
) -> tuple[Vector, Vector]:
    """Weighted sums of d, and of b·d² + c·NLL; of each the value, its slopes in v and w, and in vv, vw, ww.

    ``curves`` are the polynomials of a ring around ``middle``, or L, L′ and L″ at every scale; ``samples`` are label gap,
    correctness and weight, ``shares`` b and c. Also returned are the confidences. With s = log scale, ∂s/∂v = 1 and
    ∂s/∂w = q = (r − 1) / mix, whose own slope in w is q².
    """
    if compiled and kernels.supports_vectors(curves, relative):
        totals, confidence, beyond = kernels.gap_sums(curves, relative, x, samples, shares, middle)
        assert beyond == 0, "the ring holds every scale"
        return totals, confidence
    (v, w), (label_gap, correct, weights) = x, samples
    mix = np.maximum((1 - w) * relative + w, SMALLEST_DENOMINATOR)
    scale, q = math.exp(v) / mix, (relative - 1) / mix
    value, first, second = curves if middle is None else derivatives(curves, scale, middle, 2)
    l1, l2 = scale * first, scale * (scale * second + first)  # in log scale
    confidence = np.exp(-value)
    d, d1, d2 = correct - confidence, confidence * l1, confidence * (l2 - l1 * l1)
    label_term, (b, c) = scale * label_gap, shares
    rest = b * d * d + c * (value - label_term)
    rest1, rest2 = 2 * b * d * d1 + c * (l1 - label_term), 2 * b * (d1 * d1 + d * d2) + c * (l2 - label_term)
    parts: list[float] = []
    for f, f1, f2 in ((d, d1, d2), (rest, rest1, rest2)):
        parts += [float(weights @ part) for part in (f, f1, f1 * q, f2, f2 * q, (f2 + f1) * q * q)]
    return np.array(parts), confidence
