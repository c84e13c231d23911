"""Paired differences: metrics of two predictions for the same samples, with intervals and tests.

Differences of ECE and AdaECE are debiased (``ece_difference.py``); those of other metrics are resampled together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError
from rhocal.metrics import METRICS
from rhocal.metrics.inference.bootstrap import BINNED, MAX_RESAMPLED, ResampledMetrics, resamples
from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL, N_REPLICATES, SIGNIFICANCE_LEVEL, TAILS, Z
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.inference.ece_difference import ece_difference
from rhocal.metrics.inference.ece_interval import ece_interval
from rhocal.metrics.inference.floor import check_names
from rhocal.metrics.inference.intervals import L2, no_interval_reason
from rhocal.metrics.inference.l2_interval import rmsce_difference
from rhocal.metrics.inference.mean_interval import LOSSES, N_DRAWS, LossParts
from rhocal.metrics.inference.units import take_units, unit_rows
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import N_BINS

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
    """Of ECE and AdaECE debiased: an estimate of the difference of the population values, within those of the samples."""
    low: float
    high: float
    """A 95 % interval of the difference of the population values."""
    p_value: float
    """Two-sided; adjusted by Holm's method if several candidates were compared."""
    observed: float
    """The difference of the two values on these samples; for ECE and AdaECE it contains the difference of their floors."""
    deviation: float
    """The standard deviation of ``value``."""
    tolerance: float | None = None
    """The size up to which a difference does not matter."""
    p_equivalent: float | None = None
    """Of the hypothesis that the difference exceeds the tolerance (two one-sided tests); small: shown equal within it."""
    at_resolution: bool = False
    """Whether ``p_value`` is the smallest that its draws can show: the true one is at most that."""

    @property
    def equivalent(self) -> bool:
        """Whether the difference is shown to be smaller than the tolerance."""
        return self.p_equivalent is not None and self.p_equivalent <= SIGNIFICANCE_LEVEL

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``different``; else ``equal within`` the tolerance, or that no difference is detected.

        ``not tested``: differences of the metric have no valid interval.
        """
        if math.isnan(self.p_value):
            return "not tested"
        if self.p_value <= SIGNIFICANCE_LEVEL:
            direction = METRICS[self.metric].better
            if direction not in {"lower", "higher"}:
                return "different"
            return "better" if (self.value < 0) == (direction == "lower") else "worse"
        return f"equal within {self.tolerance:g}" if self.equivalent else "no difference detected"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts."""
        return vars(self) | {"equivalent": self.equivalent, "verdict": self.verdict}

    def __str__(self) -> str:
        within = f", by less than {self.tolerance:g}" if self.equivalent and self.p_value <= SIGNIFICANCE_LEVEL else ""
        interval = f"{self.value:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"
        if self.metric in BINNED:  # the observed difference contains that of the floors
            interval = f"{self.observed:+.4f} observed, {interval} debiased"
        return f"{self.metric} {interval} ({self.verdict}{within})"


