"""What statistics of calibration look like for a perfectly calibrated model: correctness ~ Bernoulli(confidence).

Every statistic here is a function of one walk: the samples in order of confidence, and after each of them the sum so far
of w·(correct − confidence). A bin's sum is a difference of two points of the walk, so one draw of the walk serves
every binning, the Kolmogorov–Smirnov statistic and the kernel statistic at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.binned import N_BINS
from rhocal.metrics.inference.units import are_counts, take, units
from rhocal.numerics.bins import equal_mass, equal_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

MOST_EXACT = 50_000
"""Up to here every sample is drawn; beyond, the sums of at least 50 neighbours, which are normal by then."""

CELLS = 1000
"""Points of the walk that are looked at, equal in weight; bin edges come on top."""

BLOCK_DRAWS = 1 << 20
"""Random numbers held at a time."""

BANDWIDTH = 0.1
"""Of the Laplacian kernel exp(−|c − c′|/h), in units of confidence: as wide as one of ten bins."""

KERNEL_CELLS = 200
"""Cells of equal weight inside which the kernel takes confidences as equal."""


@dataclass(frozen=True)
class CumulativeDifferences:
    """Samples in order of confidence; where the walk is looked at; what has been added up there."""

    confidence: Vector
    weights: Vector
    exact: bool
    """Whether each row is one Bernoulli draw."""
    ends: NDArray[np.intp]
    """Number of samples up to each point."""
    observed: Vector
    """Σ w (correct − confidence) up to each point, divided by Σ w."""
    n_bins: int

    @classmethod
    def from_scored(cls, scored: Scored, n_bins: int = N_BINS) -> CumulativeDifferences:
        """Sort the samples and choose the points."""
        sample = take(scored, units(scored))
        c, w = sample.confidence, sample.weights
        edges = [_ends(bins) for bins in (equal_width(c, n_bins), equal_mass(c, n_bins, w))]
        ends = np.unique(
            np.concatenate([*edges, _ends(equal_mass(c, CELLS, w)), _ends(equal_mass(c, KERNEL_CELLS, w))])
        )
        path = np.cumsum(w * (sample.correct - c))[ends - 1] / w.sum()
        return cls(c, w, are_counts(scored.weights) and len(c) <= MOST_EXACT, ends, path, n_bins)

    def draws(self, n_replicates: int, seed: int) -> Iterator[Vector]:
        """Walks of a perfectly calibrated model, some at a time, shape (some, n_points)."""
        rng = np.random.default_rng(seed)
        step = max(1, BLOCK_DRAWS // (len(self.confidence) if self.exact else len(self.ends)))
        draw = self._bernoulli if self.exact else self._normal
        for start in range(0, n_replicates, step):
            yield draw(rng, min(step, n_replicates - start)) / self.weights.sum()

    def _bernoulli(self, rng: np.random.Generator, n: int) -> Vector:
        c = self.confidence
        # single precision is exact to 6e-8 in the probability, and twice as fast
        right = rng.random((n, len(c)), dtype=np.float32) < c.astype(np.float32)
        return np.cumsum(right, axis=1, dtype=np.int32)[:, self.ends - 1] - np.cumsum(c)[self.ends - 1]

    def _normal(self, rng: np.random.Generator, n: int) -> Vector:
        variance = np.cumsum(self.weights * self.confidence * (1 - self.confidence))[self.ends - 1]
        steps = np.sqrt(np.maximum(np.diff(variance, prepend=0.0), 0))
        return np.cumsum(rng.standard_normal((n, len(steps))) * steps, axis=1)

    # Statistics of walks, shape (some, n_points) -> (some,) ---------------------------------------------------------

    @cached_property
    def _width_points(self) -> NDArray[np.intp]:
        return self._points(equal_width(self.confidence, self.n_bins))

    @cached_property
    def _mass_points(self) -> NDArray[np.intp]:
        return self._points(equal_mass(self.confidence, self.n_bins, self.weights))

    @cached_property
    def _kernel(self) -> tuple[NDArray[np.intp], Vector]:
        """Points between kernel cells, and the kernel of the cells' mean confidences."""
        cells = equal_mass(self.confidence, KERNEL_CELLS, self.weights)
        ends = _ends(cells)
        sums = np.diff(np.cumsum(self.weights * self.confidence)[ends - 1], prepend=0.0)
        centre = sums / np.diff(np.cumsum(self.weights)[ends - 1], prepend=0.0)
        return np.searchsorted(self.ends, ends), np.exp(-np.abs(centre[:, None] - centre) / BANDWIDTH)

    def _points(self, bins: NDArray[np.intp]) -> NDArray[np.intp]:
        return np.searchsorted(self.ends, _ends(bins))

    def in_bins(self, walks: Vector, scheme: str) -> Vector:
        """Σ w (correct − confidence) / Σ w of every bin that holds a sample; bins of equal ``width`` or ``mass``."""
        return _between(walks, self._width_points if scheme == "width" else self._mass_points)

    def ece(self, walks: Vector) -> Vector:
        """Σ_b share_b·gap_b over bins of equal width."""
        return np.asarray(np.abs(self.in_bins(walks, "width")).sum(axis=1))

    def adaptive_ece(self, walks: Vector) -> Vector:
        """The same over bins of equal mass."""
        return np.asarray(np.abs(self.in_bins(walks, "mass")).sum(axis=1))

    def mce(self, walks: Vector) -> Vector:
        """The largest gap of a bin of equal width."""
        share = np.diff(np.cumsum(self.weights)[self.ends[self._width_points] - 1], prepend=0.0) / self.weights.sum()
        return np.asarray((np.abs(self.in_bins(walks, "width")) / share).max(axis=1))

    def ks(self, walks: Vector) -> Vector:
        """The largest distance of the walk from 0: cumulative differences, without bins."""
        return np.asarray(np.abs(walks).max(axis=1))

    def skce(self, walks: Vector) -> Vector:
        """Σ_ij d_i d_j exp(−|c_i − c_j|/h) with d = w·(correct − confidence)/Σw: the squared kernel calibration error."""
        points, kernel = self._kernel
        gaps = _between(walks, points)
        return np.einsum("ij,ij->i", gaps @ kernel, gaps)


