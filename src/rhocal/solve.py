"""The only door to an optimiser. What comes back carries its evidence; nothing fails silently.

SciPy is imported when a fit begins, so that `rhocal --help` and applying a saved calibrator do not wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.special import Vector, expit, softplus

if TYPE_CHECKING:
    from numpy.typing import NDArray

ScalarFunction = Callable[[float], tuple[float, float]]
"""x → value, slope."""
CurvedFunction = Callable[[float], tuple[float, float, float, float, float]]
"""log s → value and first three derivatives in s of a function convex in s, and s."""
VectorFunction = Callable[[Vector], tuple[float, Vector]]
"""x → value, gradient."""


DECAY = 0.02
"""Share of the steps of ``sgd`` after which the learning rate has halved."""

ROUNDING = 1e-7
"""Relative noise of an objective summed in single precision; a value that close above another is not higher."""

FEW_PARAMETERS = 10
"""Up to here ``polish`` takes Newton steps; a larger Hessian costs more than it saves."""

LONGEST_STEP = 0.5
"""Of ``few``, in any variable."""

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
    """Minimise a function that is convex in s = e^x with Halley's steps in s, none longer than a factor of 2.

    The sign of the slope keeps a bracket around the optimum, so it cannot diverge. The error left after a step is about its
    cube: a ``last_step`` of 0.01 leaves 1e−6.
    """
    x = min(max(start, low), high)
    below, above = low, high
    for n in range(1, 101):
        value, slope, curvature, third, s = fun(x)
        below, above = (x, above) if slope < 0 else (below, x)
        step = -slope / (curvature * s) if curvature * s > 0 else -math.copysign(math.inf, slope) if slope else 0.0
        if 0 < abs(step) < 0.5:  # far away the third derivative says nothing
            step /= max(1 + step * s * third / curvature / 2, 0.5)
        moved = min(max(x + math.log1p(min(max(step, -0.5), 1.0)), low), high)
        if not below <= moved <= above:
            moved = (below + above) / 2
        if abs(moved - x) < last_step:
            ds = s * math.expm1(moved - x)
            value += ds * (slope + ds * (curvature / 2 + ds * third / 6))
            return Minimum(np.array([moved]), value, converged=True, n_evaluations=n)
        x = moved
    return Minimum(np.array([x]), value, converged=False, n_evaluations=n)


def logistic(
    features: Vector, target: Vector, weight: Vector, ridge: float = 0.0, toward: Vector | None = None
) -> Minimum:
    """Logistic regression with targets in [0, 1], by Newton steps that are halved until they lead down.

    Minimises Σ w (log(1 + e^f) − t·f) + ridge/2·‖x − toward‖² with f = features·x, where features has a row for each x. A
    direction the data says nothing about (equal scores) stays at 0.
    """
    size = np.abs(features).max(axis=1)
    size = np.where(size > 1e-100, size, 1)
    scaled = features / size[:, None]
    centre = np.zeros(len(size)) if toward is None else toward * size
    pull = ridge / size**2
    total = float(weight.sum())

    def loss(x: Vector) -> tuple[float, Vector]:
        f = x @ scaled
        away = x - centre
        return float(weight @ (softplus(f) - target * f) + away @ (pull * away) / 2), f

    x = np.zeros(len(size))
    value, f = loss(x)
    for n in range(1, 101):
        p = expit(f)
        gradient = scaled @ (weight * (p - target)) + pull * (x - centre)
        hessian = (scaled * (weight * p * (1 - p))) @ scaled.T + np.diag(pull)
        unit = 1 / np.sqrt(np.maximum(np.diag(hessian), 1e-300))  # so that rcond compares like with like
        step = -unit * np.linalg.lstsq(hessian * np.outer(unit, unit), unit * gradient, rcond=1e-14)[0]
        decrease = -float(gradient @ step)
        if decrease <= 1e-13 * total:
            return Minimum(x / size, value / total, converged=True, n_evaluations=n)
        for _ in range(60):
            trial, f = loss(x + step)
            if trial <= value - decrease * 1e-4:
                break
            step, decrease = step / 2, decrease / 2
        else:  # nothing lower along a direction that leads down: what is left is rounding
            return Minimum(x / size, value / total, converged=True, n_evaluations=n)
        x, value = x + step, trial
    return Minimum(x / size, value / total, converged=False, n_evaluations=n)


def isotonic(values: Vector, weight: Vector) -> tuple[Vector, NDArray[np.intp]]:
    """The non-decreasing sequence nearest to the values in weighted least squares, and where its blocks begin (and end)."""
    from scipy.optimize import isotonic_regression  # noqa: PLC0415

    result = isotonic_regression(values, weights=weight)
    return np.asarray(result.x), np.asarray(result.blocks, dtype=np.intp)


def studentized_range(q: float, k: int) -> float:
    """The q-quantile of the range of k standard normal numbers."""
    from scipy.stats import studentized_range as distribution  # noqa: PLC0415

    return float(distribution.ppf(q, k, np.inf))


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


def few(
    fun: VectorFunction,
    start: Vector,
    bounds: Sequence[tuple[float, float]],
    hessian: NDArray[np.float64] | None = None,
    tolerance: float = 1e-9,
) -> tuple[Minimum, NDArray[np.float64]]:
    """Minimise a smooth function of two or three variables between bounds in as few evaluations as possible.

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
    for _ in range(100):
        free = ~(((x <= low) & (gradient > 0)) | ((x >= high) & (gradient < 0)))
        step = np.zeros_like(x)
        step[free] = -_positive_solve(hessian[np.ix_(free, free)], gradient[free])
        step /= max(1, np.abs(step).max() / LONGEST_STEP)
        if -float(gradient @ step) / 2 <= tolerance * abs(value):
            return Minimum(x, value, converged=True, n_evaluations=n), hessian
        for shrink in (1, 0.25, 0.05, 0.01, 1e-3):
            trial = np.clip(x + shrink * step, low, high)
            trial_value, trial_gradient = fun(trial)
            n += 1
            if trial_value < value:
                break
        else:  # nothing lower along the step: as low as rounding lets us see, or the slope is wrong
            small = -float(gradient @ step) / 2 <= ROUNDING * abs(value)
            return Minimum(x, value, converged=small, n_evaluations=n), hessian
        hessian = _updated(hessian, trial - x, trial_gradient - gradient)
        x, value, gradient = trial, trial_value, trial_gradient
    return Minimum(x, value, converged=False, n_evaluations=n), hessian


