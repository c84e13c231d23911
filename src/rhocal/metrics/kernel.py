"""Kernel calibration errors: over pairs of samples.

With a Laplacian kernel on the confidence the sum over all pairs takes one sort. With a kernel on whole distributions it takes
all pairs, in blocks; beyond a stated size samples are divided into random groups and only pairs within a group count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import InputError
from rhocal.numerics.bins import TIE_DECIMALS, bin_totals
from rhocal.numerics.special import log_gamma

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.bins import BinSums
    from rhocal.numerics.special import Vector

MAX_SAMPLES_ALL_PAIRS = 8192
"""Up to this many samples every pair counts."""

GROUP_SIZE = 512
"""Samples per group beyond it: the time is then n · GROUP_SIZE · n_classes."""

KDE_GROUP_SIZE = 2048
"""The same for the Dirichlet kernel, whose estimate is not a sum over pairs: its groups are as large as this."""

N_BANDWIDTH_GROUPS = 2
"""Groups on which the bandwidth is chosen."""

BANDWIDTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Bandwidths of the Dirichlet kernel from which the likelihood of held-out samples chooses."""


def laplacian_sum(x: Vector, r: Vector, bandwidth: float) -> float:
    """Σ_ij r_i r_j exp(−|x_i − x_j| / bandwidth) for ascending x, in one pass.

    Each pair is exp(−x_i/b)·exp(x_j/b) with x_j ≤ x_i, so a running sum does; it starts anew, scaled, before exp overflows.
    """
    total, carried, start = float(r @ r), 0.0, 0
    while start < len(x):
        stop = int(np.searchsorted(x, x[start] + 500 * bandwidth, side="right"))
        grown = np.exp((x[start:stop] - x[start]) / bandwidth)
        before = carried + np.r_[0.0, np.cumsum(r[start:stop] * grown)]
        total += 2 * float((r[start:stop] / grown) @ before[:-1])
        if stop < len(x):
            carried = float(before[-1] * np.exp((x[start] - x[stop]) / bandwidth))
        start = stop
    return total


def mmce(ranked: BinSums, *, bandwidth: float = 0.4) -> float:
    """Maximum mean calibration error: sqrt(mean over all pairs of d_i d_j exp(−|c_i − c_j| / bandwidth)), d = correct − c."""
    pairs = laplacian_sum(ranked.mean, ranked.correct - ranked.confidence, bandwidth)
    return float(np.sqrt(max(pairs, 0.0)) / ranked.weight.sum())


def top_skce(scored: Scored, *, bandwidth: float = 0.4) -> float:
    """Squared kernel calibration error of the confidence, unbiased: the mean of MMCE's terms over pairs of two samples."""
    ranked, weight = scored.ranked, float(scored.weights.sum())
    _needs_two(weight, "top_skce")
    d = scored.correct - scored.confidence
    pairs = laplacian_sum(ranked.mean, ranked.correct - ranked.confidence, bandwidth)
    return (pairs - float(scored.weights @ d**2)) / (weight * (weight - 1))


def _needs_two(weight: float, name: str) -> None:
    if weight < 2 * (1 - 1e-9):  # below it the divisor, W (W - 1), says nothing of pairs
        raise InputError(
            f"{name} needs pairs of samples; the weights, which count copies, sum to {weight:g}. "
            "Pass at least two samples, or weights that are counts"
        )


