"""Minima of smooth functions of several variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.optimize.blas import single_threaded_blas
from rhocal.optimize.solution import Minimum

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector
    from rhocal.optimize.solution import VectorFunction

ROUNDING = 1e-7
"""Relative noise of an objective summed in single precision; a value that close above another is not higher."""

MAX_NEWTON_PARAMETERS = 10
"""Up to here ``polish`` takes Newton steps; a larger Hessian costs more than it saves."""

MAX_NEWTON_STEP = 0.5
"""Of ``quasi_newton`` and ``newton_2d``, in any variable."""

TOLERANCE = 1e-9
"""Relative decrease that a step of ``quasi_newton`` or ``newton_2d`` must promise to be taken."""

STEP_SHARES = (1.0, 0.25, 0.05, 0.01, 1e-3)
"""Shares of a step that ``quasi_newton`` and ``newton_2d`` try until the value falls."""

MIN_CURVATURE_SHARE = 0.2
"""Least curvature along a step that ``quasi_newton`` accepts, as a share of the expected one."""

RELATIVE_DAMPING = 1e-10
"""Curvature that ``damped`` adds, relative to the largest, for directions in which the function is constant."""


def lbfgs(
    fun: VectorFunction,
    start: Vector,
    bounds: Sequence[tuple[float, float]] | None = None,
    max_steps: int = 1000,
    tolerance: float = 1e-13,
) -> Minimum:
    """Minimize a smooth function of several variables with L-BFGS-B; never ends above its start.

    ``tolerance`` is the relative decrease of the value below which a step is the last.
    """
    from scipy.optimize import minimize  # noqa: PLC0415

    with single_threaded_blas():
        at_start = fun(start)
        unit = max(abs(at_start[0]), 1e-300)  # tolerances below are relative to the value at the start

        def relative(x: Vector) -> tuple[float, Vector]:
            value, gradient = at_start if np.array_equal(x, start) else fun(x)
            return value / unit, gradient / unit

        result = minimize(
            relative,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": max_steps, "maxfun": 20 * max_steps, "ftol": tolerance, "gtol": 1e-9, "maxcor": 20},
        )
    # A line search that finds nothing lower ends as "abnormal"; that is convergence if the slope is 0 as well.
    gradient = np.array(result.jac)
    for i, (low, high) in enumerate(bounds or ()):
        if (result.x[i] <= low and gradient[i] > 0) or (result.x[i] >= high and gradient[i] < 0):
            gradient[i] = 0
    converged = bool(result.success) or float(np.abs(gradient).max()) < 1e-5
    return Minimum(result.x, float(result.fun) * unit, converged, result.nfev)


def quasi_newton(
    fun: VectorFunction,
    start: Vector,
    bounds: Sequence[tuple[float, float]],
    hessian: NDArray[np.float64] | None = None,
    tolerance: float = TOLERANCE,
) -> tuple[Minimum, NDArray[np.float64]]:
    """Minimize a smooth function of two or three variables between bounds in as few evaluations as possible.

    Quasi-Newton steps whose Hessian begins with differences of the gradient, or with the one that a similar problem ended
    with: it is returned for that. L-BFGS-B needs about three times the evaluations. Never ends above its start.
    ``tolerance`` is the relative decrease below which no further step is taken.
    """
    low, high = np.array(bounds).T
    x = np.clip(start, low, high)
    value, gradient = fun(x)
    n = 1
    if hessian is None:
        hessian = _hessian(fun, x, h=1e-4, bounds=(low, high))
        n += 2 * len(x)
    hessian = _positive_definite(hessian)
    for _ in range(100):
        free = ~(((x <= low) & (gradient > 0)) | ((x >= high) & (gradient < 0)))
        step = np.zeros_like(x)
        step[free] = -_solve(hessian[np.ix_(free, free)], gradient[free])
        step /= max(1, np.abs(step).max() / MAX_NEWTON_STEP)
        if -float(gradient @ step) / 2 <= tolerance * abs(value):
            return Minimum(x, value, converged=True, n_evaluations=n), hessian
        for shrink in STEP_SHARES:
            trial = np.clip(x + shrink * step, low, high)
            trial_value, trial_gradient = fun(trial)
            n += 1
            if trial_value < value:
                break
        else:  # nothing lower along the step: the minimum up to rounding, or the slope is wrong
            small = -float(gradient @ step) / 2 <= ROUNDING * abs(value)
            return Minimum(x, value, converged=small, n_evaluations=n), hessian
        hessian = _bfgs_update(hessian, trial - x, trial_gradient - gradient)
        x, value, gradient = trial, trial_value, trial_gradient
    return Minimum(x, value, converged=False, n_evaluations=n), hessian


def _solve(matrix: NDArray[np.float64], vector: Vector) -> Vector:
    """The x with matrix · x = vector; the shortest of those that come nearest where the matrix is singular."""
    try:
        return np.asarray(np.linalg.solve(matrix, vector), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(matrix, vector)[0], dtype=np.float64)


def _positive_definite(hessian: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same matrix with every eigenvalue made positive, so that minus its inverse times a gradient leads down."""
    values, vectors = np.linalg.eigh(hessian)
    sizes = np.abs(values)
    return np.asarray((vectors * np.maximum(sizes, max(1e-9 * sizes.max(initial=0), 1e-300))) @ vectors.T)


