"""Bin edges, and sums inside bins. Metrics and calibrators use the same rules.

Equal-width bins are (lo, hi]; the first also holds 0 and the last holds exactly 1.0. So two samples, one right with
confidence .95 and one wrong with confidence 1.0, share the last of ten bins, and their error is |.5 − .975| = .475.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics import kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector


N_BINS = 10
"""Bins of a calibration error by default, as in the paper."""

RANK_ROUNDING = 1e-12
"""More than the rounding error of a share of weight, far less than a sample."""

ON_THE_EDGE = 1e-7
"""Largest distance above an edge at which a value still counts as on it: the rounding of single precision."""

TIE_DECIMALS = 12
"""Decimals to which two confidences must agree to share a rank."""

TIE = 1e-6
"""Largest distance of confidences that are tied, and share a bin of equal mass. A softmax over some hundred classes in single
precision, or its rows summed to 1 again, moves a confidence by up to 3e-7."""


def equal_width(values: Vector, n_bins: int) -> NDArray[np.intp]:
    """The bin of every value in [0, 1].

    A value belongs left of an edge it equals; nearer than ``ON_THE_EDGE`` counts as equal, so that neither a softmax nor
    single precision moves a confidence of .9 into the next bin.

    >>> equal_width(np.array([0.0, 0.1, 0.10001, 0.95, 1.0]), 10).tolist()
    [0, 0, 1, 9, 9]
    """
    above = np.ceil((values - ON_THE_EDGE) * n_bins).astype(np.intp)
    return np.clip(above - 1, 0, n_bins - 1)


def equal_mass(values: Vector, n_bins: int, weights: Vector | None = None) -> NDArray[np.intp]:
    """The bin of every value when each bin holds (about) the same total weight.

    Equal values share a bin, so that the order of the samples does not matter; so do those that single precision cannot
    tell apart (``tie_blocks``). A value goes where the middle of its block of weight lies.

    >>> equal_mass(np.array([0.9, 0.1, 0.5, 0.7]), 2).tolist()
    [1, 0, 0, 1]
    """
    levels, inverse = np.unique(values, return_inverse=True)
    blocks = tie_blocks(levels)[inverse]
    return bins_by_mass(bin_totals(blocks, weights), n_bins)[blocks]


def tie_blocks(levels: Vector) -> NDArray[np.intp]:
    """The block of each of several rising numbers: those within ``TIE`` of each other, and farther from all else, are one.

    Unlike rounding this never parts numbers that were equal before single precision. Numbers that follow each other closely
    over more than ``TIE``, as confidences near 1 do, are no ties and stay apart.

    >>> tie_blocks(np.array([0.1, 0.1 + 1e-8, 0.2, 0.3])).tolist()
    [0, 0, 1, 2]
    """
    follows = np.diff(levels, prepend=-np.inf) <= TIE
    chain = np.cumsum(~follows) - 1
    first = np.flatnonzero(~follows)
    last = np.append(first[1:], len(levels)) - 1
    tie = (levels[last] - levels[first] <= TIE)[chain]
    return np.cumsum(~(follows & tie)) - 1


def bin_totals(bins: NDArray[np.intp], values: Vector | None, n_bins: int = 0) -> Vector:
    """The sum of the values in every bin; without values, their number."""
    return np.bincount(bins, values, n_bins).astype(np.float64, copy=False)


def bins_by_mass(mass: Vector, n_bins: int) -> NDArray[np.intp]:
    """The bin of each of several blocks of weight, in order."""
    return np.minimum((mass_ranks(mass) * n_bins).astype(np.intp), n_bins - 1)


def mass_ranks(mass: Vector) -> Vector:
    """The share of weight up to the middle of each block. One on an edge k/n_bins lies right of it, whatever rounding does."""
    return (np.cumsum(mass) - mass / 2) / mass.sum() + RANK_ROUNDING


@dataclass(frozen=True)
class BinSums:
    """Weight, confidence and correctness added up in each bin. Sums of two batches add.

    >>> bins = BinSums.of(np.array([0.95, 1.0]), np.array([1.0, 0.0]), n_bins=10)
    >>> round(bins.error(1), 12)
    0.475
    """

    weight: Vector
    confidence: Vector
    correct: Vector

    @classmethod
    def of(cls, confidence: Vector, correct: Vector, *, n_bins: int, weights: Vector | None = None) -> BinSums:
        """Sums over equal-width bins."""
        return cls.of_each([confidence], correct, n_bins=n_bins, weights=weights)[0]

    @classmethod
    def of_each(
        cls, confidences: Sequence[Vector], correct: Vector, *, n_bins: int, weights: Vector | None = None
    ) -> list[BinSums]:
        """The same for several confidences of the same samples."""
        compiled = kernels.bin_sums(confidences, correct, weights, n_bins=n_bins, edge=ON_THE_EDGE)
        if compiled is not None:
            return [cls(*sums) for sums in compiled]
        return [cls.from_bins(equal_width(c, n_bins), c, correct, n_bins=n_bins, weights=weights) for c in confidences]

    @classmethod
    def from_bins(
        cls, bins: NDArray[np.intp], confidence: Vector, correct: Vector, *, n_bins: int, weights: Vector | None = None
    ) -> BinSums:
        """Sums over bins already chosen."""
        w = np.ones(len(confidence)) if weights is None else weights
        return cls(*(bin_totals(bins, values, n_bins) for values in (w, w * confidence, w * correct)))

    def __add__(self, other: BinSums) -> BinSums:
        return BinSums(self.weight + other.weight, self.confidence + other.confidence, self.correct + other.correct)

    @property
    def gap(self) -> Vector:
        """|accuracy − confidence| of every bin; 0 where a bin is empty."""
        return np.abs(self.correct - self.confidence) / np.where(self.weight > 0, self.weight, 1)

    def error(self, power: float) -> float:
        """(Σ_b share_b · gap_b^power)^(1/power); with power = inf the largest gap."""
        if power == np.inf:
            return float(self.gap.max())
        if power == 1:  # weights of bins cancel
            return float(np.abs(self.correct - self.confidence).sum() / self.weight.sum())
        share = self.weight / self.weight.sum()
        return float((share @ self.gap**power) ** (1 / power))

    @property
    def accuracy(self) -> Vector:
        """Share of right samples in every bin; 0 where a bin is empty."""
        return self.correct / np.where(self.weight > 0, self.weight, 1)

    @property
    def mean(self) -> Vector:
        """Mean confidence of every bin; 0 where a bin is empty."""
        return self.confidence / np.where(self.weight > 0, self.weight, 1)

    def nonempty(self) -> BinSums:
        """The bins that hold samples."""
        kept = self.weight > 0
        return BinSums(self.weight[kept], self.confidence[kept], self.correct[kept])

    def rebin(self, bins: NDArray[np.intp], n_bins: int) -> BinSums:
        """The sums of coarser bins, each a union of these."""
        return BinSums(*(bin_totals(bins, part, n_bins) for part in (self.weight, self.confidence, self.correct)))

    def equal_mass(self, n_bins: int) -> BinSums:
        """Joined, in their order, into bins of (about) equal weight; the rule is that of ``equal_mass``."""
        return self.rebin(self.mass_bins(n_bins), n_bins)

    def mass_bins(self, n_bins: int) -> NDArray[np.intp]:
        """Into which bin of (about) equal weight each of these goes."""
        blocks = tie_blocks(self.mean)
        return bins_by_mass(bin_totals(blocks, self.weight), n_bins)[blocks]


def equal_width_errors(
    confidences: Sequence[Vector], correct: Vector, *, n_bins: int, weights: Vector | None = None
) -> list[float]:
    """The ECE of each of several confidences of the same samples."""
    return [sums.error(1) for sums in BinSums.of_each(confidences, correct, n_bins=n_bins, weights=weights)]


def sums_by_confidence(confidence: Vector, correct: Vector, weights: Vector) -> BinSums:
    """Sums at every distinct confidence, in ascending order.

    They determine all metrics of rank and mass: neither the order of samples nor that of ties matters. Confidences that agree
    to ``TIE_DECIMALS`` are one: a sum over classes in another order must not break a tie.

    >>> sums_by_confidence(np.array([0.9, 0.5, 0.9]), np.array([1.0, 0.0, 0.0]), np.ones(3)).correct.tolist()
    [0.0, 1.0]
    """
    levels, inverse = np.unique(np.round(confidence, TIE_DECIMALS), return_inverse=True)
    return BinSums.from_bins(inverse, confidence, correct, n_bins=len(levels), weights=weights).nonempty()


@dataclass(frozen=True)
class PerfectSums:
    """Sums that determine the mean ECE of a perfectly calibrated model with these confidences. Sums of two batches add.

    If correctness ~ Bernoulli(confidence), the gap of a bin is nearly normal with variance Σ w² c (1 − c), and the mean of
    the absolute value of a normal number is sqrt(2/π) standard deviations. Equal weights of w count as w samples each.
    """

    variance: Vector
    """Of every bin."""
    weight: float

    @classmethod
    def of(cls, confidence: Vector, weights: Vector, n_bins: int) -> PerfectSums:
        """The sums of one batch."""
        spread = weights * confidence * (1 - confidence)
        return cls(bin_totals(equal_width(confidence, n_bins), spread, n_bins), float(weights.sum()))

    def __add__(self, other: PerfectSums) -> PerfectSums:
        return PerfectSums(self.variance + other.variance, self.weight + other.weight)

    @property
    def value(self) -> float:
        """The mean ECE: the floor."""
        return float(np.sqrt(2 / np.pi * self.variance).sum() / self.weight)


def perfect_error(confidence: Vector, weights: Vector, n_bins: int) -> float:
    """The mean ECE of a perfectly calibrated model with these confidences: the floor."""
    return PerfectSums.of(confidence, weights, n_bins).value
