"""Lower bounds of what recalibration could gain, from recalibrations that were fitted on other samples.

The calibration error of the confidence c is the largest mean f(c)·(correct − c) over all functions with |f| ≤ 1. Any f gives
a lower bound, and the best one is the sign of accuracy − c. Here the accuracy at each confidence is fitted (isotonic) on four
fifths of the samples, and f is judged on the last fifth. So the mean of a perfectly calibrated model is 0 instead of the floor
of a plug-in estimate, whatever the fit does, and there are no bins. The same recalibration gives two more bounds: the Brier
score that it saves, and the cost that it saves to a decision by a threshold on the confidence, at the threshold where
recalibration saves most. That threshold is chosen on the other four fifths as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal import optimize
from rhocal.errors import InputError
from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.inference.units import are_counts
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import sums_by_confidence
from rhocal.numerics.special import student_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

N_FOLDS = 5
FOLD_DEPENDENCE = 1 + N_FOLDS / (N_FOLDS - 1)
"""Variance of a mean over folds as a multiple of that of independent samples: the fits share samples (Nadeau & Bengio 2003)."""
MIN_SAMPLES_OF_BOUNDS = 20
THRESHOLDS = np.linspace(0.01, 0.99, 99)
"""Thresholds among which that of the decision is chosen."""


@dataclass(frozen=True)
class LowerBound:
    """An estimate that is as often too large as too small, of a number that is at most the one asked for."""

    estimate: float
    """It may be negative: recalibration would not help."""
    low: float
    """The number asked for is at least this, with the stated confidence."""


@dataclass(frozen=True)
class VariationalBounds:
    """Lower bounds for the top label."""

    ece: LowerBound
    """Of the calibration error: mean |accuracy − confidence| at each confidence, without bins."""
    brier: LowerBound
    """Of the part of the top-label Brier score that recalibration removes."""
    decision_loss: LowerBound
    """Of what a decision by a threshold t on the confidence loses for want of calibration, at the worst t (Hu & Wu
    2024). To act on a right prediction gains 1 − t, to act on a wrong one loses t."""


def variational_bounds(
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    weight_kind: str = "frequency",
    clusters: Any = None,
    kind: Kind = "probs",
    classes: Any = None,
    positive: Any = None,
    level: float = CONFIDENCE_LEVEL,
    seed: int = 0,
) -> VariationalBounds:
    """Lower bounds of the calibration error, of the Brier score and of the decision loss that recalibration removes.

    ``low`` holds with probability ``level`` (one-sided). Weights, ``clusters`` and the rest are those of ``rhocal.evaluate``.

    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1, 4000)
    >>> right = rng.random(4000) < confidence - 0.1
    >>> bounds = variational_bounds(np.stack([1 - confidence, confidence], axis=1), right.astype(int))
    >>> 0.08 < bounds.ece.low < bounds.ece.estimate < 0.12
    True
    """
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1; got {level!r}")
    scored = Scored.from_arrays(
        probs, labels, sample_weight, kind, purpose="a bound", classes=classes, positive=positive
    )
    return bounds_of(SamplingDesign(weight_kind, clusters).apply(scored), level, seed)


@dataclass(frozen=True)
class Samples:
    """What a bound needs of them."""

    confidence: Vector
    correct: Vector
    weights: Vector


def bounds_of(scored: Scored, level: float = CONFIDENCE_LEVEL, seed: int = 0) -> VariationalBounds:
    """The bounds of validated samples."""
    c, y, w = scored.confidence, scored.correct, scored.weights
    order = np.lexsort([w, y, c])  # folds do not depend on the order of the input
    if are_counts(w):
        order, w = np.repeat(order, w[order].astype(np.intp)), np.ones_like(w)
    sample = Samples(c[order], y[order], w[order])
    n = len(order)
    if n < MIN_SAMPLES_OF_BOUNDS:
        raise InputError(f"bounds by cross-validation need at least {MIN_SAMPLES_OF_BOUNDS} samples; got {n}")
    fold = np.random.default_rng(seed).permutation(n) % N_FOLDS
    gains, slopes = np.empty((2, 3, n))
    for k in range(N_FOLDS):
        gains[:, fold == k], slopes[:, fold == k] = _gains(sample, fold != k, fold == k)
    # With few errors the gains hardly differ; what a perfect model would vary is the least that is known.
    perfect = slopes**2 * (sample.confidence * (1 - sample.confidence))
    return VariationalBounds(*(_bound(*pair, sample.weights, level) for pair in zip(gains, perfect, strict=True)))


def _gains(sample: Samples, fitted: NDArray[np.bool_], judged: NDArray[np.bool_]) -> tuple[Vector, Vector]:
    """The three gains of every sample that is judged, and their differences between right and wrong."""
    c, y, w = sample.confidence, sample.correct, sample.weights
    accuracy = _isotonic(c[fitted], y[fitted], w[fitted], c)
    t = _worst_threshold(c[fitted], accuracy[fitted], w[fitted])
    c, y, accuracy = c[judged], y[judged], accuracy[judged]
    acts = (accuracy >= t).astype(np.float64) - (c >= t)
    sign = np.sign(accuracy - c)
    gains = np.stack([sign * (y - c), (c - y) ** 2 - (accuracy - y) ** 2, acts * (y - t)])
    return gains, np.stack([sign, 2 * (accuracy - c), acts])


def _isotonic(c: Vector, y: Vector, w: Vector, at: Vector) -> Vector:
    ranked = sums_by_confidence(c, y, w)
    return np.interp(at, ranked.mean, optimize.isotonic(ranked.accuracy, ranked.weight)[0])


def _worst_threshold(c: Vector, accuracy: Vector, w: Vector) -> float:
    """Where the decision by confidence loses most, if the accuracies are right."""
    losses = [w @ (((accuracy >= t).astype(np.float64) - (c >= t)) * (accuracy - t)) for t in THRESHOLDS]
    return float(THRESHOLDS[int(np.argmax(losses))])


def _bound(gain: Vector, perfect: Vector, weights: Vector, level: float) -> LowerBound:
    """The mean, and its lower limit by Student's t; weights count samples."""
    n = float(weights.sum())
    mean = float(weights @ gain / n)
    variance = max(float(weights @ (gain - mean) ** 2), float(weights @ perfect)) / max(n - 1, 1e-9)
    deviation = math.sqrt(variance / n * FOLD_DEPENDENCE)
    return LowerBound(mean, mean - student_quantile(n - 1, level) * deviation)