def _bfgs_update(hessian: NDArray[np.float64], step: Vector, change: Vector) -> NDArray[np.float64]:
    """The positive Hessian that explains how the gradient changed along a step (BFGS, damped as Powell 1978 does).

    Where the function curves down, the change is mixed with what the old Hessian expected: skipping such steps instead
    would leave a Hessian from far away in place, with which progress is slow.
    """
    along = hessian @ step
    expected = float(step @ along)
    if not expected > 0:
        return hessian
    if step @ change < MIN_CURVATURE_SHARE * expected:
        share = (1 - MIN_CURVATURE_SHARE) * expected / (expected - float(step @ change))
        change = share * change + (1 - share) * along
    return np.asarray(hessian + np.outer(change, change) / (step @ change) - np.outer(along, along) / expected)


@single_threaded_blas()
def damped(hessian: Vector) -> Vector:
    """A Hessian with a little curvature in every direction, so that it has an inverse. It is changed in place."""
    hessian[np.diag_indices_from(hessian)] += RELATIVE_DAMPING * max(float(np.diag(hessian).max()), 1e-300)
    return hessian


def convex_newton(
    fun: VectorFunction, hessian: Callable[[Vector], Vector], start: Vector, tolerance: float = 1e-12
) -> Minimum:
    """Minimize a smooth convex function of some tens of variables with Newton steps, shortened until the value falls.

    ``tolerance`` is the relative decrease promised by a step that makes it the last; what is left after it is about the
    square of that. Where the curvature is flat or not finite, L-BFGS-B goes on from the point reached.
    """
    x, (value, gradient) = start, fun(start)
    n_evaluations = 1
    for _ in range(50):
        curvature = hessian(x)
        if not np.isfinite(curvature).all():
            break
        step = -_solve(damped(curvature), gradient)
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
        if promised <= tolerance * abs(value) and length == 1:
            return Minimum(x, value, converged=True, n_evaluations=n_evaluations)
    rest = lbfgs(fun, x)
    return Minimum(rest.x, rest.value, rest.converged, n_evaluations + rest.n_evaluations)


def polish(
    exact: VectorFunction, fast: VectorFunction, minimum: Minimum, bounds: Sequence[tuple[float, float]] | None = None
) -> Minimum:
    """Refine the minimum of a fast approximation for the exact function with one or two Newton steps.

    The Hessian comes from the fast function by central differences, the gradient from the exact one: the error left is
    the product of two small numbers. Where that is not enough, L-BFGS-B goes on with the exact function.
    """
    x = minimum.x.copy()
    n = minimum.n_evaluations
    low, high = np.array(bounds).T if bounds is not None else np.array([[-np.inf, np.inf]] * len(x)).T
    free = (low < x) & (x < high)
    value, gradient = exact(x)
    n += 1
    if not free.any():
        return Minimum(x, value, minimum.converged, n)
    steps = 3 if len(x) <= MAX_NEWTON_PARAMETERS else 0
    hessian = _hessian(fast, x, bounds=(low, high))[np.ix_(free, free)] if steps else np.zeros((0, 0))
    for _ in range(steps):
        try:
            step = -np.linalg.solve(hessian, gradient[free])
        except np.linalg.LinAlgError:
            break
        gain = -float(gradient[free] @ step) / 2
        if not gain > 0 or np.abs(step).max() > 0.5:  # not convex here, or not near the minimum
            break
        trial = x.copy()
        trial[free] += step
        trial = np.clip(trial, low, high)
        if gain < ROUNDING * abs(value):  # below rounding; the error after this step is far smaller
            return Minimum(trial, value - gain, converged=True, n_evaluations=n)
        trial_value, trial_gradient = exact(trial)
        n += 1
        if trial_value > value + ROUNDING * abs(value):
            break
        x, value, gradient = trial, trial_value, trial_gradient
    rest = lbfgs(exact, x, bounds, max_steps=200)
    return Minimum(rest.x, rest.value, rest.converged, n + rest.n_evaluations)


def _hessian(
    fun: VectorFunction, x: Vector, h: float = 1e-4, bounds: tuple[Vector, Vector] | None = None
) -> NDArray[np.float64]:
    """By differences of the gradient, central where the bounds leave room."""
    low, high = bounds or (np.full(len(x), -np.inf), np.full(len(x), np.inf))
    rows = []
    for i in range(len(x)):
        up, down = x.copy(), x.copy()
        up[i], down[i] = min(x[i] + h, high[i]), max(x[i] - h, low[i])
        rows.append((fun(up)[1] - fun(down)[1]) / max(up[i] - down[i], 1e-300))
    hessian = np.array(rows)
    return (hessian + hessian.T) / 2
