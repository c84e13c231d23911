"""Histogram binning: a probability is replaced by the share of hits in its bin."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from rhocal.calibrators.binary.binary_map import LAST_EDGE, FittedBinaryMap, Outcomes, Steps, smoothed, sums
from rhocal.calibrators.binary.one_vs_rest import SMOOTHING, TOP, BinaryCalibrator, Scope
from rhocal.calibrators.options import Fitted, option
from rhocal.numerics.bins import ON_THE_EDGE
from rhocal.numerics.special import Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(eq=False, repr=False)
class HistogramBinning(BinaryCalibrator):
    """The accuracy of each bin of confidence (Zadrozny & Elkan 2001). It may change the predicted class.

    A bin with no sample keeps the probability as it is.

    Parameters
    ----------
    n_bins
        How many.
    binning
        ``"width"``: bins of equal width. ``"mass"``: bins that hold equally many calibration samples.
    scope
        ``"top"``: bins of the largest probability; the rest of the mass is spread over the other classes
        in proportion. ``"top-capped"``: the same, but no other class gets more than the predicted one.
        ``"one-vs-rest"``: bins of every class's probability, rows normalized afterwards.
    smoothing
        How many samples the rule of succession adds to a bin without a hit, or without a miss; 0 for none.

    Attributes
    ----------
    bins_
        The value of each bin, shape (1 or n_classes, n_bins); NaN where a bin was empty.
    edges_
        The upper edge of each bin.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.HistogramBinning(scope="top-capped").fit(logits, labels)
    >>> len(set(calibrator.predict_proba(logits).max(1).round(6)))
    18
    """

    name = "histogram-binning"
    map = Steps
    mirrored = False  # bins are (lo, hi], and 1 − p would make them [lo, hi)

    n_bins: int = option(10, minimum=1)
    _: KW_ONLY
    binning: Literal["width", "mass"] = "width"
    scope: Scope = TOP
    smoothing: float = option(SMOOTHING, minimum=0)

    edges_ = Fitted[Vector](shape="maps bins | maps", allows_nan=True, minimum=0, maximum=np.inf, increasing=True)
    bins_ = Fitted[Vector](shape="maps bins | maps", allows_nan=True, minimum=0, maximum=1)
    constraints = (*BinaryCalibrator.constraints, LAST_EDGE)

    def _fit_map(self, data: Outcomes) -> FittedBinaryMap:
        n_bins = self.n_bins
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
