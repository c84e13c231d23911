"""Histogram binning: a probability is replaced by the share of hits in its bin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.binary.binary_map import FittedBinaryMap, Outcomes, Steps, smoothed, sums
from rhocal.calibrators.binary.one_vs_rest import SMOOTHING, TOP, BinaryCalibrator, parameters_of
from rhocal.errors import InputError
from rhocal.numerics.bins import ON_THE_EDGE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector

BINNINGS = ("width", "mass")


class HistogramBinning(BinaryCalibrator):
    """The accuracy of each bin of confidence (Zadrozny & Elkan 2001). It may change the predicted class.

    A bin with no sample keeps the probability as it is.

    Parameters
    ----------
    n_bins
        How many.
    binning
        ``"width"``: bins of equal width. ``"mass"``: bins that hold equally many tune samples.
    scope
        ``"top"``: bins of the largest probability, as in the paper; the rest of the mass is spread over the other classes
        in proportion. ``"top-capped"``: the same, but no other class gets more than the predicted one.
        ``"one-vs-rest"``: bins of every class's probability, rows normalised afterwards.
    smoothing
        How many samples the rule of succession adds to a bin without a hit, or without a miss; 0 for none.

    Attributes
    ----------
    bins_
        The value of each bin, shape (1 or n_classes, n_bins); NaN where a bin was empty.
    edges_
        The upper edge of each bin.
    """

    name = "histogram-binning"
    map = Steps
    mirrored = False  # bins are (lo, hi], and 1 − p would make them [lo, hi)
    parameters = parameters_of(Steps)
    bins_: NDArray[np.float64]
    edges_: NDArray[np.float64]

    def __init__(
        self, n_bins: int = 10, *, binning: str = "width", scope: str = TOP, smoothing: float = SMOOTHING
    ) -> None:
        self.n_bins = n_bins
        self.binning = binning
        self.scope = scope
        self.smoothing = smoothing

    def _check(self) -> None:
        if not self.n_bins >= 1 or self.n_bins != int(self.n_bins):
            raise InputError(f"n_bins must be a whole number of at least 1; got {self.n_bins!r}")
        if self.binning not in BINNINGS:
            raise InputError(f"binning is one of {', '.join(BINNINGS)}; got {self.binning!r}")
        if not self.smoothing >= 0:
            raise InputError(f"smoothing must not be negative; got {self.smoothing!r}")

    def _fit_map(self, data: Outcomes) -> FittedBinaryMap:
        n_bins = int(self.n_bins)
        if self.binning == "width":  # the edges of bins.equal_width
            edges = np.append(np.arange(1, n_bins) / n_bins + ON_THE_EDGE, np.inf)
        else:
            edges = mass_edges(data, n_bins)
        where = np.searchsorted(edges[:-1], data.score, side="left")
        weight, hits = sums(where, (data.weight, data.hits), len(edges))
        with np.errstate(invalid="ignore"):
            share = hits / weight
        return FittedBinaryMap(Steps(edges, smoothed(share, weight, data.n_classes, self.smoothing)))


def mass_middles(data: Outcomes) -> Vector:
    """The share of all mass below each score, and half of its own: a score goes to the bin where this lies."""
    return (np.cumsum(data.weight) - data.weight / 2) / data.total


def edges_at(data: Outcomes, cuts: NDArray[np.intp]) -> Vector:
    """Upper edges of the bins that end before these scores: half-way between two scores. The last is infinite."""
    return np.append((data.score[cuts - 1] + data.score[cuts]) / 2, np.inf)


def mass_edges(data: Outcomes, n_bins: int) -> Vector:
    """Upper edges of bins of equal mass; with few different scores there are fewer bins."""
    cuts = np.unique(np.searchsorted(mass_middles(data), np.arange(1, n_bins) / n_bins, side="left"))
    return edges_at(data, cuts[(cuts > 0) & (cuts < len(data.score))])