STATISTICS: dict[str, Callable[[CumulativeDifferences, Vector], Vector]] = {
    "ece": CumulativeDifferences.ece,
    "adaptive_ece": CumulativeDifferences.adaptive_ece,
    "mce": CumulativeDifferences.mce,
    "ks": CumulativeDifferences.ks,
    "skce": CumulativeDifferences.skce,
}


@dataclass(frozen=True)
class NullDistribution:
    """A statistic as observed, and as it comes out for a perfectly calibrated model."""

    observed: float
    drawn: Vector

    @property
    def p_value(self) -> float:
        """(1 + number of draws at least as large) / (1 + number of draws): never 0, exact for any number of draws."""
        as_large = self.drawn >= self.observed - 1e-9 * abs(self.observed)  # rounding must not break a tie
        return float((1 + np.count_nonzero(as_large)) / (1 + len(self.drawn)))

    @property
    def two_sided(self) -> float:
        """Twice the smaller tail, at most 1."""
        return min(1.0, 2 * min(self.p_value, NullDistribution(-self.observed, -self.drawn).p_value))


def simulate_nulls(
    walk: CumulativeDifferences, names: list[str], n_replicates: int, seed: int
) -> dict[str, NullDistribution]:
    """The named statistics, from the same draws."""
    parts: dict[str, list[Vector]] = {name: [] for name in names}
    for walks in walk.draws(n_replicates, seed):
        for name in names:
            parts[name].append(STATISTICS[name](walk, walks))
    return {
        name: NullDistribution(float(STATISTICS[name](walk, walk.observed[None])[0]), np.concatenate(parts[name]))
        for name in names
    }


def _ends(bins: NDArray[np.intp]) -> NDArray[np.intp]:
    """Number of samples up to the end of each bin that holds any; bins rise along the samples."""
    return np.append(np.flatnonzero(np.diff(bins)), len(bins) - 1) + 1


def _between(walks: Vector, points: NDArray[np.intp]) -> Vector:
    return np.diff(walks[:, points], prepend=0.0, axis=1)
