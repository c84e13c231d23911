"""Few samples: a cascade is compared with simpler methods on the same folds, because its shared stages cost it most there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.compose.cross_fit import fit_inside
from rhocal.calibrators.folds import Folds
from rhocal.calibrators.guard import TEMPERATURE, SampleScores
from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.calibrators.cascade.fitting import CascadeFit
    from rhocal.data.predictions import Predictions
    from rhocal.profile.profile import Profile

FEW_SAMPLES = 2_000
"""Below, a cascade is compared with simpler methods. With more samples it was better on all but shifted data."""

SIMPLER = (TEMPERATURE, "svs")


def simpler_method(
    fit: CascadeFit, data: Predictions, profile: Profile, *, exchangeable: bool
) -> tuple[str, SampleScores] | None:
    """The simpler method with the lowest held-out NLL, and its scores in the order of the fit; None if the cascade has it."""
    if profile.total_weight >= FEW_SAMPLES:
        return None
    order, best = fit.folds.order, None
    weights = profile.weights[order] / profile.weights[order].sum()
    lowest = float(weights @ fit.held_out_losses().nll)
    for name in SIMPLER[:1] if exchangeable else SIMPLER:
        scores = cross_fitted_losses(name, fit, data, profile)
        if scores is not None and float(weights @ scores.nll) < lowest:
            best, lowest = (name, scores), float(weights @ scores.nll)
    return best


def cross_fitted_losses(name: str, fit: CascadeFit, data: Predictions, profile: Profile) -> SampleScores | None:
    """NLL and Brier score of every sample by a method fitted without its fold; None if it cannot be fitted."""
    assert data.labels is not None
    codes = np.zeros(data.n_samples, np.intp)
    codes[fit.folds.order] = fit.folds.folds
    folds = Folds.from_codes(codes, profile.weights, np.arange(data.n_samples))
    outputs = data.logits.copy()
    try:
        for fold in folds:
            outputs[fold.outside] = fit_inside(name, data, fold).map_.logits(data.take(fold.outside))
    except InputError:
        return None
    every = SampleScores.from_logits(outputs, data.labels)
    return SampleScores(every.nll[fit.folds.order], every.brier[fit.folds.order])
