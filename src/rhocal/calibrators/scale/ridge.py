"""How a rich scale map is held back: a ridge toward temperature scaling, and a guard on NLL, both by cross-validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rhocal import optimize
from rhocal.calibrators.scale.scale_search import bound_reached, warn_unless
from rhocal.objectives import NLL, Objective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators.scale.scale_search import ScaleSearch
    from rhocal.numerics.portable import Ops
    from rhocal.numerics.portable.ops import Value
    from rhocal.numerics.special import Vector

SHARES = (0.0, 0.1, 0.3, 1.0, 3.0)
"""Weights of NLL that are added to the objective, one after the other, until the guard is content."""

CAUTION = 0.25
"""Standard errors by which a weaker ridge must be better before it is preferred, unless an option says otherwise."""

ENOUGH = 80
"""With fewer wrong samples (or right ones) than this in tuning, temperature scaling is all that is tried: a network that is
right 95 times of 100 shows its mistakes slowly, and the scale of a sample is learned from both."""

SURENESS = 1.0
"""Standard errors (over the folds, paired) that are added to the held-out NLL before the guard looks at it."""

GUARD = 0.006
"""By how much held-out NLL may exceed temperature scaling's, relatively, unless an option says otherwise."""

SCALE_REACH = 10.0
"""No sample's scale is more than this times the NLL-optimal one, nor less than one over this: none is that different."""

MAX_STEPS = 200
TOLERANCE = 1e-12
"""Relative decrease of the objective below which a search on the fast profile stops."""

CHOOSING = 1e-7
"""Relative decrease at which fits inside cross-validation stop: far below the differences they are compared by."""


Pull = Callable[["Vector"], "Vector"]
"""A slope in every sample's scale → a slope in every parameter."""


class ScaleMap(Protocol):
    """Scales as functions of parameters; at ``start`` it is temperature scaling."""

    def start(self, log_scale: float) -> Vector:
        """Temperature scaling with this log scale, which is the first parameter; the ridge pulls the others to 0."""

    def scales(self, x: Vector) -> tuple[Vector, Pull]:
        """The scale of every sample, and how a slope in every scale becomes one in every parameter."""


@dataclass(frozen=True)
class HoldBack:
    """How a map is held back, as its options say it."""

    ridge: float | str
    guard: float
    caution: float
    n_folds: int


@dataclass(frozen=True)
class Found:
    """A minimum, and the Hessian of the objective (without the ridge) there: a similar problem can begin with both."""

    minimum: optimize.Minimum
    hessian: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Choice:
    """What cross-validation settled on."""

    target: Objective
    ridge: float
    trials: tuple[dict[str, Any], ...]
    score: tuple[float, float] = (np.inf, np.inf)
    """How much NLL the guard asked for, and the held-out objective: what maps are compared by, lower is better."""
    near: Found | None = None
    """Where a fit without one of the folds ended."""


def bounded_scale(log_scale: Vector, unit: float) -> tuple[Vector, Vector]:
    """The scale and its derivative in log scale, kept within ``SCALE_REACH`` of the NLL-optimal one."""
    away = log_scale - np.log(unit)
    scale = np.asarray(unit * np.exp(np.clip(away, -np.log(SCALE_REACH), np.log(SCALE_REACH))))
    return scale, np.where(np.abs(away) < np.log(SCALE_REACH), scale, 0.0)


def portable_bounded_scale(ops: Ops, log_scale: Value, unit: Value) -> Value:
    """The scale of ``bounded_scale`` over portable operations."""
    reach = float(np.log(SCALE_REACH))
    return unit * ops.exp(ops.clip(log_scale - ops.log(unit), -reach, reach))


