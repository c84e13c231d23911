"""Minima of functions of one variable."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.optimize.solution import Minimum

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.optimize.solution import CurvedFunction, ScalarFunction


def find_zero(fun: Callable[[float], float], low: float, high: float, **options: Any) -> tuple[float, Any]:
    """Where a function is zero between two numbers at which its sign differs, by Brent's method; and SciPy's report.

    SciPy wraps the function in an object that refers to itself and would keep the samples of a fit until the next garbage
    collection. Therefore it gets a function that can release them.
    """
    from scipy.optimize import brentq  # noqa: PLC0415

    held = [fun]
    try:
        root, report = brentq(lambda x: held[-1](x), low, high, **{"xtol": 1e-13, "full_output": True} | options)  # noqa: PLW0108
    finally:
        held.clear()
    return root, report


def convex(fun: ScalarFunction, start: float, low: float, high: float) -> Minimum:
    """Minimize a convex function of one variable on [low, high] by the sign of its slope: it cannot diverge.

    Steps double away from the start until the slope changes sign; Brent's method finds the zero in between.
    """
    slopes: dict[float, float] = {}

    def slope(x: float) -> float:
        if x not in slopes:
            slopes[x] = fun(x)[1]
        return slopes[x]

    x = min(max(start, low), high)
    if slope(x) == 0:
        return Minimum(np.array([x]), fun(x)[0], converged=True, n_evaluations=2)
    direction, step, other = -math.copysign(1, slope(x)), 0.05, x
    bound = high if direction > 0 else low
    while other != bound and slope(other) * direction < 0:
        x, other, step = other, other + direction * step, 2 * step
        other = min(max(other, low), high)
    if slope(other) * direction >= 0 and x != other:
        root, _ = find_zero(slope, min(x, other), max(x, other), rtol=4 * np.finfo(float).eps, maxiter=200)
    else:
        root = bound
    return Minimum(np.array([root]), fun(root)[0], converged=True, n_evaluations=len(slopes) + 1)


def newton(fun: CurvedFunction, start: float, low: float, high: float, last_step: float) -> Minimum:
    """Minimize a function that is convex in s = e^x with Halley's steps in s, none longer than a factor of 2.

    The sign of the slope keeps a bracket around the optimum, so it cannot diverge. The error left after a step is about its
    cube: a ``last_step`` of 0.01 leaves 1e−6.
    """
    x = min(max(start, low), high)
    below, above = low, high
    for n in range(1, 101):
        value, slope, curvature, third, s = fun(x)
        below, above = (x, above) if slope < 0 else (below, x)
        step = -slope / (curvature * s) if curvature * s > 0 else -math.copysign(math.inf, slope) if slope else 0.0
        if 0 < abs(step) < 0.5:  # far away the third derivative is not informative
            step /= max(1 + step * s * third / curvature / 2, 0.5)
        candidate = min(max(x + math.log1p(min(max(step, -0.5), 1.0)), low), high)
        if not below <= candidate <= above:
            candidate = (below + above) / 2
        if abs(candidate - x) < last_step:
            ds = s * math.expm1(candidate - x)
            value += ds * (slope + ds * (curvature / 2 + ds * third / 6))
            return Minimum(np.array([candidate]), value, converged=True, n_evaluations=n)
        x = candidate
    return Minimum(np.array([x]), value, converged=False, n_evaluations=n)


def scan(fun: ScalarFunction, center: float, reach: float, low: float, high: float, n_points: int = 25) -> Minimum:
    """Minimize any smooth function of one variable: evaluate a grid around the center, then refine around the best point.

    While the best point is the edge of the grid, the grid moves on beyond it.
    """
    from scipy.optimize import minimize_scalar  # noqa: PLC0415

    n_evaluations = 0
    for _ in range(40):
        grid = np.linspace(max(low, center - reach), min(high, center + reach), n_points)
        values = [fun(x) for x in grid]
        n_evaluations += n_points
        best = int(np.argmin([value for value, _ in values]))
        at_bound = grid[best] <= low or grid[best] >= high
        if 0 < best < n_points - 1 or at_bound:
            break
        center = float(grid[best])
    left, right = max(best - 1, 0), min(best + 1, n_points - 1)
    for a, b in ((left, best), (best, right)):  # a zero of the slope from − to + next to the best point
        if values[a][1] < 0 < values[b][1]:
            x, report = find_zero(lambda t: fun(t)[1], grid[a], grid[b])
            return Minimum(
                np.array([x]), fun(x)[0], converged=True, n_evaluations=n_evaluations + report.function_calls + 1
            )
    result = minimize_scalar(
        lambda t: fun(t)[0], bounds=(grid[left], grid[right]), method="bounded", options={"xatol": 1e-10}
    )
    if result.fun > values[best][0]:
        return Minimum(grid[[best]], values[best][0], converged=True, n_evaluations=n_evaluations + result.nfev)
    return Minimum(np.array([result.x]), float(result.fun), bool(result.success), n_evaluations + result.nfev)
