"""Calibration errors over bins without hard edges."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import InputError
from rhocal.objectives.base import Objective, Single, Slopes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.numerics.special import Vector
    from rhocal.profile.statistics import Facts

WIDTHS = (0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25)
"""Widths that ``SoftECE`` chooses from, in confidence."""

N_FOLDS = 5
"""Folds that are left out in turn while the width is chosen."""


@dataclass(frozen=True, repr=False)
class SoftBinnedECE(Single):
    """Soft-binned calibration error (Karandikar et al. 2021), ℓ2: sqrt(Σ_b share_b · gap_b²).

    A sample belongs to bin b to the degree softmax_b(−(confidence − center_b)² / temperature).

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling(rhocal.SoftBinnedECE()).fit(logits, labels)
    >>> round(calibrator.temperature_, 2)
    2.37
    """

    n_bins: int = 15
    temperature: float = 0.01
    name = "sb-ece"
    statistics = frozenset({"confidence"})

    def __post_init__(self) -> None:
        if self.n_bins < 1 or not self.temperature > 0:
            raise InputError(f"sb-ece: n_bins ≥ 1 and temperature > 0; got {self.n_bins!r}, {self.temperature!r}")

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        return soft_error(values["confidence"], facts, self.n_bins, self.temperature)


@dataclass(frozen=True, repr=False)
class SoftECE(Single):
    """Soft-binned calibration error whose width is learned from the data: 15 bins, degree ∝ exp(−(c − center)² / 2 width²).

    Narrow bins fit noise, wide bins hide errors. Unless given, ``width`` is the one of ``WIDTHS`` whose bins best predict the
    correctness of held-out samples when the fit starts (at the NLL-optimal temperature). It cannot be a free parameter of
    the fit itself: the widest bins always have the smallest error.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling(rhocal.SoftECE()).fit(logits, labels)
    >>> round(calibrator.temperature_, 2)
    2.39
    """

    width: float | None = None
    n_bins: int = 15
    name = "soft-ece"
    statistics = frozenset({"confidence"})

    def __post_init__(self) -> None:
        if self.n_bins < 1 or not (self.width is None or self.width > 0):
            raise InputError(f"soft-ece: n_bins ≥ 1 and width > 0; got {self.n_bins!r}, {self.width!r}")

    def prepare(self, values: Mapping[str, Vector], facts: Facts) -> Objective:
        if self.width is not None:
            return self
        errors = [_held_out_error(values["confidence"], facts, self.n_bins, 2 * width**2) for width in WIDTHS]
        return replace(self, width=WIDTHS[int(np.argmin(errors))])

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        width = WIDTHS[-1] if self.width is None else self.width
        return soft_error(values["confidence"], facts, self.n_bins, 2 * width**2)


def soft_error(confidence: Vector, facts: Facts, n_bins: int, temperature: float) -> tuple[float, Slopes]:
    """sqrt(Σ_b share_b · gap_b²) and its slope in the confidences.

    With u_b the degrees and c_b the centers, ∂u_b/∂confidence = u_b (c_b − Σ u c) · 2/temperature: everything is a sum over
    the bins of u times a few columns, and a single product gives them all.
    """
    d = facts.correct - confidence
    u, centers = _degrees(confidence, n_bins, temperature), _centers(n_bins)
    share = u @ facts.weights
    gap = u @ (facts.weights * d) / np.maximum(share, 1e-300)
    square = float(share @ gap**2)
    center, to_gap, to_square, gap_moment, square_moment = (
        np.stack([centers, gap, gap**2, centers * gap, centers * gap**2]) @ u
    )
    d_gap = 2 / temperature * (gap_moment - center * to_gap)
    d_square = 2 / temperature * (square_moment - center * to_square)
    # Σ_b D_b²/S_b with D = Σ w u d, S = Σ w u
    slope = facts.weights * (2 * d * d_gap - 2 * to_gap - d_square)
    root = math.sqrt(square)
    return root, {"confidence": slope / (2 * max(root, 1e-9))}


def _centers(n_bins: int) -> Vector:
    return (np.arange(n_bins) + 0.5) / n_bins


def _degrees(confidence: Vector, n_bins: int, temperature: float) -> Vector:
    """To which degree each sample (column) belongs to each bin (row)."""
    u = np.square(confidence - _centers(n_bins)[:, None])
    u -= u.min(axis=0)
    u *= -1 / temperature
    np.exp(u, out=u)
    u /= u.sum(axis=0)
    return np.asarray(u)


def _held_out_error(confidence: Vector, facts: Facts, n_bins: int, temperature: float) -> float:
    """Mean square error of predicting correctness by the gaps of the bins, each sample left out of its own prediction.

    Samples are left out by the rank of their confidence, counted round: copies of a sample leave together, and the order of
    the samples does not matter. Samples of a cluster leave together, by the rank of its mean confidence.
    """
    u = _degrees(confidence, n_bins, temperature)
    levels, present = confidence, facts.weights > 0
    if facts.clusters is not None:
        codes = np.unique(facts.clusters, return_inverse=True)[1]
        weight, moment = (np.bincount(codes, values) for values in (facts.weights, facts.weights * confidence))
        levels = (moment / np.maximum(weight, 1e-300))[codes]
    folds = np.searchsorted(np.unique(levels[present]), levels) % N_FOLDS
    d = facts.correct - confidence
    total = 0.0
    for fold in range(N_FOLDS):
        out = folds == fold
        w = np.where(out, 0.0, facts.weights)
        gap = u @ (w * d) / np.maximum(u @ w, 1e-12)
        total += float(facts.weights[out] @ (d[out] - gap @ u[:, out]) ** 2)
    return total
