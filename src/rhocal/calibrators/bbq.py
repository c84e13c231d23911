"""Bayesian binning into quantiles: equal-mass binnings of every size, averaged by how likely the data makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.binary_map import Fitted, Outcomes, Steps, smoothed
from rhocal.calibrators.histogram_binning import edges_at, mass_cuts
from rhocal.calibrators.one_vs_rest import ONE_VS_REST, SMOOTHING, BinaryCalibrator, parameters_of
from rhocal.errors import InputError
from rhocal.special import Vector, log_gamma

if TYPE_CHECKING:
    from numpy.typing import NDArray

REACH = 10
"""Binnings have between ∛n / REACH and REACH·∛n bins, as in the original."""

LEAST_PER_BIN = 5
"""Samples that a bin holds at least on average."""

NEGLIGIBLE = 1e-6
"""Binnings less likely than this times the best are left out of the average."""


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
        ``"one-vs-rest"``: a map for each class, rows normalised. ``"top"``: one map for the confidence.
    smoothing
        How many samples the rule of succession adds to a bin without a hit, or without a miss; 0 leaves it to the prior.

    Attributes
    ----------
    edges_, bins_
        The averaged steps of each map, filled up with NaN. ``solution_.trials`` has the likeliest number of bins.
    """

    name = "bbq"
    map = Steps
    parameters = parameters_of(Steps)
    edges_: NDArray[np.float64]
    bins_: NDArray[np.float64]

    def __init__(self, prior: float = 2.0, *, scope: str = ONE_VS_REST, smoothing: float = SMOOTHING) -> None:
        self.prior = prior
        self.scope = scope
        self.smoothing = smoothing

    def _check(self) -> None:
        if not (self.prior > 0 and self.smoothing >= 0):
            raise InputError(f"need prior > 0 and smoothing ≥ 0; got {self.prior!r}, {self.smoothing!r}")

    def _fit_map(self, data: Outcomes) -> Fitted:
        root = np.cbrt(data.total)
        most = max(1, int(min(np.ceil(data.total / LEAST_PER_BIN), np.ceil(REACH * root))))
        binnings = [_Binning(data, b, self.prior) for b in range(max(1, min(most, int(root / REACH))), most + 1)]
        evidence = log_evidence(binnings)
        share = np.exp(evidence - evidence.max())
        share = np.where(share < NEGLIGIBLE, 0, share) / share.sum()
        value = np.zeros(len(data.score))
        for k in np.flatnonzero(share):
            value += share[k] * binnings[k].of_scores(data.n_classes, self.smoothing)
        cuts = np.flatnonzero(np.diff(value)) + 1
        best = binnings[int(evidence.argmax())]
        return Fitted(
            Steps(edges_at(data, cuts), value[np.append(0, cuts)]),
            n_evaluations=len(binnings),
            trials=({"n_bins": best.n_bins, "share": float(share.max())},),
        )


class _Binning:
    """One equal-mass binning: sums and prior of its bins that are not empty."""

    def __init__(self, data: Outcomes, n_bins: int, prior: float) -> None:
        inner = np.unique(mass_cuts(data, n_bins))
        inner = inner[(inner > 0) & (inner < len(data.score))]
        begin = np.append(0, inner)
        self.n_bins, self.counts = n_bins, np.diff(np.append(begin, len(data.score)))
        self.weight, self.hits = np.add.reduceat(data.weight, begin), np.add.reduceat(data.hits, begin)
        edges = edges_at(data, inner)
        edges[-1] = 1
        middle = (np.append(0, edges[:-1]) + edges) / 2
        self.worth = prior / n_bins
        self.alpha = self.worth * np.clip(middle, 1e-12, 1 - 1e-12)

    def of_scores(self, n_classes: int, smoothing: float) -> Vector:
        """The value at every score."""
        value = (self.hits + self.alpha) / (self.weight + self.worth)
        none, all_ = self.hits <= 0, self.hits >= self.weight
        plain = smoothed(self.hits / self.weight, self.weight, n_classes, smoothing)
        value = np.where(none, np.maximum(value, plain), np.where(all_, np.minimum(value, plain), value))
        return np.repeat(value, self.counts)


def log_evidence(binnings: list[_Binning]) -> Vector:
    """Log of how likely the data is under each binning, all bins of all binnings in one go."""
    sizes = np.array([len(one.weight) for one in binnings])
    weight, hits, alpha = (
        np.concatenate([getattr(one, name) for one in binnings]) for name in ("weight", "hits", "alpha")
    )
    worth = np.repeat([one.worth for one in binnings], sizes)
    misses, beta = weight - hits, worth - alpha
    terms = (
        log_gamma(worth)
        - log_gamma(weight + worth)
        + log_gamma(hits + alpha)
        - log_gamma(alpha)
        + log_gamma(misses + beta)
        - log_gamma(beta)
    )
    return np.add.reduceat(terms, np.append(0, np.cumsum(sizes)[:-1]))
