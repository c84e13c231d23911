"""Minima of functions of one variable."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rhocal.optimize.solution import Minimum

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.optimize.solution import CurvedFunction, ScalarFunction


def find_zero(
    fun: Callable[[float], float], low: float, high: float, *, tolerance: float = 1e-13, max_steps: int = 200
) -> tuple[float, int]:
    """Where a function is zero between two numbers at which its sign differs, and the number of evaluations.

    Chandrupatla's method (Advances in Engineering Software 28, 1997): inverse quadratic interpolation through the last three
    points where these are monotone enough for it, else bisection. SciPy has Brent's method, which takes as many evaluations;
    importing it takes longer than a fit.
    """
    x1, x2 = low, high
    f1, f2 = fun(x1), fun(x2)
    if f1 == 0 or f2 == 0:
        return (x1 if f1 == 0 else x2), 2
    if (f1 > 0) == (f2 > 0):
        raise ValueError(f"the function has the same sign at {low:g} and at {high:g}: {f1:g} and {f2:g}")
    share = 0.5
    for n in range(3, max_steps + 3):
        x = x1 + share * (x2 - x1)
        f = fun(x)
        if (f > 0) == (f1 > 0):
            x3, f3 = x1, f1
        else:
            x3, f3, x2, f2 = x2, f2, x1, f1
        x1, f1 = x, f
        best, value = (x1, f1) if abs(f1) < abs(f2) else (x2, f2)
        enough = 2 * math.ulp(1.0) * abs(best) + tolerance / 2
        width = abs(x2 - x1)
        if value == 0 or enough > width / 2:
            return best, n
        position, height = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
        if height**2 < position and (1 - height) ** 2 < 1 - position:
            share = f1 / (f2 - f1) * f3 / (f2 - f3) + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
        else:
            share = 0.5
        share = min(max(share, enough / width), 1 - enough / width)
    return best, n


def convex(fun: ScalarFunction, start: float, low: float, high: float) -> Minimum:
    """Minimize a convex function of one variable on [low, high] by the sign of its slope: it cannot diverge.

    Steps double away from the start until the slope changes sign; ``find_zero`` finds the zero in between.
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
        root, _ = find_zero(slope, min(x, other), max(x, other))
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
            x, n = find_zero(lambda t: fun(t)[1], float(grid[a]), float(grid[b]))
            return Minimum(np.array([x]), fun(x)[0], converged=True, n_evaluations=n_evaluations + n + 1)
    from scipy.optimize import minimize_scalar  # noqa: PLC0415

    result = minimize_scalar(
        lambda t: fun(t)[0], bounds=(grid[left], grid[right]), method="bounded", options={"xatol": 1e-10}
    )
    if result.fun > values[best][0]:
        return Minimum(grid[[best]], values[best][0], converged=True, n_evaluations=n_evaluations + result.nfev)
    return Minimum(np.array([result.x]), float(result.fun), bool(result.success), n_evaluations + result.nfev)
