"""The floor: what a metric comes out as for a perfectly calibrated model with the same probabilities, on as many samples.

Three ways, from fast to general:

* Metrics of the top label over bins: correctness ~ Bernoulli(confidence), drawn as walks (``rhocal.metrics.inference.null``).
* Means over samples (accuracy, NLL, Brier): mean and variance under labels ~ p are sums over classes; the tails are normal.
* Any other metric: labels are drawn from p and the metric is computed again, each time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.predictions import Kind, predictions
from rhocal.errors import InputError
from rhocal.metrics import METRICS
from rhocal.metrics.inference.inverted import LEVEL
from rhocal.metrics.inference.null import CumulativeDifferences, NullDistribution, simulate_nulls
from rhocal.metrics.inference.units import are_counts, canonical_order
from rhocal.metrics.scored import Scored
from rhocal.metrics.sums import WeightedMean
from rhocal.numerics.special import Floats, Vector, log_softmax, softmax
from rhocal.numerics.threads import row_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions

N_REPLICATES = 1000
SIMULATED_METRICS = ("ece", "adaptive_ece", "mce")
"""Metrics that are statistics of a walk, exactly."""
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)


@dataclass(frozen=True)
class Floor:
    """A metric beside what a perfectly calibrated model scores."""

    metric: str
    value: float
    """As observed."""
    mean: float
    """Of a perfectly calibrated model."""
    low: float
    high: float
    """95 % of perfectly calibrated models score between these."""
    p_value: float
    """Chance that a perfectly calibrated model looks at least as bad; of means, at least as far away on either side."""

    @property
    def excess(self) -> float:
        """Value − mean."""
        return self.value - self.mean

    @classmethod
    def from_null(cls, metric: str, null: NullDistribution) -> Floor:
        """From simulated values; larger than simulated is worse."""
        low, high = np.quantile(null.drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return cls(metric, null.observed, float(null.drawn.mean()), float(low), float(high), null.p_value)

    @classmethod
    def from_moments(cls, metric: str, value: float, mean: float, sd: float) -> Floor:
        """From the mean and standard deviation of a normal distribution; the p-value is two-sided."""
        p_value = math.erfc(abs(value - mean) / (sd * math.sqrt(2))) if sd > 0 else float(np.isclose(value, mean))
        return cls(metric, value, mean, mean - Z * sd, mean + Z * sd, p_value)


def floor(
    metric: str,
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    kind: Kind = "probs",
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Floor:
    """What a perfectly calibrated model with these probabilities scores on as many samples, and the chance of the value.

    >>> found = floor("ece", [[0.2, 0.8]] * 100, [1] * 79 + [0] * 21)
    >>> found.value < found.mean, found.p_value > 0.5
    (True, True)
    """
    if labels is None:
        raise InputError(
            "labels are missing; the floor is compared with a value, which needs one label for each sample"
        )
    data = predictions(probs, labels, sample_weight=sample_weight, kind=kind, name=kind)
    return floors(data, [metric], n_replicates=n_replicates, seed=seed)[metric]


def floors(
    data: Predictions,
    names: Iterable[str],
    *,
    drawn: Mapping[str, NullDistribution] | None = None,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> dict[str, Floor]:
    """The floors of several metrics, from the same draws; ``drawn`` holds what has been drawn already."""
    names = list(names)
    check_names(names)
    scored = Scored.from_predictions(data)
    values = {name: METRICS[name].value(scored) for name in names}
    have = dict(drawn or {})
    walked = [name for name in names if name in SIMULATED_METRICS and name not in have]
    have |= simulate_nulls(CumulativeDifferences.from_scored(scored), walked, n_replicates, seed) if walked else {}
    found = {name: Floor.from_null(name, have[name]) for name in names if name in SIMULATED_METRICS}
    means = [name for name in names if name in MEANS]
    if means:
        moments = Moments.of(data, scored)
        found |= {name: Floor.from_moments(name, values[name], *getattr(moments, name)) for name in means}
    rest = [name for name in names if name not in found]
    if rest:
        found |= _of_labels(data, rest, values, n_replicates, seed)
    return {name: replace(found[name], value=values[name]) for name in names}


def check_names(names: Iterable[str]) -> None:
    """Unknown metrics are said."""
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise InputError(f"there is no metric {unknown[0]!r}; there are {', '.join(METRICS)}")


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of scores when labels are drawn from p."""

    accuracy: tuple[float, float]
    nll: tuple[float, float]
    """The mean entropy; the variance of a sample is Σ p log²p − H²."""
    brier: tuple[float, float]
    """1 − Σp²; the variance of a sample is 4 (Σp³ − (Σp²)²)."""
    top_brier: tuple[float, float]
    """c (1 − c); the variance of a sample is c (1 − c)(1 − 2c)². Its z is Spiegelhalter's."""

    @classmethod
    def of(cls, data: Predictions, scored: Scored) -> Moments:
        """One blocked pass over the logits."""
        return cls.of_numbers(scored, *label_numbers(data.logits))

    @classmethod
    def of_numbers(cls, scored: Scored, entropy: Vector, squared_log: Vector, cubes: Vector) -> Moments:
        """From the ``label_numbers`` of every sample."""
        w, c = scored.weights, scored.confidence
        squares, spread = scored.sum_squares, c * (1 - c)
        return cls(
            _moments(c, spread, w),
            _moments(entropy, squared_log - entropy**2, w),
            _moments(1 - squares, 4 * (cubes - squares**2), w),
            _moments(spread, spread * (1 - 2 * c) ** 2, w),
        )


