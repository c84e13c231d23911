"""Scores: NLL with its focal and label-smoothed variants, and the Brier score of all classes and of the top one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import InputError
from rhocal.numerics.special import dot
from rhocal.objectives.base import Single, Slopes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.numerics.special import Vector
    from rhocal.profile.statistics import Facts


@dataclass(frozen=True, repr=False)
class NLL(Single):
    """Negative log-likelihood: −mean log p_y.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling(rhocal.NLL()).fit(logits, labels)
    >>> round(calibrator.temperature_, 2)
    2.36
    """

    name = "nll"
    statistics = frozenset({"log_label"})

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        return -float(dot(values["log_label"], facts.weights)), {"log_label": -facts.weights}

    @property
    def gap_weights(self) -> tuple[float, float, float]:
        return (0.0, 0.0, 1.0)


@dataclass(frozen=True, repr=False)
class Focal(Single):
    """Focal loss (Lin et al. 2017): −mean (1 − p_y)^gamma · log p_y. Samples already right count less.

    ``gamma=0`` is NLL. It is not a proper score: its optimum is less confident than the truth, the more so the larger
    gamma.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling(rhocal.Focal(gamma=1.0)).fit(logits, labels)
    >>> round(calibrator.temperature_, 2)
    2.84
    """

    gamma: float = 2.0
    name = "focal"
    statistics = frozenset({"log_label"})

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < math.inf:
            raise InputError(f"focal: gamma must be finite and not negative; got {self.gamma!r}")

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        log_p = np.minimum(values["log_label"], 0)  # rounding may leave 1e−17 above
        rest = -np.expm1(log_p)
        ease = rest**self.gamma
        # d/dlog p of −(1 − p)^γ log p; where p = 1 the second term is 0 · (1 − p)^γ/(1 − p) · log p, and −log p ≈ 1 − p
        ratio = np.divide(log_p, rest, out=np.full_like(rest, -1.0), where=rest > 0)
        slope = -ease + self.gamma * np.exp(log_p) * ease * ratio
        return -float(dot(ease * log_p, facts.weights)), {"log_label": facts.weights * slope}


@dataclass(frozen=True, repr=False)
class LabelSmoothing(Single):
    """NLL against smoothed labels (Szegedy et al. 2016): −mean of (1 − epsilon)·log p_y + epsilon·mean_j log p_j.

    It is not a proper score: it pulls every prediction toward the uniform distribution. ``epsilon=0`` is NLL.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling(rhocal.LabelSmoothing(epsilon=0.05)).fit(logits, labels)
    >>> round(calibrator.temperature_, 2)
    3.0
    """

    epsilon: float = 0.1
    name = "label-smoothing"
    statistics = frozenset({"log_label", "mean_log"})

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < 1:
            raise InputError(f"label-smoothing: epsilon must be at least 0 and below 1; got {self.epsilon!r}")

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        e, w = self.epsilon, facts.weights
        value = -float(dot((1 - e) * values["log_label"] + e * values["mean_log"], w))
        return value, {"log_label": -(1 - e) * w, "mean_log": -e * w}


@dataclass(frozen=True, repr=False)
class Brier(Single):
    """Multiclass Brier score: mean of Σ_j (p_j − y_j)² = Σp² − 2 p_y + 1.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling(rhocal.Brier()).fit(logits, labels)
    >>> round(calibrator.temperature_, 2)
    2.37
    """

    name = "brier"
    statistics = frozenset({"log_label", "sum_squares"})

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        p_label = np.exp(values["log_label"])
        value = float(dot(values["sum_squares"] - 2 * p_label + 1, facts.weights))
        return float(value), {"sum_squares": facts.weights, "log_label": -2 * facts.weights * p_label}


@dataclass(frozen=True, repr=False)
class TopBrier(Single):
    """Top-label Brier score: mean of (correct − confidence)².

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling(rhocal.TopBrier()).fit(logits, labels)
    >>> round(calibrator.temperature_, 2)
    2.36
    """

    name = "top-brier"
    statistics = frozenset({"confidence"})

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        d = facts.correct - values["confidence"]
        return float(dot(d**2, facts.weights)), {"confidence": -2 * facts.weights * d}

    @property
    def gap_weights(self) -> tuple[float, float, float]:
        return (0.0, 1.0, 0.0)
