"""The ridge of a scale map toward temperature scaling, and a guard on its NLL, both by cross-validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rhocal import optimize
from rhocal.calibrators.cross_validation import CrossValidation, HeldOut, Rule
from rhocal.calibrators.folds import Fold, Folds
from rhocal.calibrators.ridge_centers import ridge_centers
from rhocal.calibrators.solutions import solution_at
from rhocal.objectives import NLL, Objective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators.scale.scale_search import ScaleSearch
    from rhocal.numerics.ops import Ops, Value
    from rhocal.numerics.special import Vector

NLL_SHARES = (0.0, 0.1, 0.3, 1.0, 3.0)
"""Weights of NLL that are added to the objective, one after the other, until the guard passes."""

MIN_CORRECT_AND_WRONG = 80
"""With fewer wrong samples (or right ones) than this in tuning, temperature scaling is all that is tried: a network that is
right 95 times of 100 shows its mistakes slowly, and the scale of a sample is learned from both."""

SCALE_REACH = 10.0
"""No sample's scale is more than this times the NLL-optimal one, nor less than one over this: none is that different."""

MAX_STEPS = 200
TOLERANCE = 1e-12
"""Relative decrease of the objective below which a search on the fast profile stops."""

CHOOSING_TOLERANCE = 1e-7
"""Relative decrease at which fits inside cross-validation stop: far below the differences they are compared by."""


Vjp = Callable[["Vector"], "Vector"]
"""A slope in every sample's scale → a slope in every parameter."""


class ScaleMap(Protocol):
    """Scales as functions of parameters; at ``start`` it is temperature scaling."""

    def start(self, log_scale: float) -> Vector:
        """Temperature scaling with this log scale, which is the first parameter; the ridge pulls the others to 0."""

    def scales(self, x: Vector) -> tuple[Vector, Vjp]:
        """The scale of every sample, and how a slope in every scale becomes one in every parameter."""


@dataclass(frozen=True)
class RidgeOptions:
    """The strength of the ridge, or how it is chosen."""

    ridge: float | str
    guard: float
    caution: float
    n_folds: int


@dataclass(frozen=True)
class RidgeMinimum:
    """A minimum, and the Hessian of the objective (without the ridge) there: a similar problem can begin with both."""

    minimum: optimize.Minimum
    hessian: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class RidgeChoice:
    """The objective and the ridge that cross-validation chose."""

    target: Objective
    ridge: float
    trials: tuple[dict[str, Any], ...]
    score: tuple[float, float] = (np.inf, np.inf)
    """How much NLL was added for the guard, and the held-out objective: what maps are compared by, lower is better."""
    start: RidgeMinimum | None = None
    """Where a fit without one of the folds ended: the fit on all samples starts there."""


def bounded_scale(log_scale: Vector, unit: float) -> tuple[Vector, Vector]:
    """The scale and its derivative in log scale, kept within ``SCALE_REACH`` of the NLL-optimal one."""
    away = log_scale - np.log(unit)
    scale = np.asarray(unit * np.exp(np.clip(away, -np.log(SCALE_REACH), np.log(SCALE_REACH))))
    return scale, np.where(np.abs(away) < np.log(SCALE_REACH), scale, 0.0)


def bounded_scale_formula(ops: Ops, away: Value, unit: Value) -> Value:
    """The scale of ``bounded_scale`` as a formula of a map; ``away`` is the log scale minus that of the unit."""
    reach = float(np.log(SCALE_REACH))
    return unit * ops.exp(ops.clip(away, -reach, reach))


def bias_from_unit(bias: float, unit: float) -> float:
    """The log scale in units of ``unit``, as ``bounded_scale_formula`` reads it: near 0, where rounding costs least."""
    return float(bias - np.log(unit))


@dataclass(frozen=True)
class RidgeProblem:
    """The objective of a scale map plus a ridge toward temperature scaling."""

    search: ScaleSearch
    scale_map: ScaleMap
    target: Objective

    def minimum(
        self, ridge: float, anchor: float, start: RidgeMinimum | None = None, tolerance: float = TOLERANCE
    ) -> RidgeMinimum:
        """The minimum of objective + ridge/(2n)·‖parameters − temperature scaling‖², on the fast profile.

        ``anchor`` is the log scale of that temperature scaling, and what an infinite ridge gives. Divided by the weight n of
        all samples the ridge is a prior: it matters less the more samples there are.
        """
        plain = self.scale_map.start(anchor)
        if ridge == np.inf:
            value, _ = self.search.evaluate(self.target, self.scale_map.scales(plain)[0])
            return RidgeMinimum(optimize.Minimum(plain, value, converged=True, n_evaluations=1))
        fun = self._function(ridge, anchor, exact=False)
        first = plain if start is None else start.minimum.x
        if len(first) > optimize.MAX_NEWTON_PARAMETERS:
            return RidgeMinimum(optimize.lbfgs(fun, first, max_steps=MAX_STEPS, tolerance=tolerance))
        strength = ridge / self.search.profile.total_weight * np.eye(len(first))
        hessian = None if start is None or start.hessian is None else start.hessian + strength
        bounds = [(-np.inf, np.inf)] * len(first)
        minimum, hessian = optimize.quasi_newton(fun, first, bounds, hessian, tolerance=tolerance)
        return RidgeMinimum(minimum, hessian - strength)

    def finish(self, ridge: float, minimum: optimize.Minimum) -> optimize.Minimum:
        """The exact optimum next to the one on the fast profile."""
        search = self.search
        if ridge == np.inf or (search.fast is search.profile and minimum.converged):
            return minimum
        exact, fast = (self._function(ridge, search.log_scale, exact=exact) for exact in (True, False))
        return optimize.polish(exact, fast, minimum)

    def _function(self, ridge: float, anchor: float, *, exact: bool) -> optimize.VectorFunction:
        strength = ridge / self.search.profile.total_weight
        n_features = len(self.scale_map.start(anchor)) - 1
        center = np.r_[anchor, ridge_centers(np.full(n_features, ridge))]

        def fun(x: Vector) -> tuple[float, Vector]:
            scale, vjp = self.scale_map.scales(x)
            value, slope = self.search.evaluate(self.target, scale, exact=exact)
            away = x - center
            return value + strength * float(away @ away) / 2, vjp(slope) + strength * away

        return fun


