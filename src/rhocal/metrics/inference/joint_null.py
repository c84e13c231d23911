"""One null distribution for every test: labels drawn from the model's own probabilities (``label_draws.py``).

A replicate gives a path of the top label (``null.py``), of two classes also a path of the positive class, of more classes sums
over (class, bin of probability), and labels of a few samples for the canonical test. Every statistic is computed on the
samples and on the same replicates, so that p-values can be combined without a correction that assumes the worst.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference.defaults import N_REPLICATES
from rhocal.metrics.inference.label_draws import draw_counts, draw_labels, probabilities
from rhocal.metrics.inference.null import CumulativeDifferences
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import N_BINS, bin_totals, equal_width
from rhocal.numerics.caching import cached_property

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Vector

N_DRAWS = 499
"""Replicates unless another number of resamples is asked for: the smallest p-value is .002."""
MAX_DRAWN_SAMPLES = 1 << 20
MAX_DRAWN_ENTRIES = 1 << 25
"""Samples, and probabilities, up to which every label is drawn. Beyond, class-level tests are those of a random subsample; the
top label of the other samples is drawn in cells of neighbors."""
MAX_PLACES = 20_000
"""Sums over (class, bin) in memory for each replicate: with more than 2,000 classes there are fewer bins."""
N_CANONICAL = 96
"""Samples of the canonical test, whose time grows with their square."""
CANONICAL_BANDWIDTH = 0.5
PRIOR_VARIANCE = 0.25
"""Added to the variance of a sum before it is standardized: one label where 1/1000 was expected is not 30 deviations away."""


def draws_for(n_replicates: int) -> int:
    """The number of draws: as many as resamples, where their number is not the default."""
    return N_DRAWS if n_replicates == N_REPLICATES else n_replicates


@dataclass(frozen=True, eq=False)
class ClassTotals:
    """Observed − expected labels of every class and bin of probability, on the samples and in every replicate."""

    observed: Vector
    """n_classes × n_bins, in samples."""
    drawn: Vector
    """n_replicates × n_classes × n_bins."""
    expected: Vector
    """Labels that the probabilities expect: n_classes × n_bins."""
    class_variance: Vector
    """Of the difference of a class, if the model is perfectly calibrated."""
    class_squares: Vector
    """Σ (label is the class − probability)² of every class: the variance whether the model is calibrated or not."""
    n_labels: Vector
    total: float
    """Samples, or their weight."""

    @cached_property
    def by_class(self) -> Vector:
        """Standardized difference of each class, the samples in the first row, replicates below."""
        total = np.concatenate([self.observed[None], self.drawn]).sum(axis=2)
        return np.asarray(total / np.sqrt(self.class_variance + PRIOR_VARIANCE))


@dataclass(frozen=True, eq=False)
class JointNull:
    """What the samples and the replicates of a perfectly calibrated model give, the samples in the first row."""

    top: CumulativeDifferences
    top_paths: Vector
    positive: CumulativeDifferences | None = None
    """Of two classes: the samples in order of the probability of the positive one."""
    positive_paths: Vector | None = None
    classes: ClassTotals | None = None
    canonical: Vector | None = None
    """The squared kernel calibration error of a few samples."""
    n_class_samples: int = 0
    """Samples of the class-level tests."""


def joint_null(
    scored: Scored,
    n_draws: int,
    seed: int,
    *,
    rows: Predictions | None = None,
    index: NDArray[np.intp] | None = None,
    top_only: bool = False,
) -> JointNull:
    """Draw labels of samples. ``rows`` are their probabilities, by default the samples' own; of a stream that is too long to
    keep, those of the samples ``index`` only. Without any, only the top label is drawn; with ``top_only`` its draws are the
    same as without, and nothing else is computed.
    """  # noqa: D205
    top = CumulativeDifferences.from_scored(scored)
    data = rows if rows is not None else scored.source if scored.has_probs else None
    if data is None or data.of_answers:
        paths = top.with_simulated(n_draws, seed)
        return (
            JointNull(top, paths) if data is None else JointNull(top, paths, top, paths, n_class_samples=len(top.units))
        )
    assert data.labels is not None
    chosen = _chosen(top, data, index, seed)
    row = top.units[chosen] if index is None else np.searchsorted(index, top.units[chosen])
    if top_only:
        shape = (len(top.ends), 1, n_draws)
        scale = None if top.scale is None else top.scale[chosen]

        def place(_: slice, probs: Vector) -> NDArray[np.int64]:
            return np.zeros(probs.shape, np.int64)

        counts = draw_counts(data.logits, row, chosen, top.cells[chosen], place, shape, scale=scale, seed=seed)
        return JointNull(top, _top_paths(top, counts.right, chosen, seed))
    if data.n_classes == 2:
        return _two_classes(top, data, chosen, row, n_draws, seed)
    return _many_classes(top, data, chosen, row, n_draws, seed)


def _chosen(
    top: CumulativeDifferences, data: Predictions, index: NDArray[np.intp] | None, seed: int
) -> NDArray[np.intp]:
    """Positions in the canonical order whose labels are drawn from all probabilities."""
    known = np.arange(len(top.units)) if index is None else np.flatnonzero(np.isin(top.units, index))
    room = min(MAX_DRAWN_SAMPLES, MAX_DRAWN_ENTRIES // data.n_classes)
    if len(known) <= room:
        return known
    return np.sort(np.random.default_rng([seed, 1]).choice(known, room, replace=False))


def _two_classes(
    top: CumulativeDifferences,
    data: Predictions,
    chosen: NDArray[np.intp],
    row: NDArray[np.intp],
    n_draws: int,
    seed: int,
) -> JointNull:
    """The positive class in order of its probability: bins, Kuiper's statistic and slopes are functions of its path."""
    assert data.labels is not None
    column = data.positive_column
    position = np.unique(row)
    view = _Positive.from_rows(data, position, column)
    weights = np.ones(len(chosen)) if top.exact else top.weights[chosen]
    totals = bin_totals(np.searchsorted(position, row), weights, len(position))
    scale = None if top.scale is None else top.scale[chosen]
    of_row = None if scale is None else bin_totals(np.searchsorted(position, row), scale, len(position))
    path = CumulativeDifferences.from_scored(view.scored(totals, of_row), exact=top.exact)
    place_of_row = np.empty(len(position), np.int64)
    place_of_row[path.units] = path.cells  # copies share a cell
    places = place_of_row[np.searchsorted(position, row)]

    def place(part: slice, _: Vector) -> NDArray[np.int64]:
        there = np.full((len(places[part]), 2), len(path.ends), np.int64)
        there[:, column] = places[part]
        return there

    shape = (len(top.ends), len(path.ends) + 1, n_draws)
    counts = draw_counts(data.logits, row, chosen, top.cells[chosen], place, shape, scale=scale, seed=seed)
    drawn = path.paths(counts.drawn[:-1].T)
    return JointNull(
        top,
        _top_paths(top, counts.right, chosen, seed),
        path,
        np.concatenate([path.observed[None], drawn]),
        n_class_samples=len(chosen),
    )


