"""Vector scaling: p = softmax(a∘z + b), a scale and a bias for every class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rhocal.calibrators.linear import LinearCalibrator, LinearProblem, Ridge, check_options, fitted_map, nll_scale
from rhocal.objectives import Objective, objective
from rhocal.profile import Profile

if TYPE_CHECKING:
    from rhocal.portable import Formula
    from rhocal.predictions import Predictions
    from rhocal.solve import Solution
    from rhocal.special import Vector


class VectorScaling(LinearCalibrator):
    """A scale and a bias for every class (Guo et al. 2017). It may change the predicted class.

    Parameters
    ----------
    objective
        What to minimise; see ``rhocal.objectives``.
    ridge
        Strength of the pull toward temperature scaling, ridge / (2 n) · (‖a/a₀ − 1‖² + ‖b‖²): the weight of that many
        samples. Without it a class that never occurs in the tune set would get a bias of −∞.
    kappa
        Smoothing of the maximum, which has no slope where the top class changes.

    Attributes
    ----------
    weight_, bias_
        a and b.
    """

    name = "vector"

    def __init__(self, objective: str | Objective = "nll", *, ridge: float = 1.0, kappa: float = 1e-4) -> None:
        self.objective = objective
        self.ridge = ridge
        self.kappa = kappa

    def _fit(self, data: Predictions) -> Solution:
        check_options(ridge=self.ridge, kappa=self.kappa)
        profile = Profile.of(data)
        scale = nll_scale(profile)
        pull = self.ridge / (2 * profile.total_weight)
        x = scale * data.logits.astype(float)
        problem = LinearProblem(x, data, profile, objective(self.objective), Ridge(pull, pull), self.kappa)
        weight, self.bias_, evidence = fitted_map(problem, "vector scaling")
        self.weight_ = scale * weight
        return evidence

    def _features(self, logits: Vector) -> Vector:
        return logits

    def _portable_features(self) -> tuple[dict[str, Vector], Formula]:
        return {}, lambda _ops, _c, z: z
