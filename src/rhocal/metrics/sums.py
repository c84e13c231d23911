"""States that add: the sums of a batch of samples. Their size does not depend on the number of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rhocal.numerics.bins import BinSums

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector


class Sums(Protocol):
    """A state that adds: the sum of two states has the value of the metric over both batches."""

    def __add__(self, other: Any, /) -> Any: ...

    @property
    def value(self) -> float:
        """The metric."""


@dataclass(frozen=True)
class WeightedMean:
    """A mean, as two sums."""

    total: float
    weight: float

    @classmethod
    def of(cls, values: Vector, weights: Vector) -> WeightedMean:
        """The sums of one batch."""
        return cls(float(weights @ values), float(weights.sum()))

    def __add__(self, other: WeightedMean) -> WeightedMean:
        return WeightedMean(self.total + other.total, self.weight + other.weight)

    @property
    def value(self) -> float:
        """The mean."""
        return self.total / self.weight


@dataclass(frozen=True)
class MetricSums:
    """Any state that adds (sums, an array), and the formula of the metric on it."""

    state: Any
    formula: Callable[[Any], float]

    def __add__(self, other: MetricSums) -> MetricSums:
        return MetricSums(self.state + other.state, self.formula)

    @property
    def value(self) -> float:
        """The metric."""
        return self.formula(self.state)


N_CELLS = 8192
"""Cells of a sketch: 196 kB of sums."""

EPSILON = 1e-6
"""Confidences nearer to 0 or 1 than about this share a cell."""

_MAX_LOGIT = float(np.log1p(1 / EPSILON))


def cell_numbers(confidence: Vector) -> Any:
    """The cell of every confidence: equal widths of log((c + ε)/(1 − c + ε)).

    Confidences of networks are dense near 1: a cell there is 0.3 % of 1 − c wide, and no cell is wider than 9e−4.
    """
    logit = np.log((confidence + EPSILON) / (1 - confidence + EPSILON))
    return np.clip(((logit / _MAX_LOGIT + 1) / 2 * N_CELLS).astype(np.intp), 0, N_CELLS - 1)


def cell_widths() -> Vector:
    """The width of each cell in confidence."""
    e = np.exp(_MAX_LOGIT * (2 * np.arange(N_CELLS + 1) / N_CELLS - 1))
    edges = np.clip((e * (1 + EPSILON) - EPSILON) / (1 + e), 0, 1)
    return np.diff(edges)


@dataclass(frozen=True)
class Sketch:
    """Sums over fixed fine cells of confidence: an approximate ranking of any number of samples in fixed memory."""

    sums: BinSums

    @classmethod
    def of(cls, scored: Scored) -> Sketch:
        """The sketch of one batch."""
        c = scored.confidence
        return cls(BinSums.from_bins(cell_numbers(c), c, scored.correct, n_bins=N_CELLS, weights=scored.weights))

    def __add__(self, other: Sketch) -> Sketch:
        return Sketch(self.sums + other.sums)

    @property
    def ranked(self) -> BinSums:
        """The cells that hold samples, as if all samples of a cell were tied."""
        return self.sums.nonempty()

    @property
    def max_residual(self) -> Vector:
        """At most Σ w |correct − confidence| of each cell of ``ranked``."""
        sums, width = self.ranked, cell_widths()[self.sums.weight > 0]
        return sums.correct * (1 - sums.mean) + (sums.weight - sums.correct) * sums.mean + sums.weight * width


@dataclass(frozen=True)
class MetricSketch:
    """A metric of the ranking, computed from a sketch. ``error`` bounds the distance of ``value`` from the exact one."""

    sketch: Sketch
    formula: Callable[[BinSums], float]
    bound: Callable[[Sketch], float]

    def __add__(self, other: MetricSketch) -> MetricSketch:
        return MetricSketch(self.sketch + other.sketch, self.formula, self.bound)

    @property
    def value(self) -> float:
        """The metric, as if all samples of a cell were tied."""
        return self.formula(self.sketch.ranked)

    @property
    def error(self) -> float:
        """An upper bound of the distance to the exact metric of the same samples."""
        return self.bound(self.sketch)