def paired_differences(
    a: Any,
    b: Any,
    labels: Any,
    *,
    metrics: Sequence[str] = ("ece", "nll", "brier"),
    sample_weight: Any = None,
    weight_kind: str = "frequency",
    clusters: Any = None,
    kind: Kind = "probs",
    classes: Any = None,
    positive: Any = None,
    tolerance: float | None = None,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> dict[str, Difference]:
    """Differences between two sets of predictions for the same samples.

    With a ``tolerance`` the two are also tested for equivalence: a verdict of "equal within 0.01" is wrong in at most 5 % of
    samples from models that differ by more.
    ``classes``, ``positive``, ``weight_kind`` and ``clusters`` are those of ``rhocal.evaluate``.

    >>> labels = [1, 0] * 50
    >>> sure, unsure = [[0.1, 0.9]] * 100, [[0.4, 0.6]] * 100
    >>> paired_differences(unsure, sure, labels)["nll"].verdict
    'better'
    """
    first, second = (
        Scored.from_arrays(
            probs, labels, sample_weight, kind, purpose="a comparison", name=name, classes=classes, positive=positive
        )
        for probs, name in ((a, "a"), (b, "b"))
    )
    first, second = SamplingDesign(weight_kind, clusters).apply_to_pair(first, second)
    metrics = (metrics,) if isinstance(metrics, str) else metrics
    return differences(first, second, metrics, tolerance=tolerance, n_replicates=n_replicates, seed=seed)


def differences(
    a: Scored,
    b: Scored,
    names: Sequence[str],
    *,
    tolerance: float | None = None,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
    bounded: bool = True,
) -> dict[str, Difference]:
    """Metrics of A minus metrics of B, both on the same samples.

    Of ECE and AdaECE the value is debiased and nearly normal. As neither is negative, A is below B by no more than B is, and
    above it by no more than A is: value and interval are in the range that the values and upper limits of both allow (unless
    not ``bounded``). That of debiased RMSCE joins both intervals (``l2_interval.py``). Those of means are drawn from those
    of errors and of right decisions (``mean_interval.py``), those of other metrics resampled; their p-values are twice the
    smaller share on one side of 0. A metric without a valid interval (``no_interval_reason``) has neither here.
    """
    check_names(names)
    if tolerance is not None and not tolerance > 0:
        raise InputError(f"tolerance must be positive; got {tolerance!r}")
    rows = unit_rows(a, b)
    left, right = take_units(a, rows), take_units(b, rows)
    observed = {name: METRICS[name].value(a) - METRICS[name].value(b) for name in names}
    by_metric = {}
    for name, value in observed.items():
        if name in BINNED:
            bins = BINNED[name](left), BINNED[name](right)
            by_metric[name] = _normal_difference(name, value, *ece_difference(left, right, bins, N_BINS, seed))
        elif name in LOSSES:
            parts = _loss_parts(name, left) - _loss_parts(name, right)
            by_metric[name] = _drawn_difference(name, value, parts.draw_means(seed, max(N_DRAWS, n_replicates)))
        elif name == L2:
            values = METRICS[name].value(a), METRICS[name].value(b)
            limits = rmsce_difference(left, right, values, CONFIDENCE_LEVEL)
            by_metric[name] = _difference_with_limits(name, value, *limits)
        elif no_interval_reason(name):
            by_metric[name] = Difference(name, value, math.nan, math.nan, math.nan, value, math.nan)
    others = [name for name in names if name not in by_metric]
    drawn = _resampled_differences(left, right, others, n_replicates, seed)
    by_metric |= {name: _drawn_difference(name, observed[name], drawn[:, k]) for k, name in enumerate(others)}
    paired = {name: _with_tolerance(by_metric[name], tolerance) for name in names}
    return paired | {
        name: _in_range(paired[name], (a, b), (left, right)) for name in names if bounded and name in BINNED
    }


def _loss_parts(name: str, scored: Scored) -> LossParts:
    per_sample = METRICS[name].per_sample
    assert per_sample is not None
    return LossParts.from_scored(name, scored, per_sample(scored))


def _drawn_difference(name: str, value: float, drawn: Vector) -> Difference:
    low, high = (float(limit) for limit in np.quantile(drawn, TAILS))
    one_side = 1 + min(int(np.count_nonzero(drawn <= 0)), int(np.count_nonzero(drawn >= 0)))
    p_value = min(1.0, 2 * one_side / (1 + len(drawn)))
    return Difference(name, value, low, high, p_value, value, float(drawn.std()), at_resolution=one_side == 1)


def _normal_difference(name: str, observed: float, value: float, deviation: float) -> Difference:
    """A debiased difference; no difference of two shares of samples is beyond ±1."""
    reach, p_value = Z * deviation, _two_sided(value, deviation)
    value, low, high = (min(1.0, max(-1.0, x)) for x in (value, value - reach, value + reach))
    return Difference(name, value, low, high, p_value, observed, deviation)


def _difference_with_limits(name: str, value: float, low: float, high: float) -> Difference:
    """A difference whose interval is known; its p-value is normal, with the reach of the interval towards 0."""
    reach = high - value if value < 0 else value - low
    return Difference(name, value, low, high, _two_sided(value, reach / Z), value, (high - low) / (2 * Z))


def _in_range(difference: Difference, views: tuple[Scored, Scored], units: tuple[Scored, Scored]) -> Difference:
    value_a, value_b = (METRICS[difference.metric].value(view) for view in views)
    limits = upper_limit(difference.metric, units[0]), upper_limit(difference.metric, units[1])
    low, high = (in_range(limit, *limits) for limit in (difference.low, difference.high))
    value = min(max(in_range(difference.value, value_a, value_b), low), high)
    return replace(difference, value=value, low=low, high=high)


def in_range(difference: float, a: float, b: float) -> float:
    """A difference A − B where neither is negative and they are at most ``a`` and ``b``."""
    return min(max(difference, -b), a)


def upper_limit(metric: str, units: Scored, level: float = CONFIDENCE_LEVEL) -> float:
    """The upper limit of the population value of a binned error."""
    return ece_interval(units, BINNED[metric](units), N_BINS, level).high


def _two_sided(value: float, deviation: float) -> float:
    if deviation > 0:
        return math.erfc(abs(value) / (deviation * math.sqrt(2)))
    return 1.0 if abs(value) < ROUNDING else 0.0


def _with_tolerance(difference: Difference, tolerance: float | None) -> Difference:
    """The difference with the larger p-value of the two one-sided tests against ± the tolerance."""
    if tolerance is None or math.isnan(difference.deviation):
        return difference
    distance = tolerance - abs(difference.value)
    if difference.deviation > 0:
        p_value = math.erfc(distance / (difference.deviation * math.sqrt(2))) / 2
    else:
        p_value = 0.0 if distance > 0 else 1.0
    return replace(difference, tolerance=tolerance, p_equivalent=p_value)


def _resampled_differences(a: Scored, b: Scored, names: Sequence[str], n_replicates: int, seed: int) -> Vector:
    """Differences of metrics under resampling, shape (n_replicates, n_metrics)."""
    if not names:
        return np.zeros((n_replicates, 0))
    measures = ResampledMetrics.from_sample(a, names), ResampledMetrics.from_sample(b, names)
    if a.weights.sum() > MAX_RESAMPLED and all(name in measures[0].columns for name in names):
        return _normal_draws(*measures, n_replicates, seed)
    return np.concatenate(
        [measures[0](counts) - measures[1](counts) for counts in resamples(a, None, n_replicates, seed)]
    )


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
    tolerance: float | None = None,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> dict[str, dict[str, Difference]]:
    """Several candidates against one reference, with Holm's correction for their number."""
    options: dict[str, Any] = {"tolerance": tolerance, "n_replicates": n_replicates, "seed": seed}
    return adjust_for_candidates(
        {candidate: differences(scored, reference, names, **options) for candidate, scored in candidates.items()}
    )


def adjust_for_candidates(candidates: Mapping[str, Mapping[str, Difference]]) -> dict[str, dict[str, Difference]]:
    """The same differences by candidate and metric, with Holm's adjusted p-values over the candidates of each metric."""
    adjusted: dict[str, dict[str, Difference]] = {candidate: {} for candidate in candidates}
    for metric in next(iter(candidates.values()), {}):
        own = [by_metric[metric] for by_metric in candidates.values()]
        p_values = holm([difference.p_value for difference in own])
        equivalent = holm([1.0 if difference.p_equivalent is None else difference.p_equivalent for difference in own])
        for candidate, difference, p, p_equivalent in zip(candidates, own, p_values, equivalent, strict=True):
            tested = difference.p_equivalent is not None
            adjusted[candidate][metric] = replace(difference, p_value=p, p_equivalent=p_equivalent if tested else None)
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
