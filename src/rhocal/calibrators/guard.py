"""The last step of a fit: a comparison with no calibration and with one temperature, on samples it was not fitted on.

The answer is in ``solution_.held_out``. Guarded methods (``field``, chains, ``auto``) fall back to the better reference;
of the others a fit that is not shown to be nearly as good gives a ``GuardWarning``.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from rhocal import optimize
from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.cross_validation import GUARD, N_FOLDS, paired_over_samples, passes_guard
from rhocal.calibrators.estimator import unfitted
from rhocal.calibrators.folds import Fold, Folds
from rhocal.calibrators.scale.scale import ScaleCalibrator
from rhocal.calibrators.scale.scale_search import LAST_STEP, is_errorless
from rhocal.calibrators.validated_fit import fit_validated
from rhocal.errors import BoundaryWarning, FewSamplesWarning, GuardWarning, InputError, RhocalWarning, warn
from rhocal.numerics.special import dots, log_softmax
from rhocal.numerics.threads import row_blocks
from rhocal.optimize import HeldOutScores
from rhocal.profile.profile import Profile
from rhocal.profile.statistics import nll_by_scale, of_scale

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators.map import Map
    from rhocal.calibrators.scale.scale_search import ScaleSearch
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Floats, Vector

MIN_COMPARED_SAMPLES = 100
"""With fewer samples a comparison is noise, and there is none."""

MIN_HELD_OUT_SAMPLES = 2_000
"""Folds are held out, one after the other, until so many samples are scored: with many samples one fold is enough."""

IDENTITY, TEMPERATURE = REFERENCES = ("identity", "temperature")

MAX_SHARE_UNSHOWN = 0.05
"""Share of a reference's NLL that a fit must be shown to be within, or it warns."""

MAX_SHARE_SHOWN = 0.02
"""Share of a reference's NLL or Brier score by which a fit may be shown to be above it without a warning."""


@dataclass(frozen=True, eq=False)
class SampleScores:
    """NLL and Brier score of every sample."""

    nll: Vector
    brier: Vector

    @classmethod
    def from_logits(cls, logits: Floats, labels: NDArray[np.intp]) -> SampleScores:
        """Of calibrated logits."""
        nll, brier = np.empty((2, len(labels)))
        for rows in row_blocks(*logits.shape):
            log_p = log_softmax(logits[rows].astype(np.float64))
            label = log_p[np.arange(len(log_p)), labels[rows]]
            p = np.exp(log_p, out=log_p)
            nll[rows], brier[rows] = -label, np.vecdot(p, p) - 2 * np.exp(label) + 1
        return cls(nll, brier)

    @classmethod
    def from_scales(cls, profile: Profile, scale: Vector) -> SampleScores:
        """Of the logits of a profile times a scale for each sample."""
        values = of_scale(profile, profile, scale, {"log_label", "sum_squares"}).values
        return cls(-values["log_label"], values["sum_squares"] - 2 * np.exp(values["log_label"]) + 1)

    def take(self, rows: NDArray[np.intp]) -> SampleScores:
        """Those of some samples."""
        return SampleScores(self.nll[rows], self.brier[rows])

    @classmethod
    def concat(cls, parts: Sequence[SampleScores]) -> SampleScores:
        """Several samples after each other."""
        return cls(np.concatenate([part.nll for part in parts]), np.concatenate([part.brier for part in parts]))


def held_out_scores(
    name: str,
    scores: Mapping[str, SampleScores],
    weights: Vector,
    total_weight: float,
    clusters: NDArray[np.intp] | None = None,
) -> HeldOutScores:
    """Summarize the scores of a method and of the references. Weights and clusters are those of the samples scored."""
    share = weights / weights.sum()
    nlls = dots([score.nll for score in scores.values()], share).tolist()
    briers = dots([score.brier for score in scores.values()], share).tolist()
    nll_of = dict(zip(scores, nlls, strict=True))
    reference = min((method for method in REFERENCES if method in scores), key=nll_of.__getitem__)
    mine, other = scores[name], scores[reference]
    nll, nll_error = paired_over_samples(mine.nll, other.nll, share, total_weight, clusters)
    brier, brier_error = paired_over_samples(mine.brier, other.brier, share, total_weight, clusters)
    return HeldOutScores(
        nll=nll_of,
        brier=dict(zip(scores, briers, strict=True)),
        reference=reference,
        above={"nll": nll, "nll_error": nll_error, "brier": brier, "brier_error": brier_error},
        n_samples=len(weights),
    )


