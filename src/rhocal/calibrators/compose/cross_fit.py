"""Cross-fitting: calibrators fitted on all folds but one, and their outputs on the fold they were not fitted on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.cross_validation import CrossValidation
from rhocal.calibrators.estimator import unfitted
from rhocal.calibrators.folds import Fold, Folds
from rhocal.calibrators.validated_fit import fit_validated
from rhocal.errors import RhocalWarning
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from rhocal.calibrators.base import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Floats


@dataclass(frozen=True, eq=False)
class CrossFit:
    """The calibrators of the folds; none where samples cannot be divided into folds."""

    folds: Folds
    models: tuple[Calibrator, ...]

    @classmethod
    def from_predictions(
        cls, method: str | Calibrator, data: Predictions, n_folds: int, start: Calibrator | None = None
    ) -> CrossFit:
        """Fit a method without each fold, from the calibrator given; without one, from the first fold's on."""
        return cls.from_folds(method, data, Folds.from_profile(Profile.from_predictions(data), n_folds), start)

    @classmethod
    def from_folds(
        cls, method: str | Calibrator, data: Predictions, folds: Folds, start: Calibrator | None = None
    ) -> CrossFit:
        """The same on folds that are given."""

        def fit(method: str | Calibrator, fold: Fold, start: Calibrator | None) -> Calibrator:
            return fit_inside(method, data, fold, start)

        validation: CrossValidation[str | Calibrator, Calibrator] = CrossValidation(folds, fit)
        for _ in folds:
            model = validation.advance(method, start)
            start = start or model
        return cls(folds, tuple(validation.models.get(method, ())))

    def outputs(self, data: Predictions) -> Floats:
        """Calibrated logits of every sample by the calibrator that was not fitted on it."""
        outputs = np.empty_like(data.logits)
        for fold, model in zip(self.folds, self.models, strict=True):
            outputs[fold.outside] = model.map_.logits(data.take(fold.outside))
        return outputs


def held_out_logits(calibrator: Calibrator, data: Predictions, folds: Folds) -> Floats:
    """Calibrated logits of every sample by fits of a fitted calibrator's method without its fold."""
    outputs = calibrator._held_out_logits(data, folds)  # noqa: SLF001 - our own
    if outputs is not None:
        return outputs
    return CrossFit.from_folds(calibrator, data, folds, calibrator).outputs(data)


def fit_inside(method: str | Calibrator, data: Predictions, fold: Fold, start: Calibrator | None = None) -> Calibrator:
    """Fit a method without a fold. Its warnings are left out: the fit on all samples gives its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        map_ = None if start is None else start.map_
        return fit_validated(unfitted(method), data.take(fold.inside), kind="logits", start=map_, is_compared=False)
