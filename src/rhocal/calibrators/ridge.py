"""How a rich scale map is held back: a ridge toward temperature scaling, and a guard on NLL, both by cross-validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rhocal import solve
from rhocal.objectives import NLL, Objective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.calibrators.scale_fit import ScaleFit
    from rhocal.special import Vector

SHARES = (0.0, 0.1, 0.3, 1.0, 3.0)
"""Weights of NLL that are added to the objective, one after the other, until the guard is content."""

MAX_STEPS = 200


class ScaleMap(Protocol):
    """Scales as functions of parameters; at ``start`` it is temperature scaling."""

    penalised: Vector
    """1 for the parameters the ridge pulls to 0, else 0. Where they are all 0 the map is temperature scaling."""

    def start(self, log_scale: float) -> Vector:
        """Temperature scaling with this log scale."""

    def scales(self, x: Vector) -> tuple[Vector, Vector]:
        """The scale of every sample, and its derivative in every parameter (n_parameters × n_samples)."""


@dataclass(frozen=True)
class Choice:
    """What cross-validation settled on."""

    target: Objective
    ridge: float
    trials: tuple[dict[str, Any], ...]


def minimum(
    fit: ScaleFit, scale_map: ScaleMap, target: Objective, ridge: float, start: Vector | None = None
) -> solve.Minimum:
    """The minimum of objective + ridge/2·‖penalised parameters‖², on the fast profile. An infinite ridge is temperature."""
    if start is None:
        start = scale_map.start(float(fit.single(target).x[0]))
    if ridge == np.inf:
        value, _ = fit.evaluate(target, scale_map.scales(start)[0])
        return solve.Minimum(start, value, converged=True, n_evaluations=1)
    return solve.smooth(_function(fit, scale_map, target, ridge, exact=False), start, max_steps=MAX_STEPS)


def finish(fit: ScaleFit, scale_map: ScaleMap, target: Objective, ridge: float, found: solve.Minimum) -> solve.Minimum:
    """The exact optimum next to the one found on the fast profile."""
    if ridge == np.inf or (fit.fast is fit.profile and found.converged):
        return found
    exact, fast = (_function(fit, scale_map, target, ridge, exact=exact) for exact in (True, False))
    return solve.polish(exact, fast, found)


def choose(
    fit: ScaleFit, scale_map: ScaleMap, target: Objective, ridges: Sequence[float], guard: float, n_folds: int
) -> Choice:
    """The ridge with the lowest held-out objective; NLL is added to the objective while the guard is not content.

    The guard compares held-out NLL with that of temperature scaling: an objective that looks at the top label alone may
    buy its confidence with the probabilities of the others.
    """
    folds = stratified_folds(fit, n_folds)
    trials: list[dict[str, Any]] = []
    for share in SHARES:
        mixed = target + share * NLL() if share else target
        rows = _cross_validate(fit, scale_map, mixed, ridges, folds)
        trials += [{"nll_share": share, **row} for row in rows]
        best = min(rows, key=lambda row: row["held_out"])
        if best["nll"] <= (1 + guard) * best["nll_temperature"]:
            return Choice(mixed, best["ridge"], tuple(trials))
    return Choice(NLL(), np.inf, tuple(trials))


def stratified_folds(fit: ScaleFit, n_folds: int) -> Vector:
    """The fold of every sample: its rank by confidence, counted round.

    So every fold sees every level of confidence, and neither the order of the samples nor repeating one (both copies share
    a rank) changes anything.
    """
    scale = np.full(fit.profile.n_samples, np.exp(fit.log_scale))
    key = np.round(fit.confidence(scale), 9) + 2 * fit.profile.correct
    present = fit.profile.weights > 0
    ranks = np.searchsorted(np.unique(key[present]), key)
    return np.asarray(ranks % n_folds)


def _cross_validate(
    fit: ScaleFit, scale_map: ScaleMap, target: Objective, ridges: Sequence[float], folds: Vector
) -> list[dict[str, float]]:
    rows = [{"ridge": ridge, "held_out": 0.0, "nll": 0.0, "nll_temperature": 0.0} for ridge in ridges]
    weights = fit.profile.weights
    for fold in np.unique(folds[weights > 0]):
        outside = np.where(folds == fold, weights, 0)
        share = float(outside.sum())
        if share >= 1 - 1e-12:  # a single fold: nothing to learn from
            return rows[:1]
        tune, test = fit.weighted((weights - outside) / (1 - share)), fit.weighted(outside / share)
        plain = scale_map.scales(scale_map.start(float(tune.single(NLL()).x[0])))[0]
        nll_temperature = test.evaluate(NLL(), plain)[0]
        start = None
        for row in rows:  # from the strongest ridge to the weakest, each starting where the last one ended
            start = minimum(tune, scale_map, target, row["ridge"], start).x
            scale = scale_map.scales(start)[0]
            row["held_out"] += share * test.evaluate(target, scale)[0]
            row["nll"] += share * test.evaluate(NLL(), scale)[0]
            row["nll_temperature"] += share * nll_temperature
    return rows


def _function(
    fit: ScaleFit, scale_map: ScaleMap, target: Objective, ridge: float, *, exact: bool
) -> solve.VectorFunction:
    def fun(x: Vector) -> tuple[float, Vector]:
        scale, slopes = scale_map.scales(x)
        value, slope = fit.evaluate(target, scale, exact=exact)
        held = scale_map.penalised * x
        return value + ridge / 2 * float(held @ held), slopes @ slope + ridge * held

    return fun
