"""The difference of the population ECEs of two predictions for the same samples.

The ECE of a sample is above the population ECE by about its floor, and the floors of two predictions differ: one with
confidences in ten bins has a higher floor than one with confidences in a single bin, and a calibrated one loses less to it
than an uncalibrated one. So a difference of two sample ECEs is biased, and so are its resamples.

The statistic here is a difference of two debiased sums Σ s_b g(Z_b/s_b) (``absolute_mean.py``). What is left of the
bias, and the spread, come from joint draws: true sums of all bins that the sample allows (``gap_posterior.py``), with noise of
the observed covariance added. The noise of the two is mostly shared, and cancels where their gaps have the same sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference import absolute_mean
from rhocal.metrics.inference.ece_interval import PRIOR_SAMPLES
from rhocal.metrics.inference.gap_posterior import draw_sums
from rhocal.numerics.bins import bin_totals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

N_DRAWS = 600
WIDENING = 1.15
"""Factor on the standard deviation of the draws, for what their normal interval misses where gaps are of the size of the
noise. Chosen on the models of experiments/coverage/paired.py: with 1.05 two models of equal ECE were called different in
10 % of samples where one has gaps of one sign and the other a gap in half of its bins."""
PRIOR_ERRORS = 2.0
"""Right and wrong samples that are added to a bin with few of either (Agresti & Coull 1998), and at most so many to all."""


@dataclass(frozen=True)
class JointBinSums:
    """Sums of correct − confidence in the bins of two predictions, as shares of all samples, and their noise."""

    sums: Vector
    deviations: Vector
    shares: Vector
    """The weight of each bin."""
    correlation: Vector
    """Of the noise of all bins."""
    n_first: int
    """Bins of the first prediction; the others are the second's."""

    @classmethod
    def from_samples(
        cls, a: Scored, b: Scored, bins: tuple[NDArray[np.intp], NDArray[np.intp]], n_bins: int
    ) -> JointBinSums:
        """The sums, and their covariance from the samples."""
        sides = [_moments(view, own, n_bins) for view, own in zip((a, b), bins, strict=True)]
        w, total = a.weights, float(a.weights.sum())
        residuals = [
            np.where(flat[own], 1.0, view.correct - view.confidence)
            for view, own, (*_, flat) in zip((a, b), bins, sides, strict=True)
        ]
        cross = np.bincount(bins[0] * n_bins + bins[1], w * residuals[0] * residuals[1], minlength=n_bins**2).reshape(
            n_bins, n_bins
        )
        second = [np.diag(bin_totals(own, w * d**2, n_bins)) for own, d in zip(bins, residuals, strict=True)]
        first = np.concatenate([bin_totals(own, w * d, n_bins) for own, d in zip(bins, residuals, strict=True)])
        moments = np.block([[second[0], cross], [cross.T, second[1]]])
        held = np.concatenate([side[2] > 0 for side in sides])
        moments, first = moments[np.ix_(held, held)], first[held]
        covariance = moments - np.outer(first, first) / total
        if (np.diag(covariance) <= 1e-9 * np.diag(moments)).any():  # one bin, and the same residual everywhere
            covariance = moments
        spread = np.sqrt(np.diag(covariance))
        correlation = covariance / np.outer(spread, spread)
        sums, variances, weights = (np.concatenate([side[k] for side in sides])[held] for k in range(3))
        return cls(sums / total, np.sqrt(variances) / total, weights / total, correlation, int((sides[0][2] > 0).sum()))

    def statistic(self, sums: Vector) -> Vector:
        """The difference of the debiased sums, for any number of sets of sums (in the last axis)."""
        return self.contrast(self.deviations * absolute_mean.statistic(np.abs(sums) / self.deviations))

    def contrast(self, values: Vector) -> Vector:
        """The total of the first prediction minus that of the second."""
        return np.asarray(values[..., : self.n_first].sum(axis=-1) - values[..., self.n_first :].sum(axis=-1))


def _moments(view: Scored, bins: NDArray[np.intp], n_bins: int) -> tuple[Vector, Vector, Vector, NDArray[np.bool_]]:
    """Σ w d, its variance and Σ w of every bin, and the bins whose residuals d are all 0.

    Few errors tell little about their rate: 0 of 300 allow 4 in another 300. So the variance of a bin is at least that of
    two more right and two more wrong samples.
    """
    w, c, d = view.weights, view.confidence, view.correct - view.confidence
    weight, first, second, perfect, wrong = (
        bin_totals(bins, values, n_bins) for values in (w, w * d, w * d**2, w * c * (1 - c), w * (1 - view.correct))
    )
    n = np.where(weight > 0, weight, 1.0)
    smoothed = (second + PRIOR_SAMPLES * perfect / n) / (n + PRIOR_SAMPLES) * n
    variance = np.maximum(smoothed - first**2 / weight.sum(), 0.0)
    rate = (np.minimum(wrong, weight - wrong) + PRIOR_ERRORS) / (n + 2 * PRIOR_ERRORS)
    missing = np.where(weight > 0, np.maximum(n * rate * (1 - rate) - variance, 0.0), 0.0)
    missing *= min(1.0, PRIOR_ERRORS / max(float(missing.sum()), PRIOR_ERRORS))
    return first, variance + missing, weight, (weight > 0) & (second <= 0)


def ece_difference(
    a: Scored, b: Scored, bins: tuple[NDArray[np.intp], NDArray[np.intp]], n_bins: int, seed: int
) -> tuple[float, float]:
    """The debiased ECE of A minus that of B over these bins, and its standard deviation."""
    if np.array_equal(bins[0], bins[1]) and np.array_equal(a.correct - a.confidence, b.correct - b.confidence):
        return 0.0, 0.0
    joint = JointBinSums.from_samples(a, b, bins, n_bins)
    if tuple(joint.sums[: joint.n_first]) > tuple(joint.sums[joint.n_first :]):  # A − B is exactly −(B − A)
        value, deviation = _debias(JointBinSums.from_samples(b, a, bins[::-1], n_bins), seed)
        return -value, deviation
    return _debias(joint, seed)


def _debias(joint: JointBinSums, seed: int) -> tuple[float, float]:
    rng = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(joint.correlation)
    factor = vectors * np.sqrt(np.maximum(values, 0))
    true = draw_sums(joint.sums, joint.deviations, joint.shares, joint.correlation, joint.n_first, N_DRAWS, rng)
    noise = rng.standard_normal(true.shape) @ factor.T * joint.deviations
    errors = joint.statistic(true + noise) - joint.contrast(np.abs(true))
    deviation = max(float(errors.std()), float(joint.statistic(joint.sums + noise).std()))
    return float(joint.statistic(joint.sums)) - float(errors.mean()), WIDENING * deviation
