"""One fit over a source, resident or not.

Rows that are resident are fitted on as they are, and so are those of a stream that a pilot has room for. Otherwise every byte
is read once, and memory does not grow with the number of classes: a pilot of some rows decides which numbers of every sample
are kept and around which scales its curve is tabulated. Families that read rows are fitted on a subsample.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators import Calibrator, ScaleCalibrator
from rhocal.calibrators.clusters import with_design_effect
from rhocal.calibrators.decisions import record_changes
from rhocal.calibrators.guard import check
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.calibrators.summary import BlockSummary, summarize_block
from rhocal.calibrators.validated_fit import fit_validated
from rhocal.data.labels.masked import refuse_masked_labels, warn_of_far_labels
from rhocal.data.labels.per_sample import positive_column
from rhocal.data.predictions import SMALLEST_PROB, Predictions
from rhocal.data.sampling import sampling_threshold
from rhocal.data.scores import suspect_labels
from rhocal.data.sources import as_source
from rhocal.data.spec import InputSpec
from rhocal.errors import FewSamplesWarning, InputError, RhocalWarning, SubsampleWarning, SuspiciousInputWarning, warn
from rhocal.profile.passes import FEW_CLASSES
from rhocal.profile.plan import COMMON, PassPlan
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rhocal.calibrators.summary import Split
    from rhocal.data.sources import Source

OWN_TABLE_OCTAVES = 0.5
"""Around a sample's expected scale its own table is good to 1e−4."""

COMMON_TABLE_OCTAVES = 2.5
"""Around its center a common table is safe; it ends at three."""

MAX_SHARE_OUTSIDE = 0.02
"""Share of the samples that may end farther away than that before the source is read a second time."""

NEEDS_ALL_ROWS = "it needs the logits of all samples at once"

N_NAMED = 5
"""Classes without samples that a warning names."""

SUBSAMPLED = "cannot be fitted block by block"
"""Part of the warning of a fit on a subsample, by which it can be recognized."""


def fit(calibrator: Calibrator, source: Source) -> Fits:
    """Fit a calibrator on a source."""
    fits = Fits(source, {calibrator.name: calibrator})
    fits.fit(calibrator.name, calibrator)
    if fits.summary.rows is not None and fits.summary.rows.labels is not None and calibrator.fits_on == "rows":
        record_changes(calibrator, fits.summary.rows)
    if not source.spec.of_answers:  # a model may be wrong more often than not
        _suspect(fits.summary)
    _warn_unseen(calibrator)
    calibrator.columns_ = source.spec.columns or source.log.columns
    calibrator.positive_ = _positive_class(fits.source, calibrator.classes_)
    return fits


def _positive_class(source: Source, classes: NDArray[Any]) -> Any:
    """The positive class that the caller, or the name of a single column of scores, states."""
    positive = source.predictions.positive if source.resident else source.spec.positive
    return None if positive is None else classes[positive_column(positive, classes)].item()


def _warn_unseen(calibrator: Calibrator) -> None:
    """Warn of classes without calibration samples, if classes have maps of their own."""
    unseen = np.flatnonzero(calibrator.label_shares_ == 0)
    if not len(unseen) or not calibrator.has_class_maps:
        return
    names = ", ".join(str(name)[:40] for name in calibrator.classes_[unseen[:N_NAMED]])
    more = f" and {len(unseen) - N_NAMED:,} more" if len(unseen) > N_NAMED else ""
    warn(
        f"classes without a calibration sample: {names}{more} ({len(unseen):,} of {len(calibrator.classes_):,}). "
        f"{calibrator.label} has maps of single classes: the probabilities of these are guesses, often near 0, and not "
        "calibrated. Add samples of them, or use a method that treats all classes alike, such as field",
        FewSamplesWarning,
    )


def _suspect(summary: BlockSummary) -> None:
    """Warn if the scores of the calibration set are worse than chance."""
    profile = next(iter(summary.profiles.values()), None)
    if profile is not None:
        suspect_labels(float(profile.weights @ profile.correct), profile.total_weight, profile.n_classes)
    elif summary.rows is not None and summary.rows.labels is not None:
        rows = summary.rows
        weights = np.ones(rows.n_samples) if rows.weights is None else rows.weights
        suspect_labels(
            float(weights @ (rows.seen.column == rows.labels)) / rows.total_weight, rows.total_weight, rows.n_classes
        )


