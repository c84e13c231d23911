"""States that add: what a batch, a machine or a day leaves behind of its samples. Their size does not depend on how many."""

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
    """Sums of two batches add, and know the value of the metric over both."""

    def __add__(self, other: Any, /) -> Any: ...

    @property
    def value(self) -> float:
        """The metric."""


@dataclass(frozen=True)
class WeightedMean:
    """A mean as two sums, so that batches and machines can be added."""

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
class Streamed:
    """Any state that adds, and the formula that reads a metric from it."""

    state: Any
    formula: Callable[[Any], float]

    def __add__(self, other: Streamed) -> Streamed:
        return Streamed(self.state + other.state, self.formula)

    @property
    def value(self) -> float:
        """The metric."""
        return self.formula(self.state)


@dataclass(frozen=True)
class Totals:
    """Several plain sums side by side."""

    parts: Vector

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.parts + other.parts)


N_CELLS = 8192
"""Cells of a sketch: 196 kB of sums."""

NEAREST = 1e-6
"""Confidences nearer to 0 or 1 than about this share a cell."""

_REACH = float(np.log1p(1 / NEAREST))


def cells(confidence: Vector) -> Any:
    """The cell of every confidence: equal widths of log((c + ε)/(1 − c + ε)).

    Networks crowd near 1: a cell there is .3 % of 1 − c wide, and nowhere wider than 9e−4.
    """
    logit = np.log((confidence + NEAREST) / (1 - confidence + NEAREST))
    return np.clip(((logit / _REACH + 1) / 2 * N_CELLS).astype(np.intp), 0, N_CELLS - 1)


def cell_widths() -> Vector:
    """How wide each cell is in confidence."""
    e = np.exp(_REACH * (2 * np.arange(N_CELLS + 1) / N_CELLS - 1))
    edges = np.clip((e * (1 + NEAREST) - NEAREST) / (1 + e), 0, 1)
    return np.diff(edges)


@dataclass(frozen=True)
class Sketch:
    """Sums over fixed fine cells of confidence: an approximate ranking of any number of samples in fixed memory."""

    sums: BinSums

    @classmethod
    def of(cls, scored: Scored) -> Sketch:
        """The sketch of one batch."""
        c = scored.confidence
        return cls(BinSums.within(cells(c), c, scored.correct, n_bins=N_CELLS, weights=scored.weights))

    def __add__(self, other: Sketch) -> Sketch:
        return Sketch(self.sums + other.sums)

    @property
    def ranked(self) -> BinSums:
        """The cells that hold something, as if all samples of a cell were tied."""
        return self.sums.filled()

    @property
    def doubt(self) -> Vector:
        """At most Σ w |correct − confidence| of each cell of ``ranked``."""
        sums, width = self.ranked, cell_widths()[self.sums.weight > 0]
        return sums.correct * (1 - sums.mean) + (sums.weight - sums.correct) * sums.mean + sums.weight * width


@dataclass(frozen=True)
class Sketched:
    """A metric of the ranking read from a sketch. ``error`` bounds how far ``value`` is from the exact one."""

    sketch: Sketch
    formula: Callable[[BinSums], float]
    bound: Callable[[Sketch], float]

    def __add__(self, other: Sketched) -> Sketched:
        return Sketched(self.sketch + other.sketch, self.formula, self.bound)

    @property
    def value(self) -> float:
        """The metric, as if all samples of a cell were tied."""
        return self.formula(self.sketch.ranked)

    @property
    def error(self) -> float:
        """The exact metric is at most this far away, for these very samples."""
        return self.bound(self.sketch)
