"""Labels drawn from a model's own probabilities, added up in cells: one set of draws for every test of calibration.

A perfectly calibrated model is one whose labels are distributed as its probabilities say. Each replicate draws a label for
every sample. The draws are added up twice: those of the top class by cells of confidence, all of them by places of (class,
cell). Random numbers depend on the place of a sample in the canonical order and on the replicate, so neither blocks, threads
nor the order of the input change them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics import kernels
from rhocal.numerics.special import softmax
from rhocal.numerics.threads import row_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rhocal.numerics.special import Floats, Vector

BLOCK_ENTRIES = 1 << 20
"""Probabilities handled at a time."""
NUMPY_DRAWS = 1 << 21
"""Random numbers in memory at a time where NumPy draws."""
GOLDEN, MIX_1, MIX_2 = (np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True)
class DrawnCounts:
    """Draws added up, one column for each replicate."""

    right: Vector
    """Draws of the top class in every cell: n_cells × n_replicates."""
    drawn: Vector
    """Draws at every place: n_places × n_replicates."""


def draw_counts(
    logits: Floats,
    rows: NDArray[np.intp],
    position: NDArray[np.intp],
    cell: NDArray[np.intp],
    place: Callable[[slice, Vector], NDArray[np.int64]],
    shape: tuple[int, int, int],
    *,
    scale: Vector | None,
    seed: int,
) -> DrawnCounts:
    """Draw labels of samples from the softmax of their logits.

    ``rows`` are the row of every sample, ``position`` its number in the canonical order, ``cell`` its cell of confidence;
    ``place`` gives the place of each class for samples in a slice with these probabilities; ``shape`` is (n_cells, n_places,
    n_replicates). A draw adds ``scale``, without it 1.
    """
    n_cells, n_places, n_replicates = shape
    sums = np.zeros((n_cells + n_places, n_replicates))
    keys = sample_keys(position, seed)
    for part in row_blocks(len(rows), logits.shape[1], BLOCK_ENTRIES):
        probs = probabilities(logits[rows[part]])
        first = probs.argmax(axis=1)
        levels, top = cumulative_levels(probs, first)
        index = np.stack([first, keys[part].view(np.int64), cell[part]], axis=1).astype(np.int64)
        here = n_cells + place(part, probs)
        weight = None if scale is None else scale[part]
        if not kernels.add_draws(sums, levels, top, index, here, weight):
            _add_in_numpy(sums, levels, top, index, here, weight)
    return DrawnCounts(sums[:n_cells], sums[n_cells:])


def probabilities(logits: Floats) -> Vector:
    """The softmax of logits in double precision."""
    return np.asarray(softmax(logits.astype(np.float64)), np.float64)


def sample_keys(position: NDArray[np.intp], seed: int) -> NDArray[np.uint64]:
    """The keys of random numbers: splitmix64 of the position in the canonical order."""
    start = np.uint64(np.random.default_rng(seed).integers(1 << 63))
    return _mixed(start + position.astype(np.uint64) * GOLDEN)


def uniform_numbers(keys: NDArray[np.uint64], n_replicates: int) -> Vector:
    """The random number of every sample and replicate in [0, 1)."""
    steps = (np.arange(n_replicates, dtype=np.uint64) + np.uint64(1)) * GOLDEN
    return (_mixed(keys[:, None] + steps) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * MIX_1
    x = (x ^ (x >> np.uint64(27))) * MIX_2
    return x ^ (x >> np.uint64(31))


def cumulative_levels(probs: Vector, first: NDArray[np.intp]) -> tuple[Vector, Vector]:
    """Cumulative probabilities with the top class counted first, and its probability; no random number is above the last."""
    rows = np.arange(len(probs))
    top = probs[rows, first].copy()
    others = probs.copy()
    others[rows, first] = 0.0
    levels = np.cumsum(others, axis=1) + top[:, None]
    sure = top >= levels[:, -1]  # the others have no probability at all
    levels[levels >= levels[:, -1:]] = 2.0
    return levels, np.where(sure, 2.0, top)


def draw_labels(probs: Vector, position: NDArray[np.intp], n_replicates: int, seed: int) -> NDArray[np.intp]:
    """The labels themselves: n_samples × n_replicates, the same as those that ``draw_counts`` adds up."""
    first = probs.argmax(axis=1)
    levels, top = cumulative_levels(probs, first)
    return _labels(levels, top, first, uniform_numbers(sample_keys(position, seed), n_replicates))


def _labels(levels: Vector, top: Vector, first: NDArray[np.intp], uniform: Vector) -> NDArray[np.intp]:
    labels = np.empty(uniform.shape, np.intp)
    for k, (level, u) in enumerate(zip(levels, uniform, strict=True)):
        labels[k] = np.where(u < top[k], first[k], np.searchsorted(level, u, side="right"))
    return labels


def _add_in_numpy(
    sums: Vector,
    levels: Vector,
    top: Vector,
    index: NDArray[np.int64],
    place: NDArray[np.int64],
    scale: Vector | None,
) -> None:
    n_replicates = sums.shape[1]
    columns = np.arange(n_replicates)
    step = max(1, NUMPY_DRAWS // n_replicates)
    for start in range(0, len(levels), step):
        part = slice(start, start + step)
        first, keys, cell = index[part].T
        uniform = uniform_numbers(np.ascontiguousarray(keys).view(np.uint64), n_replicates)
        labels = _labels(levels[part], top[part], first, uniform)
        weight = np.ones(len(labels)) if scale is None else scale[part]
        for target, added in (
            (np.broadcast_to(cell[:, None], labels.shape), weight[:, None] * (labels == first[:, None])),
            (np.take_along_axis(place[part], labels, axis=1), np.broadcast_to(weight[:, None], labels.shape)),
        ):
            flat = (target * n_replicates + columns).ravel()
            sums += np.bincount(flat, added.ravel(), sums.size).reshape(sums.shape)