def fitted(
    fit: ScaleSearch,
    scale_map: ScaleMap,
    target: Objective,
    tried: Sequence[float],
    hold: HoldBack,
    what: str,
    choice: Choice | None = None,
) -> tuple[Vector, float, optimize.Solution]:
    """The parameters, the ridge and the evidence of a map fitted with the ridge given, or the one chosen from ``tried``.

    ``choice`` is what cross-validation said, if it was asked before.
    """
    target = fit.prepared(target)
    if choice is None:
        choice = settled(fit, scale_map, target, tried, hold)
    found = minimum(fit, scale_map, choice.target, choice.ridge, fit.log_scale, choice.near).minimum
    found = finish(fit, scale_map, choice.target, choice.ridge, found)
    at_bound = bound_reached(float(found.x[0]), fit.bounds)
    warn_unless(converged=found.converged, what=what)
    evidence = optimize.Solution(
        str(choice.target), found.value, found.converged, found.n_evaluations, at_bound, choice.trials
    )
    return found.x, choice.ridge, evidence


def settled(fit: ScaleSearch, scale_map: ScaleMap, target: Objective, tried: Sequence[float], hold: HoldBack) -> Choice:
    """The ridge that was given, or what cross-validation says."""
    if isinstance(hold.ridge, str):
        return choose(fit, scale_map, target, tried, hold)
    return Choice(target, float(hold.ridge), ())


def minimum(
    fit: ScaleSearch,
    scale_map: ScaleMap,
    target: Objective,
    ridge: float,
    anchor: float,
    near: Found | None = None,
    tolerance: float = TOLERANCE,
) -> Found:
    """The minimum of objective + ridge/(2n)·‖parameters − temperature scaling‖², on the fast profile.

    ``anchor`` is the log scale of that temperature scaling, and what an infinite ridge gives. Divided by the weight n of
    all samples the ridge is a prior: it matters less the more samples there are.
    """
    plain = scale_map.start(anchor)
    if ridge == np.inf:
        value, _ = fit.evaluate(target, scale_map.scales(plain)[0])
        return Found(optimize.Minimum(plain, value, converged=True, n_evaluations=1))
    fun = _function(fit, scale_map, target, ridge, anchor, exact=False)
    start = plain if near is None else near.minimum.x
    if len(start) > optimize.FEW_PARAMETERS:
        return Found(optimize.lbfgs(fun, start, max_steps=MAX_STEPS, tolerance=tolerance))
    strength = ridge / fit.profile.total_weight * np.eye(len(start))
    hessian = None if near is None or near.hessian is None else near.hessian + strength
    found, hessian = optimize.quasi_newton(fun, start, [(-np.inf, np.inf)] * len(start), hessian, tolerance=tolerance)
    return Found(found, hessian - strength)


def finish(
    fit: ScaleSearch, scale_map: ScaleMap, target: Objective, ridge: float, found: optimize.Minimum
) -> optimize.Minimum:
    """The exact optimum next to the one found on the fast profile."""
    if ridge == np.inf or (fit.fast is fit.profile and found.converged):
        return found
    exact, fast = (_function(fit, scale_map, target, ridge, fit.log_scale, exact=exact) for exact in (True, False))
    return optimize.polish(exact, fast, found)


def choose(fit: ScaleSearch, scale_map: ScaleMap, target: Objective, ridges: Sequence[float], hold: HoldBack) -> Choice:
    """The ridge with the lowest held-out objective; NLL is added to the objective while the guard is not content.

    A stronger ridge whose held-out objective is within ``caution`` standard errors (over the folds, paired) of the lowest
    is preferred: with few samples that is temperature scaling. The guard compares held-out NLL with that of temperature
    scaling: an objective that looks at the top label alone may buy its confidence with the probabilities of the others.
    """
    folds = stratified_folds(fit, hold.n_folds)
    right = float(fit.profile.weights @ fit.profile.correct) * fit.profile.total_weight
    if min(right, fit.profile.total_weight - right) < ENOUGH:
        ridges = [np.inf]
    trials: list[dict[str, Any]] = []
    for share in SHARES:
        mixed = target + share * NLL() if share else target
        ended: dict[float, Found] = {}
        rows = _cross_validate(fit, scale_map, mixed, ridges, folds, ended)
        trials += [{"nll_share": share, **row} for row in rows]
        best = next(row for row in rows if row["above_lowest"] <= hold.caution * row["standard_error"])
        if best["nll_above"] + SURENESS * best["nll_error"] <= hold.guard * best["nll_temperature"]:
            score = share, best.get("held_out", 0.0)
            return Choice(mixed, best["ridge"], tuple(trials), score, ended.get(best["ridge"]))
    return Choice(NLL(), np.inf, tuple(trials))


