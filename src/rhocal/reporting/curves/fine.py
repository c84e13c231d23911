"""Sums over intervals so fine that bins of any number from 5 to 50 are unions of them, so that a page can change the bins.

The edges are all fractions k/n with n from 5 to 50. Bins of equal width cut the confidence there; bins of equal mass cut the
share of weight up to a sample there (``rhocal.numerics.bins.bins_by_mass``). So the same edges serve both, and sums over them
give exactly the ECE that Python computes, for any number of samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics.bins import ON_THE_EDGE, BinSums, bin_totals, mass_ranks, sums_by_confidence, tie_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

MIN_BINS, MAX_BINS = 5, 50
"""Numbers of bins that the sums serve."""


@cache
def fractions() -> tuple[Fraction, ...]:
    """All edges, 0 and 1 included, ascending."""
    return tuple(sorted({Fraction(k, n) for n in range(MIN_BINS, MAX_BINS + 1) for k in range(n + 1)}))


def edges() -> Vector:
    """All edges as floating-point numbers."""
    return np.array([float(edge) for edge in fractions()])


@dataclass(frozen=True)
class FineSums:
    """Sums over the intervals between neighboring edges that hold samples."""

    index: NDArray[np.intp]
    """Which interval: from ``edges()[index]`` to ``edges()[index + 1]``."""
    sums: BinSums
    variance: Vector
    """Σ w c (1 − c): the variance of Σ w·correct for a perfectly calibrated model."""
    n_samples: Vector
    """Samples, not effective ones."""

    def rebin(self, n_bins: int) -> BinSums:
        """The sums of ``n_bins`` bins."""
        return self.sums.rebin(self._bins(n_bins), n_bins)

    def floor(self, n_bins: int) -> float:
        """The mean ECE of a perfectly calibrated model; as ``rhocal.numerics.bins.perfect_error``."""
        variance = bin_totals(self._bins(n_bins), self.variance, n_bins)
        return float(np.sqrt(2 / np.pi * variance).sum() / self.sums.weight.sum())

    def _bins(self, n_bins: int) -> NDArray[np.intp]:
        middle = (edges()[:-1] + edges()[1:]) / 2  # never near an edge: different fractions are 1/2450 apart or more
        return (middle[self.index] * n_bins).astype(np.intp)


@dataclass(frozen=True)
class FineBins:
    """Sums for bins of equal width and for bins of equal mass."""

    width: FineSums
    mass: FineSums


def fine_bins(scored: Scored, counts: Vector | None = None) -> FineBins:
    """The fine sums of samples, for both kinds of bins; ``counts`` are the samples that each stands for, if not its weight."""
    c, w = scored.confidence, scored.weights
    # (lo, hi] for confidences, [lo, hi) for shares of weight: the rules of ``rhocal.numerics.bins``
    width = np.clip(np.searchsorted(edges(), c - ON_THE_EDGE, side="left") - 1, 0, len(edges()) - 2)
    spread = w * c * (1 - c)
    size = len(edges()) - 1
    by_width = BinSums.from_bins(width, c, scored.correct, n_bins=size, weights=w)
    ranked = scored.ranked
    blocks = tie_blocks(ranked.mean)
    ranks = mass_ranks(bin_totals(blocks, ranked.weight))
    mass = np.clip(np.searchsorted(edges(), ranks, side="right") - 1, 0, size - 1)[blocks]
    variance = sums_by_confidence(c, c * (1 - c), w).correct
    n_samples = ranked.weight if counts is None else counts_by_confidence(scored, counts).correct
    return FineBins(
        _nonempty(by_width, bin_totals(width, spread, size), bin_totals(width, w if counts is None else counts, size)),
        _nonempty(ranked.rebin(mass, size), bin_totals(mass, variance, size), bin_totals(mass, n_samples, size)),
    )


def counts_by_confidence(scored: Scored, counts: Vector) -> BinSums:
    """The sums of ``Scored.ranked`` with numbers of samples in the place of those that are right."""
    w = scored.weights
    return sums_by_confidence(scored.confidence, np.divide(counts, w, out=np.zeros_like(w), where=w > 0), w)


def _nonempty(sums: BinSums, variance: Vector, n_samples: Vector) -> FineSums:
    index = np.flatnonzero(sums.weight > 0)
    return FineSums(index, sums.nonempty(), variance[index], n_samples[index])
