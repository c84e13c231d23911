"""The scale as a field: log σ is linear in a few bounded features of the sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rhocal.calibrators.cross_validation import CAUTION, GUARD, N_FOLDS
from rhocal.calibrators.fitted_values import POSITIVE
from rhocal.calibrators.map import Map, scale_map
from rhocal.calibrators.options import Fitted, option
from rhocal.calibrators.scale import ridge as ridges
from rhocal.calibrators.scale.features import ORDERED_RANGE, n_columns, profile_features, raw_features, standardize
from rhocal.calibrators.scale.scale import ScaleCalibrator
from rhocal.calibrators.scale.standardized_features import StandardizedFeatures
from rhocal.calibrators.solutions import equal_logits_solution
from rhocal.numerics.special import Vector, dot
from rhocal.objectives import Objective, objective

if TYPE_CHECKING:
    from rhocal.calibrators.base import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.optimize import Solution
    from rhocal.profile.profile import Profile
    from rhocal.profile.sample_features import SampleFeatures

RIDGES = (np.inf, 500.0, 50.0, 5.0)
"""Strengths of the ridge that cross-validation tries, in samples; infinite is plain temperature scaling."""


@dataclass(eq=False, repr=False)
class FieldScaling(ScaleCalibrator):
    """A scale that depends on the sample: log σ = bias + weights · features (Proposition 3 allows any positive scale).

    Parameters
    ----------
    objective
        What to minimize; see ``rhocal.objectives``.
    features
        Names in ``rhocal.calibrators.scale.features.FEATURES``; each is clamped to the range seen in tuning and standardized.
    ridge
        Strength of the pull toward temperature scaling, or ``"cv"``: chosen by cross-validation from ``RIDGES``.
    guard
        With ``ridge="cv"``: by how much held-out NLL (and one standard error) may exceed temperature scaling's, relatively.
        While it does, more NLL is added to the objective; in the end temperature scaling itself is taken. From 1 on there
        is no guard.
    caution
        Standard errors by which a weaker ridge must be better in cross-validation before it is preferred to a stronger one.
    n_folds
        Of the cross-validation.

    Attributes
    ----------
    unit_, bias_, weights_
        The NLL-optimal scale, log σ of an average sample, and the weight of each standardized feature.
    low_, high_, mean_, sd_
        Range, mean and standard deviation of each feature in tuning.
    ridge_
        The strength used.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> new_logits, new_labels = rhocal.demo_logits("test")
    >>> calibrator = rhocal.FieldScaling().fit(logits, labels)
    >>> round(rhocal.metrics.ece(calibrator.predict_proba(new_logits), new_labels), 3)
    0.01
    """

    name = "field"

    objective: str | Objective = "top-brier + sce + 0.03*nll"
    _: KW_ONLY
    features: Sequence[str] = ("log-norm", "margin-spline")
    ridge: float | Literal["cv"] = option("cv", minimum=0)
    guard: float = option(GUARD, minimum=0)
    caution: float = option(CAUTION, minimum=0)
    n_folds: int = option(N_FOLDS, minimum=2)

    unit_ = Fitted[float](**POSITIVE)
    bias_ = Fitted[float]()
    weights_ = Fitted[Vector](shape="features")
    low_ = Fitted[Vector](shape="features")
    high_ = Fitted[Vector](shape="features")
    mean_ = Fitted[Vector](shape="features")
    sd_ = Fitted[Vector](shape="features", minimum=1e-9)
    ridge_ = Fitted[float](minimum=0, maximum=np.inf)
    constraints = (
        ORDERED_RANGE,
        (
            "there is a weight for each column of features",
            lambda fitted: len(fitted["weights"]) == n_columns(fitted["calibrator"].features),
        ),
    )

    def _fit(self, data: Profile, start: Map | None = None) -> tuple[Map, Solution]:
        target = objective(self.objective)
        options = ridges.RidgeOptions(self.ridge, self.guard, self.caution, self.n_folds)
        features = StandardizedFeatures.from_profile(data, lambda unit: profile_features(data, unit, self.features))
        field = LinearLogScale(features.values, features.unit)
        if features.search is None:
            x, ridge, solution = field.start(0.0), np.inf, equal_logits_solution(target)
        else:
            x, ridge, solution = ridges.fit_scale_map(features.search, field, target, RIDGES, options, "field scaling")
        return self._new_map(**features.fitted, bias=float(x[0]), weights=x[1:], ridge=ridge), solution

    def with_choices(self) -> FieldScaling:
        return replace(self, objective=self.solution_.objective, ridge=self.ridge_)

    @property
    def is_guarded(self) -> bool:
        """Unless the option says that NLL does not matter."""
        return self.guard < 1

    def _fallback_map(self, reference: Calibrator, data: Predictions | Profile) -> Map:
        log_scale = -np.log(getattr(reference, "temperature_", 1.0))
        return self._new_map(**{**self.map_.fitted, "bias": log_scale, "weights": np.zeros_like(self.weights_)})

    def _map(self, *, ridge: float, bias: float, **numbers: Any) -> Map:
        own = ridges.bias_from_unit(bias, numbers["unit"])
        return scale_map(scale, features=tuple(self.features), bias=own, **numbers)


def scale(ops: Ops, parameters: Parameters, sample: SampleFeatures) -> Value:
    """exp(bias + weights · features) times the unit for every sample, kept within reach of it, the NLL-optimal scale."""
    raw = raw_features(ops, sample, parameters["unit"], parameters["features"])
    features = standardize(ops, raw, parameters)
    away = parameters["bias"] + ops.sum(parameters["weights"] * features)
    return ridges.bounded_scale_formula(ops, away, parameters["unit"])


class LinearLogScale:
    """log σ = x₀ + features · (x₁, x₂, …)."""

    def __init__(self, features: Vector, unit: float) -> None:
        self.features, self.unit = features, unit
        self._slopes = np.ascontiguousarray(np.vstack([np.ones(len(features)), features.T]))  # rows for compiled sums

    def start(self, log_scale: float) -> Vector:
        """Temperature scaling."""
        return np.r_[log_scale, np.zeros(self.features.shape[1])]

    def scales(self, x: Vector) -> tuple[Vector, ridges.Vjp]:
        """Every sample's scale, and the way back to the parameters."""
        scale, slope = ridges.bounded_scale(dot(self._slopes.T, x), self.unit)
        return scale, lambda outer: dot(self._slopes, slope * outer)
