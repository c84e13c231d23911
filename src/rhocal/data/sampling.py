"""Some samples of a stream: the pilot, which says what to read of all, and the subsample, for methods that need whole rows.

Both depend on the blocks and a seed alone, so that one process and a thousand draw the same samples.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rhocal.data.blocks import missing_labels
from rhocal.data.score_names import column_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.data.blocks import Block
    from rhocal.numerics.special import Vector

PILOT_ENTRIES = 1 << 23
"""Logits of the pilot: a fit on them finds the neighbourhood of the optimum."""

PILOT_SAMPLES = 400
"""A pilot has at least this many samples, however many classes there are."""

PILOT_PLACES = 8
"""Places of a file that the pilot comes from, so that an order of the samples does not matter."""

SUBSAMPLE_ENTRIES = 1 << 24
"""Logits that are kept in memory for methods that cannot stream: 64 MB in single precision, and several times that in a fit."""

MIXERS = tuple(np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""Of SplitMix64 (Steele et al. 2014): its step, and the factors of its finalizer."""


class PilotRows(NamedTuple):
    """Some rows of a block as they were stored."""

    location: str
    scores: Any
    labels: Any
    columns: tuple[str, ...] | None = None
    """The names of the columns of a data frame, or of a single column of scores, which an array does not keep."""


def pilot_blocks(n_blocks: int) -> list[int]:
    """Blocks that the pilot comes from: some, from all over."""
    return sorted({round(k) for k in np.linspace(0, n_blocks - 1, min(PILOT_PLACES, n_blocks))})


def pilot_size(scores: Any) -> int:
    """How many samples a pilot has."""
    return max(PILOT_SAMPLES, PILOT_ENTRIES // (max(np.shape(scores)[1], 1) if np.ndim(scores) > 1 else 2))


def fits_in_pilot(n_rows: int, scores: Any) -> bool:
    """Whether a pilot has room for so many rows: a source of no more is kept in memory."""
    return n_rows <= pilot_size(scores)


def pilot_rows(block: Block, places: int) -> PilotRows:
    """What a block gives to a pilot that comes from so many places."""
    if block.labels is None:
        raise missing_labels()
    scores, labels = np.asarray(block.scores), np.asarray(block.labels)
    n_rows = min(len(scores), len(labels))  # a row without its label is an error of the block, not of the pilot
    share = min(n_rows, -(-pilot_size(scores) // places))
    rows = np.arange(share) * n_rows // share
    columns = None if scores is block.scores else column_names(block.scores)  # an array has none
    return PilotRows(block.location, scores[rows], labels[rows], columns)


def sampling_keys(block: int, n: int, seed: int = 0) -> Vector:
    """The number that each sample of a block draws; the smallest are in the subsample."""
    return np.random.default_rng((seed, block)).random(n)


def subsample_size(n_classes: int) -> int:
    """How many samples are kept for methods that cannot stream."""
    return max(PILOT_SAMPLES, SUBSAMPLE_ENTRIES // n_classes)


def sampling_threshold(sizes: Sequence[int] | None, n_classes: int) -> float:
    """The largest number that is in the subsample; 1 where the rows of the blocks are not known in advance.

    So each block knows by itself which of its rows are wanted.
    """
    room = subsample_size(n_classes)
    if sizes is None or sum(sizes) <= room:
        return 1.0
    drawn = np.concatenate([sampling_keys(k, n) for k, n in enumerate(sizes)])
    return float(np.partition(drawn, room - 1)[room - 1])


@dataclass(frozen=True)
class Half:
    """The rows of a stream that a fit may see: the same half as ``compare.random_split`` draws in memory."""

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


def content_keys(scores: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.uint64]:
    """A number for each sample that looks random and follows from what it holds."""
    rows, names = np.ascontiguousarray(scores, np.float64), np.asarray(labels, np.int64)
    digests = [hashlib.blake2b(row, digest_size=8, key=name).digest() for row, name in zip(rows, names, strict=True)]
    return np.frombuffer(b"".join(digests), np.uint64)


def distinct_keys(keys: NDArray[np.uint64], further: Sequence[NDArray[Any]] = ()) -> NDArray[np.uint64]:
    """Keys of which equal rows have different ones, so that a cut by them divides equal rows as chance does.

    Classifiers that give one answer to many samples (trees, votes, rounded probabilities) make whole groups of equal rows: with
    one key for all of them a cut would take every right answer at some score and no wrong one. The key of a row is mixed with
    its number among its equals and with the keys of all rows, so that other samples of the same population draw anew; a row
    without equals keeps its key. Equal rows are ordered by ``further`` columns, and beyond these they do not differ:
    the order in which rows come does not matter.
    """
    columns = [np.unique(column, return_inverse=True)[1] for column in further]
    order = np.lexsort([*columns[::-1], keys])
    ordered, places = keys[order], np.arange(len(keys), dtype=np.uint64)
    is_first = np.ones(len(keys), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    if is_first.all():
        return keys
    numbers = places - np.maximum.accumulate(np.where(is_first, places, np.uint64(0)))
    salt = (keys * MIXERS[0]).sum(dtype=np.uint64)
    mixed = (ordered ^ salt) + numbers * MIXERS[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * MIXERS[1]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * MIXERS[2]
    found = np.empty_like(keys)
    is_single = is_first & np.append(is_first[1:], True)
    found[order] = np.where(is_single, ordered, mixed ^ (mixed >> np.uint64(31)))
    return found


def content_half(
    scores: NDArray[Any],
    labels: NDArray[Any],
    clusters: NDArray[Any] | None = None,
    further: Sequence[NDArray[Any] | None] = (),
) -> NDArray[np.bool_]:
    """Which samples are in the first of two halves, by what they hold, so that their order does not matter.

    Equal samples are divided as chance does (``distinct_keys``; ``further`` are columns beside scores and labels). Of clusters
    half are in it, by their names: samples of a cluster stay together.
    """
    if clusters is None:
        keys = distinct_keys(content_keys(scores, labels), [column for column in further if column is not None])
        return np.asarray(keys < _median(keys))
    names, place = np.unique(clusters, return_inverse=True)
    digests = [hashlib.blake2b(b"half " + str(name).encode(), digest_size=8).digest() for name in names]
    keys = np.frombuffer(b"".join(digests), np.uint64)
    return np.asarray(keys < _median(keys))[place]


def counts_in_half(
    scores: NDArray[Any], labels: NDArray[Any], counts: Vector, further: Sequence[NDArray[Any] | None] = ()
) -> Vector:
    """How many of the samples that each row stands for are in the first of two halves: each is with a chance of one half."""
    keys = distinct_keys(content_keys(scores, labels), [counts, *(column for column in further if column is not None)])
    order = np.argsort(keys)
    content = hashlib.blake2b(keys[order].tobytes() + counts[order].tobytes(), digest_size=8).digest()
    first = np.empty(len(counts))
    first[order] = np.random.default_rng(int.from_bytes(content)).binomial(counts[order].astype(np.int64), 0.5)
    return first


def _median(keys: NDArray[np.uint64]) -> np.uint64:
    return np.partition(keys, len(keys) // 2)[len(keys) // 2]
