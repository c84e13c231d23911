"""Fits on streams: every byte of logits is read once, and memory does not grow with the classes.

Who reads the blocks is a ``Source`` (``reading.py``). What is done with them is the same, in the order of the blocks.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators import Calibrator, ScaleCalibrator
from rhocal.calibrators.blocks import Plan, plan_for, plan_to_save, profile_block
from rhocal.data.blocks import n_columns
from rhocal.data.reader import BlockReader as Source
from rhocal.data.reader import Reader, checked, checked_pilot, told_of
from rhocal.data.sampling import (
    Drawn,
    Subsample,
    check_columns,
    threshold,
)
from rhocal.data.streams import with_block_context
from rhocal.errors import InputError, NeedsLogitsError, RhocalWarning, SubsampleWarning, warn
from rhocal.profile.curve_table import Table
from rhocal.profile.passes import FEW_CLASSES
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rhocal.data.predictions import Predictions
    from rhocal.data.sampling import Half
    from rhocal.data.stored import Chunk
    from rhocal.data.streams import Stream

FAR = 0.5
"""Octaves around a sample's expected scale within which its curve is good to 1e−4."""

EDGE = 2.5
"""Octaves around the expected scale that a wide table safely holds; it ends at three."""

FEW = 0.02
"""Share of the samples that may end farther away than that before the stream is read a second time."""

WHY_NOT = "it needs the logits of all samples at once"

SUBSAMPLED = "cannot be fitted block by block"
"""How the warning of a fit on a subsample can be told from others."""


@dataclass(frozen=True)
class BlockSummary:
    """What a block leaves behind for fits."""

    where: str
    n_rows: int
    n_classes: int
    profiles: tuple[Profile | None, ...]
    """One for each plan, without the names of the classes: 128,256 of them are more than the rest."""
    drawn: Drawn | None


def summarize_block(
    k: int, chunk: Chunk, plans: Sequence[Plan], largest: float | None, spec: Mapping[str, Any]
) -> BlockSummary:
    """The profiles of a block, and its part of the subsample if one is drawn; an error says which block it was."""
    if not plans:
        checked(chunk, spec)  # with a plan it is looked through anyway
    profiles = tuple(chunk_profile(chunk, plan) for plan in plans)
    bare = tuple(None if found is None else with_classes(found, found.classes[:0]) for found in profiles)
    drawn = None if largest is None else with_block_context(chunk, lambda chunk: Drawn.of(k, chunk, largest))
    return BlockSummary(chunk.where, len(chunk.labels), n_columns(chunk.logits), bare, drawn)


def chunk_profile(chunk: Chunk, plan: Plan) -> Profile | None:
    """The profile of a block; an error says which block it was."""
    return with_block_context(chunk, lambda chunk: profile_block(chunk.logits, chunk.labels, plan, chunk.sample_weight))


def with_classes(profile: Profile, classes: Any) -> Profile:
    """The same with other names of the classes."""
    renamed = replace(profile, classes=classes)
    if not isinstance(profile.table, Table):
        return renamed
    return replace(renamed, table=replace(profile.table, profile=replace(renamed, table=None)))


def concat_profiles(parts: Sequence[Profile | None]) -> Profile:
    """One profile from those of all blocks."""
    kept = [part for part in parts if part is not None]
    if not kept:
        raise InputError("the stream has no samples: every label is ignore_index, or every weight 0")
    return Profile.concat(kept)