def label_numbers(logits: Floats) -> Vector:
    """−Σ p log p, Σ p log²p and Σ p³ of every sample, as rows."""
    found = np.empty((3, len(logits)))
    for rows in row_blocks(*logits.shape):
        log_p = log_softmax(logits[rows].astype(np.float64))
        p = np.exp(log_p)
        p_log = p * log_p
        found[0, rows] = -p_log.sum(axis=1)
        found[1, rows] = np.einsum("ij,ij->i", p_log, log_p)
        found[2, rows] = np.einsum("ij,ij,ij->i", p, p, p)
    return found


MEANS = ("accuracy", "nll", "brier", "top_brier")


def _moments(mean: Vector, variance: Vector, weights: Vector) -> tuple[float, float]:
    total = weights.sum()
    return float(weights @ mean / total), math.sqrt(max(float(weights @ variance), 0.0)) / float(total)


def _of_labels(
    data: Predictions, names: list[str], values: dict[str, float], n_replicates: int, seed: int
) -> dict[str, Floor]:
    """By drawing labels from p. Weights that are not whole are kept as they are."""
    scored = Scored.from_predictions(data)
    order = canonical_order(scored)
    if are_counts(scored.weights):
        order = np.repeat(order, scored.weights[order].astype(np.intp))
        data = replace(data.take(order), weights=None)
    else:
        data = data.take(order)
    drawn: dict[str, list[float]] = {name: [] for name in names}
    for labels in _labels(data, n_replicates, seed):
        replicate = Scored.from_predictions(replace(data, labels=labels))
        for name in names:
            drawn[name].append(METRICS[name].value(replicate))
    found = {}
    for name in names:
        null = NullDistribution(values[name], np.array(drawn[name]))
        found[name] = Floor.from_null(name, null)
        if _goes_both_ways(name, scored):
            found[name] = replace(found[name], p_value=null.two_sided)
    return found


def _goes_both_ways(name: str, scored: Scored) -> bool:
    """Whether a miscalibrated model can be below the floor too: plain means, and all that is not better when lower."""
    metric = METRICS[name]
    return metric.better != "lower" or (metric.sums is not None and isinstance(metric.sums(scored), WeightedMean))


def _labels(data: Predictions, n_replicates: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """One label for each sample, drawn from its probabilities, again and again."""
    rng = np.random.default_rng(seed)
    step = max(1, min(n_replicates, 20_000_000 // data.n_samples))
    for start in range(0, n_replicates, step):
        some = min(step, n_replicates - start)
        drawn = np.empty((data.n_samples, some), np.int32)
        for rows in row_blocks(data.n_samples, data.n_classes):
            levels = np.cumsum(softmax(data.logits[rows].astype(np.float64)), axis=1)
            levels[:, -1] = 1.0  # so that rounding cannot leave a number above the last class
            uniform = rng.random((len(levels), some))
            for row, (level, u) in enumerate(zip(levels, uniform, strict=True), start=rows.start):
                drawn[row] = np.searchsorted(level, u, side="right")
        yield from drawn.T.astype(np.intp)
