"""Quadratic scores: of all classes, and of the top one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics.special import dot
from rhocal.objectives.base import Single, Slopes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.numerics.special import Vector
    from rhocal.profile.statistics import Facts


@dataclass(frozen=True, repr=False)
class Brier(Single):
    """Multiclass Brier score: mean of Σ_j (p_j − y_j)² = Σp² − 2 p_y + 1."""

    name = "brier"
    statistics = frozenset({"log_label", "sum_squares"})

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        p_label = np.exp(values["log_label"])
        value = float(dot(values["sum_squares"] - 2 * p_label + 1, facts.weights))
        return float(value), {"sum_squares": facts.weights, "log_label": -2 * facts.weights * p_label}


@dataclass(frozen=True, repr=False)
class TopBrier(Single):
    """Top-label Brier score: mean of (correct − confidence)²."""

    name = "top-brier"
    statistics = frozenset({"confidence"})

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        d = facts.correct - values["confidence"]
        return float(dot(d**2, facts.weights)), {"confidence": -2 * facts.weights * d}

    @property
    def gap_weights(self) -> tuple[float, float, float]:
        return (0.0, 1.0, 0.0)
