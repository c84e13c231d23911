"""Which methods of a comparison are distinguished from the best one: paired differences on the same test samples.

The ECE of a sample is above the population ECE by about its floor, and floors differ between methods: the smallest ECE need not
be that of the best method. So methods are ordered by their debiased ECE, and differences are those of ``paired.py``.

The best method is chosen on the same samples, so its differences to the others look larger than they are. A difference counts
if it exceeds what the range of as many equal methods would give (Tukey's studentized range), whichever of them is the best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.sampling import sampling_keys
from rhocal.metrics import METRICS
from rhocal.metrics.inference.bootstrap import BINNED
from rhocal.metrics.inference.defaults import SIGNIFICANCE_LEVEL
from rhocal.metrics.inference.paired import differences, in_range, upper_limit
from rhocal.metrics.inference.units import are_counts, expand
from rhocal.metrics.scored import Scored
from rhocal.optimize import studentized_range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rhocal.evaluation.rows import Row
    from rhocal.numerics.special import Vector

MAX_KEPT = 20_000
"""Test samples of a split whose numbers are kept for differences between methods: a random subsample of more."""
SAMPLE_TYPES = {
    "confidence": np.float64,
    "correct": np.bool_,
    "log_label": np.float32,
    "sum_squares": np.float32,
    "weights": np.float64,
}
"""What is kept of a sample, 25 bytes."""
ORDER = {"ece": "ece_debiased", "nll": "nll", "brier": "brier", "accuracy": "accuracy"}
"""Metrics whose best method is marked, and the column that decides which it is. Other binned errors of a sample have floors of
their own, and no method is called the best in them."""
LEAST_VARIANCE = 1.0
"""Samples of which only one of two methods is right: no number of them is known better than to one."""


@dataclass(frozen=True, eq=False)
class SampleNumbers:
    """Numbers of test samples, those with the smallest keys. Those of two blocks add; keys are the same for every method."""

    keys: Vector
    numbers: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, samples: Scored) -> SampleNumbers:
        """The numbers of one block."""
        rows = samples.source.rows if samples.has_probs else None
        rows = np.arange(samples.n_samples) if rows is None else rows
        block = samples.source.block if samples.has_probs else 0
        keys = sampling_keys(block, int(rows.max()) + 1)[rows]
        return _with_smallest_keys(
            keys, {name: getattr(samples, name).astype(dtype) for name, dtype in SAMPLE_TYPES.items()}
        )

    def __add__(self, other: SampleNumbers) -> SampleNumbers:
        numbers = {name: np.concatenate([self.numbers[name], other.numbers[name]]) for name in SAMPLE_TYPES}
        return _with_smallest_keys(np.concatenate([self.keys, other.keys]), numbers)

    @property
    def value(self) -> SampleNumbers:
        """Itself: what is measured are the numbers."""
        return self

    @property
    def n_bytes(self) -> int:
        """The memory that they take."""
        return self.keys.nbytes + sum(values.nbytes for values in self.numbers.values())

    @property
    def scored(self) -> Scored:
        """The samples as metrics read them, in the order of their keys.

        Weights that are not whole numbers sum to the effective sample size (``design.py``).
        """
        order = np.argsort(self.keys, kind="stable")
        fields: dict[str, Any] = {name: values[order].astype(np.float64) for name, values in self.numbers.items()}
        w = fields["weights"]
        return Scored(**fields) if are_counts(w) else Scored(**{**fields, "weights": w * (w.sum() / (w @ w))})


def _with_smallest_keys(keys: Vector, numbers: Mapping[str, NDArray[Any]]) -> SampleNumbers:
    if len(keys) <= MAX_KEPT:
        return SampleNumbers(keys, numbers)
    kept = np.argpartition(keys, MAX_KEPT)[:MAX_KEPT]
    return SampleNumbers(keys[kept], {name: values[kept] for name, values in numbers.items()})


@dataclass(frozen=True)
class DifferenceToBest:
    """Metric of a method minus that of the best one."""

    best: str
    value: float
    low: float
    high: float
    """A 95 % interval, for all methods together and whichever is the best."""

    @property
    def is_tied(self) -> bool:
        """Whether the two are not distinguished."""
        return self.low <= 0 <= self.high

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts."""
        return vars(self) | {"tied": self.is_tied}


