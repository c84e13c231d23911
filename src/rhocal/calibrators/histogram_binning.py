"""Histogram binning: a confidence is replaced by the accuracy of its bin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.bins import BinSums, equal_width
from rhocal.calibrators.base import Calibrator
from rhocal.errors import InputError
from rhocal.predictions import SMALLEST_PROB
from rhocal.solve import Solution
from rhocal.special import Floats, row_blocks, softmax

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.predictions import Predictions

SCOPES = ("top", "one-vs-rest")


class HistogramBinning(Calibrator):
    """The accuracy of each bin of confidence (Zadrozny & Elkan 2001). It may change the predicted class.

    A bin where all (or none) are right gets 1 − 1/(n + 2) (or 1/(n + 2)) instead of 1 (or 0), n its weight: a probability
    of exactly 0 would make the NLL infinite. A bin with no sample keeps the confidence as it is.

    Parameters
    ----------
    n_bins
        Bins of equal width.
    scope
        ``"top"``: bins of the largest probability, as in the paper; the rest of the mass is spread over the other classes
        in proportion. ``"one-vs-rest"``: bins of every class's probability, rows normalised afterwards.

    Attributes
    ----------
    bins_
        The value of each bin, shape (1 or n_classes, n_bins); NaN where a bin was empty.
    """

    name = "histogram-binning"
    keeps_decision = False
    parameters = ("bins_",)
    bins_: NDArray[np.float64]

    def __init__(self, n_bins: int = 10, *, scope: str = "top") -> None:
        self.n_bins = n_bins
        self.scope = scope

    def _fit(self, data: Predictions) -> Solution:
        if not self.n_bins >= 1 or self.n_bins != int(self.n_bins):
            raise InputError(f"n_bins must be a whole number of at least 1; got {self.n_bins!r}")
        if self.scope not in SCOPES:
            raise InputError(f"scope is one of {', '.join(SCOPES)}; got {self.scope!r}")
        assert data.labels is not None
        p = softmax(data.logits.astype(np.float64)).astype(np.float64, copy=False)
        weights = np.ones(len(p)) if data.weights is None else data.weights
        if self.scope == "top":
            rows = [self._values(p.max(axis=1), p.argmax(axis=1) == data.labels, weights)]
        else:
            rows = [self._values(p[:, c], data.labels == c, weights) for c in range(data.n_classes)]
        self.bins_ = np.array(rows)
        return Solution("none", float("nan"), converged=True, n_evaluations=1)

    def _values(
        self, confidence: NDArray[np.float64], hit: NDArray[np.bool_], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        sums = BinSums.of(confidence, hit.astype(np.float64), n_bins=self.n_bins, weights=weights)
        least = 1 / (sums.weight + 2)
        with np.errstate(invalid="ignore"):
            return np.clip(np.asarray(sums.correct / sums.weight), least, 1 - least)

    def _transform(self, logits: Floats) -> Floats:
        out = np.empty_like(logits)
        change = self._change_top if len(self.bins_) == 1 else self._change_all
        for rows in row_blocks(*logits.shape):
            p = change(softmax(logits[rows].astype(np.float64)).astype(np.float64, copy=False))
            out[rows] = np.log(np.maximum(p, SMALLEST_PROB))
        return out

    def _change_top(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        samples, top = np.arange(len(p)), p.argmax(axis=1)
        confidence = p[samples, top]
        value = self.bins_[0, equal_width(confidence, self.bins_.shape[1])]
        value = np.where(np.isnan(value), confidence, value)
        p[samples, top] = 0
        rest = p.sum(axis=1)
        # A confidence of exactly 1 leaves no proportions to go by: the rest is spread evenly.
        none = rest == 0
        p[none] = 1
        p[samples, top] = 0
        p *= ((1 - value) / p.sum(axis=1))[:, None]
        p[samples, top] = value
        return p

    def _change_all(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        bins = equal_width(p.ravel(), self.bins_.shape[1]).reshape(p.shape)
        value = self.bins_[np.arange(p.shape[1]), bins]
        value = np.where(np.isnan(value), p, value)
        return np.asarray(value / value.sum(axis=1, keepdims=True))
