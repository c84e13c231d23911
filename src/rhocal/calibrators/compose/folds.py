"""Cross-fitting: calibrators fitted on all folds but one, and their outputs on the fold they have not seen."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.estimator import unfitted
from rhocal.calibrators.scale.ridge import stratified_folds
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.errors import RhocalWarning
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.base import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Floats


def fold_models(
    stage: str | Calibrator, data: Predictions, n_folds: int, near: Calibrator | None = None
) -> tuple[NDArray[np.intp], list[Calibrator]]:
    """The fold of every sample, and for each fold a calibrator fitted on the others; no calibrator if one fold is all.

    Folds are strata of confidence: neither the order of the samples nor copies of them change anything. Each fit begins where
    the one before it ended, the first near the calibrator given.
    """
    profile = Profile.of(data)
    if not profile.spread > 0:
        return np.zeros(data.n_samples, dtype=np.intp), []
    folds = stratified_folds(ScaleSearch.from_profile(profile), n_folds)
    present = np.unique(folds[profile.weights > 0])
    if len(present) < 2:
        return np.zeros(data.n_samples, dtype=np.intp), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)  # the fit on all samples speaks for itself
        models: list[Calibrator] = []
        for k in present:
            model = unfitted(stage)
            if near is not None:
                model.begin_near(near)
            models.append(model.fit_checked(data.take(np.flatnonzero(folds != k)), "logits"))
            near = near or model
    # A sample of weight 0 may stand in a fold of its own; any model will do for it.
    return np.searchsorted(present, folds).clip(max=len(present) - 1), models


def out_of_fold(folds: NDArray[np.intp], models: list[Calibrator], logits: Floats) -> Floats:
    """Calibrated logits of every sample by the calibrator that was not fitted on it."""
    outputs = np.empty_like(logits)
    for k, model in enumerate(models):
        outputs[folds == k] = model.transform_checked(logits[folds == k])
    return outputs
