"""Intervals of a non-decreasing probability: which values the likelihood ratio does not reject.

A bootstrap of isotonic regression is inconsistent (Kosorok 2008; Sen, Banerjee and Woodroofe 2010): its replicates repeat the
steps of the fit. The likelihood ratio of "the probability at this score is θ" among all non-decreasing functions has a limit
that depends on nothing else (Banerjee and Wellner 2001), and its quantiles are those of χ² with one degree of freedom times
0.595. Where many samples are tied at a score and the fit pools them with no other, it is χ² itself. In between, the share of
the score in its pooled block tells where (Tang, Banerjee and Kosorok 2012 describe the transition); the factor is linear in it.

The interval holds for every estimate of a non-decreasing probability: isotonic regression, centered or not, Venn–Abers, and
Bayesian binning, whose bootstrap is not valid either: with more samples its bins are narrower, those of replicates are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal import optimize
from rhocal.numerics.special import student_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators.binary.binary_map import Outcomes
    from rhocal.numerics.special import Vector

POOLED_FACTOR = 0.595
"""Quantiles of the likelihood ratio, where a block pools many scores, over those of χ² with one degree of freedom.

With the linear transition levels of 80, 95 and 99 % are met to one point, from no ties to a few tied scores (Gaussian local
model, 4,000 draws at each of 12 distances between scores)."""
N_EVEN_RANKS, N_END_RANKS = 200, 24
"""Scores at which bounds are computed: evenly spaced ranks, and geometrically spaced ones from both ends."""
N_BISECTIONS = 40
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class _Constrained:
    """For each of some scores the isotonic regression of what is below it and of what is above it, padded with weight 0."""

    value: Vector
    hits: Vector
    misses: Vector
    is_above: NDArray[np.bool_]

    @classmethod
    def at(cls, data: Outcomes, places: NDArray[np.intp], values: Vector, starts: NDArray[np.intp]) -> _Constrained:
        """At these places of the scores. A block of the whole regression changes only if it holds the score itself."""
        starts = np.asarray(starts)
        hits, misses = (np.add.reduceat(x, starts[:-1]) for x in (data.hits, data.weight - data.hits))
        level = values[starts[:-1]]
        rows: list[tuple[Vector, Vector, Vector, NDArray[np.bool_]]] = []
        for k in places:
            block = int(np.searchsorted(starts, k, side="right")) - 1
            first, last = int(starts[block]), int(starts[block + 1])
            below, above = _pooled(data, first, int(k)), _pooled(data, int(k) + 1, last)
            left, right = slice(0, block), slice(block + 1, None)
            parts = [(level[left], hits[left], misses[left]), below, above, (level[right], hits[right], misses[right])]
            counts = [len(part[0]) for part in parts]
            columns = [np.concatenate([part[i] for part in parts]) for i in range(3)]
            rows.append((columns[0], columns[1], columns[2], np.repeat([False, False, True, True], counts)))
        value, hits, misses, is_above = (_padded([row[i] for row in rows]) for i in range(4))
        return cls(value, hits, misses, is_above > 0)

    def log_likelihood(self, theta: Vector) -> Vector:
        """Of the regressions bounded by θ: from above where scores are lower, from below where they are higher."""
        at = theta[:, None]
        p = np.where(self.is_above, np.maximum(self.value, at), np.minimum(self.value, at))
        return np.asarray((_times_log(self.hits, p) + _times_log(self.misses, 1 - p)).sum(axis=1))


@dataclass(frozen=True, eq=False)
class MonotoneInterval:
    """What the bounds of a non-decreasing probability are computed from."""

    score: Vector
    """Scores at which they are computed, in ascending order."""
    center: Vector
    """The isotonic regression there."""
    share: Vector
    """Share of the score in its pooled block."""
    hits: Vector
    misses: Vector
    others: _Constrained
    largest: float
    """Log-likelihood of the isotonic regression."""
    n_units: float = math.inf
    """The effective number of clusters of the samples: χ² with one degree of freedom becomes the square of Student's t."""

    @classmethod
    def from_outcomes(cls, data: Outcomes, n_units: float = math.inf) -> MonotoneInterval:
        """Of scores with their hits."""
        values, starts = optimize.isotonic(data.rate, data.weight)
        values = np.clip(values, 0.0, 1.0)
        places = _places(data.weight)
        block = np.searchsorted(starts, places, side="right") - 1
        share = data.weight[places] / np.add.reduceat(data.weight, starts[:-1])[block]
        largest = float((_times_log(data.hits, values) + _times_log(data.weight - data.hits, 1 - values)).sum())
        hits = data.hits[places]
        others = _Constrained.at(data, places, values, starts)
        return cls(
            data.score[places], values[places], share, hits, data.weight[places] - hits, others, largest, n_units
        )

    def bounds(self, score: Vector, level: float) -> tuple[Vector, Vector]:
        """Bounds of the probability at any scores: those of the nearest score below, and of the nearest above."""
        low, high = self._at_scores(level)
        below = np.searchsorted(self.score, score, side="right")
        above = np.searchsorted(self.score, score, side="left")
        return np.append(0.0, low)[below], np.append(high, 1.0)[above]

    def _at_scores(self, level: float) -> tuple[Vector, Vector]:
        chi2 = student_quantile(self.n_units - 1, (1 + level) / 2) ** 2
        limit = self.largest - chi2 * (POOLED_FACTOR + (1 - POOLED_FACTOR) * self.share) / 2
        bounds = []
        for end in (0.0, 1.0):
            inside, outside = self.center.copy(), np.full(len(self.center), end)
            for _ in range(N_BISECTIONS):
                middle = (inside + outside) / 2
                value = _times_log(self.hits, middle) + _times_log(self.misses, 1 - middle)
                is_inside = value + self.others.log_likelihood(middle) >= limit
                inside, outside = np.where(is_inside, middle, inside), np.where(is_inside, outside, middle)
            bounds.append(outside)
        # Exact bounds are monotone; those of single scores may cross because the factor changes from score to score.
        return np.maximum.accumulate(bounds[0]), np.minimum.accumulate(bounds[1][::-1])[::-1]


