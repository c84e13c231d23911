"""Cumulative differences of correctness and confidence: miscalibration without bins (Arrieta-Ibarra et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL, N_REPLICATES
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.inference.null import CumulativeDifferences, NullDistribution
from rhocal.metrics.scored import Scored
from rhocal.reporting.curves.reliability import positive_view

if TYPE_CHECKING:
    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector


@dataclass(frozen=True)
class CumulativeGap:
    """Samples in order of confidence, from none to all of them.

    Where the curve falls the model is over-confident, where it rises under-confident; a stretch of share s that changes it by g
    has a gap of g/s. The last value is accuracy − mean confidence.
    """

    share: Vector
    """Share of the samples, the least confident ones."""
    confidence: Vector
    """The largest confidence among them."""
    gap: Vector
    """Σ w (correct − confidence) of these samples / Σ w of all."""
    band: float
    """95 % of perfectly calibrated models stay between −band and band everywhere."""
    ks: float
    """The largest distance from 0 (ECCE-MAD)."""
    ks_p_value: float
    kuiper: float
    """The largest difference of two values (ECCE-R)."""
    kuiper_p_value: float
    n_draws: int
    """Perfect models behind the p-values: none is smaller than 1 / (1 + n_draws)."""
    of_class: str = ""
    """The class whose probability and prevalence these are; empty for the top label."""


def cumulative_gap(
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    weight_kind: str | None = "frequency",
    clusters: Any = None,
    kind: Kind = "probs",
    classes: Any = None,
    positive: Any = None,
    of_positive: bool = False,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> CumulativeGap:
    """The curve at up to a few hundred points, with a band and p-values from simulated perfect models.

    With ``of_positive`` samples are in order of the probability of the positive class of two. ``weight_kind`` and ``clusters``
    are those of ``rhocal.evaluate``.
    """
    scored = Scored.from_arrays(probs, labels, sample_weight, kind, classes=classes, positive=positive)
    scored = SamplingDesign(weight_kind, clusters).apply(scored)
    of_class = ""
    if of_positive:
        scored, of_class = positive_view(scored)
    path = CumulativeDifferences.from_scored(scored)
    paths = np.pad(path.with_simulated(n_replicates, seed), ((0, 0), (1, 0)))
    distances, ranges = np.abs(paths).max(axis=1), np.ptp(paths, axis=1)
    ks, kuiper = (NullDistribution(float(values[0]), values[1:]) for values in (distances, ranges))
    weight = np.cumsum(path.weights)[path.ends - 1]
    return CumulativeGap(
        np.append(0.0, weight / weight[-1]),
        np.append(path.confidence[0], path.confidence[path.ends - 1]),
        paths[0],
        float(np.quantile(distances[1:], CONFIDENCE_LEVEL)),
        ks.observed,
        ks.p_value,
        kuiper.observed,
        kuiper.p_value,
        n_replicates,
        of_class,
    )