def stratified_folds(fit: ScaleSearch, n_folds: int) -> Vector:
    """The fold of every sample: its rank by confidence, counted round.

    So every fold sees every level of confidence, and neither the order of the samples nor repeating one (both copies share
    a rank) changes anything. Where logits are no better than chance, NLL wants no scale at all; one that tells samples apart
    is taken then.
    """
    scale = np.full(fit.profile.n_samples, max(np.exp(fit.log_scale), 1 / max(fit.profile.spread, 1e-300)))
    key = np.round(fit.confidence(scale), 9) + 2 * fit.profile.correct
    present = fit.profile.weights > 0
    ranks = np.searchsorted(np.unique(key[present]), key)
    return np.asarray(ranks % n_folds)


def _cross_validate(
    fit: ScaleSearch,
    scale_map: ScaleMap,
    target: Objective,
    ridges: Sequence[float],
    folds: Vector,
    ended: dict[float, Found],
) -> list[dict[str, float]]:
    """Held-out figures of every ridge, from the strongest to the weakest. ``ended`` takes where the fits of each ended."""
    weights = fit.profile.weights
    present = np.unique(folds[weights > 0])
    held_out, nll = np.zeros((2, len(present), len(ridges)))
    nll_temperature, shares = np.zeros((2, len(present)))
    for k, fold in enumerate(present):
        outside = np.where(folds == fold, weights, 0)
        shares[k] = outside.sum()
        if len(present) == 1:  # nothing to learn from
            return [
                {
                    "ridge": np.inf,
                    "above_lowest": 0.0,
                    "standard_error": 0.0,
                    "nll_above": 0.0,
                    "nll_error": 0.0,
                    "nll_temperature": 0.0,
                }
            ]
        tune, test = fit.weighted((weights - outside) / (1 - shares[k])), fit.weighted(outside / shares[k])
        anchor = float(tune.single(NLL()).x[0])
        nll_temperature[k] = test.evaluate(NLL(), scale_map.scales(scale_map.start(anchor))[0])[0]
        near: Found | None = None
        for i, ridge in enumerate(ridges):  # each starts where that of the fold before ended, or else the ridge before
            near = minimum(tune, scale_map, target, ridge, anchor, ended.get(ridge, near), CHOOSING)
            ended[ridge] = near
            scale = scale_map.scales(near.minimum.x)[0]
            held_out[k, i] = test.evaluate(target, scale)[0]
            nll[k, i] = test.evaluate(NLL(), scale)[0]
    mean = shares @ held_out
    above = held_out - held_out[:, [int(mean.argmin())]]
    errors = _standard_errors(above, shares)
    nll_above = nll - nll_temperature[:, None]
    nll_errors = _standard_errors(nll_above, shares)
    return [
        {
            "ridge": ridge,
            "held_out": float(mean[i]),
            "above_lowest": float(shares @ above[:, i]),
            "standard_error": float(errors[i]),
            "nll_above": float(shares @ nll_above[:, i]),
            "nll_error": float(nll_errors[i]),
            "nll_temperature": float(shares @ nll_temperature),
        }
        for i, ridge in enumerate(ridges)
    ]


def _standard_errors(differences: Vector, shares: Vector) -> Vector:
    """Standard error over the folds of each column's mean."""
    return np.sqrt(shares @ (differences - shares @ differences) ** 2 / (len(shares) - 1))


def _function(
    fit: ScaleSearch, scale_map: ScaleMap, target: Objective, ridge: float, anchor: float, *, exact: bool
) -> optimize.VectorFunction:
    strength = ridge / fit.profile.total_weight
    centre = np.r_[anchor, np.zeros(len(scale_map.start(anchor)) - 1)]

    def fun(x: Vector) -> tuple[float, Vector]:
        scale, vjp = scale_map.scales(x)
        value, slope = fit.evaluate(target, scale, exact=exact)
        away = x - centre
        return value + strength * float(away @ away) / 2, vjp(slope) + strength * away

    return fun
