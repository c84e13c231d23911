"""Vector scaling: p = softmax(a∘z + b), a scale and a bias for every class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.linear.linear import (
    LinearCalibrator,
    LinearProblem,
    Ridge,
    check_choices,
    check_options,
    fitted_map,
    nll_scale,
)
from rhocal.objectives import Objective, objective
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.portable import Formula
    from rhocal.numerics.special import Vector
    from rhocal.optimize import Solution


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
    solver
        ``"expected"`` minimises the exact expectation over mini-batches; ``"sgd"`` draws them, as the paper does.
    start
        Where the descent begins: ``"temperature"`` scaling, the ``"identity"`` (a = 1, b = 0), or ``"random"`` (a drawn
        from the standard normal distribution, b = 0). Only objectives that are not convex remember it.
    n_steps, learning_rate
        For ``solver="sgd"``: how many steps, and their length in units of temperature scaling; ``optimize.sgd`` shortens
        long ones, and with SCE, whose slopes are small, the first hundreds are as long as they may be.
    random_state
        The seed of the draws.

    Attributes
    ----------
    weight_, bias_
        a and b.
    """

    name = "vector"

    def __init__(
        self,
        objective: str | Objective = "nll",
        *,
        ridge: float = 1.0,
        kappa: float = 1e-4,
        solver: str = "expected",
        start: str = "temperature",
        n_steps: int = 2000,
        learning_rate: float = 200.0,
        random_state: int | None = 0,
    ) -> None:
        self.objective = objective
        self.ridge = ridge
        self.kappa = kappa
        self.solver = solver
        self.start = start
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.random_state = random_state

    def _fit(self, data: Predictions) -> Solution:
        check_options(ridge=self.ridge, kappa=self.kappa)
        check_choices(self, solver=("expected", "sgd"), start=("temperature", "identity", "random"))
        profile = Profile.of(data)
        scale = nll_scale(profile)
        strength = self.ridge / (2 * profile.total_weight)
        x = scale * data.logits.astype(float)
        problem = LinearProblem(x, data, profile, objective(self.objective), Ridge(strength, strength), self.kappa)
        first = self._first(scale, profile.n_classes)
        if self.solver == "sgd":
            steps = {name: getattr(self, name) for name in ("n_steps", "learning_rate", "random_state")}
            found = problem.descend(first, **steps)
        else:
            found = problem.minimum(first)
        weight, self.bias_, evidence = fitted_map(problem, found, "vector scaling")
        self.weight_ = scale * weight
        return evidence

    def _first(self, scale: float, n_classes: int) -> Vector:
        """The start as rows (Δ_j, b_j), with a_j = scale·(1 + Δ_j)."""
        first = np.zeros((n_classes, 2))
        if self.start == "identity":
            first[:, 0] = 1 / scale - 1
        elif self.start == "random":
            first[:, 0] = np.random.default_rng(self.random_state).normal(size=n_classes) / scale - 1
        return first

    def _features(self, logits: Vector) -> Vector:
        return logits

    def _portable_features(self) -> tuple[dict[str, Vector], Formula]:
        return {}, lambda _ops, _c, z: z
