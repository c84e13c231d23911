"""The method that replicates are fits of, where a fit chose a method or a ridge by held-out samples, or fell back.

A choice among methods that held-out samples hardly distinguish prefers the simple one. If that is too simple, its replicates
are all near the same wrong probability, and replicates that choose again mostly choose it again. So replicates are fits of the
richest method, the last in the order of the candidates, that the samples do not exclude: its loss is at most
``MAX_ERRORS_BEHIND`` standard errors above that of the method in use. It holds the simpler ones, or comes near them, so that
its interval is right where they are right too, and wider. An interval holds the calibrated probability in any case.

An interval is one of the limit of the fit, so that losses are those of limits. A held-out loss is above that of the limit by
what the fit loses by its estimation error, the loss on the samples of the fit is below it by as much (Akaike 1973): the mean of
both has neither. With held-out losses alone a method of many numbers is excluded for their number, not for being wrong. Ridges
of one method have the same limit, and differ in their estimation error alone: they are compared by held-out losses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rhocal.calibrators.cascade.cascade import Cascade, FreeCascade
from rhocal.calibrators.compose.auto import AutoCalibrator
from rhocal.calibrators.compose.chain import Chain
from rhocal.calibrators.compose.cross_fit import CrossFit
from rhocal.calibrators.cross_validation import MAX_ERRORS_BEHIND, N_FOLDS, paired_over_samples
from rhocal.calibrators.estimator import unfitted
from rhocal.calibrators.folds import Folds
from rhocal.calibrators.guard import SampleScores, fit_without_warnings
from rhocal.calibrators.scale.field import RIDGES, FieldScaling
from rhocal.errors import InputError
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.calibrators.base import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Vector


def method_of_refits(calibrator: Calibrator) -> Calibrator:
    """The unfitted method that a calibrator is in effect, with what cross-validation chose as options."""
    scores = calibrator.solution_.held_out
    if scores is not None and scores.fell_back_to:
        return unfitted(scores.fell_back_to)
    if isinstance(calibrator, AutoCalibrator):
        return method_of_refits(calibrator.chosen_)
    if isinstance(calibrator, Cascade):
        fallback = calibrator.fallback_
        return method_of_refits(fallback[0]) if fallback else FreeCascade.from_options(calibrator)
    return unfitted(calibrator.with_choices())


def richest_method(calibrator: Calibrator, data: Predictions) -> Calibrator:
    """The richest unfitted method that the samples do not exclude; what the calibrator is, if it chose nothing."""
    used, richer = method_of_refits(calibrator), _richer_methods(calibrator, data)
    folds = Folds.from_profile(Profile.from_predictions(data), N_FOLDS, by_label=False)
    if not richer or not folds:
        return used
    scores = _LossesOfFit.of(used, data, folds)
    for method in reversed(richer):
        others = _LossesOfFit.of(method, data, folds)
        if scores is None or others is None:
            continue
        is_same = method.label == used.label
        pair = (others.held_out, scores.held_out) if is_same else (others.of_limit, scores.of_limit)
        if not _is_excluded(*pair, data):
            return method
    return used


def _richer_methods(calibrator: Calibrator, data: Predictions) -> Sequence[Calibrator]:
    """What the fit might have been instead, and is richer than what it is; the simplest first."""
    scores = calibrator.solution_.held_out
    has_fallen_back = scores is not None and scores.fell_back_to
    if isinstance(calibrator, AutoCalibrator | Cascade):
        candidates = [unfitted(method) for method in calibrator._choice_candidates(data)]  # noqa: SLF001 - our own
        used, labels = method_of_refits(calibrator).label, [method.label for method in candidates]
        richer = candidates[labels.index(used) + 1 :] if used in labels else candidates
        if isinstance(calibrator, AutoCalibrator) and not has_fallen_back:
            return [*_smaller_ridges(calibrator.chosen_), *richer]
        return richer
    own = [unfitted(calibrator.with_choices())] if has_fallen_back else []
    return [*own, *_smaller_ridges(calibrator)]


def _smaller_ridges(calibrator: Calibrator) -> list[Calibrator]:
    """``field``, alone or behind another method, with ridges below the one that was chosen, the largest first."""
    if isinstance(calibrator, Chain):
        chain = calibrator.with_choices()
        return [replace(chain, second=field) for field in _smaller_ridges(calibrator.second_)]
    if not isinstance(calibrator, FieldScaling) or calibrator.ridge != "cv":
        return []
    return [replace(calibrator.with_choices(), ridge=ridge) for ridge in RIDGES if ridge < calibrator.ridge_]


@dataclass(frozen=True, eq=False)
class _LossesOfFit:
    """NLL and Brier score of every sample."""

    held_out: SampleScores
    """By a fit without its fold."""
    of_limit: SampleScores
    """The mean of these and of those by the fit with all samples."""

    @classmethod
    def of(cls, method: Calibrator, data: Predictions, folds: Folds) -> _LossesOfFit | None:
        """Of the fits of a method; None where samples are too few for them."""
        assert data.labels is not None
        try:
            outputs = CrossFit.from_folds(method, data, folds).outputs(data)
            fitted = fit_without_warnings(method, data, is_compared=False)
        except InputError:
            return None
        held_out = SampleScores.from_logits(outputs, data.labels)
        own = SampleScores.from_logits(fitted.map_.logits(data), data.labels)
        return cls(held_out, SampleScores((held_out.nll + own.nll) / 2, (held_out.brier + own.brier) / 2))


def _is_excluded(scores: SampleScores, used: SampleScores, data: Predictions) -> bool:
    """Whether NLL and Brier score, each over its mean, are above those of another method by more than chance; so is NaN."""
    weights = data.counts
    total = float(weights.sum())
    share = weights / total
    above, error = paired_over_samples(
        _relative(scores, used, share), _relative(used, used, share), share, total, data.clusters
    )
    return not above <= MAX_ERRORS_BEHIND * error


def _relative(scores: SampleScores, used: SampleScores, share: Vector) -> Vector:
    nll, brier = (max(float(share @ losses), 1e-300) for losses in (used.nll, used.brier))
    return scores.nll / nll + scores.brier / brier
