"""Distributions of calibration statistics for a perfectly calibrated model: correctness ~ Bernoulli(confidence).

Every statistic here is a function of the cumulative differences: the sums of w·(correct − confidence) over the samples in
order of confidence, up to each sample. The sum of a bin is a difference of two of them, so one simulated path serves every
binning, the Kolmogorov–Smirnov statistic and the kernel statistic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference.units import are_counts, expand
from rhocal.numerics.bins import N_BINS, equal_mass, equal_width
from rhocal.numerics.caching import cached_property

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

MAX_BERNOULLI = 50_000
"""Samples up to which each is drawn by itself; beyond, the sums of at least 50 neighbors are, which are nearly normal."""

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
        sample = expand(scored)
        c, w = sample.confidence, sample.weights
        edges = [_ends(bins) for bins in (equal_width(c, n_bins), equal_mass(c, n_bins, w))]
        ends = np.unique(
            np.concatenate([*edges, _ends(equal_mass(c, N_POINTS, w)), _ends(equal_mass(c, N_KERNEL_CELLS, w))])
        )
        path = np.cumsum(w * (sample.correct - c))[ends - 1] / w.sum()
        return cls(c, w, are_counts(scored.weights) and len(c) <= MAX_BERNOULLI, ends, path, n_bins)

    def simulate(self, n_replicates: int, seed: int) -> Iterator[Vector]:
        """Paths of a perfectly calibrated model, in blocks of shape (n_paths, n_points)."""
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


def simulate_nulls(
    observed: CumulativeDifferences, names: list[str], n_replicates: int, seed: int
) -> dict[str, NullDistribution]:
    """The null distributions of the named statistics, from the same simulated paths."""
    parts: dict[str, list[Vector]] = {name: [] for name in names}
    for paths in observed.simulate(n_replicates, seed):
        for name in names:
            parts[name].append(STATISTICS[name](observed, paths))
    return {
        name: NullDistribution(
            float(STATISTICS[name](observed, observed.observed[None])[0]), np.concatenate(parts[name])
        )
        for name in names
    }


def _ends(bins: NDArray[np.intp]) -> NDArray[np.intp]:
    """Number of samples up to the end of each bin that holds any; bins ascend along the samples."""
    return np.append(np.flatnonzero(np.diff(bins)), len(bins) - 1) + 1


def _between(paths: Vector, points: NDArray[np.intp]) -> Vector:
    return np.diff(paths[:, points], prepend=0.0, axis=1)