def _positive_solve(hessian: NDArray[np.float64], gradient: Vector) -> Vector:
    """hessian⁻¹ gradient with every eigenvalue made positive, so that it points uphill."""
    values, vectors = np.linalg.eigh(hessian)
    sizes = np.abs(values)
    return vectors @ ((gradient @ vectors) / np.maximum(sizes, max(1e-9 * sizes.max(initial=0), 1e-300)))


def _updated(hessian: NDArray[np.float64], step: Vector, change: Vector) -> NDArray[np.float64]:
    """The Hessian that explains how the gradient changed along a step (BFGS)."""
    along = hessian @ step
    if not (step @ change > 1e-12 * np.linalg.norm(step) * np.linalg.norm(change) and step @ along > 0):
        return hessian
    return np.asarray(hessian + np.outer(change, change) / (step @ change) - np.outer(along, along) / (step @ along))


def quadratic(gram: Vector, linear: Vector, low: Vector, total: float) -> Vector:
    """Minimise ½ xᵀ gram x − linearᵀ x where x ≥ low and Σx ≤ total: a small convex problem, solved exactly.

    The bound on the sum has a multiplier μ ≥ 0 under which the sum falls as μ grows; non-negative least squares does the
    rest.

    >>> quadratic(np.eye(2), np.array([0.5, 3.0]), np.zeros(2), 1.0).round(9).tolist()
    [0.0, 1.0]
    """
    from scipy.optimize import brentq, nnls  # noqa: PLC0415

    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-14 * max(float(values[-1]), 1e-300)
    root = np.sqrt(values[kept])
    matrix = root[:, None] * vectors[:, kept].T
    rest = linear - gram @ low

    def solution(multiplier: float) -> Vector:
        return low + nnls(matrix, vectors[:, kept].T @ (rest - multiplier) / root)[0]

    def excess(multiplier: float) -> float:
        return float(solution(multiplier).sum()) - total

    if excess(0.0) <= 0:
        return solution(0.0)
    most = float(np.abs(rest).max()) + 1.0  # here no entry leaves its lower bound
    if excess(most) > 0:
        return low
    return solution(brentq(excess, 0.0, most, xtol=1e-15, rtol=4 * np.finfo(float).eps))


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
    n = minimum.n_evaluations
    low, high = np.array(bounds).T if bounds is not None else np.array([[-np.inf, np.inf]] * len(x)).T
    free = (low < x) & (x < high)
    value, gradient = exact(x)
    n += 1
    if not free.any():
        return Minimum(x, value, minimum.converged, n)
    steps = 3 if len(x) <= FEW_PARAMETERS else 0
    hessian = _hessian(fast, x, bounds=(low, high))[np.ix_(free, free)] if steps else np.zeros((0, 0))
    for _ in range(steps):
        try:
            step = -np.linalg.solve(hessian, gradient[free])
        except np.linalg.LinAlgError:
            break
        gain = -float(gradient[free] @ step) / 2
        if not gain > 0 or np.abs(step).max() > 0.5:  # not a valley, or not next to it
            break
        trial = x.copy()
        trial[free] += step
        trial = np.clip(trial, low, high)
        if gain < ROUNDING * abs(value):  # too little to be seen; what is left after this step is far less
            return Minimum(trial, value - gain, converged=True, n_evaluations=n)
        trial_value, trial_gradient = exact(trial)
        n += 1
        if trial_value > value + ROUNDING * abs(value):
            break
        x, value, gradient = trial, trial_value, trial_gradient
    rest = smooth(exact, x, bounds, max_steps=200)
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
    """Mini-batch gradient descent (Algorithm 1 of the paper) on several problems at once, with a fixed seed bit-reproducible.

    Every row of ``start`` is a problem of its own; they see the same draws.
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
        length = np.linalg.norm(step, axis=1, keepdims=True)
        x = x - step * np.minimum(1, MAX_STEP / np.maximum(length, 1e-300))
        if t >= n_steps - max(1, n_steps // 4):
            tail, n_tail = tail + x, n_tail + 1
    return tail / n_tail if n_tail else x
