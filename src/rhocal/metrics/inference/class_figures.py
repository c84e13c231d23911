"""Figures of single classes: prevalence, observed / expected, and Cox's slope and intercept of the positive class of two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.metrics.inference.defaults import Z
from rhocal.numerics.special import expit
from rhocal.optimize import logistic

if TYPE_CHECKING:
    from rhocal.metrics.inference.localize import ClassGap
    from rhocal.metrics.inference.null import CumulativeDifferences
    from rhocal.metrics.inference.verdict import Verdict
    from rhocal.numerics.special import Vector

MAX_LOGIT = 30.0
MAX_COEFFICIENT = 50.0
"""A slope or intercept beyond this is that of classes that a threshold almost separates: no estimate is printed."""
MIN_EXPECTED = 1e-9
"""Mean probability up to which a class is not expected at all, and no ratio to it is printed."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; NaN where there is none."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ClassFigures:
    """How often a class is predicted, and how often it is there."""

    name: str
    n_labels: float
    """Samples of the class, not effective ones."""
    mean_probability: float
    prevalence: float
    """Share of the labels."""
    observed_expected: Estimate
    """O/E: labels for each one that is expected, with a 95 % interval for all classes together."""
    p_value: float
    """Whether mean probability and prevalence differ; adjusted for the number of classes."""


@dataclass(frozen=True)
class PositiveFigures:
    """The positive class of two."""

    prevalence: ClassFigures
    ece: Estimate
    """In ten bins of the probability of the class: the estimate of the population value, and its interval."""
    intercept: Estimate
    slope: Estimate
    """Cox's recalibration logit = intercept + slope · logit: 0 and 1 if calibrated; a slope below 1 is over-confident."""


def class_figures(gap: ClassGap, name: Any, n_labels: Vector | None = None) -> ClassFigures:
    """The figures of a class from its calibration in the large; ``n_labels`` of every class, if weights are not counts."""
    expected = gap.expected
    ratio = (
        Estimate(gap.observed / expected, max(0.0, (expected + gap.low) / expected), (expected + gap.high) / expected)
        if expected > MIN_EXPECTED
        else Estimate(math.nan, math.nan, math.nan)
    )
    n = gap.n_labels if n_labels is None else float(n_labels[gap.column])
    return ClassFigures(str(name), n, expected, gap.observed, ratio, gap.p_value)


def positive_figures(path: CumulativeDifferences, conclusion: Verdict, prevalence: ClassFigures) -> PositiveFigures:
    """The figures of the positive class, whose samples are those of its path."""
    error = conclusion.error
    ece = Estimate(error.estimate, error.low, error.high)
    return PositiveFigures(prevalence, ece, *cox(path.confidence, path.correct, path.weights))


def cox(probability: Vector, label: Vector, weights: Vector) -> tuple[Estimate, Estimate]:
    """Intercept and slope of the logistic regression of labels on logits, with Wald intervals."""
    p = np.clip(probability, 1e-300, 1 - 1e-16)
    logit = np.clip(np.log(p) - np.log1p(-p), -MAX_LOGIT, MAX_LOGIT)
    none = Estimate(math.nan, math.nan, math.nan)
    if not _overlap(logit[(label > 0) & (weights > 0)], logit[(label < 1) & (weights > 0)]):
        return none, none
    basis = np.stack([np.ones_like(logit), logit])
    fitted = logistic(basis, label, weights)
    if not fitted.converged or np.abs(fitted.x).max() > MAX_COEFFICIENT:
        return none, none
    q = expit(fitted.x @ basis)
    deviation = Z * np.sqrt(np.diag(np.linalg.inv((basis * (weights * q * (1 - q))) @ basis.T)))
    intercept, slope = (
        Estimate(float(b), float(b - s), float(b + s)) for b, s in zip(fitted.x, deviation, strict=True)
    )
    return intercept, slope


def _overlap(positive: Vector, negative: Vector) -> bool:
    """Whether no threshold separates the two labels, so that the likelihood has a maximum (Albert & Anderson 1984)."""
    if not (len(positive) and len(negative)):
        return False
    return bool(positive.min() < negative.max() - 1e-9 and negative.min() < positive.max() - 1e-9)
