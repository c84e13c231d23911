"""Confidence intervals for the population value of a metric: by inversion, Wilson's, from errors, or by the bootstrap."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError
from rhocal.metrics import METRICS
from rhocal.metrics.inference.bootstrap import BINNED, bootstrap
from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL, N_REPLICATES
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.inference.ece_interval import Interval, ece_interval
from rhocal.metrics.inference.floor import check_names
from rhocal.metrics.inference.l2_interval import rmsce_interval
from rhocal.metrics.inference.mean_interval import LOSSES, LossParts
from rhocal.metrics.inference.units import expand
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import N_BINS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.data.predictions import Kind

L2 = "debiased_rmsce"
METHODS = ("auto", "inverted", "wilson", "errors", "percentile", "bca")

RESAMPLED = ("aurc", "e_aurc", "auroc", "avu", "entropy", "murphy_uncertainty", "nll_refinement_loss")
"""Metrics whose resamples vary around the population value, so that a bootstrap interval contains it."""

BIASED = "its value, like those of all resamples, is above the population value by about its floor"
NOT_REGULAR = (
    "it has a jump at the threshold, or is fitted to the ranks of the sample: resamples do not vary like samples"
)
NO_POPULATION_VALUE = "it is a test statistic, which grows with the number of samples"
NO_INTERVAL = {
    "spiegelhalter_z": NO_POPULATION_VALUE,
    "coverage_at_risk": NOT_REGULAR,
    "refinement_loss": NOT_REGULAR,
    "discrimination": NOT_REGULAR,
    "tce": NOT_REGULAR,
}
"""Why a metric has no interval; others without one are biased."""


def no_interval_reason(name: str) -> str:
    """Why there is no interval with the stated coverage; empty if there is one."""
    if name in BINNED or name in LOSSES or name in RESAMPLED or name in {"accuracy", L2}:
        return ""
    return NO_INTERVAL.get(name, BIASED)


def interval(
    metric: str,
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    weight_kind: str = "frequency",
    clusters: Any = None,
    kind: Kind = "probs",
    classes: Any = None,
    positive: Any = None,
    method: str = "auto",
    stratified: bool = False,
    level: float = CONFIDENCE_LEVEL,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Interval:
    """A confidence interval for the population value of a metric.

    ``method`` is ``inverted`` (ECE, AdaECE and debiased RMSCE, valid near 0), ``wilson`` (accuracy), ``errors`` (NLL, Brier
    score and other means, valid with few errors), ``percentile``, ``bca``, or ``auto``: the first three where they exist, else
    bca if the resamples of the metric vary around the population value. Others have no valid interval: NaN, with a ``reason``.
    ``stratified`` resamples inside each class, so that the number of samples of a class is fixed.
    ``classes``, ``positive``, ``weight_kind`` and ``clusters`` are those of ``rhocal.evaluate``.
    """
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1; got {level!r}")
    scored = Scored.from_arrays(
        probs, labels, sample_weight, kind, purpose="an interval", classes=classes, positive=positive
    )
    scored = SamplingDesign(weight_kind, clusters).apply(scored)
    strata = scored.labels if stratified else None
    options: dict[str, Any] = {"method": method, "strata": strata, "level": level}
    return intervals(scored, [metric], **options, n_replicates=n_replicates, seed=seed)[metric]


def intervals(
    scored: Scored,
    names: Sequence[str],
    *,
    method: str = "auto",
    strata: NDArray[np.intp] | None = None,
    level: float = CONFIDENCE_LEVEL,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> dict[str, Interval]:
    """Intervals of several metrics, from the same resamples."""
    check_names(names)
    if method not in METHODS:
        raise InputError(f"method is one of {', '.join(METHODS)}; got {method!r}")
    sample = expand(scored)
    by_name: dict[str, Interval] = {}
    if strata is None and method in {"auto", "inverted"}:
        by_name |= {name: ece_interval(sample, BINNED[name](sample), N_BINS, level) for name in names if name in BINNED}
        if L2 in names:
            by_name[L2] = rmsce_interval(sample, METRICS[L2].value(scored), level)
    if strata is None and method in {"auto", "wilson"} and "accuracy" in names:
        by_name["accuracy"] = wilson(METRICS["accuracy"].value(scored), float(scored.weights.sum()), level)
    if strata is None and method in {"auto", "errors"}:
        by_name |= {name: loss_interval(sample, name, level, seed) for name in names if name in LOSSES}
    if method == "auto":
        reasons = {name: no_interval_reason(name) for name in names if name not in by_name}
        by_name |= {
            name: Interval(math.nan, math.nan, METRICS[name].value(scored), "none", reason)
            for name, reason in reasons.items()
            if reason
        }
    others = [name for name in names if name not in by_name]
    if method in APPLICABLE and others:
        raise InputError(
            f"method={method!r} is for {', '.join(APPLICABLE[method])}, without strata; use bca for {others[0]}"
        )
    if others:
        drawn = bootstrap(scored, others, strata=strata, n_replicates=n_replicates, seed=seed)
        by_name |= {name: drawn[name].interval("bca" if method == "auto" else method, level) for name in others}
    return {name: by_name[name] for name in names}


APPLICABLE = {"inverted": (*BINNED, L2), "wilson": ("accuracy",), "errors": tuple(LOSSES)}


def loss_interval(scored: Scored, name: str, level: float, seed: int) -> Interval:
    """The interval of a mean loss, from draws of its parts (``mean_interval.py``)."""
    per_sample = METRICS[name].per_sample
    assert per_sample is not None
    drawn = LossParts.from_scored(name, scored, per_sample(scored)).draw_means(seed)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), METRICS[name].value(scored), "errors")


def wilson(share: float, n: float, level: float) -> Interval:
    """Wilson's score interval of a share; n is the sum of weights.

    >>> half = wilson(0.5, 100, 0.95)
    >>> round(half.low, 4), round(half.high, 4)
    (0.4038, 0.5962)
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return Interval(max(0.0, middle - reach), min(1.0, middle + reach), share, "wilson")