@dataclass(frozen=True)
class _Positive:
    probability: Vector
    label: Vector

    @classmethod
    def from_rows(cls, data: Predictions, rows: NDArray[np.intp], column: int) -> _Positive:
        assert data.labels is not None
        return cls(probabilities(data.logits[rows])[:, column], (data.labels[rows] == column).astype(np.float64))

    def scored(self, weights: Vector, draw_scale: Vector | None) -> Scored:
        zeros = np.zeros(len(weights))  # what orders samples besides; nothing reads it
        return Scored(self.probability, self.label, zeros, zeros, weights, draw_scale=draw_scale)


def _many_classes(
    top: CumulativeDifferences,
    data: Predictions,
    chosen: NDArray[np.intp],
    row: NDArray[np.intp],
    n_draws: int,
    seed: int,
) -> JointNull:
    scale = None if top.scale is None else top.scale[chosen]
    weights = np.ones(len(chosen)) if top.exact else top.weights[chosen]
    assert data.labels is not None
    sums = _ClassSums(data.n_classes, data.labels[row], weights, scale)
    shape = (len(top.ends), sums.n_classes * sums.n_bins, n_draws)
    counts = draw_counts(data.logits, row, chosen, top.cells[chosen], sums.add, shape, scale=scale, seed=seed)
    return JointNull(
        top,
        _top_paths(top, counts.right, chosen, seed),
        classes=sums.totals(counts.drawn),
        canonical=_canonical(data, chosen, row, _chances(top, chosen), n_draws, seed),
        n_class_samples=len(chosen),
    )


