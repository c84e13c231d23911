"""The only door to an optimiser. What comes back carries its evidence; nothing fails silently.

SciPy is imported when a fit begins, so that `rhocal --help` and applying a saved calibrator do not wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.special import Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

ScalarFunction = Callable[[float], tuple[float, float]]
"""x → value, slope."""
CurvedFunction = Callable[[float], tuple[float, float, float, float]]
"""log s → value, first and second derivative in s of a function convex in s, and s."""
VectorFunction = Callable[[Vector], tuple[float, Vector]]
"""x → value, gradient."""


DECAY = 0.02
"""Share of the steps of ``sgd`` after which the learning rate has halved."""

ROUNDING = 1e-7
"""Relative noise of an objective summed in single precision; a value that close above another is not higher."""

FEW_PARAMETERS = 10
"""Up to here ``polish`` takes Newton steps; a larger Hessian costs more than it saves."""

FLAT = 1e-10
"""Curvature added in ``convex_newton``, relative to the largest: directions that change nothing must not stop it."""

MAX_STEP = 0.05
"""Longest step of ``sgd``, in units of the start."""


@dataclass(frozen=True)
class Solution:
    """The evidence of a fit."""

    objective: str
    value: float
    """What the objective came down to on the tune set."""
    converged: bool
    n_evaluations: int
    at_bound: str = ""
    """Why the optimum is at a bound, in words; empty if it is inside."""
    trials: tuple[Mapping[str, Any], ...] = ()
    """Every candidate tried (ρ, α, …) with its figures."""


@dataclass(frozen=True)
class Minimum:
    """Where an optimiser stopped."""

    x: Vector
    value: float
    converged: bool
    n_evaluations: int


def convex(fun: ScalarFunction, start: float, low: float, high: float) -> Minimum:
    """Minimise a convex function of one variable on [low, high] by the sign of its slope: it cannot diverge.

    Steps double away from the start until the slope changes sign; Brent's method finds the zero in between.
    """
    from scipy.optimize import brentq  # noqa: PLC0415

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
        root = brentq(slope, min(x, other), max(x, other), xtol=1e-13, rtol=4 * np.finfo(float).eps, maxiter=200)
    else:
        root = bound
    return Minimum(np.array([root]), fun(root)[0], converged=True, n_evaluations=len(slopes) + 1)


def newton(fun: CurvedFunction, start: float, low: float, high: float, last_step: float) -> Minimum:
    """Minimise a function that is convex in s = e^x with Newton steps in s, none longer than a factor of 2.

    The sign of the slope keeps a bracket around the optimum, so it cannot diverge. The error left after a step is about its
    square: a ``last_step`` of 3e−4 leaves 1e−7.
    """
    x = min(max(start, low), high)
    below, above = low, high
    for n in range(1, 101):
        value, slope, curvature, s = fun(x)
        below, above = (x, above) if slope < 0 else (below, x)
        step = -slope / (curvature * s) if curvature * s > 0 else -math.copysign(math.inf, slope) if slope else 0.0
        moved = min(max(x + math.log1p(min(max(step, -0.5), 1.0)), low), high)
        if not below <= moved <= above:
            moved = (below + above) / 2
        if abs(moved - x) < last_step:
            ds = s * math.expm1(moved - x)
            return Minimum(
                np.array([moved]), value + ds * (slope + ds * curvature / 2), converged=True, n_evaluations=n
            )
        x = moved
    return Minimum(np.array([x]), value, converged=False, n_evaluations=n)


def scan(fun: ScalarFunction, centre: float, reach: float, low: float, high: float, n_points: int = 25) -> Minimum:
    """Minimise any smooth function of one variable: look at a grid around the centre, then refine around the best point.

    While the best point is the edge of the grid, the grid moves on beyond it.
    """
    from scipy.optimize import brentq, minimize_scalar  # noqa: PLC0415

    n_evaluations = 0
    for _ in range(40):
        grid = np.linspace(max(low, centre - reach), min(high, centre + reach), n_points)
        seen = [fun(x) for x in grid]
        n_evaluations += n_points
        best = int(np.argmin([value for value, _ in seen]))
        at_bound = grid[best] <= low or grid[best] >= high
        if 0 < best < n_points - 1 or at_bound:
            break
        centre = float(grid[best])
    left, right = max(best - 1, 0), min(best + 1, n_points - 1)
    for a, b in ((left, best), (best, right)):  # a zero of the slope from − to + next to the best point
        if seen[a][1] < 0 < seen[b][1]:
            x, report = brentq(lambda t: fun(t)[1], grid[a], grid[b], xtol=1e-13, full_output=True)
            return Minimum(
                np.array([x]), fun(x)[0], converged=True, n_evaluations=n_evaluations + report.function_calls + 1
            )
    result = minimize_scalar(
        lambda t: fun(t)[0], bounds=(grid[left], grid[right]), method="bounded", options={"xatol": 1e-10}
    )
    if result.fun > seen[best][0]:
        return Minimum(grid[[best]], seen[best][0], converged=True, n_evaluations=n_evaluations + result.nfev)
    return Minimum(np.array([result.x]), float(result.fun), bool(result.success), n_evaluations + result.nfev)


def smooth(
    fun: VectorFunction,
    start: Vector,
    bounds: Sequence[tuple[float, float]] | None = None,
    max_steps: int = 1000,
    tolerance: float = 1e-13,
) -> Minimum:
    """Minimise a smooth function of several variables with L-BFGS-B; never ends above its start.

    ``tolerance`` is the relative decrease of the value below which a step is the last.
    """
    from scipy.optimize import minimize  # noqa: PLC0415

    unit = max(abs(fun(start)[0]), 1e-300)  # tolerances below are relative to the value at the start

    def relative(x: Vector) -> tuple[float, Vector]:
        value, gradient = fun(x)
        return value / unit, gradient / unit

    result = minimize(
        relative,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": max_steps, "maxfun": 20 * max_steps, "ftol": tolerance, "gtol": 1e-9, "maxcor": 20},
    )
    # A line search that finds nothing lower ends as "abnormal"; that is convergence if the slope is gone as well.
    gradient = np.array(result.jac)
    for i, (low, high) in enumerate(bounds or ()):
        if (result.x[i] <= low and gradient[i] > 0) or (result.x[i] >= high and gradient[i] < 0):
            gradient[i] = 0
    converged = bool(result.success) or float(np.abs(gradient).max()) < 1e-5
    return Minimum(result.x, float(result.fun) * unit, converged, result.nfev + 1)


def convex_newton(fun: VectorFunction, hessian: Callable[[Vector], Vector], start: Vector) -> Minimum:
    """Minimise a smooth convex function of some tens of variables with Newton steps, shortened until the value falls.

    Where the curvature is flat or not finite, L-BFGS-B goes on from the point reached.
    """
    x, (value, gradient) = start, fun(start)
    n_evaluations = 1
    for _ in range(50):
        curvature = hessian(x)
        if not np.isfinite(curvature).all():
            break
        curvature[np.diag_indices_from(curvature)] += FLAT * max(float(np.diag(curvature).max()), 1e-300)
        step = -np.linalg.solve(curvature, gradient)
        promised = -float(gradient @ step)  # twice the decrease that the quadratic model promises
        if not promised > 0:
            break
        length, moved = 1.0, False
        while length > 1e-4 and not moved:
            trial_value, trial_gradient = fun(x + length * step)
            n_evaluations += 1
            moved = bool(trial_value <= value - 1e-4 * length * promised + 4 * np.finfo(float).eps * abs(value))
            if not moved:
                length /= 2
        if not moved:
            break
        x, value, gradient = x + length * step, trial_value, trial_gradient
        if promised <= 1e-12 * abs(value) and length == 1:  # what is left is about the square of this
            return Minimum(x, value, converged=True, n_evaluations=n_evaluations)
    rest = smooth(fun, x)
    return Minimum(rest.x, rest.value, rest.converged, n_evaluations + rest.n_evaluations)


def polish(
    exact: VectorFunction, fast: VectorFunction, minimum: Minimum, bounds: Sequence[tuple[float, float]] | None = None
) -> Minimum:
    """Carry the minimum of a fast approximation over to the exact function with one or two Newton steps.

    The Hessian comes from the fast function by central differences, the gradient from the exact one: the error left is
    the product of two small numbers. Where that is not enough, L-BFGS-B goes on with the exact function.
    """
    x = minimum.x.copy()
    n_evaluations = minimum.n_evaluations
    free = np.ones(len(x), dtype=bool)
    for i, (low, high) in enumerate(bounds or ()):
        free[i] = low < x[i] < high
    value, gradient = exact(x)
    n_evaluations += 1
    if not free.any():
        return Minimum(x, value, minimum.converged, n_evaluations)
    few = len(x) <= FEW_PARAMETERS
    hessian = _hessian(fast, x)[np.ix_(free, free)] if few else np.zeros((0, 0))
    for _ in range(3 if few else 0):
        try:
            step = -np.linalg.solve(hessian, gradient[free])
        except np.linalg.LinAlgError:
            break
        if not float(gradient[free] @ step) < 0 or np.abs(step).max() > 0.5:  # not a valley, or not next to it
            break
        trial = x.copy()
        trial[free] += step
        if bounds is not None:
            trial = np.clip(trial, [low for low, _ in bounds], [high for _, high in bounds])
        trial_value, trial_gradient = exact(trial)
        n_evaluations += 1
        if trial_value > value + ROUNDING * abs(value):
            break
        x, value, gradient = trial, trial_value, trial_gradient
        if np.abs(step).max() < 1e-3:  # what is left is this times the relative error of the Hessian
            return Minimum(x, value, converged=True, n_evaluations=n_evaluations)
    rest = smooth(exact, x, bounds, max_steps=200)
    return Minimum(rest.x, rest.value, rest.converged, n_evaluations + rest.n_evaluations)


def _hessian(fun: VectorFunction, x: Vector, h: float = 1e-4) -> Vector:
    rows = []
    for i in range(len(x)):
        step = np.zeros(len(x))
        step[i] = h
        rows.append((fun(x + step)[1] - fun(x - step)[1]) / (2 * h))
    hessian = np.array(rows)
    return (hessian + hessian.T) / 2


def sgd(
    gradient: Callable[[Vector, NDArray[np.intp]], Vector],
    start: Vector,
    *,
    weights: Vector,
    batch_size: int,
    n_steps: int,
    learning_rate: float,
    random_state: int | None,
) -> Vector:
    """Mini-batch gradient descent (Algorithm 1 of the paper), with a fixed seed bit-reproducible.

    Batches are drawn with replacement in proportion to the weights. The learning rate falls like 1/t, which is what makes
    the descent reach the optimum itself: with a fixed rate the noise of the draws, pushed about in a curved valley,
    settles beside it. The mean of the last quarter of the steps is returned. No step is longer than ``MAX_STEP``, so that
    one bad batch cannot throw the parameters away.
    """
    rng = np.random.default_rng(random_state)
    cumulative = np.cumsum(weights)
    x, tail, n_tail = start.copy(), np.zeros_like(start), 0
    for t in range(n_steps):
        rows = np.searchsorted(cumulative, rng.random(batch_size) * cumulative[-1], side="right")
        step = learning_rate / (1 + t / (DECAY * n_steps)) * gradient(x, rows)
        x = x - step * min(1, MAX_STEP / max(float(np.linalg.norm(step)), 1e-300))
        if t >= n_steps - max(1, n_steps // 4):
            tail, n_tail = tail + x, n_tail + 1
    return tail / n_tail if n_tail else x
