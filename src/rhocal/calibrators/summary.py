"""What fits need of blocks whose rows are released: their profiles, and some of their rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from rhocal.data.labels.masked import refuse_masked_labels
from rhocal.data.sampling import sampling_keys, subsample_size
from rhocal.errors import RhocalWarning
from rhocal.numerics.threads import BLOCK_ENTRIES
from rhocal.profile.curve_table import Table, tabulate
from rhocal.profile.passes import FEW_CLASSES
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.data.resolution import Resolution
    from rhocal.profile.plan import PassPlan

    Split = Callable[[int], NDArray[np.bool_]]
    """Block → which of its rows are in a split."""

SLICE_ENTRIES = 16 * BLOCK_ENTRIES
"""Entries that one thread takes at a time: four megabytes in half precision."""


@dataclass(frozen=True)
class BlockSummary:
    """What a block, or all of them, leave for fits."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """Key of a table in the plan → profile."""
    rows: Predictions | None = None
    """All rows while they are resident, else those of the subsample."""
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Block → number of its rows, the ignored ones included."""
    places: Mapping[int, NDArray[np.intp] | None] = field(default_factory=dict, repr=False)
    """Block → which of its rows the profiles hold; None for all of them."""
    sampled: Mapping[int, NDArray[np.intp]] = field(default_factory=dict, repr=False)
    """Block → which of its rows the subsample holds."""
    resolution: Resolution | None = None
    """How finely the probabilities of all rows are counted; None of logits."""

    @property
    def n_rows(self) -> int:
        """Number of rows that were read."""
        return sum(self.sizes.values())

    @classmethod
    def concat(cls, summaries: Iterable[BlockSummary], classes: NDArray[np.generic]) -> BlockSummary:
        """The summary of all blocks. More rows than a subsample may have are dropped as blocks arrive."""
        parts: list[BlockSummary] = []
        for part in summaries:
            parts.append(part)
            _trim(parts)
        profiles = {
            key: with_classes(Profile.concat([part.profiles[key] for part in parts]), classes)
            for key in parts[0].profiles
        }
        rows = [part.rows for part in parts if part.rows is not None]
        return cls(
            profiles,
            replace(type(rows[0]).concat(rows), classes=classes) if rows else None,
            {k: n for part in parts for k, n in part.sizes.items()},
            {k: place for part in parts for k, place in part.places.items()},
            {k: place for part in parts for k, place in part.sampled.items()},
            None if parts[0].resolution is None else reduce(add, (part.resolution for part in parts)),
        )

    def with_smallest_prob(self, smallest_prob: float) -> BlockSummary:
        """The same with another value for what smaller probabilities are raised to; right where none of the rows has any."""
        profiles = {key: replace(profile, smallest_prob=smallest_prob) for key, profile in self.profiles.items()}
        rows = None if self.rows is None else replace(self.rows, smallest_prob=smallest_prob)
        return replace(self, profiles=profiles, rows=rows)

    def take(self, split: Split) -> BlockSummary:
        """The summary of the rows of a split."""
        masks = {k: split(k) for k in self.sizes}
        kept = [masks[k] if place is None else masks[k][place] for k, place in self.places.items()]
        chosen = np.flatnonzero(np.concatenate(kept))
        rows = None
        if self.rows is not None:
            rows = self.rows.take(np.flatnonzero(np.concatenate([masks[k][p] for k, p in self.sampled.items()])))
        sizes = {k: int(mask.sum()) for k, mask in masks.items()}
        return BlockSummary({key: profile.take(chosen) for key, profile in self.profiles.items()}, rows, sizes)


def summarize_block(data: Predictions, plan: PassPlan) -> BlockSummary:
    """Reduce a validated block to what fits need: its profiles, sampled rows, or both.

    The names of the classes stay behind: 128,256 of them are more than the rest.
    """
    refuse_masked_labels(data)
    resolution = data.resolution
    data = data.prepared(plan.mask_gap, plan.smallest_prob)
    n_rows = len(data.scores) + data.n_ignored
    profiles, keys = {}, plan.keys
    if keys:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RhocalWarning)  # the pilot has warned
            work = partial(_tables, plan=plan, keys=keys)
            is_small = data.scores.shape[0] * data.scores.shape[1] <= SLICE_ENTRIES
            parts = [work(data)] if is_small else data.over_row_blocks(work, SLICE_ENTRIES)
        profiles = {
            key: without_classes(parts[0][key] if len(parts) == 1 else Profile.concat([part[key] for part in parts]))
            for key in keys
        }
    rows, sampled = None, {}
    if plan.max_key is not None:
        rows = sample_rows(data, plan.max_key)
        sampled = {data.block: np.arange(n_rows) if rows.rows is None else rows.rows}
    return BlockSummary(profiles, rows, {data.block: n_rows}, {data.block: data.rows}, sampled, resolution)


def _tables(data: Predictions, plan: PassPlan, keys: Iterable[str]) -> dict[str, Profile]:
    profile = Profile.from_prepared(data, plan.names if len(data.classes) > FEW_CLASSES else ())
    return {key: tabulate(profile, plan, key) for key in keys}


def sample_rows(data: Predictions, max_key: float) -> Predictions:
    """The rows of a block whose sampling key is at most ``max_key``."""
    keys = _keys(data)
    rows = data if (keys <= max_key).all() else data.take(np.flatnonzero(keys <= max_key))
    return replace(rows, classes=data.classes[:0])


def _keys(data: Predictions, n_rows: int | None = None) -> NDArray[np.float64]:
    keys = sampling_keys(data.block, data.n_samples + data.n_ignored if n_rows is None else n_rows)
    return keys if data.rows is None else keys[data.rows]


def _trim(parts: list[BlockSummary]) -> None:
    """Drop the sampled rows with the largest keys, if there are more than a subsample may have."""
    sampled = [(k, part.rows) for k, part in enumerate(parts) if part.rows is not None]
    if not sampled:
        return
    room = subsample_size(sampled[0][1].scores.shape[1])
    if sum(rows.n_samples for _, rows in sampled) <= room:
        return
    keys = [_keys(rows, parts[k].sizes[rows.block]) for k, rows in sampled]
    largest = np.partition(np.concatenate(keys), room - 1)[room - 1]
    for (k, rows), own in zip(sampled, keys, strict=True):
        if (own > largest).any():
            kept = rows.take(np.flatnonzero(own <= largest))
            assert kept.rows is not None
            parts[k] = replace(parts[k], rows=kept, sampled={rows.block: kept.rows})


def with_classes(profile: Profile, classes: NDArray[np.generic]) -> Profile:
    """The same with other names of the classes."""
    renamed = replace(profile, classes=classes)
    if not isinstance(profile.table, Table):
        return renamed
    return replace(renamed, table=replace(profile.table, profile=replace(renamed, table=None)))


def without_classes(profile: Profile) -> Profile:
    """The same without names of the classes."""
    return with_classes(profile, profile.classes[:0])