class Fits:
    """Fits of several methods on one stream, from one pass over it.

    Families that multiply a sample's logits are fitted on the profile of all samples. Others are fitted on as many
    samples, drawn with a fixed seed, as ``SUBSAMPLE_ENTRIES`` allows.
    """

    def __init__(self, source: Source, spec: dict[str, Any], methods: Mapping[str, Calibrator]) -> None:
        self.source, self.spec, self.methods = source, spec, methods
        self.failed = {
            name: InputError(f"{cal.name} needs groups, which a stream does not carry; fit on arrays")
            for name, cal in methods.items()
            if cal.takes_groups
        }
        self._raise_if_all_failed()
        able = {name: cal for name, cal in methods.items() if name not in self.failed}
        scales = {name: cal for name, cal in able.items() if isinstance(cal, ScaleCalibrator)}
        self.why_not = {name: WHY_NOT for name in able if name not in scales}
        self.subsample = Subsample()
        self._plans: dict[str, Plan] = {}
        self._plan_of: dict[str, str] = {}
        self._profiles: dict[str, Profile] = {}
        self._blocks: list[int] = []
        self._sizes: dict[int, int] = {}
        self._late = not source.again
        taken = source.pilot()
        check_columns([(where, n_columns(logits)) for where, logits, _ in taken])
        if scales:
            self._plan(scales, checked_pilot(source, taken, spec))
        self._raise_if_all_failed()
        self._read(threshold(source.sizes, n_columns(taken[0].scores)) if self.why_not else None)

    def _plan(self, methods: Mapping[str, ScaleCalibrator], pilot: Predictions) -> None:
        """What is to be read for each method. Those that are content with a common table share one plan."""
        self._classes = pilot.classes
        for name, cal in methods.items():
            try:
                plan = plan_for(cal, pilot, self.spec)
            except NeedsLogitsError as error:
                self.why_not[name] = str(error)
                continue
            except InputError as error:
                self.failed[name] = error
                continue
            if not self.source.again or pilot.n_classes <= FEW_CLASSES:  # no second chance; no table
                plan = replace(plan, guide=None)
            key = "" if plan.guide is None else name
            self._plan_of[name] = key
            shared = self._plans.get(key, plan)
            self._plans[key] = replace(plan, names=tuple(dict.fromkeys((*shared.names, *plan.names))))

    def _raise_if_all_failed(self) -> None:
        """Before anything is read in vain."""
        if self.failed and len(self.failed) == len(self.methods):
            raise next(iter(self.failed.values()))

    def _read(self, largest: float | None) -> None:
        """One pass: the profiles for all plans, and the subsample if one is drawn."""
        keys = list(self._plans)
        left: dict[int, BlockSummary] = {}
        for k, found in self.source.each(summarize_block, [self._plans[key] for key in keys], largest, self.spec):
            if found.drawn is not None:
                self.subsample.add(k, found.drawn)
            self._sizes[k] = found.n_rows
            left[k] = replace(found, drawn=None)
        self._blocks = sorted(left)
        check_columns([(left[k].where, left[k].n_classes) for k in self._blocks])
        for place, key in enumerate(keys):
            parts = [left[k].profiles[place] for k in self._blocks]
            self._profiles[key] = with_classes(concat_profiles(parts), self._classes)

    def fit(self, method: str, calibrator: Calibrator, half: Half | None = None) -> Profile | None:
        """Fit one of the methods on all samples or on one half; the profile that it was fitted on, None for a subsample."""
        if method in self.failed:
            raise self.failed[method]
        if method in self.why_not:
            data, n_seen = self.subsample.data(self.spec, half)
            fit_subsample(calibrator, data, n_seen, self.why_not[method])
            return None
        assert isinstance(calibrator, ScaleCalibrator)
        profile = self._profile(method, half)
        said_by_fit = fit_quietly(calibrator, profile)
        beyond = EDGE if self._plans[self._plan_of[method]].guide is None else FAR
        if calibrator.guided and strayed(calibrator, profile, beyond) > FEW:
            if not self._late:
                self._read_again()
                profile = self._profile(method, half)
                said_by_fit = fit_quietly(calibrator, profile)
            elif beyond == EDGE:
                raise InputError(
                    f"the first blocks misled: samples ended more than {EDGE:g} octaves from the scale that they let "
                    "expect, where nothing is known of their curves. An iterator cannot be read again: put its blocks in "
                    "random order, or write them to a file"
                )
        for warning in said_by_fit:
            warn(str(warning), type(warning))
        return profile

    def _profile(self, method: str, half: Half | None) -> Profile:
        whole = self._profiles[self._plan_of[method]]
        if half is None:
            return whole
        rows = np.flatnonzero(np.concatenate([half(k) for k in self._blocks]))
        return whole.take(rows)

    def n_rows(self, half: Half | None = None) -> int:
        """Rows that were read, or those of them that are in one half."""
        if half is not None:
            return sum(int(half(k).sum()) for k in self._blocks)
        return sum(self._sizes.values())

    def _read_again(self) -> None:
        """The first pilot misled: a second pass, with a pilot from every block."""
        self._late = True
        planned = {
            name: cal
            for name, cal in self.methods.items()
            if isinstance(cal, ScaleCalibrator) and name in self._plan_of
        }
        self._plans, self._plan_of = {}, {}
        self._plan(planned, checked_pilot(self.source, self.source.late_pilot(), self.spec))
        self._read(None)


def fit(
    calibrator: Calibrator,
    stream: Stream,
    spec: Mapping[str, Any] | None = None,
    step: Callable[[Chunk], None] | None = None,
) -> Profile | None:
    """Fit on a stream; the profile it was fitted on, or None where a subsample of the logits was used."""
    return fit_on(calibrator, Reader(stream, step), spec)


def fit_on(calibrator: Calibrator, source: Source, spec: Mapping[str, Any] | None = None) -> Profile | None:
    """The same, whoever reads."""
    return Fits(source, told_of(source, spec), {"": calibrator}).fit("", calibrator)


def fit_quietly(calibrator: ScaleCalibrator, profile: Profile) -> list[RhocalWarning]:
    """Fit; what it warned of is returned, for it may be about a fit that is not the last."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RhocalWarning)
        calibrator.fit_profile(profile)
    return [warning.message for warning in caught if isinstance(warning.message, RhocalWarning)]


def fit_subsample(calibrator: Calibrator, data: Predictions, n_seen: int, why: str) -> None:
    """Fit on a subsample, and say so if it is one."""
    if data.n_samples + data.n_ignored < n_seen:
        warn(
            f"{calibrator.name} {SUBSAMPLED} ({why}); {data.n_samples:,} of {n_seen:,} samples were "
            "drawn with a fixed seed, and it was fitted on those",
            SubsampleWarning,
        )
    calibrator.fit_checked(data, data.kind)


def strayed(calibrator: ScaleCalibrator, profile: Profile, beyond: float) -> float:
    """Share of the samples whose fitted scale is far from the middle of their table."""
    centre = getattr(profile.table, "log_centre", None)
    if centre is None:
        return 0.0
    octaves = np.abs(np.log(calibrator.map_.scales(profile)) - centre) / np.log(2)
    return float(profile.weights @ (octaves > beyond))


def profile(
    stream: Stream, spec: Mapping[str, Any] | None = None, step: Callable[[Chunk], None] | None = None
) -> Profile:
    """The profile of a stream, for every family, as ``save_profile`` writes it."""
    return profile_on(Reader(stream, step), spec)


def profile_on(source: Source, spec: Mapping[str, Any] | None = None) -> Profile:
    """The same, whoever reads."""
    spec = told_of(source, spec)
    pilot = checked_pilot(source, source.pilot(), spec)
    left = dict(source.each(summarize_block, [plan_to_save(pilot, spec)], None, spec))
    return with_classes(concat_profiles([left[k].profiles[0] for k in sorted(left)]), pilot.classes)
