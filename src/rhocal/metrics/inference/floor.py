"""The floor: the value of a metric for a perfectly calibrated model with the same probabilities, on as many samples.

Three ways, from fast to general:

* Metrics of the top label over bins: functions of the cumulative differences of drawn labels (``joint_null.py``).
* Means over samples (accuracy, NLL, Brier): mean and variance under labels ~ p are sums over classes; the tails are normal.
* Any other metric: labels are drawn from p and the metric is computed again, each time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError
from rhocal.metrics import METRICS, Metric
from rhocal.metrics.inference.bootstrap import MEANS
from rhocal.metrics.inference.defaults import N_REPLICATES, TAILS, Z
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.inference.joint_null import draws_for, joint_null
from rhocal.metrics.inference.null import NullDistribution, path_nulls
from rhocal.metrics.inference.units import are_counts, canonical_order, unit_rows
from rhocal.metrics.scored import Scored
from rhocal.numerics.special import Floats, Vector, log_softmax, softmax
from rhocal.numerics.threads import row_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from rhocal.data.predictions import Kind, Predictions

SIMULATED_METRICS = ("ece", "adaptive_ece", "mce")
"""Metrics that are functions of the cumulative differences."""
MAX_LABELS = 20_000_000
"""Labels in memory at a time."""


@dataclass(frozen=True)
class Floor:
    """A metric, and its distribution for a perfectly calibrated model."""

    metric: str
    value: float
    """On the samples."""
    mean: float
    """For a perfectly calibrated model."""
    low: float
    high: float
    """95 % of perfectly calibrated models score between these."""
    p_value: float
    """Probability that a perfectly calibrated model looks at least as bad; two-sided for means."""
    n_draws: int = 0
    """Draws behind it; 0 where the distribution is normal."""

    @property
    def excess(self) -> float:
        """Value − mean."""
        return self.value - self.mean

    @classmethod
    def from_null(cls, metric: str, null: NullDistribution) -> Floor:
        """From simulated values; larger than simulated is worse."""
        low, high = np.quantile(null.drawn, TAILS)
        return cls(
            metric, null.observed, float(null.drawn.mean()), float(low), float(high), null.p_value, len(null.drawn)
        )

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
    weight_kind: str = "frequency",
    clusters: Any = None,
    kind: Kind = "probs",
    classes: Any = None,
    positive: Any = None,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Floor:
    """The floor of a metric, and the p-value of its value on these samples.

    ``classes``, ``positive``, ``weight_kind`` and ``clusters`` are those of ``rhocal.evaluate``.

    >>> ece = floor("ece", [[0.2, 0.8]] * 100, [1] * 79 + [0] * 21)
    >>> ece.value < ece.mean, ece.p_value > 0.5
    (True, True)
    """
    scored = Scored.from_arrays(
        probs, labels, sample_weight, kind, purpose="a floor", classes=classes, positive=positive
    )
    scored = SamplingDesign(weight_kind, clusters).apply(scored)
    return floors(scored, [metric], n_replicates=n_replicates, seed=seed)[metric]


def floors(
    scored: Scored,
    names: Iterable[str],
    *,
    nulls: Mapping[str, NullDistribution] | None = None,
    moments: Vector | None = None,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> dict[str, Floor]:
    """The floors of several metrics, from the same simulations.

    ``nulls`` were simulated before; ``moments`` are the ``label_moments`` of samples whose probabilities are not in memory.
    """
    names = list(names)
    check_names(names)
    values = {name: METRICS[name].value(scored) for name in names}
    simulated = dict(nulls or {})
    missing = [name for name in names if name in SIMULATED_METRICS and name not in simulated]
    if missing:
        drawn = joint_null(scored, draws_for(n_replicates), seed, top_only=True)
        simulated |= path_nulls(drawn.top, drawn.top_paths, missing)
    known = {name: Floor.from_null(name, simulated[name]) for name in names if name in SIMULATED_METRICS}
    means = [name for name in names if name in MEANS]
    if means:
        by_score = Moments.from_scored(scored, moments)
        known |= {name: Floor.from_moments(name, values[name], *getattr(by_score, name)) for name in means}
    rest = [name for name in names if name not in known]
    if rest:
        known |= _floors_from_drawn_labels(scored, rest, values, n_replicates, seed)
    return {name: replace(known[name], value=values[name]) for name in names}


def check_names(names: Iterable[str]) -> None:
    """Raise an error if a metric is unknown."""
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
    def from_scored(cls, scored: Scored, moments: Vector | None = None) -> Moments:
        """From the ``label_moments`` of every sample, by default of its logits."""
        entropy, squared_log, cubes = label_moments(scored.source.logits) if moments is None else moments
        w, c = scored.weights, scored.confidence
        squares, spread = scored.sum_squares, c * (1 - c)
        return cls(
            _moments(c, spread, w),
            _moments(entropy, squared_log - entropy**2, w),
            _moments(1 - squares, 4 * (cubes - squares**2), w),
            _moments(spread, spread * (1 - 2 * c) ** 2, w),
        )


def label_moments(logits: Floats) -> Vector:
    """−Σ p log p, Σ p log²p and Σ p³ of every sample, as rows."""
    moments = np.empty((3, len(logits)))
    for rows in row_blocks(*logits.shape):
        log_p = log_softmax(logits[rows].astype(np.float64))
        p = np.exp(log_p)
        p_log = p * log_p
        moments[0, rows] = -p_log.sum(axis=1)
        moments[1, rows] = np.einsum("ij,ij->i", p_log, log_p)
        moments[2, rows] = np.einsum("ij,ij,ij->i", p, p, p)
    return moments


def _moments(mean: Vector, variance: Vector, weights: Vector) -> tuple[float, float]:
    total = weights.sum()
    return float(weights @ mean / total), math.sqrt(max(float(weights @ variance), 0.0)) / float(total)


def _floors_from_drawn_labels(
    scored: Scored, names: list[str], values: dict[str, float], n_replicates: int, seed: int
) -> dict[str, Floor]:
    """Floors by drawing labels from p. Weights that are not whole are kept."""
    whole = are_counts(scored.weights)
    data = scored.source.take(unit_rows(scored) if whole else canonical_order(scored))
    data = replace(data, weights=None) if whole else data
    drawn: dict[str, list[float]] = {name: [] for name in names}
    for labels in _labels(data, n_replicates, seed):
        replicate = Scored.from_predictions(replace(data, labels=labels))
        for name in names:
            drawn[name].append(METRICS[name].value(replicate))
    floors_by_name = {}
    for name in names:
        null = NullDistribution(values[name], np.array(drawn[name]))
        p_value = null.two_sided if _is_two_sided(METRICS[name]) else null.p_value
        floors_by_name[name] = replace(Floor.from_null(name, null), p_value=p_value)
    return floors_by_name


def _is_two_sided(metric: Metric) -> bool:
    """Whether a miscalibrated model can be below the floor too: plain means, and all that is not better when lower."""
    return metric.better != "lower" or metric.per_sample is not None


def _labels(data: Predictions, n_replicates: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """Labels drawn from the probabilities of the samples, one set per replicate."""
    rng = np.random.default_rng(seed)
    step = max(1, min(n_replicates, MAX_LABELS // data.n_samples))
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
