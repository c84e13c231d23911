"""The reliability diagram: accuracy against confidence in bins, with the band of a perfectly calibrated model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError
from rhocal.metrics.binned import equal_width_sums
from rhocal.metrics.inference.bands import accuracy_interval, consistency_band
from rhocal.metrics.inference.defaults import N_REPLICATES
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.metric import validate_options
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import N_BINS, BinSums

if TYPE_CHECKING:
    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

SCHEMES = ("width", "mass")


@dataclass(frozen=True)
class Reliability:
    """One entry for each bin that holds a sample, in ascending order of confidence."""

    scheme: str
    """``width`` or ``mass``: bins of equal width, or of (about) equal weight."""
    n_bins: int
    low: Vector
    high: Vector
    """The edges of each bin, or for bins of equal mass its smallest and largest confidence."""
    weight: Vector
    """Samples in the bin (the sum of their weights)."""
    confidence: Vector
    accuracy: Vector
    band_low: Vector
    band_high: Vector
    """95 % of perfectly calibrated models have an accuracy between these (the consistency band)."""
    interval_low: Vector
    interval_high: Vector
    """95 % bootstrap interval of the accuracy."""
    mean_confidence: float
    mean_accuracy: float
    ece: float
    of_class: str = ""
    """The class whose probability and prevalence these are; empty for the top label."""


def reliability(
    probs: Any,
    labels: Any,
    *,
    n_bins: int = N_BINS,
    scheme: str = "width",
    sample_weight: Any = None,
    weight_kind: str | None = "frequency",
    clusters: Any = None,
    kind: Kind = "probs",
    classes: Any = None,
    positive: Any = None,
    of_positive: bool = False,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Reliability:
    """Accuracy and confidence in bins of equal ``width`` or equal ``mass``, with bands, intervals and counts.

    With ``of_positive`` they are prevalence and probability of the positive class of two, by default the second.
    ``weight_kind`` and ``clusters`` are those of ``rhocal.evaluate``.
    """
    validate_options({"n_bins": n_bins})
    if scheme not in SCHEMES:
        raise InputError(f"scheme is one of {', '.join(SCHEMES)}; got {scheme!r}")
    scored = Scored.from_arrays(probs, labels, sample_weight, kind, classes=classes, positive=positive)
    scored = SamplingDesign(weight_kind, clusters).apply(scored)
    return reliability_from_scored(
        scored, n_bins=n_bins, scheme=scheme, of_positive=of_positive, n_replicates=n_replicates, seed=seed
    )


def reliability_from_scored(
    scored: Scored,
    *,
    n_bins: int = N_BINS,
    scheme: str = "width",
    of_positive: bool = False,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Reliability:
    """The diagram of samples that were validated."""
    of_class = ""
    if of_positive:
        scored, of_class = positive_view(scored)
    sums, low, high = _bins(scored, n_bins, scheme)
    band = consistency_band(scored, sums, scheme, n_bins, n_replicates, seed)
    interval = accuracy_interval(sums, n_replicates, seed)
    return Reliability(
        scheme,
        n_bins,
        low,
        high,
        sums.weight,
        sums.mean,
        sums.accuracy,
        *band,
        *interval,
        scored.mean_confidence,
        scored.accuracy,
        sums.error(1),
        of_class,
    )


def positive_view(scored: Scored) -> tuple[Scored, str]:
    """The question "is it the positive class?", and its name."""
    data = scored.source
    if data.n_classes != 2:
        raise InputError(f"of_positive needs two classes; there are {data.n_classes}")
    column = data.positive_column
    view, zeros = scored.one_class(column), np.zeros(scored.n_samples)
    scale = scored.__dict__["draw_scale"]
    return Scored(view.confidence, view.correct, zeros, zeros, view.weights, draw_scale=scale), str(
        data.classes[column]
    )


def _bins(scored: Scored, n_bins: int, scheme: str) -> tuple[BinSums, Vector, Vector]:
    if scheme == "width":
        sums = equal_width_sums(scored, n_bins)
        kept = np.flatnonzero(sums.weight > 0)
        return sums.nonempty(), kept / n_bins, (kept + 1) / n_bins
    ranked = scored.ranked
    sums = ranked.equal_mass(n_bins)
    ends = np.cumsum(ranked.weight)
    last = np.searchsorted(ends, np.cumsum(sums.nonempty().weight) - 1e-9 * ends[-1])
    first = np.r_[0, last[:-1] + 1]
    return sums.nonempty(), ranked.mean[first], ranked.mean[np.minimum(last, len(ends) - 1)]