class Fits:
    """Fits of several calibrators on one source, from one pass over it."""

    def __init__(
        self, source: Source, calibrators: Mapping[str, Calibrator], *, check_guarded_only: bool = False
    ) -> None:
        self.source, self.calibrators, self.check_guarded_only = source, calibrators, check_guarded_only
        self.plan: Plans | None = None
        self._read(every_block=False)

    def _read(self, *, every_block: bool) -> None:
        pilot, self.source = self.source.pilot(every_block=every_block)
        warn_of_far_labels(pilot)
        if self.source.resident:
            refuse_masked_labels(pilot)
            rows = with_design_effect(pilot.prepared())
            self.summary = BlockSummary(rows=rows, sizes={0: rows.n_samples + rows.n_ignored})
            return
        self.plan, self.summary = summarize(self.source, pilot, self.calibrators)
        self.read_every_block = every_block or not self.source.is_rereadable

    def fit(self, name: str, calibrator: Calibrator, split: Split | None = None) -> Profile | None:
        """Fit one of them on all rows or on those of a split; the profile it was fitted on, None if it was rows."""
        if self.plan is None:
            assert self.summary.rows is not None
            calibrator.check_groups(self.summary.rows.groups)
            rows = self.summary.rows
            data = Profile.from_prepared(rows) if calibrator.fits_on == "profile" else rows
            fit_validated(calibrator, data)
            self._check(calibrator, data)
            return None
        if name in self.plan.errors:
            raise self.plan.errors[name]
        if name in self.plan.rows_because:
            self._check(calibrator, fit_subsample(calibrator, self._summary(split), self.plan.rows_because[name]))
            return None
        assert isinstance(calibrator, ScaleCalibrator)
        key = self.plan.key_of[name]
        profile = self._summary(split).profiles[key]
        caught = fit_quietly(calibrator, profile)
        octaves = COMMON_TABLE_OCTAVES if key == COMMON else OWN_TABLE_OCTAVES
        if calibrator.searches_near_pilot and share_outside_table(calibrator, profile, octaves) > MAX_SHARE_OUTSIDE:
            if not self.read_every_block:  # the pilot was misleading: a second and last pass
                self._read(every_block=True)
                return self.fit(name, calibrator, split)
            if not self.source.is_rereadable and key == COMMON:
                raise InputError(
                    f"the first blocks are misleading: samples ended more than {octaves:g} octaves from the expected "
                    "scale, outside the table of their curves. An iterator cannot be read again: put its blocks in "
                    "random order, or write them to a file"
                )
        for warning in caught:
            warn(warning.message, type(warning), argument=warning.argument, remedy=warning.remedy)
        return profile

    def _check(self, calibrator: Calibrator, data: Predictions | Profile) -> None:
        if calibrator.is_guarded or not self.check_guarded_only:
            check(calibrator, data)

    def n_rows(self, split: Split | None = None) -> int:
        """Number of rows that were read, or of those in a split."""
        return self.summary.n_rows if split is None else sum(int(split(k).sum()) for k in self.summary.sizes)

    def _summary(self, split: Split | None) -> BlockSummary:
        return self.summary if split is None else self.summary.take(split)


@dataclass(frozen=True)
class Plans:
    """What a pass keeps, and what each calibrator is fitted on."""

    plan: PassPlan
    key_of: dict[str, str] = field(default_factory=dict)
    """Calibrator → the table that it is fitted on."""
    rows_because: dict[str, str] = field(default_factory=dict)
    """Calibrator → why it is fitted on a subsample of the rows."""
    errors: dict[str, InputError] = field(default_factory=dict)
    """Calibrator → why it cannot be fitted."""


