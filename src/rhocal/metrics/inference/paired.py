"""Paired differences: metrics of two predictions for the same samples, resampled together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.metrics import METRICS
from rhocal.metrics.inference.bootstrap import MAX_RESAMPLED, ResampledMetrics, resamples
from rhocal.metrics.inference.defaults import N_REPLICATES, SIGNIFICANCE_LEVEL, TAILS
from rhocal.metrics.inference.floor import check_names
from rhocal.metrics.inference.units import take_units, unit_rows
from rhocal.metrics.scored import Scored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

ROUNDING = 1e-9
"""A difference below this is 0."""


@dataclass(frozen=True)
class Difference:
    """Metric of A minus metric of B, on the same samples."""

    metric: str
    value: float
    low: float
    high: float
    """A 95 % interval, from resampled differences."""
    p_value: float
    """Two-sided; adjusted by Holm's method if several candidates were compared."""

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``different``, or that no difference is detected."""
        if self.p_value > SIGNIFICANCE_LEVEL:
            return "no difference detected"
        direction = METRICS[self.metric].better
        if direction not in {"lower", "higher"}:
            return "different"
        return "better" if (self.value < 0) == (direction == "lower") else "worse"


def paired_differences(
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
    >>> paired_differences(unsure, sure, labels)["nll"].verdict
    'better'
    """
    first, second = (
        Scored.from_arrays(probs, labels, sample_weight, kind, purpose="a comparison", name=name)
        for probs, name in ((a, "a"), (b, "b"))
    )
    return differences(first, second, metrics, n_replicates=n_replicates, seed=seed)


def differences(
    a: Scored, b: Scored, names: Sequence[str], *, n_replicates: int = N_REPLICATES, seed: int = 0
) -> dict[str, Difference]:
    """Metrics of A minus metrics of B, both on the same resamples.

    The plug-in bias of binned errors is nearly the same for both and cancels, unless one of them is at its floor and the
    other is not; the p-value is twice the smaller share of resamples on one side of 0.
    """
    check_names(names)
    rows = unit_rows(a, b)
    left, right = take_units(a, rows), take_units(b, rows)
    measures = ResampledMetrics.from_sample(left, names), ResampledMetrics.from_sample(right, names)
    if left.weights.sum() > MAX_RESAMPLED and all(name in measures[0].columns for name in names):
        drawn = _normal_draws(*measures, n_replicates, seed)
    else:
        drawn = np.concatenate(
            [measures[0](counts) - measures[1](counts) for counts in resamples(left, None, n_replicates, seed)]
        )
    by_metric = {}
    for k, name in enumerate(names):
        value = METRICS[name].value(a) - METRICS[name].value(b)
        low, high = np.quantile(drawn[:, k], TAILS)
        one_side = 1 + min(np.count_nonzero(drawn[:, k] <= 0), np.count_nonzero(drawn[:, k] >= 0))
        by_metric[name] = Difference(name, value, float(low), float(high), min(1.0, 2 * one_side / (1 + n_replicates)))
    return by_metric


def _normal_draws(a: ResampledMetrics, b: ResampledMetrics, n_replicates: int, seed: int) -> Vector:
    """Differences under resampling, where the column means of both are jointly normal (many samples).

    A resample's mean columns have the covariance of the columns divided by the number of samples.
    """
    w = a.sample.weights
    total = float(w.sum())
    columns = np.concatenate([a.linear, b.linear], axis=1)
    mean = w @ columns / total
    centered = columns - mean
    covariance = (centered * w[:, None]).T @ centered / total**2
    drawn = np.random.default_rng(seed).multivariate_normal(mean, covariance, n_replicates, method="eigh")
    split = a.linear.shape[1]
    resampled = a.from_column_means(drawn[:, :split]) - b.from_column_means(drawn[:, split:])
    # Where both are the same (accuracy, mostly) the factor of the covariance leaves a noise of 1e-10 instead of 0.
    return np.where(np.abs(resampled) < ROUNDING, 0.0, resampled)


def differences_to_reference(
    candidates: Mapping[str, Scored],
    reference: Scored,
    names: Sequence[str],
    *,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> dict[str, dict[str, Difference]]:
    """Several candidates against one reference, with Holm's correction for their number."""
    return adjust_for_candidates(
        {
            candidate: differences(scored, reference, names, n_replicates=n_replicates, seed=seed)
            for candidate, scored in candidates.items()
        }
    )


def adjust_for_candidates(candidates: Mapping[str, Mapping[str, Difference]]) -> dict[str, dict[str, Difference]]:
    """The same differences by candidate and metric, with Holm's adjusted p-values over the candidates of each metric."""
    adjusted: dict[str, dict[str, Difference]] = {candidate: {} for candidate in candidates}
    for metric in next(iter(candidates.values()), {}):
        p_values = holm([by_metric[metric].p_value for by_metric in candidates.values()])
        for (candidate, by_metric), p in zip(candidates.items(), p_values, strict=True):
            adjusted[candidate][metric] = replace(by_metric[metric], p_value=p)
    return adjusted


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: rejecting those of at most 0.05 keeps the probability of any false rejection at 5 %.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    steps = np.minimum(1, p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(steps)
    return [float(value) for value in adjusted]
