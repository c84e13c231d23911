"""Sums of the gap between confidence and correctness over samples whose scales are e^v / ((1 − w)·r + w).

SCE, the top-label Brier score, NLL and their sums are a·mean(d)² + b·mean(d²) + c·NLL with d = correct − confidence. So one
pass over the samples gives their value, gradient and Hessian in (v, w), the coordinates of ``FixedNorm``, and Newton's method
needs two or three of these where a search by gradients needs five.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rhocal.profile.curve_table import derivatives

if TYPE_CHECKING:
    from rhocal.numerics.special import Vector

SMALLEST_DENOMINATOR = 1e-20
"""A row of zeros has norm 0; with β = 0 its scale would be infinite. Any finite one gives the same uniform row."""


def gap_sums(
    curves: Vector,
    middle: float | None,
    relative: Vector,
    x: tuple[float, float],
    samples: tuple[Vector, Vector, Vector],
    shares: tuple[float, float],
) -> tuple[Vector, Vector]:
    """Weighted sums of d, and of b·d² + c·NLL; of each the value, its slopes in v and w, and in vv, vw, ww.

    ``curves`` are the polynomials of a ring around ``middle``, or L, L′ and L″ at every scale; ``samples`` are label gap,
    correctness and weight, ``shares`` b and c. Also returned are the confidences. With s = log scale, ∂s/∂v = 1 and
    ∂s/∂w = q = (r − 1) / mix, whose own slope in w is q². ``kernels.gaps`` is the same, compiled.
    """
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