def _pooled(data: Outcomes, first: int, last: int) -> tuple[Vector, Vector, Vector]:
    """Level, hits and misses of the blocks of the isotonic regression of some scores."""
    if first >= last:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    part = slice(first, last)
    values, starts = optimize.isotonic(data.hits[part] / data.weight[part], data.weight[part])
    hits, weight = (np.add.reduceat(x[part], starts[:-1]) for x in (data.hits, data.weight))
    return np.clip(values[starts[:-1]], 0.0, 1.0), hits, np.maximum(weight - hits, 0.0)


def _places(weight: Vector) -> NDArray[np.intp]:
    """Places of the scores at which bounds are computed."""
    if len(weight) <= N_EVEN_RANKS + 2 * N_END_RANKS:
        return np.arange(len(weight))
    ranks = np.cumsum(weight)
    ends = np.geomspace(1, ranks[-1] / 2, N_END_RANKS) if ranks[-1] > 2 else np.zeros(0)
    wanted = np.concatenate([np.linspace(0, ranks[-1], N_EVEN_RANKS), ends, ranks[-1] - ends])
    return np.unique(np.append(np.searchsorted(ranks, wanted), [0, len(weight) - 1]).clip(0, len(weight) - 1))


def _padded(rows: Sequence[NDArray[np.generic]]) -> Vector:
    table = np.zeros((len(rows), max(len(row) for row in rows)))
    for to, row in zip(table, rows, strict=True):
        to[: len(row)] = row
    return table


def _times_log(weight: Vector, p: Vector) -> Vector:
    """Weight·log p, 0 where the weight is."""
    return np.where(weight > 0, weight * np.log(np.maximum(p, TINY)), 0.0)
