"""Bootstrap: resamples as counts, so that a replicate of a mean or of the sum of a bin is a product.

Whole weights count as repeated samples; others are proportional to the probability that a sample is drawn, and as many are
drawn as the weights sum to. Bins of equal mass keep the edges of the whole sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import InputError
from rhocal.metrics import METRICS
from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL, N_REPLICATES
from rhocal.metrics.inference.ece_interval import Interval
from rhocal.metrics.inference.units import take_units, unit_rows
from rhocal.numerics.bins import N_BINS, equal_mass, equal_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

MAX_RESAMPLED = 50_000
"""Samples; beyond, means and sums of bins are normal enough not to be resampled."""
NORMAL = NormalDist()
BLOCK_COUNTS = 1 << 20
"""Counts in memory at a time."""
JACKKNIFE_GROUPS = 100
"""Parts that are left out in turn, for the acceleration of metrics that are neither means nor sums over bins."""

MEANS = ("accuracy", "nll", "brier", "top_brier")
"""Means of one number per sample, whose distribution is known in closed form."""
PER_SAMPLE = {name: per_sample for name in MEANS if (per_sample := METRICS[name].per_sample) is not None}

BINNED: dict[str, Callable[[Scored], NDArray[np.intp]]] = {
    "ece": lambda scored: equal_width(scored.confidence, N_BINS),
    "adaptive_ece": lambda scored: equal_mass(scored.confidence, N_BINS, scored.weights),
}
"""Σ_b |Σ w (correct − confidence)| over these bins."""


@dataclass(frozen=True)
class Replicates:
    """A metric of the sample, and of its resamples."""

    value: float
    drawn: Vector
    acceleration: float
    """Σu³ / 6(Σu²)^1.5 of the samples' influence u; how fast the spread changes with the value."""

    def interval(self, method: str, level: float = CONFIDENCE_LEVEL) -> Interval:
        """``percentile``; or ``bca``, which corrects for bias and for skewness (Efron 1987)."""
        tails = np.array([(1 - level) / 2, (1 + level) / 2])
        if method not in {"percentile", "bca"}:
            raise InputError(f"method is percentile or bca; got {method!r}")
        if method == "bca":
            below = np.count_nonzero(self.drawn < self.value) + np.count_nonzero(self.drawn == self.value) / 2
            shift = NORMAL.inv_cdf(min(max(below / len(self.drawn), 1 / len(self.drawn)), 1 - 1 / len(self.drawn)))
            shifted = shift + np.array([NORMAL.inv_cdf(t) for t in tails])
            tails = np.array([NORMAL.cdf(shift + z / (1 - self.acceleration * z)) for z in shifted])
        low, high = np.quantile(self.drawn, tails)
        return Interval(float(low), float(high), self.value, method)


def bootstrap(
    scored: Scored,
    names: Sequence[str],
    *,
    strata: NDArray[np.intp] | None = None,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> dict[str, Replicates]:
    """Replicates of the named metrics, from the same resamples; inside ``strata`` if given."""
    rows = unit_rows(scored)
    sample = take_units(scored, rows)
    measure = ResampledMetrics.from_sample(sample, names)
    codes = None if strata is None else strata[rows]
    drawn = np.concatenate([measure(counts) for counts in resamples(sample, codes, n_replicates, seed)])
    values = {name: METRICS[name].value(scored) for name in names}
    return {name: Replicates(values[name], drawn[:, k], _acceleration(sample, name)) for k, name in enumerate(names)}


def resamples(sample: Scored, strata: NDArray[np.intp] | None, n_replicates: int, seed: int) -> Iterator[Vector]:
    """The count of each sample in each resample, in blocks of shape (n_resamples, n_samples)."""
    rng = np.random.default_rng(seed)
    n = len(sample.weights)
    parts = [np.arange(n)] if strata is None else [np.flatnonzero(strata == s) for s in np.unique(strata)]
    step = max(1, BLOCK_COUNTS // n)
    for start in range(0, n_replicates, step):
        some = min(step, n_replicates - start)
        counts = np.zeros((some, n))
        for part in parts:
            counts[:, part] = _counts(rng, sample.weights[part], some)
        yield counts


def _counts(rng: np.random.Generator, weights: Vector, some: int) -> NDArray[np.intp]:
    n = len(weights)
    if not (weights == 1).all():
        return rng.multinomial(max(1, round(float(weights.sum()))), weights / weights.sum(), some)
    drawn = rng.integers(0, n, (some, n), dtype=np.int32) + np.arange(some, dtype=np.int64)[:, None] * n
    return np.bincount(drawn.ravel(), minlength=some * n).reshape(some, n)


@dataclass(frozen=True)
class ResampledMetrics:
    """The named metrics of many resamples at once."""

    sample: Scored
    names: tuple[str, ...]
    linear: Vector
    """Columns whose products with counts are the sums that means and binned metrics are made of."""
    columns: dict[str, slice]

    @classmethod
    def from_sample(cls, sample: Scored, names: Sequence[str]) -> ResampledMetrics:
        """Prepare the columns."""
        columns, blocks, used = {}, [], 0
        for name in names:
            block = _columns(sample, name)
            if block is not None:
                blocks.append(block)
                columns[name] = slice(used, used + block.shape[1])
                used += block.shape[1]
        linear = np.concatenate(blocks, axis=1) if blocks else np.zeros((len(sample.weights), 0))
        return cls(sample, tuple(names), linear, columns)

    def __call__(self, counts: Vector) -> Vector:
        """Shape (n_resamples, n_metrics)."""
        out = self.from_column_means(counts @ self.linear / counts.sum(axis=1, keepdims=True))
        for k, name in enumerate(self.names):
            if name not in self.columns:
                out[:, k] = [METRICS[name].value(replace(self.sample, weights=row)) for row in counts]
        return out

    def from_column_means(self, means: Vector) -> Vector:
        """The metrics that depend on column means alone, shape (some, n_columns) -> (some, n_metrics); others NaN."""
        out = np.full((len(means), len(self.names)), np.nan)
        for k, name in enumerate(self.names):
            if name in self.columns:
                own = means[:, self.columns[name]]
                out[:, k] = own[:, 0] if name in PER_SAMPLE else np.abs(own).sum(axis=1)
        return out


def _columns(sample: Scored, name: str) -> Vector | None:
    if name in PER_SAMPLE:
        return PER_SAMPLE[name](sample)[:, None]
    if name in BINNED:
        bins = BINNED[name](sample)
        gaps = np.zeros((len(bins), N_BINS))
        gaps[np.arange(len(bins)), bins] = sample.correct - sample.confidence
        return gaps
    return None


def _acceleration(sample: Scored, name: str) -> float:
    w = sample.weights
    if name in PER_SAMPLE:
        influence = PER_SAMPLE[name](sample)
    elif name in BINNED:
        bins, d = BINNED[name](sample), sample.correct - sample.confidence
        influence = np.sign(np.bincount(bins, w * d, N_BINS))[bins] * d
    else:
        parts = np.arange(len(w)) % min(JACKKNIFE_GROUPS, len(w))
        left_out = [
            METRICS[name].value(replace(sample, weights=np.where(parts == k, 0, w))) for k in range(parts.max() + 1)
        ]
        influence, w = -np.array(left_out), np.ones(len(left_out))
    u = influence - w @ influence / w.sum()
    spread = float(w @ u**2)
    return float(w @ u**3) / (6 * spread**1.5) if spread > 0 else 0.0
