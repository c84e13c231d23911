"""Honest statistics: floors, intervals, tests, paired differences, and how many samples it takes.

The formulas live in one file each; this is where to import them from. How to read them: docs/statistics.md.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from rhocal.data.predictions import Kind, predictions
from rhocal.errors import InputError
from rhocal.metrics import METRICS
from rhocal.metrics.binned import N_BINS
from rhocal.metrics.inference.bootstrap import BINNED, MANY, N_REPLICATES, PER_SAMPLE, bootstrap
from rhocal.metrics.inference.calibration_tests import Outcome, calibration_tests
from rhocal.metrics.inference.floor import Floor, check_names, floor, floors
from rhocal.metrics.inference.inverted import LEVEL, Interval, ece_interval
from rhocal.metrics.inference.paired import Difference, against, differences, holm, paired
from rhocal.metrics.inference.power import Needed, samples_needed, typical_confidences
from rhocal.metrics.inference.units import take, units
from rhocal.metrics.scored import Scored

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

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
    level: float = LEVEL,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Interval:
    """A confidence interval for what the metric is on endlessly many samples.

    ``method`` is ``inverted`` (ECE and AdaECE, valid near 0), ``wilson`` (accuracy), ``percentile``, ``bca``, or ``auto``:
    inverted and wilson where they exist, else bca (for means of more than 50,000 samples, normal). ``stratified`` keeps
    the number of samples of every class as it is.
    """
    if labels is None:
        raise InputError("labels are missing; an interval needs one label for each sample")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1; got {level!r}")
    data = predictions(probs, labels, sample_weight=sample_weight, kind=kind, name=kind)
    strata = data.labels if stratified else None
    return intervals(
        Scored.from_predictions(data),
        [metric],
        method=method,
        strata=strata,
        level=level,
        n_replicates=n_replicates,
        seed=seed,
    )[metric]


def intervals(
    scored: Scored,
    names: Sequence[str],
    *,
    method: str = "auto",
    strata: NDArray[np.intp] | None = None,
    level: float = LEVEL,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> dict[str, Interval]:
    """Intervals of several metrics, from the same resamples."""
    check_names(names)
    if method not in METHODS:
        raise InputError(f"method is one of {', '.join(METHODS)}; got {method!r}")
    sample = take(scored, units(scored))
    found: dict[str, Interval] = {}
    if strata is None and method in {"auto", "inverted"}:
        found |= {name: ece_interval(sample, BINNED[name](sample), N_BINS, level) for name in names if name in BINNED}
    if strata is None and method in {"auto", "wilson"} and "accuracy" in names:
        found["accuracy"] = wilson(METRICS["accuracy"].value(scored), float(scored.weights.sum()), level)
    if strata is None and method == "auto" and scored.weights.sum() > MANY:
        found |= {
            name: normal(PER_SAMPLE[name](scored), scored.weights, level)
            for name in names
            if name in PER_SAMPLE and name not in found
        }
    others = [name for name in names if name not in found]
    if method in {"inverted", "wilson"} and others:
        home = "accuracy" if method == "wilson" else ", ".join(BINNED)
        raise InputError(f"method={method!r} is for {home}, without strata; for {others[0]} take bca")
    if others:
        drawn = bootstrap(scored, others, strata=strata, n_replicates=n_replicates, seed=seed)
        found |= {name: drawn[name].interval("bca" if method == "auto" else method, level) for name in others}
    return {name: found[name] for name in names}


def normal(values: Vector, weights: Vector, level: float) -> Interval:
    """Mean ± z standard errors."""
    total = float(weights.sum())
    mean = float(weights @ values) / total
    reach = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(float(weights @ (values - mean) ** 2)) / total
    return Interval(mean - reach, mean + reach, mean, "normal")


def wilson(share: float, n: float, level: float) -> Interval:
    """Wilson's score interval of a share; n is the sum of weights.

    >>> found = wilson(0.5, 100, 0.95)
    >>> round(found.low, 4), round(found.high, 4)
    (0.4038, 0.5962)
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return Interval(max(0.0, middle - reach), min(1.0, middle + reach), share, "wilson")


__all__ = [
    "Difference",
    "Floor",
    "Interval",
    "Needed",
    "Outcome",
    "against",
    "calibration_tests",
    "differences",
    "floor",
    "floors",
    "holm",
    "interval",
    "intervals",
    "paired",
    "samples_needed",
    "typical_confidences",
    "wilson",
]
