"""Confidence intervals for the population value of a metric: by inversion, Wilson's, normal, or by the bootstrap."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from rhocal.errors import InputError
from rhocal.metrics import METRICS
from rhocal.metrics.inference.bootstrap import BINNED, MAX_RESAMPLED, PER_SAMPLE, bootstrap
from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL, N_REPLICATES
from rhocal.metrics.inference.ece_interval import Interval, ece_interval
from rhocal.metrics.inference.floor import check_names
from rhocal.metrics.inference.units import expand
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import N_BINS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

METHODS = ("auto", "inverted", "wilson", "percentile", "bca")


def interval(
    metric: str,
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    kind: Kind = "probs",
    method: str = "auto",
    stratified: bool = False,
    level: float = CONFIDENCE_LEVEL,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Interval:
    """A confidence interval for the population value of a metric.

    ``method`` is ``inverted`` (ECE and AdaECE, valid near 0), ``wilson`` (accuracy), ``percentile``, ``bca``, or ``auto``:
    inverted and wilson where they exist, else bca (for means of more than 50,000 samples, normal). ``stratified``
    resamples inside each class, so that the number of samples of a class is fixed.
    """
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1; got {level!r}")
    scored = Scored.from_arrays(probs, labels, sample_weight, kind, purpose="an interval")
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
    if strata is None and method in {"auto", "wilson"} and "accuracy" in names:
        by_name["accuracy"] = wilson(METRICS["accuracy"].value(scored), float(scored.weights.sum()), level)
    if strata is None and method == "auto" and scored.weights.sum() > MAX_RESAMPLED:
        by_name |= {
            name: normal(PER_SAMPLE[name](scored), scored.weights, level)
            for name in names
            if name in PER_SAMPLE and name not in by_name
        }
    others = [name for name in names if name not in by_name]
    if method in {"inverted", "wilson"} and others:
        applicable = "accuracy" if method == "wilson" else ", ".join(BINNED)
        raise InputError(f"method={method!r} is for {applicable}, without strata; use bca for {others[0]}")
    if others:
        drawn = bootstrap(scored, others, strata=strata, n_replicates=n_replicates, seed=seed)
        by_name |= {name: drawn[name].interval("bca" if method == "auto" else method, level) for name in others}
    return {name: by_name[name] for name in names}


def normal(values: Vector, weights: Vector, level: float) -> Interval:
    """Mean ± z standard errors."""
    total = float(weights.sum())
    mean = float(weights @ values) / total
    reach = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(float(weights @ (values - mean) ** 2)) / total
    return Interval(mean - reach, mean + reach, mean, "normal")


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
