"""Problems of a known form, each with its own exact method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics.special import Vector, expit, softplus
from rhocal.optimize.solution import Minimum

if TYPE_CHECKING:
    from numpy.typing import NDArray


def logistic(
    features: Vector, target: Vector, weight: Vector, ridge: float = 0.0, toward: Vector | None = None
) -> Minimum:
    """Logistic regression with targets in [0, 1], by Newton steps that are halved until the value falls.

    Minimizes Σ w (log(1 + e^f) − t·f) + ridge/2·‖x − toward‖² with f = features·x, where features has a row for each x. A
    direction that the data does not determine (equal scores) stays at 0.
    """
    size = np.abs(features).max(axis=1)
    size = np.where(size > 1e-100, size, 1)
    scaled = features / size[:, None]
    center = np.zeros(len(size)) if toward is None else toward * size
    penalty = ridge / size**2
    total = float(weight.sum())

    def loss(x: Vector) -> tuple[float, Vector]:
        f = x @ scaled
        offset = x - center
        return float(weight @ (softplus(f) - target * f) + offset @ (penalty * offset) / 2), f

    x = np.zeros(len(size))
    value, f = loss(x)
    for n in range(1, 101):
        p = expit(f)
        gradient = scaled @ (weight * (p - target)) + penalty * (x - center)
        hessian = (scaled * (weight * p * (1 - p))) @ scaled.T + np.diag(penalty)
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
        else:  # nothing lower along a descent direction: the rest is rounding
            return Minimum(x / size, value / total, converged=True, n_evaluations=n)
        x, value = x + step, trial
    return Minimum(x / size, value / total, converged=False, n_evaluations=n)


def isotonic(values: Vector, weight: Vector) -> tuple[Vector, NDArray[np.intp]]:
    """The non-decreasing sequence nearest to the values in weighted least squares, and where its blocks begin (and end)."""
    from scipy.optimize import isotonic_regression  # noqa: PLC0415

    result = isotonic_regression(values, weights=weight)
    return np.asarray(result.x), np.asarray(result.blocks, dtype=np.intp)


def quadratic(gram: Vector, linear: Vector, low: Vector, total: float) -> Vector:
    """Minimize ½ xᵀ gram x − linearᵀ x where x ≥ low and Σx ≤ total: a small convex problem, solved exactly.

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


def studentized_range(q: float, k: int) -> float:
    """The q-quantile of the range of k standard normal numbers."""
    from scipy.stats import studentized_range as distribution  # noqa: PLC0415

    return float(distribution.ppf(q, k, np.inf))
