"""A score as the sum of what recalibration can remove and what it cannot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rhocal import optimize
from rhocal.metrics.binned import equal_width_sums
from rhocal.metrics.scores import nll_per_sample, top_brier_per_sample
from rhocal.metrics.sums import MetricSums, WeightedMean
from rhocal.numerics.bins import N_BINS
from rhocal.profile.profile import Profile
from rhocal.profile.statistics import nll_by_scale

if TYPE_CHECKING:
    from rhocal.metrics.scored import Scored
    from rhocal.numerics.bins import BinSums
    from rhocal.numerics.special import Vector


@dataclass(frozen=True)
class Murphy:
    """The three terms of the top-label Brier score over bins, and the variation inside the bins.

    score = reliability − resolution + uncertainty + within.
    """

    reliability: float
    """Σ_b share_b·(confidence_b − accuracy_b)²; smaller is better."""
    resolution: float
    """Σ_b share_b·(accuracy_b − accuracy)²; larger is better."""
    uncertainty: float
    """accuracy·(1 − accuracy): of the task, not of the calibration."""
    within: float
    """Confidences that differ inside a bin; 0 if each bin holds one confidence."""


@dataclass(frozen=True)
class MurphySums:
    """Sums over bins, and the score itself."""

    bins: BinSums
    score: WeightedMean

    @classmethod
    def of(cls, scored: Scored, n_bins: int) -> MurphySums:
        """The sums of one batch."""
        score = WeightedMean.of(top_brier_per_sample(scored), scored.weights)
        return cls(equal_width_sums(scored, n_bins), score)

    def __add__(self, other: MurphySums) -> MurphySums:
        return MurphySums(self.bins + other.bins, self.score + other.score)

    @property
    def terms(self) -> Murphy:
        """The decomposition."""
        bins = self.bins
        share = bins.weight / bins.weight.sum()
        accuracy = float(share @ bins.accuracy)
        reliability, resolution = float(share @ bins.gap**2), float(share @ (bins.accuracy - accuracy) ** 2)
        uncertainty = accuracy * (1 - accuracy)
        return Murphy(reliability, resolution, uncertainty, self.score.value - (reliability - resolution + uncertainty))


def _term(sums: MurphySums, *, which: str) -> float:
    return float(getattr(sums.terms, which))


def reliability(scored: Scored, *, n_bins: int = N_BINS) -> MetricSums:
    """Murphy's reliability of the top label over bins of equal width: Σ_b share_b·(confidence_b − accuracy_b)²."""
    return MetricSums(MurphySums.of(scored, n_bins), partial(_term, which="reliability"))


def resolution(scored: Scored, *, n_bins: int = N_BINS) -> MetricSums:
    """Murphy's resolution of the top label over bins of equal width: Σ_b share_b·(accuracy_b − accuracy)²."""
    return MetricSums(MurphySums.of(scored, n_bins), partial(_term, which="resolution"))


def uncertainty(scored: Scored) -> MetricSums:
    """Murphy's uncertainty of the top label: accuracy·(1 − accuracy)."""
    return MetricSums(MurphySums.of(scored, 1), partial(_term, which="uncertainty"))


def isotonic_accuracy(ranked: BinSums) -> Vector:
    """The ascending accuracies nearest to those at each confidence: neighbors that descend are pooled."""
    return optimize.isotonic(ranked.correct / ranked.weight, ranked.weight)[0]


def refinement_loss(scored: Scored) -> float:
    """The top-label Brier score after the best ascending recalibration of the confidence (isotonic)."""
    ranked = scored.ranked
    best = isotonic_accuracy(ranked)
    # Σ w (y − q)² with y ∈ {0, 1}: Σ y (1 − q)² + (w − y) q²
    return float((ranked.correct @ (1 - best) ** 2 + (ranked.weight - ranked.correct) @ best**2) / ranked.weight.sum())


def calibration_loss(scored: Scored) -> float:
    """The part of the top-label Brier score that the best ascending recalibration of the confidence (isotonic) removes."""
    before = WeightedMean.of(top_brier_per_sample(scored), scored.weights).value
    return max(before - refinement_loss(scored), 0.0)


def discrimination(scored: Scored) -> float:
    """How much better than one constant confidence the best ascending recalibration is, in the top-label Brier score (DSC).

    `top_brier` = `calibration_loss` (MCB) − `discrimination` (DSC) + `murphy_uncertainty` (UNC).
    """
    return max(scored.accuracy * (1 - scored.accuracy) - refinement_loss(scored), 0.0)


def nll_refinement_loss(scored: Scored) -> float:
    """NLL after scaling with the temperature that is best on these same samples."""
    profile = Profile.from_predictions(scored.source)
    weights = scored.weights / scored.weights.sum()

    # If every sample is right, NLL decreases without limit: at a thousand times the scale it is practically 0.
    nll = nll_by_scale(replace(profile, weights=weights))
    return optimize.newton(nll, 0.0, -np.log(1e6), np.log(1e3), 1e-3).value


def nll_calibration_loss(scored: Scored) -> float:
    """The part of NLL that the temperature which is best on these same samples removes."""
    before = WeightedMean.of(nll_per_sample(scored), scored.weights).value
    return max(before - nll_refinement_loss(scored), 0.0)
