"""Bands of a reliability diagram: accuracies of a perfectly calibrated model, and bootstrap intervals of the accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference.defaults import TAILS
from rhocal.metrics.inference.null import CumulativeDifferences

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.bins import BinSums
    from rhocal.numerics.special import Vector


def consistency_band(
    scored: Scored, sums: BinSums, scheme: str, n_bins: int, n_replicates: int, seed: int
) -> tuple[Vector, Vector]:
    """Accuracies between which 95 % of perfectly calibrated models lie, for every bin of equal ``width`` or ``mass``."""
    differences = CumulativeDifferences.from_scored(scored, n_bins)
    simulated = np.concatenate(
        [differences.in_bins(paths, scheme) for paths in differences.simulate(n_replicates, seed)]
    )
    low, high = np.quantile(simulated, TAILS, axis=0) * sums.weight.sum() / sums.weight
    return np.clip(sums.mean + low, 0, 1), np.clip(sums.mean + high, 0, 1)


def resample_bins(sums: BinSums, n_replicates: int, seed: int) -> tuple[Vector, Vector]:
    """The numbers of right and of wrong samples in every bin of each resample, shape (n_replicates, n_bins).

    Resampled samples fall into (bin, right) and (bin, wrong) with a multinomial distribution, so the sums are sufficient.
    """
    cells = np.r_[sums.correct, np.maximum(sums.weight - sums.correct, 0)]
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(max(1, round(float(cells.sum()))), cells / cells.sum(), n_replicates).astype(np.float64)
    n = len(sums.weight)
    return counts[:, :n], counts[:, n:]


def accuracy_interval(sums: BinSums, n_replicates: int, seed: int) -> tuple[Vector, Vector]:
    """Bootstrap interval of the accuracy of every bin. A resample in which a bin is empty does not count for that bin."""
    right, wrong = resample_bins(sums, n_replicates, seed)
    with np.errstate(invalid="ignore"):
        accuracy = np.where(right + wrong > 0, right / np.maximum(right + wrong, 1), np.nan)
    accuracy[:, np.isnan(accuracy).all(axis=0)] = 0  # a bin that is never drawn has practically no weight
    low, high = np.nanquantile(accuracy, TAILS, axis=0)
    return low, high


def curve_band(
    sums: BinSums, curve: Callable[[Vector, Vector], Vector], n_replicates: int, seed: int
) -> tuple[Vector, Vector]:
    """Bootstrap band of a curve that is a function of the right and of all samples in every bin."""
    right, wrong = resample_bins(sums, n_replicates, seed)
    curves = np.array([curve(hits, hits + misses) for hits, misses in zip(right, wrong, strict=True)])
    low, high = np.quantile(curves, TAILS, axis=0)
    return low, high
