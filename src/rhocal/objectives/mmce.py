"""Maximum mean calibration error, exact in O(n log n)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import InputError
from rhocal.objectives.base import Single, Slopes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.numerics.special import Vector
    from rhocal.profile.statistics import Facts

MIN_WIDTH = 0.002
"""exp(1/width) must not overflow in double precision."""


@dataclass(frozen=True, repr=False)
class MMCE(Single):
    """Maximum mean calibration error (Kumar, Sarawagi & Jain 2018), Laplacian kernel.

    sqrt(Σ_ij d_i d_j exp(−|c_i − c_j| / width)) / n with c the confidence and d = correct − c. The kernel factorizes on
    sorted confidences, so the double sum is two running sums: no n × n matrix.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling(rhocal.MMCE()).fit(logits, labels)
    >>> round(calibrator.temperature_, 2)
    2.39
    """

    width: float = 0.4
    name = "mmce"
    statistics = frozenset({"confidence"})

    def __post_init__(self) -> None:
        if not MIN_WIDTH <= self.width < math.inf:
            raise InputError(f"mmce: width must be finite and at least {MIN_WIDTH}; got {self.width!r}")

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        confidence, w = values["confidence"], facts.weights
        # Equal confidences are one place: the kernel has a kink there, which copies of a sample must not meet.
        place, at = np.unique(confidence, return_inverse=True)
        mass = np.bincount(at, w * (facts.correct - confidence), len(place)).astype(np.float64, copy=False)
        below, above = laplacian_sums(place, mass, self.width)
        total = mass + below + above  # Σ_j a_j k(c_i, c_j)
        square = max(float(mass @ total), 0.0)
        root = math.sqrt(square)
        # ∂/∂c_i of Σ a_i a_j k_ij, a_i = w_i d_i: through d_i, and through the kernel (−1/width below, +1/width above)
        d = facts.correct - confidence
        slope = 2 * w * (d * ((above - below) / self.width)[at] - total[at])
        return root, {"confidence": slope / (2 * max(root, 1e-9))}


def laplacian_sums(place: Vector, mass: Vector, width: float) -> tuple[Vector, Vector]:
    """Σ_j mass_j exp(−|place_i − place_j| / width) over all j below i, and over all j above it; ``place`` ascends.

    >>> below, above = laplacian_sums(np.array([0.0, 1.0]), np.array([2.0, 3.0]), 1.0)
    >>> bool(np.allclose(below, [0, 2 / np.e]) and np.allclose(above, [3 / np.e, 0]))
    True
    """
    # e^(−(a − b)/h) = e^(−a/h) e^(b/h); the running sum goes the way its terms grow, so nothing cancels
    up = np.exp((place - place[0]) / width)
    down = np.exp((place[-1] - place) / width)
    below = (np.cumsum(mass * up) - mass * up) / up
    above = (np.cumsum((mass * down)[::-1])[::-1] - mass * down) / down
    return below, above
