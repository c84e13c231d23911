"""What a block of samples leaves behind: the one function that streams, threads and machines share.

A profile of many blocks is the profiles of the blocks, one after the other. What is read of a block, and around which
scales its curves are tabulated, is a ``Plan``; it comes from a fit on a share of the samples, the pilot.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.saved_profile import NAMES, RINGS
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.data.predictions import Predictions, predictions
from rhocal.errors import InputError, NeedsLogitsError, RhocalWarning
from rhocal.numerics.threads import BLOCK_ENTRIES, in_threads, row_blocks
from rhocal.profile.curve_table import Table, around
from rhocal.profile.passes import FEW_CLASSES
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from rhocal.calibrators import ScaleCalibrator

SLICE_ENTRIES = 16 * BLOCK_ENTRIES
"""Entries that one thread takes at a time: four megabytes in half precision."""

TRIAL_SAMPLES = 200
"""Samples on which it is tried out whether a family can be fitted without logits at all."""


@dataclass(frozen=True)
class Plan:
    """What is read from every sample."""

    names: tuple[str, ...]
    """Numbers that are kept; see ``Profile.kept``."""
    log_centre: float
    """log σ in the middle of the table that all samples share."""
    guide: ScaleCalibrator | None = None
    """If given, every sample's curve is tabulated around the scale that this calibrator gives it."""
    spec: dict[str, Any] = field(default_factory=dict)
    """What ``rhocal.data.predictions`` is told of every block: ``kind``, ``classes``, ``ignore_index``."""


def plan_for(calibrator: ScaleCalibrator, pilot: Predictions, spec: dict[str, Any]) -> Plan:
    """The plan for a fit: what the same fit reads of a pilot, and where it ends there.

    Raises ``NeedsLogitsError`` if the family needs the logits themselves.
    """
    whole = Profile.of(pilot)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RhocalWarning)
        guide = fresh(calibrator).fit_profile(whole)
    plan = Plan(("mean", *(name for name in whole.kept if name != "mean")), centre_of(whole), spec=spec)
    few = whole.take(np.arange(min(whole.n_samples, TRIAL_SAMPLES)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        try:
            fresh(calibrator).fit_profile(tabulate(few, plan))
        except InputError as error:  # the same options were fitted a moment ago: it is the logits that are missing
            raise NeedsLogitsError(str(error)) from error
    # At a bound the pilot says little about the rest (a few samples, all of them right): a wide table then.
    certain = not any(issubclass(w.category, RhocalWarning) for w in caught) and whole.spread > 0
    return replace(plan, guide=guide) if calibrator.guided and certain else plan


def plan_to_save(pilot: Predictions, spec: dict[str, Any]) -> Plan:
    """The plan for a profile that serves every family."""
    return Plan(NAMES, centre_of(Profile.of(pilot)), spec=spec)


def centre_of(profile: Profile) -> float:
    """Log of the NLL-optimal single scale."""
    return ScaleSearch.from_profile(profile).log_scale if profile.spread > 0 else 0.0


def fresh(calibrator: ScaleCalibrator) -> ScaleCalibrator:
    """The same options, not fitted."""
    return type(calibrator)(**calibrator.get_params())


def profile_block(logits: Any, labels: Any, plan: Plan, sample_weight: Any = None) -> Profile | None:
    """The profile of one block, without its logits (unless there are few classes); None if every sample is to be ignored."""
    n = len(labels)
    if np.ndim(logits) > 2:
        raise InputError(f"a block of logits has shape (n_samples, n_classes); got {np.shape(logits)}")
    n_columns = logits.shape[1] if np.ndim(logits) == 2 else 2
    ignored = plan.spec.get("ignore_index")

    def part(rows: slice) -> Profile | None:
        weight = None if sample_weight is None else sample_weight[rows]
        if ignored is not None and (np.asarray(labels[rows]) == ignored).all():
            return None
        if weight is not None and not np.any(weight):
            return None
        data = predictions(logits[rows], labels[rows], sample_weight=weight, **plan.spec)
        return tabulate(Profile.of(data), plan)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)  # of the pilot it has been said already
        parts = in_threads(part, list(row_blocks(n, n_columns, SLICE_ENTRIES)))
    kept = [found for found in parts if found is not None]
    return Profile.concat(kept) if kept else None


def tabulate(profile: Profile, plan: Plan) -> Profile:
    """The profile without its logits; with few classes these are fewer than the numbers that would replace them."""
    if profile.n_classes <= FEW_CLASSES:
        return profile
    profile.read(plan.names)
    bare = replace(profile, passes=None)
    if plan.guide is not None:
        made = around(profile, plan.guide.map_.scales(profile))
    else:
        made = Table(profile, plan.log_centre)
        for ring in RINGS:
            made.build(ring)
    return replace(bare, table=Table(bare, made.log_centre, made.rings))