def is_doubtful(scores: HeldOutScores) -> bool:
    """Whether a fit is not shown to be nearly as good as its reference, give or take a standard error.

    Either NLL, which a few samples can ruin, is not shown to be within ``MAX_SHARE_UNSHOWN``; or NLL or the Brier score is
    shown to be above by more than ``MAX_SHARE_SHOWN``.
    """
    above, error = scores.above["nll"], scores.above["nll_error"]
    is_near = passes_guard(above, error, scores.nll[scores.reference], MAX_SHARE_UNSHOWN)
    return not is_near or any(
        not scores.above[key] - scores.above[f"{key}_error"] <= MAX_SHARE_SHOWN * abs(values[scores.reference])
        for key, values in (("nll", scores.nll), ("brier", scores.brier))
    )


def is_worse(scores: HeldOutScores, n_errors: float = 1.0) -> bool:
    """Whether a fit is above its reference in NLL or Brier score by more than standard errors and ``GUARD``; so is NaN."""
    above = scores.above if scores.above_of_choice is None else scores.above_of_choice
    return any(
        not above[key] <= max(n_errors * above[f"{key}_error"], GUARD * abs(values[scores.reference]))
        for key, values in (("nll", scores.nll), ("brier", scores.brier))
    )


def scored_folds(folds: Folds, clusters: NDArray[np.intp] | None) -> list[Fold]:
    """As many folds as hold enough samples, or clusters of them."""
    first = slice(None) if clusters is None else np.unique(clusters[folds.rows], return_index=True)[1]
    counts = np.cumsum(np.bincount(folds.codes[first], minlength=len(folds)))
    return list(folds)[: int(np.searchsorted(counts, MIN_HELD_OUT_SAMPLES)) + 1]


def score_rows(
    name: str,
    data: Predictions,
    folds: Sequence[Fold],
    *,
    methods: Mapping[str, tuple[str | Calibrator, Predictions]] = MappingProxyType({}),
    outputs: Mapping[str, Floats] = MappingProxyType({}),
    optimism: Mapping[str, Vector] = MappingProxyType({}),
) -> HeldOutScores:
    """Score a method and the references on folds that they were not fitted on.

    ``methods`` are fitted here, each on data of its own; of ``outputs`` the held-out logits are known, and ``optimism`` is
    added to the NLL of every sample. ``data`` is what came, uncalibrated.
    """
    assert data.labels is not None
    methods = {**methods, TEMPERATURE: (TEMPERATURE, data)}
    outputs = {**outputs, IDENTITY: data.logits}
    for method, (calibrator, rows) in methods.items():
        if isinstance(calibrator, Calibrator) and "map_" in vars(calibrator):
            known = calibrator._held_out_logits(rows, folds)  # noqa: SLF001 - our own
            outputs |= {} if known is None else {method: known}
    parts: dict[str, list[SampleScores]] = {}
    for fold in folds:
        logits = {method: known[fold.outside] for method, known in outputs.items()}
        own, inside, outside = None, data, data
        for method, (calibrator, rows) in methods.items():
            if method in outputs:
                continue
            if rows is not own:  # methods often share their rows, and copies of many take time
                own, inside, outside = rows, rows.take(fold.inside), rows.take(fold.outside)
            start = vars(calibrator).get("map_") if isinstance(calibrator, Calibrator) else None
            fitted = fit_without_warnings(calibrator, inside, start, is_compared=False)
            logits[method] = fitted.map_.logits(outside)
        for method, part in logits.items():
            scores = SampleScores.from_logits(part, data.labels[fold.outside])
            if method in optimism:
                scores = replace(scores, nll=scores.nll + optimism[method][fold.outside])
            parts.setdefault(method, []).append(scores)
    return _summarize(name, parts, folds, data)


def score_profile(calibrator: ScaleCalibrator, profile: Profile, folds: Sequence[Fold]) -> HeldOutScores:
    """The same for a scale calibrator, which needs no more than a profile."""
    parts: dict[str, list[SampleScores]] = {}
    for fold in folds:
        inside, outside = without_fold(profile, fold), profile.take(fold.outside)
        scales = {IDENTITY: np.ones(outside.n_samples)}
        for method, unfit in ((TEMPERATURE, TEMPERATURE), (calibrator.label, calibrator.with_choices())):
            scales[method] = fit_without_warnings(unfit, inside).map_.scales(outside)
        for method, scale in scales.items():
            parts.setdefault(method, []).append(SampleScores.from_scales(outside, scale))
    return _summarize(calibrator.label, parts, folds, profile)


def without_fold(profile: Profile, fold: Fold) -> Profile:
    """The profile with weight 0 for the samples of a fold."""
    weights = profile.weights - fold.held_out_weights
    total = float(weights.sum())
    return replace(profile, weights=weights / total, total_weight=profile.total_weight * total)


def _summarize(
    name: str, parts: Mapping[str, Sequence[SampleScores]], folds: Sequence[Fold], data: Predictions | Profile
) -> HeldOutScores:
    rows = np.concatenate([fold.outside for fold in folds])
    weights = folds[0].folds.weights[rows]
    held_out = data.total_weight * float(weights.sum())  # a weight counts as often as a repetition
    clusters = None if data.clusters is None else data.clusters[rows]
    scores = {method: SampleScores.concat(part) for method, part in parts.items()}
    return held_out_scores(name, scores, weights, held_out, clusters)


