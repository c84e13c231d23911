"""Calibration errors of every class against the rest, and their mean."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import InputError
from rhocal.metrics.binned import adaptive_ece
from rhocal.metrics.sums import MetricSums
from rhocal.numerics.bins import N_BINS, BinSums, bin_totals, equal_width

if TYPE_CHECKING:
    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector


@dataclass(frozen=True)
class ClassSums:
    """For every class the sums of its bins, and the weight of its labels."""

    bins: BinSums
    """Arrays of shape (n_classes, n_bins)."""
    labels: Vector

    def __add__(self, other: ClassSums) -> ClassSums:
        return ClassSums(self.bins + other.bins, self.labels + other.labels)


def class_sums(scored: Scored, n_bins: int, threshold: float) -> ClassSums:
    """Sums of one batch over bins of equal width for every class; probabilities below the threshold are left out.

    With many classes nearly all probabilities lie in the first bin. Only the others are assigned to bins; the first bin is
    the rest of the totals.
    """
    m = scored.source.n_classes
    size = m * n_bins
    weight, confidence, correct = np.zeros(size), np.zeros(size), np.zeros(size)
    for rows, p in scored.blocks():
        w, y = scored.weights[rows], scored.labels[rows]
        own = p[np.arange(len(p)), y]
        kept = own >= threshold
        correct += bin_totals((y * n_bins + equal_width(own, n_bins))[kept], w[kept], size)
        high = (p > 1 / n_bins) & (p >= threshold)
        low = ~high if threshold == 0 else ~high & (p >= threshold)
        sample, column = np.nonzero(high)
        place = column * n_bins + equal_width(p[high], n_bins)
        weight += bin_totals(place, w[sample], size)
        confidence += bin_totals(place, w[sample] * p[high], size)
        weight[::n_bins] += w @ low
        confidence[::n_bins] += w @ np.where(low, p, 0)
    bins = BinSums(*(part.reshape(m, n_bins) for part in (weight, confidence, correct)))
    return ClassSums(bins, bin_totals(scored.labels, scored.weights, m))


def class_errors(state: ClassSums, *, power: float, min_labels: float) -> Vector:
    """The error of every class; NaN for classes with fewer labels, or without any probability above the threshold."""
    held = state.bins.weight.sum(axis=1)
    share = state.bins.weight / np.where(held > 0, held, 1)[:, None]
    gap = state.bins.gap
    errors = gap.max(axis=1) if power == np.inf else (share * gap**power).sum(axis=1) ** (1 / power)
    return np.where((held > 0) & (state.labels >= min_labels), errors, np.nan)


def _mean_over_classes(state: ClassSums, *, power: float, min_labels: float) -> float:
    return _mean(class_errors(state, power=power, min_labels=min_labels), power, min_labels)


def _mean(errors: Vector, power: float, min_labels: float) -> float:
    """The mean over the classes that count, in the norm of the metric, so that a single class gives the error of that class."""
    known = errors[~np.isnan(errors)]
    if len(known) == 0:
        raise InputError(f"no class has {min_labels:g} labels and a probability above the threshold; lower one of them")
    return float(known.max() if power == np.inf else np.mean(known**power) ** (1 / power))


def classwise_ece(
    scored: Scored, *, n_bins: int = N_BINS, power: float = 1, threshold: float = 0.0, min_labels: float = 0.0
) -> MetricSums:
    """Static calibration error: the ECE of "is it class j?", mean over the classes.

    Probabilities below ``threshold`` are left out; so are classes with fewer than ``min_labels`` labels.
    """
    return MetricSums(
        class_sums(scored, n_bins, threshold), partial(_mean_over_classes, power=power, min_labels=min_labels)
    )


def tace(scored: Scored, *, n_bins: int = N_BINS, threshold: float = 0.01, min_labels: float = 0.0) -> float:
    """Thresholded adaptive calibration error: as classwise ECE, over bins of equal mass of probabilities ≥ the threshold."""
    errors = np.full(scored.source.n_classes, np.nan)
    for k, labels in enumerate(bin_totals(scored.labels, scored.weights, len(errors))):
        binary = scored.one_class(k)
        kept = binary.take((binary.confidence >= threshold) & (binary.weights > 0))
        if len(kept.confidence) and labels >= min_labels:
            errors[k] = adaptive_ece(kept.ranked, n_bins=n_bins)
    return _mean(errors, 1, min_labels)
