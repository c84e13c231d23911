"""Metrics that are means of one number per sample: proper scores, the confidence gap, entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector


def accuracy_per_sample(scored: Scored) -> Vector:
    """Share of samples whose top class is right."""
    return scored.correct


def nll_per_sample(scored: Scored) -> Vector:
    """Negative log-likelihood, −mean log p_y."""
    return -scored.log_label  # from log-probabilities: finite where p_y rounds to 0


def brier_per_sample(scored: Scored) -> Vector:
    """Multiclass Brier score, mean of Σ_j (p_j − y_j)² = Σp² − 2 p_y + 1; between 0 and 2."""
    return scored.sum_squares - 2 * np.exp(scored.log_label) + 1


def binary_brier_per_sample(scored: Scored) -> Vector:
    """Half the multiclass Brier score; with two classes mean (p_1 − y)², scikit-learn's ``brier_score_loss``."""
    return brier_per_sample(scored) / 2


def top_brier_per_sample(scored: Scored) -> Vector:
    """Brier score of the top label, mean of (correct − confidence)²."""
    return np.asarray((scored.correct - scored.confidence) ** 2)


def spherical_per_sample(scored: Scored) -> Vector:
    """Spherical score, mean of p_y / ‖p‖₂."""
    return np.asarray(np.exp(scored.log_label) / np.sqrt(scored.sum_squares))


def gap_per_sample(scored: Scored) -> Vector:
    """Confidence gap: mean confidence minus accuracy; positive where over-confident."""
    return scored.confidence - scored.correct


def entropy_per_sample(scored: Scored) -> Vector:
    """Mean entropy of the distributions, −Σ p log p, in nats."""
    return scored.entropy