def divide(scored: Scored, max_size: int, group_size: int) -> Iterator[tuple[NDArray[np.intp], Vector]]:
    """Rows and weights of one group of all samples if they are few, else of random groups of about equal size.

    The group is a hash of the sample's probabilities, not of its label: independent of calibration, the same in any order of
    the samples, and equal for samples with the same probabilities. A group with too many copies is reduced to distinct
    samples with the weight of all.
    """
    rows = np.flatnonzero(scored.weights > 0)
    if len(rows) <= max_size:
        yield rows, scored.weights[rows]
        return
    mixed = probability_hash(scored)[rows]
    n_distinct = len(np.unique(mixed))
    n_groups = 1 if n_distinct <= max_size else -(-n_distinct // group_size)
    group = (mixed % np.uint64(n_groups)).astype(np.intp)
    order = np.argsort(group, kind="stable")
    for members in np.split(rows[order], np.searchsorted(group[order], np.arange(1, n_groups))):
        yield _without_copies(scored, members) if len(members) > max_size else (members, scored.weights[members])


def probability_hash(scored: Scored) -> NDArray[np.uint64]:
    """A number for every sample that is equal for equal probabilities, whatever the labels are."""
    direction = np.random.default_rng(0).random(scored.source.n_classes)
    mixed = np.zeros(scored.n_samples, np.uint64)
    for part in (
        scored.confidence,
        scored.sum_squares,
        scored.over_classes(lambda p: np.einsum("ij,j->i", p, direction)),
    ):
        mixed = (mixed ^ np.round(part, TIE_DECIMALS - 2).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(31)
    return mixed


def _without_copies(scored: Scored, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], Vector]:
    """The first of every set of equal samples, with the weight of all."""
    key = np.column_stack([scored.source.logits[rows], scored.labels[rows]])
    _, first, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
    return rows[first], bin_totals(inverse.reshape(-1), scored.weights[rows])


def skce(scored: Scored, *, bandwidth: float = 0.5) -> float:
    """Squared kernel calibration error of the whole distribution, unbiased.

    The mean over pairs of two samples of k(p, p′)·(e_y − p)·(e_y′ − p′), k(p, p′) = exp(−‖p − p′‖² / (2·bandwidth²)).
    Beyond 8,192 samples the mean is over pairs within random groups of 512. Samples with the same probabilities are in one
    group; their pairs, which are always there, count once, the others as often as there are groups: it is unbiased too.
    """
    _needs_two(float(scored.weights.sum()), "skce")
    groups = list(divide(scored, MAX_SAMPLES_ALL_PAIRS, GROUP_SIZE))
    hashes = probability_hash(scored) if len(groups) > 1 else None
    total = 0.0
    for rows, weights in groups:
        p, y = scored.probs(rows), scored.labels[rows]
        within = _pairs(p, y, weights, bandwidth)[0]
        tied = 0.0 if hashes is None else _tied_pairs(p, y, weights, hashes[rows])
        total += tied + len(groups) * (within - tied)
    weight = float(scored.weights.sum())
    return total / (weight * (weight - 1))


def _tied_pairs(p: Vector, y: NDArray[np.intp], w: Vector, hashes: NDArray[np.uint64]) -> float:
    """Σ over pairs of two samples with the same probabilities, for which k = 1."""
    order = np.argsort(hashes, kind="stable")
    off = -p[order]
    off[np.arange(len(p)), y[order]] += 1
    starts = np.flatnonzero(np.diff(hashes[order], prepend=hashes[order[0]] ^ np.uint64(1)))
    sums = np.add.reduceat(w[order][:, None] * off, starts, axis=0)
    return float((sums**2).sum() - w[order] @ np.einsum("ij,ij->i", off, off))


def _pairs(p: Vector, y: NDArray[np.intp], w: Vector, bandwidth: float) -> tuple[float, float]:
    """Σ over pairs of two samples, and how many there are; a weight of 3 is 3 samples."""
    off = -p
    off[np.arange(len(p)), y] += 1
    square = np.einsum("ij,ij->i", p, p)
    total = 0.0
    step = max(1, (1 << 21) // len(p))
    for start in range(0, len(p), step):
        part = slice(start, min(start + step, len(p)))
        away = square[part, None] + square[None, start:] - 2 * p[part] @ p[start:].T
        terms = off[part] @ off[start:].T
        terms *= np.exp(np.maximum(away, 0) / (-2 * bandwidth**2))
        n = part.stop - start
        inner, outer = terms[:, :n], terms[:, n:]
        total += float(w[part] @ inner @ w[part] + 2 * (w[part] @ outer @ w[part.stop :]))
    alone = np.einsum("ij,ij->i", off, off)
    return float(total - w @ alone), float(w.sum() ** 2 - w.sum())


def kde_ce(scored: Scored, *, power: float = 1, bandwidth: float | None = None) -> float:
    """Canonical calibration error by a Dirichlet kernel: (mean ‖E[y | p] − p‖_power^power)^(1/power).

    E[y | p] is estimated from the other samples with weights Dir(p; p_i/bandwidth + 1); the bandwidth, unless given, is the one
    under which the other samples make each sample most likely. Beyond 2,048 samples: in random groups, mean over them.
    """
    _needs_two(float(scored.weights.sum()), "kde_ce")
    if power == np.inf:
        raise InputError("power must be finite for kde_ce; got inf")
    groups = list(divide(scored, KDE_GROUP_SIZE, KDE_GROUP_SIZE))
    if bandwidth is None:
        kernels = [_Dirichlet(scored, *group) for group in groups[:N_BANDWIDTH_GROUPS]]
        bandwidth = max(BANDWIDTHS, key=lambda h: sum(table.likelihood(h) for table in kernels))
    total = sum(_Dirichlet(scored, *group).error(bandwidth, power) for group in groups)
    return float((total / scored.weights.sum()) ** (1 / power))


class _Dirichlet:
    """The Dirichlet kernel between the samples of one group."""

    def __init__(self, scored: Scored, rows: NDArray[np.intp], weights: Vector) -> None:
        self.p, self.y, self.w = scored.probs(rows), scored.labels[rows], weights

    def log_kernel(self, bandwidth: float) -> Vector:
        """The log of w_i Dir(p_j; p_i/h + 1) in row j and column i; a sample is no evidence about itself, its copies are."""
        log_p = np.log(np.maximum(self.p, 1e-30))
        n_classes = self.p.shape[1]
        constant = log_gamma(np.array([1 / bandwidth + n_classes])) - log_gamma(self.p / bandwidth + 1).sum(axis=1)
        with np.errstate(divide="ignore"):
            table = (log_p / bandwidth) @ self.p.T + constant + np.log(self.w)
            table[np.diag_indices_from(table)] += np.log(np.maximum(self.w - 1, 0) / self.w)
        return table

    def likelihood(self, bandwidth: float) -> float:
        """Σ_j w_j log of the density that the others give sample j."""
        table = self.log_kernel(bandwidth)
        top = table.max(axis=1)
        if not np.isfinite(top).all():
            return -np.inf
        return float(self.w @ (top + np.log(np.exp(table - top[:, None]).sum(axis=1))))

    def error(self, bandwidth: float, power: float) -> float:
        """Σ_j w_j ‖E[y | p_j] − p_j‖^power."""
        table = self.log_kernel(bandwidth)
        table -= table.max(axis=1, keepdims=True)
        np.exp(table, out=table)
        expected = np.zeros_like(self.p)
        for k in np.unique(self.y):
            expected[:, k] = table[:, self.y == k].sum(axis=1)
        expected /= expected.sum(axis=1, keepdims=True)
        return float(self.w @ (np.abs(expected - self.p) ** power).sum(axis=1))
