"""Bayesian binning into quantiles: equal-mass binnings of every size, averaged by how likely the data makes them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.binary.binary_map import FINEST, LAST_EDGE, FittedBinaryMap, Outcomes, Steps, smoothed
from rhocal.calibrators.binary.histogram_binning import edges_at, mass_middles
from rhocal.calibrators.binary.one_vs_rest import ONE_VS_REST, SMOOTHING, BinaryCalibrator, Scope
from rhocal.calibrators.options import Fitted, option
from rhocal.numerics.special import Vector, log_gamma

if TYPE_CHECKING:
    from numpy.typing import NDArray

REACH = 10
"""Binnings have between ∛n / REACH and REACH·∛n bins, as in the original."""

LEAST_PER_BIN = 5
"""Samples that a bin holds at least on average."""

TINY = 1e-12
"""Rounding of sums and of probabilities."""

NEGLIGIBLE = 1e-6
"""Binnings less likely than this times the best are left out of the average."""


@dataclass(eq=False, repr=False)
class BayesianBinning(BinaryCalibrator):
    """Averaged equal-mass binnings of each class's probability (Naeini, Cooper & Hauskrecht 2015): BBQ.

    A binning of B bins is as likely as Π_b Γ(ν)/Γ(n_b + ν) · Γ(h_b + α_b)/Γ(α_b) · Γ(n_b − h_b + β_b)/Γ(β_b) for h_b hits of
    n_b, with ν = prior/B, α_b = ν·(middle of the bin) and β_b = ν − α_b; its bin gives (h_b + α_b)/(n_b + ν).
    It may change the predicted class.

    Parameters
    ----------
    prior
        The samples that the prior is worth (N′ of the paper).
    scope
        ``"one-vs-rest"``: a map for each class, rows normalized. ``"top"`` or ``"top-capped"``: one for the confidence.
    smoothing
        How many samples the rule of succession adds to a bin without a hit, or without a miss; 0 leaves it to the prior.

    Attributes
    ----------
    edges_, bins_
        The averaged steps of each map, filled up with NaN. ``solution_.trials`` has the likeliest number of bins.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits(name="table")
    >>> calibrator = rhocal.BayesianBinning().fit(logits, labels)
    >>> calibrator.predict_proba(logits[:2]).shape
    (2, 2)
    """

    name = "bbq"
    map = Steps
    has_monotone_bounds = True  # more samples have narrower bins; those of replicates are as wide as those of the fit

    prior: float = option(2.0, above=0)
    _: KW_ONLY
    scope: Scope = ONE_VS_REST
    smoothing: float = option(SMOOTHING, minimum=0)

    edges_ = Fitted[Vector](shape="maps bins | maps", allows_nan=True, minimum=0, maximum=np.inf, increasing=True)
    bins_ = Fitted[Vector](shape="maps bins | maps", allows_nan=True, minimum=0, maximum=1)
    constraints = (*BinaryCalibrator.constraints, LAST_EDGE)

    def _fit_map(self, data: Outcomes) -> FittedBinaryMap:
        root = np.cbrt(data.total)
        most = max(1, int(min(np.ceil(data.total / LEAST_PER_BIN), np.ceil(REACH * root), len(data.score))))
        sizes = np.arange(max(1, min(most, int(root / REACH))), most + 1)
        bins = Bins.from_outcomes(data, sizes, self.prior)
        evidence = np.add.reduceat(bins.log_evidence(), bins.first)
        share = np.exp(evidence - evidence.max())
        share = np.where(share < NEGLIGIBLE, 0, share) / share.sum()
        values = bins.values(data.n_classes, self.smoothing)
        mixed = np.zeros(len(data.score))
        for k in np.flatnonzero(share):
            mine = slice(bins.first[k], bins.first[k] + sizes[k])
            mixed += share[k] * np.repeat(values[mine], bins.end[mine] - bins.begin[mine])
        cuts = np.flatnonzero(np.diff(np.floor(mixed / FINEST))) + 1
        best = int(evidence.argmax())
        return FittedBinaryMap(
            Steps(edges_at(data, cuts), mixed[np.append(0, cuts)]),
            n_evaluations=len(sizes),
            trials=({"n_bins": int(sizes[best]), "share": float(share[best])},),
        )


@dataclass(frozen=True)
class Bins:
    """The bins of all binnings, one binning after the other. Empty bins have evidence 1 and no score."""

    first: NDArray[np.intp]
    """Where each binning begins."""
    begin: NDArray[np.intp]
    """The first score of every bin."""
    end: NDArray[np.intp]
    """The first score after every bin."""
    weight: Vector
    hits: Vector
    worth: Vector
    """ν, the prior samples of every bin."""
    alpha: Vector

    @classmethod
    def from_outcomes(cls, data: Outcomes, sizes: NDArray[np.intp], prior: float) -> Bins:
        """Equal-mass binnings with these numbers of bins; a score goes where the middle of its mass lies."""
        first = np.append(0, np.cumsum(sizes)[:-1])
        size = np.repeat(sizes, sizes)
        number = np.arange(len(size)) - np.repeat(first, sizes)
        begin = np.searchsorted(mass_middles(data), number / size, side="left")
        begin[first] = 0
        end = np.append(begin[1:], 0)
        end[np.append(first[1:], len(size)) - 1] = len(data.score)
        weight, hits = (_between(values, begin, end) for values in (data.weight, data.hits))
        edges = np.concatenate([[0.0], (data.score[1:] + data.score[:-1]) / 2, [1.0]])
        worth = prior / size
        return cls(
            first, begin, end, weight, hits, worth, worth * np.clip((edges[begin] + edges[end]) / 2, TINY, 1 - TINY)
        )

    def log_evidence(self) -> Vector:
        """Log of how likely the hits of each bin are."""
        beta, misses = self.worth - self.alpha, np.maximum(self.weight - self.hits, 0)
        of_hits = log_gamma(self.hits + self.alpha) - log_gamma(self.alpha)
        of_misses = log_gamma(misses + beta) - log_gamma(beta)
        return of_hits + of_misses - (log_gamma(self.weight + self.worth) - log_gamma(self.worth))

    def values(self, n_classes: int, smoothing: float) -> Vector:
        """The mean of the posterior of each bin; where nobody or everybody hit, no nearer to 0 or 1 than the smoothing."""
        value = (self.hits + self.alpha) / (self.weight + self.worth)
        low, high = (smoothed(np.full(len(value), end), self.weight, n_classes, smoothing) for end in (0.0, 1.0))
        none, all_ = self.hits <= TINY * self.weight, self.hits >= (1 - TINY) * self.weight
        return np.where(none, np.maximum(value, low), np.where(all_, np.minimum(value, high), value))


def _between(values: Vector, begin: NDArray[np.intp], end: NDArray[np.intp]) -> Vector:
    """Sums from begin to before end."""
    total = np.append(0, np.cumsum(values))
    return np.maximum(total[end] - total[begin], 0)
