"""Binary maps: the score of one class becomes its probability. What they are fitted on, and the one rule of smoothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rhocal.numerics import kernels
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.numerics.tables import line_tables, padded, row_starts, with_jumps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators.fitted_values import Constraint
    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.numerics.special import Vector

LAST_EDGE: Constraint = (
    "the last of edges_ is infinite",
    lambda fitted: bool(np.isin(np.nanmax(np.atleast_2d(fitted["edges"]), axis=1, initial=0.0), (0.0, np.inf)).all()),
)

ORDERED_BOUNDS: Constraint = ("no low_ is above its high_", lambda fitted: not (fitted["low"] > fitted["high"]).any())

FINEST = 1e-6
"""Neighboring entries of a table whose probabilities agree to this are merged, else 1,000 classes would store all samples."""


MAX_SHARE_JOINED = 0.25
"""With more hits than this share of the samples there are few misses to join, and scores are sorted."""

NEGLIGIBLE_WEIGHT = 1e-12
"""Samples with less than this share of the largest weight are left out: cumulative sums would not see them."""


@dataclass(frozen=True)
class Outcomes:
    """What a binary map is fitted on: the different scores in order, how often each came, and how often it was a hit.

    Equal scores are one entry. So the order of the samples cannot matter, and a weight is a repetition.
    """

    score: Vector
    weight: Vector
    hits: Vector
    n_classes: int
    """Of the question asked: 2 for right or wrong, the number of classes for one against the rest."""
    last: Vector | None = None
    """The largest score of each entry where misses are joined; None where every entry is one score."""

    @classmethod
    def from_samples(
        cls,
        score: Vector,
        hit: NDArray[np.bool_],
        weights: Vector | None,
        n_classes: int,
        *,
        joins_misses: bool = False,
    ) -> Outcomes:
        """Sort and add up, without samples whose weight does not count beside the others; without weights each counts 1.

        With ``joins_misses`` scores without a hit between two with hits may become one entry: every non-decreasing map that
        fits them best gives them one value.
        """
        if weights is not None and not (weights == 1).all():
            counts = weights > NEGLIGIBLE_WEIGHT * weights.max(initial=0.0)
            values, inverse = np.unique(score[counts], return_inverse=True)
            weight, hits = sums(inverse, (weights[counts], weights[counts] * hit[counts]), len(values))
            return cls(values, weight, hits, n_classes)
        hit_scores = np.sort(score[hit])
        starts = first_of_equals(hit_scores)
        edges, at_edges = hit_scores[starts], lengths(starts, len(hit_scores))
        if joins_misses and 0 < len(edges) < MAX_SHARE_JOINED * len(score):
            outcomes = cls._with_misses_joined(score, edges, at_edges, n_classes)
            if outcomes is not None:
                return outcomes
        ordered = np.sort(score)
        starts = first_of_equals(ordered)
        values, hits = ordered[starts], np.zeros(len(starts))
        hits[np.searchsorted(values, edges)] = at_edges
        return cls(values, lengths(starts, len(ordered)), hits, n_classes)

    @classmethod
    def _with_misses_joined(cls, score: Vector, edges: Vector, at_edges: Vector, n_classes: int) -> Outcomes | None:
        """An entry for each score with hits, and one for the misses after it or before the first: nothing is sorted.

        None where the compiled pass is missing.
        """
        first = np.empty(2 * len(edges) + 1)
        first[1::2] = edges
        np.nextafter(edges, np.inf, out=first[2::2])  # between these two there is no other number
        counted = kernels.intervals(score, first[1:])
        if counted is None:
            return None
        weight, last = counted
        first[0] = score.min()
        hits = np.zeros(len(weight))
        hits[1::2] = at_edges
        kept = weight > 0
        return cls(first[kept], weight[kept], hits[kept], n_classes, last[kept])

    @property
    def total(self) -> float:
        """Weight of all."""
        return float(self.weight.sum())

    @property
    def rate(self) -> Vector:
        """Share of hits of every score."""
        return self.hits / self.weight

    def take(self, chosen: NDArray[np.intp]) -> Outcomes:
        """Some of the scores."""
        return Outcomes(self.score[chosen], self.weight[chosen], self.hits[chosen], self.n_classes)

    def nll(self, probability: Vector) -> float:
        """Mean −log probability of what happened."""
        tiny = np.finfo(np.float64).tiny
        p, q = np.maximum(probability, tiny), np.maximum(1 - probability, tiny)
        return -float(self.hits @ np.log(p) + (self.weight - self.hits) @ np.log(q)) / self.total


def first_of_equals(ordered: Vector) -> NDArray[np.intp]:
    """Where each different number of a sorted vector begins."""
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return np.flatnonzero(is_first)


def lengths(starts: NDArray[np.intp], n: int) -> Vector:
    """How many of n numbers there are from each start to the next."""
    counts = np.empty(len(starts))
    np.subtract(starts[1:], starts[:-1], out=counts[:-1])
    counts[-1:] = n - starts[-1:]
    return counts


def sums(where: NDArray[np.intp], values: Sequence[Vector], n: int) -> list[Vector]:
    """Add up each of the values in n groups."""
    return [np.bincount(where, value, n).astype(np.float64, copy=False) for value in values]


def smoothed(share: Vector, weight: Vector | float, n_classes: int, smoothing: float) -> Vector:
    """Keep a share of hits away from 0 and 1: the rule of succession.

    A group where nobody (or everybody) hit is treated as if ``smoothing`` more samples had been seen in it, their labels
    spread evenly over the classes. With 2 classes and 2 samples that is Laplace's 1/(n + 2). With more classes it is
    (2/m)/(n + 2): the m small numbers of a row, taken together, stay small.

    >>> smoothed(np.array([0.0, 0.5, 1.0]), np.array([8.0, 8.0, 8.0]), 2, 2.0).tolist()
    [0.1, 0.5, 0.9]
    """
    added = smoothing / n_classes
    with np.errstate(invalid="ignore"):  # an empty group stays NaN
        return np.clip(share, added / (weight + smoothing), (weight + added) / (weight + smoothing))


class BinaryMap(ABC):
    """A fitted function, score → probability: a frozen dataclass of numbers and of arrays of one length.

    If there are arrays, the first field is one, and has no NaN.
    """

    keeps_score: ClassVar[frozenset[str]] = frozenset()
    """Arrays in which NaN stands for the score itself."""
    rounds_scores: ClassVar[bool] = True
    """Whether scores are rounded before it, because their last digits would decide."""

    def __call__(self, score: Vector) -> Vector:
        """The probability at every score."""
        arrays = {name: np.asarray(getattr(self, name))[None] for name in field_names(type(self))}
        return np.asarray(self.formula(NUMPY, self.tables(arrays), score[:, None])[:, 0])

    @classmethod
    def tables(cls, arrays: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
        """The parameters of ``formula`` for the maps of ``stacked``; of a class without a map any numbers."""
        return {name: np.nan_to_num(value) for name, value in arrays.items()}

    @staticmethod
    @abstractmethod
    def formula(ops: Ops, parameters: Parameters, score: Value) -> Value:
        """The probability at every score, a column for each map."""


@dataclass(frozen=True)
class FittedBinaryMap:
    """A map with its evidence."""

    map: BinaryMap
    converged: bool = True
    n_evaluations: int = 1
    trials: tuple[Mapping[str, Any], ...] = ()
    values: Vector | None = None
    """Its probabilities at the scores that it was fitted on, if the fit knows them."""


def one_sided_factor(p: Vector, data: Outcomes) -> float:
    """The factor of the probabilities p of a class that never occurred; negative: of 1 − p, if it always occurred.

    The network expected E hits and none came. With a prior of one such miss its probabilities are multiplied by
    1/(1 + E): a rare class, of which none was to be expected, keeps its probability; a common one nearly loses it.
    ``formulas.one_sided`` applies the factor.
    """
    if data.hits.any():
        return -1 / (1 + float(data.weight @ (1 - p)))
    return 1 / (1 + float(data.weight @ p))


@dataclass(frozen=True)
class Steps(BinaryMap):
    """A value for each bin (edge before, edge]; NaN keeps the score. The last edge is infinite."""

    keeps_score = frozenset({"bins"})
    edges: Vector
    bins: Vector

    @classmethod
    def tables(cls, arrays: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
        edges, bins = arrays["edges"], arrays["bins"]
        table = padded(edges, np.inf)
        width = len(table) // len(edges)
        return {
            "width": width,
            "edges": table,
            "edge_starts": row_starts(len(edges), width),
            "bin_starts": row_starts(len(edges), width + 1),
            "bins": padded(bins, 0.0, width + 1),
            "kept": np.pad(np.isnan(bins), ((0, 0), (0, width + 1 - bins.shape[1]))).astype(np.float64).ravel(),
        }

    @staticmethod
    def formula(ops: Ops, parameters: Parameters, score: Value) -> Value:
        """The value of the bin, or the score."""
        place = ops.locate(parameters["edges"], parameters["edge_starts"], parameters["width"], score)
        at = place + parameters["bin_starts"]
        return ops.take(parameters["bins"], at) + ops.take(parameters["kept"], at) * score


@dataclass(frozen=True)
class Lines(BinaryMap):
    """Straight lines between knots, constant beyond them; those too steep for the rounding of scores are jumps."""

    rounds_scores = False
    knots: Vector
    values: Vector

    @classmethod
    def tables(cls, arrays: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
        maps = [
            cls(*with_jumps(knots, values)) for knots, values in zip(arrays["knots"], arrays["values"], strict=True)
        ]
        return line_tables(stacked(maps, "knots"), stacked(maps, "values"))

    @staticmethod
    def formula(ops: Ops, parameters: Parameters, score: Value) -> Value:
        """The line at every score."""
        return ops.interpolate(parameters, score)


def stacked(maps: Sequence[BinaryMap | None], name: str) -> NDArray[np.float64]:
    """One field of all maps as a plain array: a row for each map, filled up with NaN."""
    values = [np.asarray(np.nan if one is None else getattr(one, name)) for one in maps]
    if all(value.ndim == 0 for value in values):
        return np.array(values)
    table = np.full((len(maps), max(value.size for value in values)), np.nan)
    for row, value in zip(table, values, strict=True):
        row[: value.size] = value
    return table


def field_names(kind: type[BinaryMap]) -> tuple[str, ...]:
    """The numbers of a map."""
    return tuple(field.name for field in fields(kind))  # type: ignore[arg-type]
