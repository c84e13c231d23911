"""A fit on data that is already validated."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.options import validate_options
from rhocal.calibrators.scale.scale import ScaleCalibrator
from rhocal.data.logit_sizes import check_differences
from rhocal.data.predictions import SMALLEST_PROB, Kind, Predictions
from rhocal.numerics.masks import gap_beyond
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.map import Map


C = TypeVar("C", bound=Calibrator)

FITTED = frozenset(name for name in (*Calibrator.__annotations__, "map_", "policy_") if name.endswith("_"))
"""Attributes that belong to a fit. Others, also those that end in an underscore, are the caller's."""


def fit_validated(
    calibrator: C,
    data: Predictions | Profile,
    *,
    kind: Kind | None = None,
    start: Map | None = None,
    is_compared: bool = True,
) -> C:
    """Fit on validated data. ``kind`` is what will go in afterwards (the default: what the data is).

    With ``start``, the map of a fit on similar samples, the result is the same, sooner. A fit that is not compared with other
    methods afterwards is spared what only the comparison needs.
    """
    validate_options(calibrator)
    if isinstance(data, Predictions):
        data = data.prepared()
        if isinstance(calibrator, ScaleCalibrator):
            data = Profile.from_prepared(data)
    for name in FITTED & vars(calibrator).keys():
        del vars(calibrator)[name]  # an earlier fit, and what was certified for its map
    calibrator.classes_, calibrator.kind_ = data.classes, kind or data.kind
    if calibrator.reads_probs and isinstance(data, Predictions):
        check_differences(data, calibrator.label)
    calibrator.mask_gap_ = learned_mask_gap(data)
    calibrator.smallest_prob_ = data.smallest_prob
    calibrator.n_best_ = data.n_best if isinstance(data, Profile) else None
    calibrator.label_shares_, calibrator.n_samples_ = label_shares(data), effective_size(data)
    calibrator.n_clusters_ = None if data.clusters is None else len(np.unique(data.clusters))
    fit = calibrator._fit if is_compared else calibrator._fit_map_alone  # noqa: SLF001 - our own
    map_, calibrator.solution_ = fit(data, start)
    vars(calibrator)["map_"] = map_
    return calibrator


def learned_mask_gap(data: Predictions | Profile) -> float:
    """How far below the largest logit of its row an entry is a mask, in the calibration set or in logits that come later.

    Probabilities have no masks, but a calibrator that was fitted on them may be applied to logits: those that are farther
    than any logarithm that the fit could read are masks.
    """
    gap = np.inf if data.mask_gap is None else data.mask_gap
    if np.isfinite(gap) or data.kind == "logits":
        return gap
    return gap_beyond(-math.log(data.smallest_prob or SMALLEST_PROB))


def label_shares(data: Predictions | Profile) -> NDArray[np.float64]:
    """The share of each class among the labels, by weight."""
    assert data.labels is not None
    counts = np.bincount(np.asarray(data.labels), data.weights, minlength=len(data.classes))
    return np.asarray(counts / counts.sum(), np.float64)


def effective_size(data: Predictions | Profile) -> int:
    """The number of samples; with weights (Σw)²/Σw², the number of equal weights with the same variance of a mean.

    With clusters it is at most the sum of weights, which ``with_design_effect`` makes the number of independent samples.
    """
    assert data.labels is not None
    size = float(len(data.labels))
    if data.weights is not None:
        weights = np.asarray(data.weights, np.float64)
        weights = weights / weights.max()  # the square of a large weight is no number
        size = float(weights.sum() ** 2 / (weights @ weights))
    return max(1, round(size if data.clusters is None else min(size, data.total_weight)))
