"""Risk against coverage: the error rate when only the most confident share is answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.metrics.scored import Scored
from rhocal.metrics.selection import aurc, rejection_curve

if TYPE_CHECKING:
    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

N_POINTS = 200


@dataclass(frozen=True)
class RiskCoverage:
    """Ascending coverage."""

    coverage: Vector
    """Share of samples answered, the most confident ones."""
    risk: Vector
    """Error rate among them."""
    confidence: Vector
    """Everything at or above this confidence is answered."""
    area: float
    """AURC, of all samples."""


def risk_coverage(
    probs: Any, labels: Any, *, sample_weight: Any = None, kind: Kind = "probs", n_points: int = N_POINTS,
    classes: Any = None, positive: Any = None,
) -> RiskCoverage:  # fmt: skip
    """The risk–coverage curve at up to ``n_points`` coverages."""
    scored = Scored.from_arrays(probs, labels, sample_weight, kind, classes=classes, positive=positive)
    return risk_coverage_from_scored(scored, n_points)


def risk_coverage_from_scored(scored: Scored, n_points: int = N_POINTS) -> RiskCoverage:
    """The same for validated samples."""
    curve = rejection_curve(scored.ranked)
    coverage = (1 - curve.rejected)[::-1]
    picked = np.unique(np.searchsorted(coverage, np.linspace(0, 1, n_points + 1)[1:] - 1e-12))
    picked = picked[picked < len(coverage)]
    return RiskCoverage(
        coverage[picked], 1 - curve.accuracy[::-1][picked], curve.confidence[::-1][picked], aurc(scored.ranked)
    )
