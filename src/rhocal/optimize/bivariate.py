"""Minima of smooth functions of two variables whose Hessian is known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rhocal.optimize.multivariate import MAX_NEWTON_STEP, ROUNDING, STEP_SHARES, TOLERANCE
from rhocal.optimize.solution import Minimum

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rhocal.optimize.solution import Curved

Pair = tuple[float, float]


def newton_2d(
    fun: Callable[[float, float], Curved],
    start: Pair,
    bounds: Sequence[Pair],
    tolerance: float = TOLERANCE,
    *,
    last_step: bool = False,
) -> Minimum:
    """Minimize between bounds with Newton steps; never ends above its start.

    ``tolerance`` is the relative decrease that a step must promise to be evaluated; a smaller one ends the search, or, with
    ``last_step``, is taken without an evaluation: the error after it is far smaller. Written with plain numbers: for two
    variables, calling a library for small matrices takes longer than its work.
    """
    x = _clip(start, bounds)
    at = fun(*x)
    n = 1
    for _ in range(100):
        value, gradient, _ = at
        step = _step(x, at, bounds)
        gain = -(gradient[0] * step[0] + gradient[1] * step[1]) / 2
        if gain <= tolerance * abs(value):
            if last_step:
                x, value = _clip((x[0] + step[0], x[1] + step[1]), bounds), value - gain
            return Minimum(np.array(x), value, converged=True, n_evaluations=n)
        for share in STEP_SHARES:
            trial = _clip((x[0] + share * step[0], x[1] + share * step[1]), bounds)
            trial_result = fun(*trial)
            n += 1
            if trial_result[0] < value:
                break
        else:  # nothing lower along the step: the minimum up to rounding, or the slope is wrong
            small = gain <= ROUNDING * abs(value)
            return Minimum(np.array(x), value, converged=small, n_evaluations=n)
        x, at = trial, trial_result
    return Minimum(np.array(x), at[0], converged=False, n_evaluations=n)


def _clip(x: Pair, bounds: Sequence[Pair]) -> Pair:
    first, second = (min(max(value, low), high) for value, (low, high) in zip(x, bounds, strict=True))
    return first, second


def _step(x: Pair, at: Curved, bounds: Sequence[Pair]) -> Pair:
    """Newton's step, downhill in any case, among the variables that are not held by a bound."""
    _, g, (h_vv, h_vw, h_ww) = at
    free = [
        not ((x[k] <= low and g[k] > 0) or (x[k] >= high and g[k] < 0) or low == high)
        for k, (low, high) in enumerate(bounds)
    ]
    if not any(free):
        return 0.0, 0.0
    if free[0] and free[1]:
        step = _newton_step(g, h_vv, h_vw, h_ww)
    else:
        curvature = max(abs(h_vv if free[0] else h_ww), 1e-300)
        step = (-g[0] / curvature, 0.0) if free[0] else (0.0, -g[1] / curvature)
    shorten = max(1.0, max(abs(step[0]), abs(step[1])) / MAX_NEWTON_STEP)
    return step[0] / shorten, step[1] / shorten


def _newton_step(g: Pair, h_vv: float, h_vw: float, h_ww: float) -> Pair:
    """Minus the inverse of the Hessian, with the sizes of its eigenvalues, times the gradient."""
    determinant = h_vv * h_ww - h_vw * h_vw
    if h_vv > 0 and determinant > 1e-12 * h_vv * h_ww:
        return (h_vw * g[1] - h_ww * g[0]) / determinant, (h_vw * g[0] - h_vv * g[1]) / determinant
    middle, away = (h_vv + h_ww) / 2, math.hypot((h_vv - h_ww) / 2, h_vw)
    angle = math.atan2(2 * h_vw, h_vv - h_ww) / 2  # of the eigenvector of the larger eigenvalue
    cosine, sine = math.cos(angle), math.sin(angle)
    least = max(1e-9 * (abs(middle) + away), 1e-300)
    along = -(cosine * g[0] + sine * g[1]) / max(abs(middle + away), least)
    across = -(cosine * g[1] - sine * g[0]) / max(abs(middle - away), least)
    return cosine * along - sine * across, sine * along + cosine * across
