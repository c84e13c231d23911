"""The calibration set as a cascade reads it: rows in an order of their own, cut into blocks that lie in one fold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rhocal.calibrators.cascade.scores import BaseScores, base_scores
from rhocal.calibrators.folds import confidence_codes, sort_keys
from rhocal.numerics.numpy_ops import NumpyOps
from rhocal.numerics.special import largest, row_max
from rhocal.numerics.threads import in_threads, row_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from rhocal.calibrators.scale.scale_search import ScaleSearch
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.ops import Value
    from rhocal.numerics.special import Floats, Vector

R = TypeVar("R")

MAX_DOUBLE_CLASSES = 30
"""Up to so many classes, as the kernel has, blocks are in double precision: whitening a kernel costs half of the digits."""

MAX_KEPT_ENTRIES = 1 << 24
"""Entries (64 MiB) of features that are kept between passes; beyond, each pass computes them again."""

MIN_SHARED_ENTRIES = 1 << 18
"""From so many logits on blocks are shared among threads."""

N_SHARES = 4
"""Sums that blocks are added to: a number of its own, because the number of threads must not change a result."""


class BlockOps(NumpyOps):
    """Operations on blocks of a calibration set, in its type; matrix products by BLAS."""

    def matmul(self, x: Value, weight: Value) -> Value:
        return x @ weight

    def top(self, x: Value, k: int) -> Value:
        return largest(x, k).astype(self.dtype)


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of one fold."""

    number: int
    fold: int
    rows: slice
    """Their places in the order of ``Samples``."""
    labels: NDArray[np.intp]
    weights: Floats

    @property
    def label_entries(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The places of the labels in an array of the block."""
        return np.arange(len(self.labels)), self.labels


class Sums(dict[Any, Any]):
    """Arrays by name, added up."""

    def add(self, name: Any, value: Any) -> None:
        """Add to the sum of a name."""
        self[name] = self[name] + value if name in self else value

    def merge(self, other: Mapping[Any, Any]) -> None:
        """Add other sums."""
        for name, value in other.items():
            self.add(name, value)


class Samples:
    """Samples with weight, ordered by fold, class, correctness and confidence: their order in the data changes nothing."""

    def __init__(self, data: Predictions, search: ScaleSearch, n_folds: int) -> None:
        assert data.labels is not None
        counts = data.counts
        codes = confidence_codes(search, n_folds)
        order = np.lexsort([*sort_keys(search)[::-1], codes])
        self.order = order[counts[order] > 0]
        """The rows of the data, as they are ordered here."""
        self.logits = data.logits
        self.labels, self.weights, self.folds = data.labels[self.order], counts[self.order], codes[self.order]
        self.n_folds, self.n_classes, self.total_weight = n_folds, data.n_classes, float(counts.sum())
        self.ops = BlockOps(np, np.float64 if data.n_classes <= MAX_DOUBLE_CLASSES else np.float32)
        self.blocks = self._blocks()
        self.parameters = {"scale": float(np.exp(search.log_scale)), "mix": 1 / (self.total_weight + 1)}
        self.parameters["n_classes"] = float(self.n_classes)
        self._kept: dict[int, BaseScores] = {}

    def _blocks(self) -> list[Block]:
        ends = np.searchsorted(self.folds, np.arange(self.n_folds + 1))
        blocks: list[Block] = []
        for fold in range(self.n_folds):
            for rows in row_blocks(int(ends[fold + 1] - ends[fold]), self.n_classes):
                place = slice(int(ends[fold]) + rows.start, int(ends[fold]) + rows.stop)
                weights = self.weights[place].astype(self.ops.dtype)
                blocks.append(Block(len(blocks), fold, place, self.labels[place], weights))
        return blocks

    def cast(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters with their arrays in the type of the blocks."""
        return {
            name: value.astype(self.ops.dtype) if isinstance(value, np.ndarray) else value
            for name, value in parameters.items()
        }

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self.order) * self.n_classes

    def scores(self, block: Block) -> BaseScores:
        """The base scores of a block."""
        if block.number in self._kept:
            return self._kept[block.number]
        logits = self.logits[self.order[block.rows]]
        logits = (logits - row_max(logits)[:, None]).astype(self.ops.dtype)  # a mean of 500 would cost digits
        scores = base_scores(self.ops, self.parameters, logits)
        if 3 * self.size <= MAX_KEPT_ENTRIES:
            self._kept[block.number] = scores
        return scores

    def each(self, work: Callable[[Block], R]) -> list[R]:
        """The results of every block, in order."""
        if self.size < MIN_SHARED_ENTRIES:
            return [work(block) for block in self.blocks]
        return in_threads(work, self.blocks)

    def sums(self, work: Callable[[Block, Sums], None]) -> Sums:
        """What ``work`` adds up over all blocks."""
        n_shares = 1 if self.size < MIN_SHARED_ENTRIES else N_SHARES

        def share(k: int) -> Sums:
            part = Sums()
            for block in self.blocks[k::n_shares]:
                work(block, part)
            return part

        total = Sums()
        for part in in_threads(share, range(n_shares)):
            total.merge(part)
        return total

    def row_values(self, read: Callable[[Block], Floats]) -> Vector:
        """One row of numbers for each sample, in the order here."""
        return np.concatenate([np.asarray(part, np.float64) for part in self.each(read)])