def summarize(source: Source, pilot: Predictions, calibrators: Mapping[str, Calibrator]) -> tuple[Plans, BlockSummary]:
    """Read a source that is not resident once, for fits of several calibrators."""
    pilot = pilot.prepared()
    plans = plan_from_pilot(calibrators, pilot, wide=not source.is_rereadable)
    plans = replace(plans, plan=with_limits(plans.plan, pilot))
    if len(plans.errors) == len(calibrators):
        raise next(iter(plans.errors.values()))
    if plans.rows_because:
        max_key = sampling_threshold(source.sizes, pilot.n_classes)
        plans = replace(plans, plan=replace(plans.plan, max_key=max_key))
    return plans, read_blocks(source, plans.plan, pilot.classes)


def with_limits(plan: PassPlan, pilot: Predictions) -> PassPlan:
    """The plan with what a prepared pilot shows: what is a mask, and what a probability of 0 means if it has any."""
    if pilot.resolution is None:
        return replace(plan, mask_gap=pilot.mask_gap)
    smallest = pilot.smallest_prob if pilot.resolution.has_zeros else SMALLEST_PROB
    return replace(plan, mask_gap=pilot.mask_gap, smallest_prob=smallest)


def read_blocks(source: Source, plan: PassPlan, classes: NDArray[np.generic]) -> BlockSummary:
    """The summary of all blocks. What a probability of 0 means is known at the end.

    If some are 0 and they mean another number than in the pilot, the source is read a second time.
    """
    summary = BlockSummary.concat(source.map(partial(summarize_block, plan=plan)), classes)
    if summary.resolution is None:
        return summary
    smallest = summary.resolution.smallest_prob(len(classes))
    if not summary.resolution.has_zeros:
        return summary.with_smallest_prob(smallest)
    if smallest == plan.smallest_prob:
        return summary
    if not source.is_rereadable:
        warn(
            f"a probability of 0 counts as {plan.smallest_prob:.2g}, from the first rows; from all rows it would be "
            f"{smallest:.2g}. An iterator cannot be read again: put its blocks in random order, or write them to a file",
            SuspiciousInputWarning,
        )
        return summary
    plan = replace(plan, smallest_prob=smallest)
    return BlockSummary.concat(source.map(partial(summarize_block, plan=plan)), classes)


def plan_from_pilot(calibrators: Mapping[str, Calibrator], pilot: Predictions, *, wide: bool = False) -> Plans:
    """Fit on a pilot: which numbers each fit reads, and where it ends.

    ``wide`` plans have no tables around expected scales: there is no second chance if the pilot is misleading.
    """
    plans = Plans(PassPlan(None, (), has_common_table=False))
    parts = []
    for name, calibrator in calibrators.items():
        if calibrator.takes_groups:
            plans.errors[name] = InputError(
                f"{calibrator.name} needs groups, which a stream does not carry; fit on arrays"
            )
        elif not isinstance(calibrator, ScaleCalibrator):
            plans.rows_because[name] = NEEDS_ALL_ROWS
        elif calibrator.fits_on == "rows" and pilot.n_classes > FEW_CLASSES:  # else the profile holds the logits
            plans.rows_because[name] = f"it needs the logits of all samples with {calibrator!r}"
        else:
            try:
                part = plan_for(calibrator, pilot, key=f"own {name}", wide=wide)
            except InputError as error:
                plans.errors[name] = error
                continue
            parts.append(part)
            plans.key_of[name] = part.keys[0]
    return replace(plans, plan=PassPlan.union(parts) or plans.plan)


def plan_for(calibrator: ScaleCalibrator, pilot: Predictions, *, key: str = "fit", wide: bool = False) -> PassPlan:
    """The plan of a fit: the numbers that the same fit reads of a pilot, and where it ends there.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> pilot = rhocal.data.predictions.Predictions.from_arrays(logits[:1000], labels[:1000])
    >>> plan = rhocal.plan_for(rhocal.TemperatureScaling(), pilot)
    >>> blocks = [rhocal.profile_block(logits[i : i + 1000], labels[i : i + 1000], plan) for i in range(0, 5000, 1000)]
    >>> round(rhocal.TemperatureScaling().fit_profile(rhocal.Profile.concat(blocks)).temperature_, 2)
    2.36
    """
    profile = Profile.from_predictions(pilot)
    guide = type(calibrator)(**calibrator.get_params())
    caught = fit_quietly(guide, profile)
    names = ("mean", *(name for name in profile.kept if name != "mean"))
    # At a bound the pilot says little about the rest (a few samples, all of them correct): a common table then.
    is_certain = not caught and profile.spread > 0 and profile.n_classes > FEW_CLASSES
    if wide or not calibrator.searches_near_pilot or not is_certain:
        return PassPlan(log_center(profile), names)
    return PassPlan(None, names, {key: guide.map_.scales}, has_common_table=False)