def fit_scale_map(
    search: ScaleSearch,
    scale_map: ScaleMap,
    target: Objective,
    ridges: Sequence[float],
    options: RidgeOptions,
    what: str,
    choice: RidgeChoice | None = None,
) -> tuple[Vector, float, optimize.Solution]:
    """The parameters, the ridge and the evidence of a map fitted with the ridge of the options, or one chosen from ``ridges``.

    ``choice`` is the result of cross-validation if it was run before.
    """
    target = search.prepared(target)
    if choice is None:
        choice = choose_ridge(search, scale_map, target, ridges, options)
    problem = RidgeProblem(search, scale_map, choice.target)
    minimum = problem.finish(choice.ridge, problem.minimum(choice.ridge, search.log_scale, choice.start).minimum)
    evidence = solution_at(minimum, choice.target, what, trials=choice.trials, bounds=search.bounds)
    return minimum.x, choice.ridge, evidence


def choose_ridge(
    search: ScaleSearch, scale_map: ScaleMap, target: Objective, ridges: Sequence[float], options: RidgeOptions
) -> RidgeChoice:
    """The ridge of the options, or the one with the lowest held-out objective; NLL is added to it until the guard passes.

    A stronger ridge whose held-out objective is within ``caution`` standard errors of the lowest is preferred: with few
    samples that is temperature scaling. The guard compares held-out NLL with that of temperature scaling: an objective that
    depends on the top label alone may improve its confidence at the cost of the other probabilities.
    """
    if not isinstance(options.ridge, str):
        return RidgeChoice(target, float(options.ridge), ())
    folds = Folds.stratified(search, options.n_folds)
    if not folds:
        return RidgeChoice(target, np.inf, ())
    n_correct = float(search.profile.weights @ search.profile.correct) * search.profile.total_weight
    if min(n_correct, search.profile.total_weight - n_correct) < MIN_CORRECT_AND_WRONG:
        ridges = [np.inf]
    trials: list[dict[str, Any]] = []
    for share in NLL_SHARES:
        mixed = target + share * NLL() if share else target
        validation = _cross_validation(search, scale_map, mixed, folds)
        choice = validation.choose(ridges, Rule(options.caution, options.guard), "ridge")
        trials += [{"nll_share": share, **row} for row in choice.trials]
        if choice.passes_guard:
            score = share, choice.value
            return RidgeChoice(mixed, choice.candidate, tuple(trials), score, choice.models[-1])
    return RidgeChoice(NLL(), np.inf, tuple(trials))


def _cross_validation(
    search: ScaleSearch, scale_map: ScaleMap, target: Objective, folds: Folds
) -> CrossValidation[float, RidgeMinimum]:
    """Fits of the map with a ridge, and their objective and NLL on the fold held out.

    A weight of 0 leaves a sample out, so that all folds share one table of curves.
    """

    @lru_cache(maxsize=1)  # all ridges are tried on one fold before the next
    def parts(fold: Fold) -> tuple[RidgeProblem, float, ScaleSearch]:
        outside, share = fold.held_out_weights, fold.share
        inner = search.weighted((search.profile.weights - outside) / (1 - share))
        anchor = float(inner.single_scale(NLL()).x[0])
        return RidgeProblem(inner, scale_map, target), anchor, search.weighted(outside / share)

    def fit(ridge: float, fold: Fold, start: RidgeMinimum | None) -> RidgeMinimum:
        problem, anchor, _ = parts(fold)
        return problem.minimum(ridge, anchor, start, CHOOSING_TOLERANCE)

    def score(_: float, model: RidgeMinimum, fold: Fold) -> HeldOut:
        scale, outer = scale_map.scales(model.minimum.x)[0], parts(fold)[2]
        return HeldOut(*outer.values((target, NLL()), scale))

    return CrossValidation(folds, fit, score, "previous fold")
