"""The confidence of a kept class: how far to go from what a projection says to what the law itself says.

Where a projection binds, c overstates the law's own probability a of the kept class. T is the isotonic regression of a on c; it
needs no labels, and is c where nothing binds. It is never below 1/m: the lowest samples share 1/m until their mean reaches it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal import optimize
from rhocal.calibrators.cascade.keeping import LEAD
from rhocal.numerics.bins import N_BINS, BinSums, perfect_error

if TYPE_CHECKING:
    from rhocal.numerics.special import Vector

SHARES = np.arange(11) / 10
"""Values of λ."""

DIGITS = 9
"""Confidences that are equal to so many digits are one."""


@dataclass(frozen=True, eq=False)
class KeptConfidence:
    """T as corners of straight lines, and λ."""

    knots: Vector
    values: Vector
    share: float

    @classmethod
    def unchanged(cls) -> KeptConfidence:
        """R = c."""
        return cls(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 0.0)

    @classmethod
    def fit(cls, c: Vector, a: Vector, counts: Vector, n_classes: int, slack: float) -> KeptConfidence:
        """Of out-of-fold laws. λ is the least that brings the ECE of r against a under ``slack`` times the floor of c.

        The floor is the mean ECE of a calibrated model with these confidences. If no λ does, that with the lowest ECE.
        """
        score, place = np.unique(c.round(DIGITS), return_inverse=True)
        weight = np.bincount(place, counts).astype(np.float64, copy=False)
        present = weight > 0
        mean = np.bincount(place, counts * a)[present] / weight[present]
        score, weight = score[present], weight[present]
        knots, values = corners(score, mean, weight, (1 + LEAD) / n_classes)
        floor = perfect_error(c, counts, N_BINS)
        errors = []
        for share in SHARES:
            r = (1 - share) * c + share * np.interp(c, knots, values)
            errors.append(BinSums.of(r, a, n_bins=N_BINS, weights=counts / counts.sum()).error(1))
            if errors[-1] <= slack * floor:
                return cls(knots, values, float(share))
        return cls(knots, values, float(SHARES[int(np.argmin(errors))]))


def corners(score: Vector, mean: Vector, weight: Vector, lowest: float) -> tuple[Vector, Vector]:
    """The isotonic regression of the means on the scores, not below a number; the corners of its lines."""
    fitted, _ = optimize.isotonic(mean, weight)
    below = np.flatnonzero(np.cumsum(weight * fitted) / np.cumsum(weight) < lowest)
    if len(below):  # what these samples lack others give: their mean is 1/m at the end
        fitted = np.where(np.arange(len(fitted)) <= below[-1], lowest, fitted)
    fitted = np.clip(fitted, lowest, 1.0)
    # A block needs its first and its last score.
    is_corner = np.append(True, fitted[1:] > fitted[:-1]) | np.append(fitted[1:] > fitted[:-1], True)
    return score[is_corner], fitted[is_corner]
