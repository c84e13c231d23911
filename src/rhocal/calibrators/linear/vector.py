"""Vector scaling: p = softmax(a∘z + b), a scale and a bias for every class."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from rhocal.calibrators.linear.linear import LinearCalibrator, centered, class_logits, linear_map, nll_scale
from rhocal.calibrators.linear.linear_problem import LinearProblem, Ridge
from rhocal.calibrators.map import unchanged
from rhocal.calibrators.options import Fitted, option
from rhocal.calibrators.solutions import solution_at, warn_if_few
from rhocal.errors import BoundaryWarning, warn
from rhocal.objectives import NLL, Objective, objective
from rhocal.optimize import Solution
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from rhocal.calibrators.map import Map
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Vector
    from rhocal.optimize import Minimum

Solver = Literal["expected", "sgd", "adam"]
Start = Literal["temperature", "identity", "random"]

MAX_SINGLE_OFFSET = 2.0
"""Largest mean of a row, in units of the spread, up to which single precision is enough: beyond, scale and bias of a class are
nearly the same parameter, and its digits are spent on the offset."""

SEPARABLE_NLL = 1e-6
"""Below this every sample is right with certainty, and without a ridge NLL falls forever."""


@dataclass(eq=False, repr=False)
class VectorScaling(LinearCalibrator):
    """A scale and a bias for every class (Guo et al. 2017). It may change the predicted class.

    Parameters
    ----------
    objective
        What to minimize; see ``rhocal.objectives``.
    ridge
        Strength of the pull toward temperature scaling, ridge / (2 n) · (‖a/a₀ − 1‖² + ‖b‖²): the weight of that many
        samples. Without it a class that never occurs in the calibration set would get a bias of −∞.
    kappa
        Smoothing of the maximum, which has no slope where the top class changes.
    solver
        ``"expected"`` minimizes the exact expectation over mini-batches; ``"sgd"`` draws them, as the paper does; ``"adam"``
        draws them too, and takes steps whose lengths follow the slopes of each parameter, which converges much sooner.
    start
        Where the descent begins: ``"temperature"`` scaling, the ``"identity"`` (a = 1, b = 0), or ``"random"`` (a drawn
        from the standard normal distribution, b = 0). Only objectives that are not convex remember it.
    n_steps, learning_rate
        For ``solver="sgd"``: how many steps, and their length in units of temperature scaling; ``optimize.sgd`` shortens
        long ones, and with SCE, whose slopes are small, the first hundreds are as long as they may be. ``"adam"`` uses
        ``n_steps`` alone.
    random_state
        The seed of the draws.

    Attributes
    ----------
    weight_, bias_, center_
        a and b, and whether the mean of each row is taken away before them. With two classes it is: scores of one column, of
        two, margins and probabilities give the same fit.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.VectorScaling().fit(logits, labels)
    >>> calibrator.weight_.shape, calibrator.bias_.shape
    ((10,), (10,))
    """

    name = "vector"

    objective: str | Objective = "nll"
    _: KW_ONLY
    ridge: float = option(1.0, minimum=0, finite=True)
    kappa: float = option(1e-4, above=0)
    solver: Solver = "expected"
    start: Start = "temperature"
    n_steps: int = option(2000, minimum=1)
    learning_rate: float = option(200.0, above=0)
    random_state: int | None = option(0, minimum=0)

    center_ = Fitted[bool](dtype="bool")
    absent_in_old_artifacts = {"center_": False}  # noqa: RUF012 - declared by the base

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, Solution]:
        profile = Profile.from_predictions(data)
        warn_if_few(self.name, profile.total_weight / profile.n_classes, "svs, whose ridge grows with the classes")
        scale = nll_scale(profile)
        strength = self.ridge / (2 * profile.total_weight)
        target = objective(self.objective)
        has_digits = float(np.abs(profile.mean).max()) <= MAX_SINGLE_OFFSET * profile.spread
        x = class_logits(data, target if has_digits else None)
        x *= x.dtype.type(scale)
        problem = LinearProblem(x, data, profile, target, Ridge(strength, strength), self.kappa)
        near = None if start is None or x.dtype != np.float32 else self._near(problem, start, scale)
        first = None if self.start == "temperature" else self._first(scale, profile.n_classes)
        if self.solver != "expected":
            rate = self.learning_rate if self.solver == "sgd" else None
            minimum = problem.descend(
                self._first(scale, profile.n_classes),
                learning_rate=rate, n_steps=self.n_steps, random_state=self.random_state,
            )  # fmt: skip
        else:
            minimum = problem.minimum(first if near is None else near)
        weight, bias = problem.weight_and_bias(minimum.x)
        map_ = self._new_map(weight=scale * weight, bias=bias, center=data.n_classes == 2)
        if reason := self._why_no_minimum(minimum, profile, target):
            warn(reason, BoundaryWarning)
            value, n = minimum.value, minimum.n_evaluations
            return map_, Solution(str(problem.target), value, converged=False, n_evaluations=n, at_bound=reason)
        return map_, solution_at(minimum, problem.target, "vector scaling")

    def _why_no_minimum(self, minimum: Minimum, profile: Profile, target: Objective) -> str:
        """Why NLL without a ridge has none: a reason that the samples show, or empty."""
        if self.ridge > 0 or not isinstance(target, NLL):
            return ""
        counts = np.bincount(profile.labels, profile.weights, profile.n_classes)
        if not counts.all():
            name = profile.classes[int((counts == 0).argmax())]
            return f"class {name} has no sample, so that NLL without a ridge falls with its bias forever; use ridge > 0"
        if minimum.value < SEPARABLE_NLL:
            return "every sample is right with certainty, so that NLL without a ridge has no minimum; use ridge > 0"
        return ""

    def _near(self, problem: LinearProblem, start: Map, scale: float) -> Vector | None:
        """The parameters of another map; NLL has one minimum, wherever the descent begins."""
        first = problem.start_from(start)
        if first is not None:
            first[:, 0] = (1 + first[:, 0]) / scale - 1
        return first

    def _first(self, scale: float, n_classes: int) -> Vector:
        """The start as rows (Δ_j, b_j), with a_j = scale·(1 + Δ_j)."""
        first = np.zeros((n_classes, 2))
        if self.start == "identity":
            first[:, 0] = 1 / scale - 1
        elif self.start == "random":
            first[:, 0] = np.random.default_rng(self.random_state).normal(size=n_classes) / scale - 1
        return first

    def _map(self, *, weight: Vector, bias: Vector, center: bool) -> Map:
        return linear_map(centered if center else unchanged, weight, bias)