def log_center(profile: Profile) -> float:
    """Log of the NLL-optimal single scale."""
    return ScaleSearch.from_profile(profile).log_scale if profile.spread > 0 else 0.0


def fit_quietly(calibrator: ScaleCalibrator, profile: Profile) -> list[RhocalWarning]:
    """Fit and compare with the references, and return the warnings: they may be about a fit that is not the last."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RhocalWarning)
        calibrator.fit_profile(profile)
    return [warning.message for warning in caught if isinstance(warning.message, RhocalWarning)]


def fit_subsample(calibrator: Calibrator, summary: BlockSummary, reason: str) -> Predictions:
    """Fit on the rows of a summary, with a warning if they are not all rows."""
    rows = summary.rows
    if rows is None or rows.n_samples == 0 or (rows.weights is not None and not rows.weights.any()):
        raise InputError("the subsample has no samples with a positive weight")
    if rows.n_samples + rows.n_ignored < summary.n_rows:
        warn(
            f"{calibrator.name} {SUBSAMPLED} ({reason}); {rows.n_samples:,} of {summary.n_rows:,} samples were "
            "drawn with a fixed seed, and it was fitted on those",
            SubsampleWarning,
        )
    fit_validated(calibrator, rows)
    return rows


def share_outside_table(calibrator: ScaleCalibrator, profile: Profile, octaves: float) -> float:
    """Share of the samples whose fitted scale is farther from the middle of their table."""
    center = getattr(profile.table, "log_center", None)
    if center is None:
        return 0.0
    distance = np.abs(np.log(calibrator.map_.scales(profile)) - center) / np.log(2)
    return float(profile.weights @ (distance > octaves))


def profile_source(source: Source) -> Profile:
    """The profile of a source for every family, as ``save_profile`` writes it."""
    pilot, source = source.pilot()
    pilot = pilot.prepared()
    profile = Profile.from_prepared(pilot)
    center = log_center(profile)
    if source.resident:
        return replace(profile, log_center=center)
    return read_blocks(source, with_limits(PassPlan(center), pilot), pilot.classes).profiles[COMMON]


def profile_block(logits: Any, labels: Any, plan: PassPlan, sample_weight: Any = None, **spec: Any) -> Profile | None:
    """The profile of one block, without its logits (unless there are few classes); ``Profile.concat`` joins them.

    None if every sample is ignored; ``spec`` is ``kind``, ``classes`` and ``ignore_index``.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> pilot = rhocal.data.predictions.Predictions.from_arrays(logits[:1000], labels[:1000])
    >>> plan = rhocal.plan_for(rhocal.TemperatureScaling(), pilot)
    >>> rhocal.profile_block(logits[:500], labels[:500], plan).n_samples
    500
    """
    labels = np.asarray(labels)
    ignored = spec.get("ignore_index")
    if ignored is not None and (labels == ignored).all():
        return None
    data = Predictions.from_arrays(logits, labels, weights=sample_weight, spec=InputSpec(**spec))
    summary = BlockSummary.concat([summarize_block(data, plan)], data.classes)
    return summary.profiles[plan.keys[0]]


def profile_logits(logits: Any, labels: Any = None, sample_weight: Any = None, **spec: Any) -> Profile:
    """The profile of a calibration set, or of a ``rhocal.stream``; ``spec`` is ``kind``, ``classes`` and ``ignore_index``.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> profile = rhocal.profile_logits(logits, labels)
    >>> round(rhocal.TemperatureScaling().fit_profile(profile).temperature_, 2)
    2.36
    """
    return profile_source(as_source(logits, labels, sample_weight, spec=InputSpec(**spec)))
