"""Calibration errors over bins of confidence. The rule for edges and the sums live in ``rhocal.numerics.bins``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.predictions import SUM_TOLERANCE
from rhocal.errors import InputError
from rhocal.metrics.sums import MetricSums
from rhocal.numerics import kernels
from rhocal.numerics.bins import N_BINS, ON_THE_EDGE, BinSums, bin_totals, tie_blocks
from rhocal.numerics.special import binomial_upper

if TYPE_CHECKING:
    from rhocal.metrics.scored import Scored
    from rhocal.metrics.sums import Sketch

TEST_LEVEL = 0.05
MAX_TRIALS = 1e8
"""Largest sum of weights that a binomial test takes as a number of samples. Beyond it quantiles of the beta distribution are
not exact (SciPy 1.17: wrong by 1e-6 at 1e9), and soon a confidence and an accuracy differ by rounding alone."""

MAX_SWEEP_BINS = 1000
"""Bins at which the sweep stops: more are never monotone on real data, and each further count costs as much as it has bins."""


def equal_width_sums(scored: Scored, n_bins: int) -> BinSums:
    """Sums of one batch over bins of equal width."""
    weights = scored.weights if scored.weighted else None
    return BinSums.of(scored.confidence, scored.correct, n_bins=n_bins, weights=weights)


def one_pass_error(probs: Any, labels: Any, *, power: float, n_bins: int = N_BINS) -> float | None:
    """The error of an array of probabilities and one of column numbers, in one compiled pass.

    None if anything has to be converted or rejected, which is left to the validation of arrays.
    """
    plain = isinstance(probs, np.ndarray) and isinstance(labels, np.ndarray)
    if not plain or not kernels.supports_matrix(probs) or probs.shape[1] < 2 or labels.shape != probs.shape[:1]:
        return None
    if labels.dtype != np.int64 or not labels.flags.c_contiguous or not labels.dtype.isnative:
        return None
    tolerance = SUM_TOLERANCE[probs.dtype.name]
    sums = kernels.bin_sums_of(probs, labels, n_bins=n_bins, edge=ON_THE_EDGE, tolerance=tolerance)
    return None if sums is None else BinSums(*sums).error(power)


def _equal_width_error(scored: Scored, n_bins: int, power: float) -> MetricSums:
    return MetricSums(equal_width_sums(scored, n_bins), partial(BinSums.error, power=power))


def ece(scored: Scored, *, n_bins: int = N_BINS) -> MetricSums:
    """Expected calibration error over bins of equal width: Σ_b share_b·|accuracy_b − confidence_b|."""
    return _equal_width_error(scored, n_bins, 1)


def mce(scored: Scored, *, n_bins: int = N_BINS) -> MetricSums:
    """Maximum calibration error: the largest gap of any bin of equal width that holds a sample."""
    return _equal_width_error(scored, n_bins, np.inf)


def rmsce(scored: Scored, *, n_bins: int = N_BINS) -> MetricSums:
    """Root mean square calibration error over bins of equal width: sqrt(Σ_b share_b·gap_b²)."""
    return _equal_width_error(scored, n_bins, 2)


def adaptive_ece(ranked: BinSums, *, n_bins: int = N_BINS) -> float:
    """Expected calibration error over bins of equal mass (AdaECE)."""
    return ranked.equal_mass(n_bins).error(1)


def adaptive_mce(ranked: BinSums, *, n_bins: int = N_BINS) -> float:
    """Maximum calibration error over bins of equal mass."""
    return ranked.equal_mass(n_bins).error(np.inf)


def adaptive_rmsce(ranked: BinSums, *, n_bins: int = N_BINS) -> float:
    """Root mean square calibration error over bins of equal mass."""
    return ranked.equal_mass(n_bins).error(2)


def equal_mass_bound(sketch: Sketch, *, power: float, n_bins: int = N_BINS) -> float:
    """How far the error over bins of equal mass, computed from a sketch, can be from the exact one.

    Only samples of a cell that an edge cuts can be in another bin than that of their cell; tied cells are one cell.
    With D_b = Σ w d of a bin and W_b its weight, the error is made of |D_b| and W_b. Each sample that moves changes Σ_b |D_b|
    by at most 2 w |d|; and D_b and W_b of a bin change by no more than the cut cells that reach into it hold.
    """
    blocks = tie_blocks(sketch.ranked.mean)
    ranked = sketch.ranked.rebin(blocks, int(blocks[-1]) + 1)
    residual = bin_totals(blocks, sketch.max_residual)
    total = ranked.weight.sum()
    upper = np.cumsum(ranked.weight) / total * n_bins
    first = np.floor(np.r_[0.0, upper[:-1]] + 1e-9).astype(np.intp)
    last = np.maximum(np.floor(upper - 1e-9).astype(np.intp), first)
    cut = last > first
    if power == 1:
        return float(2 * residual[cut].sum() / total)
    moving_residual, moving_weight = (
        np.cumsum(bin_totals(first[cut], part[cut], n_bins + 1) - bin_totals(last[cut] + 1, part[cut], n_bins + 1))[
            :n_bins
        ]
        for part in (residual, ranked.weight)
    )
    bins = ranked.equal_mass(n_bins)
    gap = np.abs(bins.correct - bins.confidence)
    min_gap, max_gap = np.maximum(gap - moving_residual, 0), gap + moving_residual
    # A gap is never above 1, so a bin weighs at least as much as |D|.
    heavy, light = bins.weight + moving_weight, np.maximum(bins.weight - moving_weight, max_gap)
    low, high = (d / np.where(w > 0, w, 1) for d, w in ((min_gap, heavy), (max_gap, light)))
    value = bins.error(power)
    if power == np.inf:
        return float(max(value - low.max(), high.max() - value))
    return float(max(value - np.sqrt(min_gap @ low / total), np.sqrt(max_gap @ high / total) - value))


def debiased_rmsce(scored: Scored, *, n_bins: int = N_BINS) -> MetricSums:
    """Root mean square calibration error over bins of equal width, without the part that is due to chance.

    sqrt(max(0, Σ_b share_b·(gap_b² − a_b(1 − a_b)/(n_b − 1)))), a_b the accuracy and n_b the (weighted) number of samples.
    """
    return MetricSums(equal_width_sums(scored, n_bins), debiased_l2)


def debiased_l2(sums: BinSums) -> float:
    """The debiased ℓ2 error of any bins; a bin with fewer than two samples cannot be debiased and adds nothing."""
    enough = sums.weight >= 2
    if not enough.any():
        raise InputError(
            f"debiased_rmsce: no bin holds 2 samples (sample weights count as copies, and sum to {sums.weight.sum():g}); "
            "use fewer bins, more samples or weights that are counts"
        )
    noise = sums.accuracy * (1 - sums.accuracy) / np.where(enough, sums.weight - 1, 1)
    square = np.where(enough, sums.weight * (sums.gap**2 - noise), 0).sum() / sums.weight.sum()
    return float(np.sqrt(max(square, 0.0)))


def tce(ranked: BinSums, *, n_bins: int = N_BINS) -> float:
    """Test-based calibration error: the share of samples whose confidence a binomial test rejects as the accuracy of their bin.

    Bins are of equal mass. The test has level 5 %: a confidence is rejected outside the Clopper–Pearson interval of the bin.
    """
    if (total := float(ranked.weight.sum())) > MAX_TRIALS:
        raise InputError(
            f"tce takes weights as numbers of samples, at most {MAX_TRIALS:g} together; they sum to {total:g}. "
            "Divide them, for example by their mean"
        )
    where = ranked.mass_bins(n_bins)
    bins = ranked.rebin(where, n_bins)
    wrong = np.maximum(bins.weight - bins.correct, 0)
    low = 1 - binomial_upper(wrong, bins.weight, 1 - TEST_LEVEL / 2)
    high = binomial_upper(bins.correct, bins.weight, 1 - TEST_LEVEL / 2)
    rejected = (ranked.mean < low[where]) | (ranked.mean > high[where])
    return float(ranked.weight @ rejected / ranked.weight.sum())


def ece_sweep(ranked: BinSums) -> float:
    """ECE over as many bins of equal mass as keep the accuracy of the bins ascending (at most 1,000)."""
    if (np.diff(ranked.accuracy) >= 0).all():  # then every union of neighbors ascends as well
        return ranked.error(1)
    best = ranked.equal_mass(1)
    for n_bins in range(2, MAX_SWEEP_BINS + 1):
        bins = ranked.equal_mass(n_bins).nonempty()
        if (np.diff(bins.accuracy) < 0).any():
            break
        best = bins
    return best.error(1)


def top_k_ece(scored: Scored, *, k: int = 2, n_bins: int = N_BINS) -> MetricSums:
    """ECE of "the label is among the k most probable classes": their total probability against the frequency of that."""
    m = scored.source.n_classes
    if k > m:
        raise InputError(f"k must be at most the number of classes, {m}; got {k}")
    return ece(scored.top_k(k), n_bins=n_bins)


def over_confidence(scored: Scored, *, n_bins: int = N_BINS) -> MetricSums:
    """The part of ECE from bins whose confidence is above their accuracy: Σ_b share_b·max(confidence_b − accuracy_b, 0)."""
    return MetricSums(equal_width_sums(scored, n_bins), partial(_one_sided, sign=1))


def under_confidence(scored: Scored, *, n_bins: int = N_BINS) -> MetricSums:
    """The part of ECE from bins whose confidence is below their accuracy: Σ_b share_b·max(accuracy_b − confidence_b, 0)."""
    return MetricSums(equal_width_sums(scored, n_bins), partial(_one_sided, sign=-1))


def _one_sided(sums: BinSums, *, sign: int) -> float:
    return float(np.maximum(sign * (sums.confidence - sums.correct), 0).sum() / sums.weight.sum())
