"""Some samples of a stream: the pilot, which says what to read of all, and the subsample, for methods that need whole rows.

Both depend on the blocks and a seed alone, so that one process and a thousand draw the same samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rhocal.data.blocks import missing_labels, n_columns
from rhocal.data.predictions import Predictions, predictions
from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rhocal.data.stored import Chunk
    from rhocal.numerics.special import Vector

PILOT_ENTRIES = 1 << 23
"""Logits of the pilot: a fit on them finds the neighbourhood of the optimum."""

PILOT_SAMPLES = 400
"""A pilot has at least this many samples, however many classes there are."""

PILOT_PLACES = 8
"""Places of a file that the pilot comes from, so that an order of the samples does not matter."""

SUBSAMPLE_ENTRIES = 1 << 24
"""Logits that are kept in memory for methods that cannot stream: 64 MB in single precision, and several times that in a fit."""


class PilotRows(NamedTuple):
    """Some rows of a block as they were stored."""

    location: str
    scores: Any
    labels: Any


def pilot_blocks(n_blocks: int) -> list[int]:
    """Blocks that the pilot comes from: some, from all over."""
    return sorted({round(k) for k in np.linspace(0, n_blocks - 1, min(PILOT_PLACES, n_blocks))})


def pilot_size(logits: Any) -> int:
    """How many samples a pilot has."""
    return max(PILOT_SAMPLES, PILOT_ENTRIES // n_columns(logits))


def pilot_rows(chunk: Chunk, places: int) -> PilotRows:
    """What a block gives to a pilot that comes from so many places."""
    if chunk.labels is None:
        raise missing_labels()
    share = min(len(chunk.labels), -(-pilot_size(chunk.logits) // places))
    rows = np.arange(share) * len(chunk.labels) // share
    return PilotRows(chunk.where, np.asarray(chunk.logits)[rows], np.asarray(chunk.labels)[rows])


def pilot_of(taken: Sequence[PilotRows], spec: Mapping[str, Any]) -> Predictions:
    """The pilot from the parts of its blocks."""
    check_columns([(rows.location, n_columns(rows.scores)) for rows in taken])
    logits, labels = (np.concatenate([getattr(rows, name) for rows in taken]) for name in ("scores", "labels"))
    return predictions(logits, labels, **spec)


def check_columns(blocks: Sequence[tuple[str, int]]) -> None:
    """There is something, and all blocks have the same classes; a block is where it lies and how many it has."""
    if not blocks:
        raise InputError("the stream is empty: no block could be read")
    first, n = blocks[0]
    for where, other in blocks:
        if other != n:
            raise InputError(f"blocks differ in the number of classes: {first} has {n:,}, {where} has {other:,}")


def sampling_keys(block: int, n: int, seed: int = 0) -> Vector:
    """The number that each sample of a block draws; the smallest are in the subsample."""
    return np.random.default_rng((seed, block)).random(n)


def subsample_size(n_classes: int) -> int:
    """How many samples are kept for methods that cannot stream."""
    return max(PILOT_SAMPLES, SUBSAMPLE_ENTRIES // n_classes)


def threshold(sizes: Sequence[int] | None, n_classes: int) -> float:
    """The largest number that is in the subsample; 1 where the rows of the blocks are not known in advance.

    So each block knows by itself which of its rows are wanted.
    """
    room = subsample_size(n_classes)
    if sizes is None or sum(sizes) <= room:
        return 1.0
    drawn = np.concatenate([sampling_keys(k, n) for k, n in enumerate(sizes)])
    return float(np.partition(drawn, room - 1)[room - 1])


@dataclass(frozen=True)
class Drawn:
    """What a block gives to a subsample."""

    n: int
    """How many rows the block has."""
    numbers: Vector
    rows: NDArray[np.intp]
    logits: Any
    labels: Any
    weights: Vector

    @classmethod
    def of(cls, k: int, chunk: Chunk, largest: float) -> Drawn:
        """Those samples of a block that drew at most that number."""
        numbers = sampling_keys(k, len(chunk.labels))
        weights = np.ones(len(numbers)) if chunk.sample_weight is None else np.asarray(chunk.sample_weight)
        every = cls(len(numbers), numbers, np.arange(len(numbers)), np.asarray(chunk.logits), chunk.labels, weights)
        return every.where(numbers <= largest)

    def where(self, kept: NDArray[np.bool_]) -> Drawn:
        """Some of it."""
        if kept.all():
            return self
        arrays = (np.asarray(part)[kept] for part in (self.numbers, self.rows, self.logits, self.labels, self.weights))
        return Drawn(self.n, *arrays)


class Subsample:
    """The samples that drew the smallest numbers, as many as ``SUBSAMPLE_ENTRIES`` allows; each set is equally likely."""

    def __init__(self) -> None:
        self.blocks: dict[int, Drawn] = {}

    def add(self, k: int, found: Drawn) -> None:
        """Take in what a block gives; what is too much then goes."""
        self.blocks[k] = found
        room = subsample_size(n_columns(found.logits))
        if sum(len(block.numbers) for block in self.blocks.values()) > room:
            numbers = np.concatenate([block.numbers for block in self.blocks.values()])
            largest = np.partition(numbers, room - 1)[room - 1]
            self.blocks = {k: block.where(block.numbers <= largest) for k, block in self.blocks.items()}

    def data(self, spec: Mapping[str, Any], half: Half | None = None) -> tuple[Predictions, int]:
        """The samples in the order of the stream, and of how many; only those of one half, if it is given."""
        parts = [self.blocks[k] for k in sorted(self.blocks)]
        n_seen = sum(part.n for part in parts)
        if half is not None:
            masks = [half(k) for k in sorted(self.blocks)]
            n_seen = sum(int(mask.sum()) for mask in masks)
            parts = [part.where(mask[part.rows]) for part, mask in zip(parts, masks, strict=True)]
        logits, labels, weights = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("logits", "labels", "weights")
        )
        given = None if (weights == 1).all() else weights
        return predictions(logits, labels, sample_weight=given, **spec), n_seen


@dataclass(frozen=True)
class Half:
    """The rows of a stream that a fit may see: the same half as ``compare.halves`` draws in memory."""

    sizes: tuple[int, ...]
    """Rows of every block."""
    seed: int
    test: bool = False
    """The other half."""

    def __call__(self, k: int) -> NDArray[np.bool_]:
        """Which rows of a block."""
        ends = np.cumsum(self.sizes)
        mask = _tuned_on(int(ends[-1]), self.seed)[ends[k] - self.sizes[k] : ends[k]]
        return ~mask if self.test else mask


@lru_cache(maxsize=16)
def _tuned_on(n: int, seed: int) -> NDArray[np.bool_]:
    mask = np.zeros(n, bool)
    mask[np.random.default_rng(seed).permutation(n)[: n // 2]] = True
    return mask
