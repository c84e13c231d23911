"""Net benefit against the threshold of a decision: the decision curve of Vickers and Elkin (2006).

Who decides "positive" from a probability of t on states that a false positive costs t/(1 − t) of what a true positive is worth.
The net benefit at t is (true positives − false positives·t/(1 − t)) a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError
from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.scored import Scored
from rhocal.numerics.special import normal_quantile

if TYPE_CHECKING:
    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

N_THRESHOLDS = 99


@dataclass(frozen=True)
class NetBenefit:
    """Ascending thresholds."""

    threshold: Vector
    benefit: Vector
    low: Vector
    high: Vector
    """95 % interval at each threshold by itself."""
    all_positive: Vector
    """Net benefit if every sample is decided positive; of none it is 0."""


def net_benefit(
    probs: Any, labels: Any, *, sample_weight: Any = None, weight_kind: str | None = "frequency", clusters: Any = None,
    kind: Kind = "probs", n_thresholds: int = N_THRESHOLDS, classes: Any = None, positive: Any = None,
) -> NetBenefit:  # fmt: skip
    """The decision curve of the positive class of two at evenly spaced thresholds between 0 and 1.

    ``weight_kind`` and ``clusters`` are those of ``rhocal.evaluate``.
    """
    scored = Scored.from_arrays(probs, labels, sample_weight, kind, classes=classes, positive=positive)
    if scored.source.n_classes != 2:
        raise InputError(f"a decision curve is about the positive class of two; there are {scored.source.n_classes}")
    scored = SamplingDesign(weight_kind, clusters).apply(scored)
    view = scored.one_class(scored.source.positive_column)
    threshold = np.arange(1, n_thresholds + 1) / (n_thresholds + 1)
    odds = threshold / (1 - threshold)
    w, total = view.weights, float(view.weights.sum())
    order = np.argsort(-view.confidence, kind="stable")
    ends = np.searchsorted(-view.confidence[order], -threshold, side="right")
    true, false = (
        np.append(0.0, np.cumsum((w * hit)[order]))[ends] / total for hit in (view.correct, 1 - view.correct)
    )
    benefit = true - odds * false
    # A sample adds 1, −odds or 0, so that the variance follows from the two shares.
    spread = np.sqrt(np.maximum(true + odds**2 * false - benefit**2, 0) / total)
    reach = float(normal_quantile(np.array((1 + CONFIDENCE_LEVEL) / 2))) * spread
    prevalence = float(w @ view.correct) / total
    return NetBenefit(threshold, benefit, benefit - reach, benefit + reach, prevalence - odds * (1 - prevalence))
