"""Whether A is better than B: differences of metrics of two predictions for the same samples, resampled together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.predictions import Kind, predictions
from rhocal.errors import InputError
from rhocal.metrics import METRICS
from rhocal.metrics.inference.bootstrap import MANY, N_REPLICATES, Measure, resamples
from rhocal.metrics.inference.units import take, units
from rhocal.metrics.scored import Scored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.numerics.special import Vector

SAME = 1e-9
"""A difference below this is none."""


@dataclass(frozen=True)
class Difference:
    """Metric of A minus metric of B, on the same samples."""

    metric: str
    value: float
    low: float
    high: float
    """A 95 % interval, from resampled differences."""
    p_value: float
    """Chance of a difference at least as large, on either side, if there were none; Holm's where many were compared."""

    @property
    def verdict(self) -> str:
        """In words."""
        if self.p_value > 0.05:
            return "no difference can be seen"
        wanted = METRICS[self.metric].better
        if wanted not in {"lower", "higher"}:
            return "different"
        return "better" if (self.value < 0) == (wanted == "lower") else "worse"


def paired(
    a: Any,
    b: Any,
    labels: Any,
    *,
    metrics: Sequence[str] = ("ece", "nll", "brier"),
    sample_weight: Any = None,
    kind: Kind = "probs",
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> dict[str, Difference]:
    """Differences between two sets of predictions for the same samples.

    >>> labels = [1, 0] * 50
    >>> sure, unsure = [[0.1, 0.9]] * 100, [[0.4, 0.6]] * 100
    >>> paired(unsure, sure, labels)["nll"].verdict
    'better'
    """
    if labels is None:
        raise InputError("labels are missing; a comparison needs one label for each sample")
    views = [
        Scored.from_predictions(predictions(values, labels, sample_weight=sample_weight, kind=kind, name=name))
        for values, name in ((a, "a"), (b, "b"))
    ]
    return differences(views[0], views[1], metrics, n_replicates=n_replicates, seed=seed)


def differences(
    a: Scored, b: Scored, names: Sequence[str], *, n_replicates: int = N_REPLICATES, seed: int = 0
) -> dict[str, Difference]:
    """Metrics of A minus metrics of B, both on the same resamples.

    The plug-in bias of binned errors is nearly the same for both and cancels, unless one of them is at its floor and the
    other is not; the p-value is twice the smaller share of resamples on one side of 0.
    """
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise InputError(f"there is no metric {unknown[0]!r}; there are {', '.join(METRICS)}")
    rows = units(a, b)
    left, right = take(a, rows), take(b, rows)
    measures = Measure.of(left, names), Measure.of(right, names)
    if left.weights.sum() > MANY and all(name in measures[0].columns for name in names):
        drawn = _normal_draws(*measures, n_replicates, seed)
    else:
        drawn = np.concatenate(
            [measures[0](counts) - measures[1](counts) for counts in resamples(left, None, n_replicates, seed)]
        )
    found = {}
    for k, name in enumerate(names):
        value = METRICS[name].value(a) - METRICS[name].value(b)
        low, high = np.quantile(drawn[:, k], [0.025, 0.975])
        one_side = 1 + min(np.count_nonzero(drawn[:, k] <= 0), np.count_nonzero(drawn[:, k] >= 0))
        found[name] = Difference(name, value, float(low), float(high), min(1.0, 2 * one_side / (1 + n_replicates)))
    return found


def _normal_draws(a: Measure, b: Measure, n_replicates: int, seed: int) -> Vector:
    """Differences under resampling, where the sums that both are read off are jointly normal (many samples).

    A resample's mean columns have the covariance of the columns divided by the number of samples.
    """
    w = a.sample.weights
    total = float(w.sum())
    columns = np.concatenate([a.linear, b.linear], axis=1)
    mean = w @ columns / total
    away = columns - mean
    covariance = (away * w[:, None]).T @ away / total**2
    drawn = np.random.default_rng(seed).multivariate_normal(mean, covariance, n_replicates, method="eigh")
    split = a.linear.shape[1]
    found = a.of_sums(drawn[:, :split]) - b.of_sums(drawn[:, split:])
    # Where both are the same (accuracy, mostly) the factor of the covariance leaves a noise of 1e-10 instead of 0.
    return np.where(np.abs(found) < SAME, 0.0, found)


def against(
    candidates: Mapping[str, Scored], reference: Scored, metric: str, *, n_replicates: int = N_REPLICATES, seed: int = 0
) -> dict[str, Difference]:
    """Many candidates against one reference in one metric, with Holm's correction for having looked at many."""
    found = {
        name: differences(view, reference, [metric], n_replicates=n_replicates, seed=seed)[metric]
        for name, view in candidates.items()
    }
    adjusted = holm([difference.p_value for difference in found.values()])
    return {name: replace(difference, p_value=p) for (name, difference), p in zip(found.items(), adjusted, strict=True)}


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: any of them at most .05 keeps the chance of a false alarm among all at 5 %.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    steps = np.minimum(1, p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(steps)
    return [float(value) for value in adjusted]
