"""The distribution of confidence, and the calibration of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.metrics.binned import equal_width_sums
from rhocal.metrics.classwise import class_errors, class_sums
from rhocal.metrics.metric import validate_options
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import N_BINS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

MAX_CLASSES = 30
"""Rows of a heat map that can be read."""


@dataclass(frozen=True)
class Histogram:
    """The share of samples in equal-width bins of confidence."""

    edges: Vector
    weight: Vector
    share: Vector
    mean_confidence: float
    mean_accuracy: float


def histogram(
    probs: Any, labels: Any, *, n_bins: int = N_BINS, sample_weight: Any = None, kind: Kind = "probs", classes: Any = None,
    positive: Any = None,
) -> Histogram:  # fmt: skip
    """The confidence histogram, with mean confidence and accuracy (paper, Fig. 3)."""
    validate_options({"n_bins": n_bins})
    samples = Scored.from_arrays(probs, labels, sample_weight, kind, classes=classes, positive=positive)
    weight = equal_width_sums(samples, n_bins).weight
    edges = np.arange(n_bins + 1) / n_bins
    return Histogram(edges, weight, weight / weight.sum(), samples.mean_confidence, samples.accuracy)


@dataclass(frozen=True)
class ClassHeat:
    """For some classes and every bin of a class's probability, the frequency of the class minus its mean probability."""

    classes: NDArray[Any]
    """Names, the worst class first."""
    edges: Vector
    gap: Vector
    """Frequency − mean probability, shape (classes, bins); NaN in empty bins."""
    weight: Vector
    error: Vector
    """ECE of each class against the rest."""
    n_labels: Vector
    n_classes: int
    """Number of all classes, shown or not."""


def class_heat(
    probs: Any,
    labels: Any,
    *,
    classes: Any = None,
    n_bins: int = N_BINS,
    most: int = MAX_CLASSES,
    sample_weight: Any = None,
    kind: Kind = "probs",
    positive: Any = None,
) -> ClassHeat:
    """The classwise heat map of the ``most`` worst classes."""
    validate_options({"n_bins": n_bins})
    scored = Scored.from_arrays(probs, labels, sample_weight, kind, classes=classes, positive=positive)
    return class_heat_from_scored(scored, n_bins=n_bins, most=most)


def class_heat_from_scored(scored: Scored, *, n_bins: int = N_BINS, most: int = MAX_CLASSES) -> ClassHeat:
    """The same for validated samples."""
    state = class_sums(scored, n_bins, 0.0)
    error = class_errors(state, power=1, min_labels=0)
    worst = np.argsort(-np.nan_to_num(error, nan=-1), kind="stable")[:most]
    bins = state.bins
    held = bins.weight > 0
    gap = np.where(held, (bins.correct - bins.confidence) / np.where(held, bins.weight, 1), np.nan)
    return ClassHeat(
        np.asarray(scored.source.classes)[worst],
        np.arange(n_bins + 1) / n_bins,
        gap[worst],
        bins.weight[worst],
        error[worst],
        state.labels[worst],
        len(error),
    )
