"""Distributions of calibration statistics for a perfectly calibrated model: correctness ~ Bernoulli(confidence).

Every statistic here is a function of the cumulative differences: the sums of w·(correct − confidence) over the samples in
order of confidence, up to each sample. The sum of a bin is a difference of two of them, so one simulated path serves every
binning, the Kolmogorov–Smirnov statistic and the kernel statistic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference.units import are_counts, canonical_order, take_units, unit_rows
from rhocal.numerics.bins import N_BINS, equal_mass, equal_width
from rhocal.numerics.caching import cached_property

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

MAX_BERNOULLI = 50_000
"""Samples up to which each is drawn by itself; beyond, the sums of neighbors are."""

N_POINTS = 1000
"""Points of a path that are kept, equally spaced in weight; the edges of bins are kept too."""

BLOCK_DRAWS = 1 << 20
"""Random numbers in memory at a time."""

BANDWIDTH = 0.1
"""Of the Laplacian kernel exp(−|c − c′|/h), in units of confidence: as wide as one of ten bins."""

N_KERNEL_CELLS = 200
"""Cells of equal weight; the kernel treats confidences in a cell as equal."""


@dataclass(frozen=True)
class CumulativeDifferences:
    """Samples in order of confidence, the points at which paths are kept, and the observed path."""

    confidence: Vector
    correct: Vector
    weights: Vector
    exact: bool
    """Whether weights are counts, so that each row is one sample."""
    ends: NDArray[np.intp]
    """Number of samples up to each point."""
    observed: Vector
    """Σ w (correct − confidence) up to each point, divided by Σ w."""
    n_bins: int
    units: NDArray[np.intp]
    """The row of every sample among those given, which were in another order."""
    draw_scale: Vector | None = None
    """What a draw of a sample adds, where it is stated."""

    @classmethod
    def from_scored(cls, scored: Scored, n_bins: int = N_BINS, *, exact: bool | None = None) -> CumulativeDifferences:
        """Sort the samples and choose the points; ``exact`` states whether weights are counts, by default found out."""
        exact = are_counts(scored.weights) if exact is None else exact
        units = unit_rows(scored) if exact else canonical_order(scored)
        units = units if exact else units[scored.weights[units] > 0]
        sample = take_units(scored, units) if exact else scored.take(units)
        c, w = sample.confidence, sample.weights
        edges = [_ends(bins) for bins in (equal_width(c, n_bins), equal_mass(c, n_bins, w))]
        ends = np.unique(
            np.concatenate([*edges, _ends(equal_mass(c, N_POINTS, w)), _ends(equal_mass(c, N_KERNEL_CELLS, w))])
        )
        path = np.cumsum(w * (sample.correct - c))[ends - 1] / w.sum()
        return cls(c, sample.correct, w, exact, ends, path, n_bins, units, sample.__dict__["draw_scale"])

    @cached_property
    def cells(self) -> NDArray[np.intp]:
        """The number of the point up to which each sample counts first."""
        return np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))

    @cached_property
    def scale(self) -> Vector | None:
        """What a draw of a sample adds. A weight that is no count is that share of a sample, and of its variance."""
        if self.exact:
            return None
        return np.sqrt(self.weights) if self.draw_scale is None else self.draw_scale

    def in_cells(self, values: Vector) -> Vector:
        """The sums of samples' values between points."""
        return np.diff(np.cumsum(values)[self.ends - 1], prepend=0.0)

    def paths(self, right: Vector) -> Vector:
        """Paths from the sums of right draws in each cell, shape (n_paths, n_cells)."""
        expected = self.in_cells(self.confidence if self.scale is None else self.scale * self.confidence)
        return np.cumsum(right - expected, axis=1) / self.weights.sum()

    def with_simulated(self, n_replicates: int, seed: int) -> Vector:
        """The path of the samples, followed by those of a perfectly calibrated model."""
        return np.concatenate([self.observed[None], *self.simulate(n_replicates, seed)])

    def simulate(self, n_replicates: int, seed: int) -> Iterator[Vector]:
        """Paths of a perfectly calibrated model, in blocks of shape (n_paths, n_points)."""
        rng = np.random.default_rng(seed)
        is_short = len(self.confidence) <= MAX_BERNOULLI
        step = max(1, BLOCK_DRAWS // (len(self.confidence) if is_short else len(self.ends)))
        for start in range(0, n_replicates, step):
            n = min(step, n_replicates - start)
            yield self._bernoulli(rng, n) if is_short else self.paths(self.draw_cells(rng, n))

    def _bernoulli(self, rng: np.random.Generator, n: int) -> Vector:
        c = self.confidence
        # single precision is exact to 6e-8 in the probability, and twice as fast
        right = rng.random((n, len(c)), dtype=np.float32) < c.astype(np.float32)
        if self.scale is None:
            total = np.cumsum(right, axis=1, dtype=np.int32)[:, self.ends - 1] - np.cumsum(c)[self.ends - 1]
        else:
            total = np.cumsum(self.scale * (right - c), axis=1)[:, self.ends - 1]
        return total / self.weights.sum()

    def draw_cells(self, rng: np.random.Generator, n: int, kept: NDArray[np.bool_] | None = None) -> Vector:
        """Sums of right draws in each cell (n × n_cells), of the samples ``kept``: binomial with the cell's mean confidence.

        Confidences of a cell are neighbors, so this is their sum's distribution to the square of their distance; where errors
        are rare it keeps the skewness that a normal distribution would lose.
        """
        chosen = np.ones(len(self.confidence)) if kept is None else kept.astype(np.float64)
        scale = chosen if self.scale is None else chosen * self.scale
        size, squares = self.in_cells(chosen), self.in_cells(scale**2)
        mean = np.clip(self.in_cells(chosen * self.confidence) / np.maximum(size, 1), 0, 1)
        deviation = rng.binomial(np.rint(size).astype(np.int64), mean, (n, len(size))) - size * mean
        return self.in_cells(scale * self.confidence) + deviation * np.sqrt(
            np.maximum(squares, 0) / np.maximum(size, 1)
        )

    # Statistics of paths, shape (n_paths, n_points) -> (n_paths,) ---------------------------------------------------

    @cached_property
    def _width_points(self) -> NDArray[np.intp]:
        return self._points(equal_width(self.confidence, self.n_bins))

    @cached_property
    def _mass_points(self) -> NDArray[np.intp]:
        return self._points(equal_mass(self.confidence, self.n_bins, self.weights))

    @cached_property
    def _kernel(self) -> tuple[NDArray[np.intp], Vector]:
        """Points between kernel cells, and the kernel of the cells' mean confidences."""
        cells = equal_mass(self.confidence, N_KERNEL_CELLS, self.weights)
        ends = _ends(cells)
        sums = np.diff(np.cumsum(self.weights * self.confidence)[ends - 1], prepend=0.0)
        center = sums / np.diff(np.cumsum(self.weights)[ends - 1], prepend=0.0)
        return np.searchsorted(self.ends, ends), np.exp(-np.abs(center[:, None] - center) / BANDWIDTH)

    def _points(self, bins: NDArray[np.intp]) -> NDArray[np.intp]:
        return np.searchsorted(self.ends, _ends(bins))

    def in_bins(self, paths: Vector, scheme: str) -> Vector:
        """Σ w (correct − confidence) / Σ w of every bin that holds a sample; bins of equal ``width`` or ``mass``."""
        return _between(paths, self._width_points if scheme == "width" else self._mass_points)

    def ece(self, paths: Vector) -> Vector:
        """Σ_b share_b·gap_b over bins of equal width."""
        return np.asarray(np.abs(self.in_bins(paths, "width")).sum(axis=1))

    def adaptive_ece(self, paths: Vector) -> Vector:
        """The same over bins of equal mass."""
        return np.asarray(np.abs(self.in_bins(paths, "mass")).sum(axis=1))

    def mce(self, paths: Vector) -> Vector:
        """The largest gap of a bin of equal width."""
        share = np.diff(np.cumsum(self.weights)[self.ends[self._width_points] - 1], prepend=0.0) / self.weights.sum()
        return np.asarray((np.abs(self.in_bins(paths, "width")) / share).max(axis=1))

    def ks(self, paths: Vector) -> Vector:
        """The largest distance of the path from 0."""
        return np.asarray(np.abs(paths).max(axis=1))

    def skce(self, paths: Vector) -> Vector:
        """Σ_ij d_i d_j exp(−|c_i − c_j|/h) with d = w·(correct − confidence)/Σw: the squared kernel calibration error."""
        points, kernel = self._kernel
        gaps = _between(paths, points)
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
    """The observed value of a statistic, and its values for simulated perfectly calibrated models."""

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


def path_nulls(path: CumulativeDifferences, paths: Vector, names: Iterable[str]) -> dict[str, NullDistribution]:
    """The null distributions of statistics of paths; the first path is that of the samples."""
    statistics = {name: STATISTICS[name](path, paths) for name in names}
    return {name: NullDistribution(float(values[0]), values[1:]) for name, values in statistics.items()}


def _ends(bins: NDArray[np.intp]) -> NDArray[np.intp]:
    """Number of samples up to the end of each bin that holds any; bins ascend along the samples."""
    return np.append(np.flatnonzero(np.diff(bins)), len(bins) - 1) + 1


def _between(paths: Vector, points: NDArray[np.intp]) -> Vector:
    return np.diff(paths[:, points], prepend=0.0, axis=1)
