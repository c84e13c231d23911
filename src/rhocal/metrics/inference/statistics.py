"""Statistics of miscalibration: functions of paths and class totals, the samples in the first row and replicates below.

Larger is worse. All are compared with the same replicates, so a statistic may use any approximation that treats rows alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference.joint_null import PRIOR_VARIANCE
from rhocal.numerics.bins import bins_by_mass, equal_width
from rhocal.numerics.threads import row_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.metrics.inference.joint_null import ClassTotals, JointNull
    from rhocal.metrics.inference.null import CumulativeDifferences
    from rhocal.numerics.special import Vector

TITLES = {
    "gap": "mean gap",
    "ece": "floor test (ECE)",
    "smooth": "smooth ECE",
    "spiegelhalter": "Spiegelhalter",
    "chi2": "χ² of bins",
    "prevalence": "prevalence",
    "cox": "Cox slope and intercept",
    "kuiper": "Kuiper, positive class",
    "class": "prevalence of every class",
    "classwise": "classwise",
    "skce": "kernel (SKCE), all classes",
}
"""How the tests are called."""

CHI2_BINS = (4, 10, 25, 60)
"""Numbers of bins of equal mass of the χ² test: errors of a few samples and of many."""
SMOOTH_INTERVALS = 256
"""Intervals of the grid of the smooth ECE of a test; the metric has more."""
SMOOTH_STEPS, LEAST_LOG_BANDWIDTH = 7, -12.0
"""Bisections of the logarithm (base 2) of the bandwidth, and where they begin."""
MAX_LOGIT = 12.0


def statistics(null: JointNull) -> dict[str, Vector]:
    """Every statistic that these samples allow."""
    top = Cells(null.top)
    d = top.differences(null.top_paths)
    values = {
        "gap": np.abs(null.top_paths[:, -1]),
        "ece": null.top.ece(null.top_paths),
        "smooth": top.smooth(d),
        "spiegelhalter": np.abs(d @ (1 - 2 * top.center)),
        "chi2": top.chi2(d),
    }
    if null.positive is not None and null.positive_paths is not None:
        positive = Cells(null.positive)
        values["prevalence"] = np.abs(null.positive_paths[:, -1])
        values["cox"] = positive.cox(positive.differences(null.positive_paths))
        values["kuiper"] = np.ptp(np.pad(null.positive_paths, ((0, 0), (1, 0))), axis=1)
    if null.classes is not None:
        values["class"] = np.abs(null.classes.by_class).max(axis=1)
        values["classwise"] = classwise(null.classes)
    if null.canonical is not None:
        values["skce"] = null.canonical
    return values


def classwise(totals: ClassTotals) -> Vector:
    """Σ over classes and bins of |observed − expected|, which is the classwise ECE times the number of classes."""
    drawn = np.abs(totals.drawn).sum(axis=(1, 2))
    return np.concatenate([[np.abs(totals.observed).sum()], drawn])


class Cells:
    """Samples between the points of a path, treated as one place of confidence."""

    def __init__(self, path: CumulativeDifferences) -> None:
        self.total = path.weights.sum()
        self.weight = path.in_cells(path.weights)
        self.center = path.in_cells(path.weights * path.confidence) / self.weight
        spread = path.confidence * (1 - path.confidence)
        self.variance = path.in_cells(path.weights * spread)
        """Of the sum of a cell, in samples."""

    def differences(self, paths: Vector) -> Vector:
        """Observed − expected of every cell, in samples."""
        return np.diff(paths, prepend=0.0, axis=1) * self.total

    def chi2(self, d: Vector) -> Vector:
        """The largest of several χ² of bins of equal mass, each less its mean and in standard deviations."""
        return np.max([self._standardized_chi2(d, self.mass_starts(n)) for n in CHI2_BINS], axis=0)

    def _standardized_chi2(self, d: Vector, starts: NDArray[np.intp]) -> Vector:
        variance = np.add.reduceat(self.variance, starts) + PRIOR_VARIANCE
        n = len(starts)
        return np.asarray((((np.add.reduceat(d, starts, axis=1) ** 2) / variance).sum(axis=1) - n) / np.sqrt(2 * n))

    def mass_starts(self, n_bins: int) -> NDArray[np.intp]:
        """The first cell of every bin of (about) equal mass."""
        return _starts(bins_by_mass(self.weight, n_bins))

    def width_starts(self, n_bins: int) -> NDArray[np.intp]:
        """The first cell of every bin of equal width that holds samples."""
        return _starts(equal_width(self.center, n_bins))

    def cox(self, d: Vector) -> Vector:
        """The score test of Cox's recalibration: intercept and slope of the logit, against none and one."""
        logit = np.clip(
            np.log(np.maximum(self.center, 1e-30)) - np.log(np.maximum(1 - self.center, 1e-30)), -MAX_LOGIT, MAX_LOGIT
        )
        basis = np.stack([np.ones_like(logit), logit], axis=1)
        information = basis.T @ (self.variance[:, None] * basis) + PRIOR_VARIANCE * np.eye(2)
        scores = d @ basis
        return np.einsum("ij,ij->i", scores, np.linalg.solve(information, scores.T).T)

    def smooth(self, d: Vector) -> Vector:
        """Smooth ECE: ∫|r_σ| at the bandwidth σ that equals it, on a coarse grid (``metrics/smooth.py``)."""
        n = SMOOTH_INTERVALS
        place = np.clip(self.center, 0, 1) * n
        left = np.minimum(place.astype(np.intp), n - 1)
        spread = np.zeros((len(place), n + 1))
        rows = np.arange(len(place))
        spread[rows, left], spread[rows, left + 1] = left + 1 - place, place - left
        grid = d @ spread / self.total
        even = np.concatenate([grid, grid[:, -2:0:-1]], axis=1)
        even[:, [0, n]] *= 2
        # Transforms of all rows at once take 2.5 times as long: they leave the cache.
        return np.concatenate([_smooth_integral(even[rows]) for rows in row_blocks(*even.shape)])


def _smooth_integral(even: Vector) -> Vector:
    """∫|r_σ| of every row of periodic even sequences, smoothed with the bandwidth σ that equals it."""
    waves = np.fft.rfft(even, axis=1)
    k = np.arange(waves.shape[1])

    def integral(sigma: Vector) -> Vector:
        r = np.abs(np.fft.irfft(waves * np.exp(-0.5 * (np.pi * sigma[:, None] * k) ** 2), axis=1)[:, : len(k)])
        return np.asarray(r.sum(axis=1) - (r[:, 0] + r[:, -1]) / 2)

    low, high = np.full(len(even), LEAST_LOG_BANDWIDTH), np.zeros(len(even))
    for _ in range(SMOOTH_STEPS):
        middle = (low + high) / 2
        above = integral(2.0**middle) > 2.0**middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    sigma = 2.0 ** ((low + high) / 2)
    return np.sqrt(sigma * integral(sigma))  # both are near the fixed point, on either side of it


def _starts(bins: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.flatnonzero(np.diff(bins, prepend=-1))