def score_in_sample(name: str, search: ScaleSearch, scale: Vector, confidence: Vector) -> HeldOutScores | None:
    """Compare the scales of a family of few numbers with one temperature, on the table of a search: no pass over logits.

    ``confidence`` is that of every sample at its scale. In sample the identity is never better than temperature scaling with
    the lowest NLL.
    """
    profile = search.profile
    if profile.total_weight < MIN_COMPARED_SAMPLES:
        return None
    minimum = optimize.newton(nll_by_scale(profile, search.fast), search.rough_log_scale, *search.bounds, LAST_STEP)
    single = np.full_like(scale, np.exp(minimum.x[0]))
    scores = {
        method: SampleScores(-np.log(top) - scales * profile.label_gap, (top - profile.correct) ** 2)
        for method, scales, top in ((name, scale, confidence), (TEMPERATURE, single, search.confidence(single)))
    }
    return replace(
        held_out_scores(name, scores, profile.weights, profile.total_weight, profile.clusters), in_sample=True
    )


def check(calibrator: Calibrator, data: Predictions | Profile) -> None:
    """Compare a fitted calibrator with the references, and fall back or warn if it is worse; see ``solution_.held_out``."""
    _warn_without_errors(calibrator, data)
    scores = calibrator.solution_.held_out or _scores(calibrator, data)
    if scores is None:
        return
    name, is_guarded = scores.method, calibrator.is_guarded
    if is_guarded and is_worse(scores, calibrator.errors_before_fallback):
        reference = fit_without_warnings(scores.reference, data)
        vars(calibrator)["map_"] = calibrator._fallback_map(reference, data)  # noqa: SLF001 - our own
        scores = replace(scores, fell_back_to=scores.reference)
        warn(f"{name}: {scores.sentence(name)}, which is used instead", GuardWarning)
    elif not is_guarded and is_doubtful(scores):
        warn(
            f"{name}: {scores.sentence(name)}. These samples do not show that it is nearly as good (NLL "
            f"{scores.above['nll']:+.4f} ± {scores.above['nll_error']:.4f}). Use method auto, or {scores.reference}",
            GuardWarning,
        )
    calibrator.solution_ = replace(calibrator.solution_, held_out=scores)


def _warn_without_errors(calibrator: Calibrator, data: Predictions | Profile) -> None:
    """Warn if no sample is wrong and the fit, which has no bound of its own, is more confident than that supports."""
    if isinstance(data, Profile) or calibrator.solution_.at_bound or isinstance(calibrator, ScaleCalibrator):
        return
    profile = Profile.from_predictions(data)
    if not is_errorless(profile):
        return
    confidence = float(profile.weights @ calibrator.map_.probs(data).max(axis=1))
    supported = (profile.total_weight + 1) / (profile.total_weight + 2)
    if confidence > supported:
        warn(
            f"{calibrator.label}: no calibration sample is wrong, and the mean confidence, {confidence:.6f}, is above "
            f"(n + 1) / (n + 2) = {supported:.6f}. Use temperature, which stops there",
            BoundaryWarning,
        )


def _scores(calibrator: Calibrator, data: Predictions | Profile) -> HeldOutScores | None:
    """Held-out scores; None where there are too few samples, or nothing to compare."""
    if calibrator.name in REFERENCES:
        return None
    profile = data if isinstance(data, Profile) else Profile.from_predictions(data)
    # In folds by label the share of a class looks exact to methods that have a map of it; guarded methods are scales, and fall
    # back for 0.6 %, which takes folds that are alike.
    folds = Folds.from_profile(profile, N_FOLDS, by_label=calibrator.is_guarded, shuffle_ties=True)
    if not folds and profile.clusters is not None:
        warn(
            f"{calibrator.label}: all samples are in one cluster, so that none can be held out, and whether it is better than "
            "no calibration is not known. Use samples of several clusters",
            FewSamplesWarning,
        )
    if not folds or profile.total_weight < MIN_COMPARED_SAMPLES:
        return None
    scored = scored_folds(folds, profile.clusters)
    try:
        if isinstance(calibrator, ScaleCalibrator) and calibrator.fits_on == "profile":
            return score_profile(calibrator, profile, scored)
        assert not isinstance(data, Profile)
        return score_rows(calibrator.label, data, scored, methods={calibrator.label: (calibrator, data)})
    except InputError:  # too few samples for a fit without a fold
        return None


def fit_without_warnings(
    method: str | Calibrator, data: Predictions | Profile, start: Map | None = None, *, is_compared: bool = True
) -> Calibrator:
    """Fit a method without its warnings: the fit on all samples gives its own. Options are those of ``fit_validated``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        return fit_validated(unfitted(method), data, kind="logits", start=start, is_compared=is_compared)
