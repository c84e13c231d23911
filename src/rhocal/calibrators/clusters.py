"""Samples that depend on each other: how much a calibration set of clusters tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.guard import SampleScores
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from rhocal.data.predictions import Predictions


def with_design_effect(data: Predictions) -> Predictions:
    """Data whose weights sum to the number of independent samples that tell as much; without clusters, the data itself.

    Ridges, priors and limits of fits count samples: k copies of each sample must not look like k times as many.
    """
    if data.clusters is None:
        return data
    effect = design_effect(Profile.from_predictions(data))
    if effect <= 1:
        return data
    weights = data.counts
    return data.with_weights(weights / effect)


def design_effect(profile: Profile) -> float:
    """Variance of the mean NLL of clusters over that of independent samples (Kish 1965), after temperature scaling.

    It is k for k copies of each sample, and 1 on average where samples of a cluster are independent.
    """
    if profile.clusters is None or not profile.spread > 0:
        return 1.0
    scale = np.exp(ScaleSearch.from_profile(profile).log_scale)
    nll = SampleScores.from_scales(profile, np.full(profile.n_samples, scale)).nll
    deviations = nll - float(profile.weights @ nll)
    independent = float(profile.weights @ deviations**2) / profile.total_weight
    sums = np.bincount(profile.clusters, profile.weights * deviations)
    largest = float(np.bincount(profile.clusters, profile.weights).max()) * profile.total_weight
    return float(np.clip(sums @ sums / max(independent, 1e-300), 1.0, max(largest, 1.0)))