class _ClassSums:
    """Sums over (class, bin of probability) of the samples whose labels are drawn, block by block."""

    def __init__(self, n_classes: int, labels: NDArray[np.intp], weights: Vector, scale: Vector | None) -> None:
        self.n_classes, self.n_bins = n_classes, max(1, min(N_BINS, MAX_PLACES // n_classes))
        self.labels, self.weights, self.scale = labels, weights, scale
        n_places = n_classes * self.n_bins
        self.expected, self.drawn_expected, self.observed = (np.zeros(n_places) for _ in range(3))
        """Labels that the samples expect, that the draws expect (they add their scale), and that are there."""
        self.variance, self.squares, self.n_labels = (np.zeros(n_classes) for _ in range(3))

    def add(self, part: slice, p: Vector) -> NDArray[np.int64]:
        """Add the samples of a block; returned is the place of each class."""
        m, n_places = self.n_classes, len(self.expected)
        place = np.arange(m) * self.n_bins + equal_width(p, self.n_bins)
        flat, w, label = place.ravel(), self.weights[part], self.labels[part]
        weighted = w[:, None] * p
        self.expected += np.bincount(flat, weighted.ravel(), n_places)
        if self.scale is not None:
            self.drawn_expected += np.bincount(flat, (self.scale[part][:, None] * p).ravel(), n_places)
        second = np.einsum("ij,ij->j", weighted, p)
        rows = np.arange(len(label))
        self.variance += weighted.sum(axis=0) - second
        self.squares += second + np.bincount(label, w * (1 - 2 * p[rows, label]), m)
        self.n_labels += np.bincount(label, w, m)
        self.observed += np.bincount(place[rows, label], w, n_places)
        return place

    def totals(self, drawn: Vector) -> ClassTotals:
        """Observed − expected of the samples and of the draws."""
        shape = self.n_classes, self.n_bins
        expected = self.expected if self.scale is None else self.drawn_expected
        return ClassTotals(
            (self.observed - self.expected).reshape(shape),
            (drawn - expected[:, None]).T.reshape(-1, *shape),
            self.expected.reshape(shape),
            self.variance,
            self.squares,
            self.n_labels,
            float(self.weights.sum()),
        )


def _top_paths(top: CumulativeDifferences, right: Vector, chosen: NDArray[np.intp], seed: int) -> Vector:
    """The observed path and those of the replicates; samples that were not drawn from all probabilities are drawn in cells."""
    sums = right.T
    if len(chosen) < len(top.units):
        rest = np.ones(len(top.units), bool)
        rest[chosen] = False
        sums = sums + top.draw_cells(np.random.default_rng([seed, 2]), len(sums), rest)
    return np.concatenate([top.observed[None], top.paths(sums)])


def _chances(top: CumulativeDifferences, chosen: NDArray[np.intp]) -> Vector | None:
    """The chance of each sample to be among the few of the canonical test, all NaN if there is no such test; None: equal.

    Weights that correct a selection are chances: a sample drawn by them is one of those that they stand for. Shares of samples
    (clusters, weights of another kind) leave dependent samples among the few.
    """
    if top.exact:
        return None
    weights = top.weights[chosen]
    if top.draw_scale is None or not np.array_equal(top.draw_scale[chosen], weights):
        return np.full(len(chosen), np.nan)
    return weights / weights.sum()


def _canonical(
    data: Predictions,
    chosen: NDArray[np.intp],
    row: NDArray[np.intp],
    chances: Vector | None,
    n_draws: int,
    seed: int,
) -> Vector | None:
    """Σ_ij k(p_i, p_j)(e_y − p)_i·(e_y − p)_j over pairs of a random few samples; k is Gaussian."""
    if len(chosen) < 2 or (chances is not None and np.isnan(chances).any()):
        return None
    assert data.labels is not None
    rng, n_few = np.random.default_rng([seed, 3]), min(N_CANONICAL, len(chosen))
    few = np.sort(rng.choice(len(chosen), n_few, replace=chances is not None, p=chances))
    p = probabilities(data.logits[row[few]])
    labels = np.column_stack([data.labels[row[few]], draw_labels(p, chosen[few], n_draws, seed)])
    square = np.einsum("ij,ij->i", p, p)
    distance = np.maximum(square[:, None] + square - 2 * p @ p.T, 0)
    kernel = np.exp(-distance / (2 * CANONICAL_BANDWIDTH**2))
    np.fill_diagonal(kernel, 0)  # pairs of two samples: the diagonal depends on one label only
    cross = np.take_along_axis(kernel @ p, labels, axis=1).sum(axis=0)
    kernel32 = kernel.astype(np.float32)
    same = np.array([float(kernel32[y[:, None] == y].sum()) for y in labels.T.astype(np.int32)])
    return same - 2 * cross + float(np.sum(kernel * (p @ p.T)))
