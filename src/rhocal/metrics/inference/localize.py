"""Where a model is miscalibrated: regions of confidence and single classes, with p-values that allow for having looked at all.

A difference of a region or class counts as detected if few perfectly calibrated models have one as large in *any* region or
class (the largest standardized difference of each replicate; Westfall and Young), however many there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL
from rhocal.metrics.inference.joint_null import PRIOR_VARIANCE
from rhocal.metrics.inference.statistics import Cells
from rhocal.numerics.bins import N_BINS

if TYPE_CHECKING:
    from rhocal.metrics.inference.joint_null import ClassTotals
    from rhocal.metrics.inference.null import CumulativeDifferences
    from rhocal.numerics.special import Vector


NAMING_LEVEL = 0.015
"""Largest p-value at which a direction, a class or a region is named: a sentence may name one of each, and is wrong in at most
5 % of samples."""
LEAST_VARIANCE = 1.0
"""Added to the variance of a sum in intervals: no number of labels is known better than to one."""


@dataclass(frozen=True)
class Region:
    """A bin of confidence, or of the probability of a class."""

    low: float
    high: float
    gap: float
    """Observed − expected share; negative where the model is over-confident."""
    p_value: float
    """Adjusted for the number of regions."""


@dataclass(frozen=True)
class ClassGap:
    """Mean probability and prevalence of a class: calibration in the large."""

    column: int
    n_labels: float
    expected: float
    """Mean probability."""
    observed: float
    """Share of the labels."""
    low: float
    high: float
    """Simultaneous 95 % interval of observed − expected, for all classes together."""
    z: float
    """Observed − expected in standard deviations: those of a perfectly calibrated model, or of these samples if larger."""
    p_value: float
    """Of ``z``, adjusted for the number of classes."""

    @property
    def gap(self) -> float:
        """Observed − expected."""
        return self.observed - self.expected

    @property
    def detected(self) -> bool:
        """Whether the difference is detected, and its interval, which allows for errors of any kind, excludes 0."""
        return self.p_value <= NAMING_LEVEL and not self.low <= 0 <= self.high


def adjusted_p_values(standardized: Vector) -> Vector:
    """Of every column of the first row: the share of rows whose largest entry is as large."""
    size = np.abs(standardized)
    largest = np.sort(size[1:].max(axis=1))
    as_large = len(largest) - np.searchsorted(largest, size[0] * (1 - 1e-9), side="left")
    return (1 + as_large) / (1 + len(largest))


def regions(path: CumulativeDifferences, paths: Vector, n_bins: int = N_BINS) -> list[Region]:
    """Bins of equal width that hold samples, in order."""
    cells = Cells(path)
    starts = cells.width_starts(n_bins)
    d = np.add.reduceat(cells.differences(paths), starts, axis=1)
    weight = np.add.reduceat(cells.weight, starts)
    variance = np.add.reduceat(cells.variance, starts)
    bins = np.minimum((np.add.reduceat(cells.weight * cells.center, starts) / weight * n_bins).astype(int), n_bins - 1)
    z = d / np.sqrt(variance + PRIOR_VARIANCE)
    # Errors elsewhere can make the samples vary more than a perfect model's: the larger variance counts.
    squares = (
        np.add.reduceat(path.in_cells(path.weights * (path.correct - path.confidence) ** 2), starts)
        - d[0] ** 2 / weight
    )
    z[0] *= np.sqrt((variance + PRIOR_VARIANCE) / (np.maximum(variance, squares) + PRIOR_VARIANCE))
    p_values = adjusted_p_values(z)
    return [
        Region(b / n_bins, (b + 1) / n_bins, float(gap), float(p))
        for b, gap, p in zip(bins, d[0] / weight, p_values, strict=True)
    ]


def class_gaps(totals: ClassTotals, level: float = CONFIDENCE_LEVEL) -> list[ClassGap]:
    """Calibration in the large of every class, in the order of the columns."""
    z = totals.by_class.copy()
    factor = max(float(np.quantile(np.abs(z[1:]).max(axis=1), level)), NormalDist().inv_cdf((1 + level) / 2))
    gap = totals.observed.sum(axis=1) / totals.total
    variance = np.maximum(totals.class_squares - totals.total * gap**2, 0) + LEAST_VARIANCE
    reach = factor * np.sqrt(variance) / totals.total
    # An over-confident model has a smaller variance than its samples: the interval would hold 0 where p denies it.
    sizes = np.minimum(np.abs(z[0]), np.abs(gap) * totals.total / np.sqrt(variance))
    z[0] = np.copysign(sizes, z[0])
    p_values = adjusted_p_values(z)
    expected = totals.expected.sum(axis=1) / totals.total
    share = totals.n_labels / totals.total
    return [
        ClassGap(k, *(float(x) for x in numbers))
        for k, numbers in enumerate(
            zip(totals.n_labels, expected, share, gap - reach, gap + reach, z[0], p_values, strict=True)
        )
    ]


def positive_gap(path: CumulativeDifferences, paths: Vector, column: int, level: float = CONFIDENCE_LEVEL) -> ClassGap:
    """The same for the positive class of two, whose path is known."""
    cells = Cells(path)
    total = float(cells.total)
    expected = float(cells.weight @ cells.center) / total
    gap = float(path.weights @ path.correct) / total - expected
    drawn = np.abs(paths[1:, -1]) * total / np.sqrt(cells.variance.sum() + PRIOR_VARIANCE)
    factor = max(float(np.quantile(drawn, level)), NormalDist().inv_cdf((1 + level) / 2))
    share = float(path.weights @ path.correct) / total
    squares = float(path.weights @ (path.correct - path.confidence) ** 2)
    variance = max(squares - total * gap**2, 0.0) + LEAST_VARIANCE
    reach = factor * math.sqrt(variance) / total
    n_labels = float(path.weights @ path.correct)
    z = gap * total / math.sqrt(max(float(cells.variance.sum()) + PRIOR_VARIANCE, variance))
    p_value = float(adjusted_p_values(np.concatenate([[abs(z)], drawn])[:, None])[0])
    return ClassGap(column, n_labels, expected, share, gap - reach, gap + reach, z, p_value)