def differences_to_best(
    rows: Sequence[Row], lines: Sequence[Mapping[str, Any]], networks: Sequence[str]
) -> dict[str, dict[str, DifferenceToBest]]:
    """For every metric with an order: method → difference to the best method of these lines (``rows.summary``).

    Empty for a metric if the samples of some row are not known (rows of an earlier run, a method without a result).
    """
    by_cell: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        if row.network in networks:
            by_cell.setdefault((row.network, row.split), {})[row.method] = row
    methods = [line["method"] for line in lines if not math.isnan(line["nll"])]
    if len(methods) < 2 or any(
        method not in cell or cell[method].samples is None for cell in by_cell.values() for method in methods
    ):
        return {}
    factor = studentized_range(1 - SIGNIFICANCE_LEVEL, len(methods)) / math.sqrt(2)
    scored = {
        (key, method): row.samples.scored
        for key, cell in by_cell.items()
        for method, row in cell.items()
        if row.samples is not None
    }
    by_metric = {}
    for metric, column in ORDER.items():
        best = best_method([line for line in lines if line["method"] in methods], metric, column)
        by_metric[metric] = {
            method: _mean_difference(
                metric, best, [(key[0], scored[key, method], scored[key, best]) for key in by_cell], factor
            )
            for method in methods
        }
    return by_metric


def best_method(lines: Sequence[Mapping[str, Any]], metric: str, column: str) -> str:
    """The method with the best value; where several have it, the one with the best value of the metric itself."""
    sign = 1 if METRICS[metric].better == "lower" else -1
    return str(min(lines, key=lambda line: (sign * line[column], sign * line[metric]))["method"])


def _mean_difference(
    metric: str, best: str, pairs: Sequence[tuple[str, Scored, Scored]], factor: float
) -> DifferenceToBest:
    """The mean over networks of the mean over splits.

    Networks are independent. Splits are halves of the same samples: the standard deviation of their mean is at most the mean of
    their standard deviations, which is what is taken.
    """
    by_network: dict[str, list[tuple[float, float]]] = {}
    for network, a, b in pairs:
        by_network.setdefault(network, []).append(_difference(metric, a, b))
    means = np.array([np.mean(parts, axis=0) for parts in by_network.values()])
    value, deviation = float(means[:, 0].mean()), float(np.sqrt((means[:, 1] ** 2).sum()) / len(means))
    low, high = value - factor * deviation, value + factor * deviation
    if metric in BINNED:  # not negative: the best is below a method by no more than that is, and the other way round
        level = math.erf(factor / math.sqrt(2))
        sides = [[a for _, a, _ in pairs], [b for _, _, b in pairs]]
        values = [float(np.mean([METRICS[metric].value(view) for view in side])) for side in sides]
        limits = [float(np.mean([upper_limit(metric, expand(view), level) for view in side])) for side in sides]
        low, high = in_range(low, *limits), in_range(high, *limits)
        value = min(max(in_range(value, *values), low), high)
    return DifferenceToBest(best, value, low, high)


def _difference(metric: str, a: Scored, b: Scored) -> tuple[float, float]:
    """Metric of A minus metric of B, and its standard deviation."""
    if all(np.array_equal(getattr(a, name), getattr(b, name)) for name in SAMPLE_TYPES):
        return 0.0, 0.0
    if metric != "accuracy":
        difference = differences(a, b, [metric], bounded=False)[metric]
        return difference.value, difference.deviation
    d, w = a.correct - b.correct, a.weights
    if not d.any():
        return 0.0, 0.0
    total = float(w.sum())
    value = float(w @ d) / total
    return value, math.sqrt(float(w @ (d - value) ** 2) + LEAST_VARIANCE) / total
