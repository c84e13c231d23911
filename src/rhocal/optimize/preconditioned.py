"""Minima of smooth convex functions of many variables whose Hessian is roughly known."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from rhocal.optimize.blas import single_threaded_blas
from rhocal.optimize.multivariate import ROUNDING, lbfgs
from rhocal.optimize.solution import Minimum

if TYPE_CHECKING:
    from rhocal.numerics.special import Vector

Precondition = Callable[["Vector"], "Vector"]
"""An approximate inverse of the Hessian, times a vector: symmetric and positive."""

PreconditionedFunction = Callable[["Vector"], tuple[float, "Vector", Precondition]]
"""The value, the gradient and the approximate inverse of the Hessian at a point."""

N_REMEMBERED_STEPS = 10
MAX_HALVINGS = 8

NEGLIGIBLE_LOSS = 1e-8
"""A mean loss below this has nothing left to fall by, and rounding of large logits hides its slope: no sample is wrong."""

SUFFICIENT_SHARE = 1e-4
"""Of the decrease that the slope promises, which a step must give."""


@single_threaded_blas()
def preconditioned_lbfgs(
    fun: PreconditionedFunction, start: Vector, tolerance: float = 1e-12, max_steps: int = 200
) -> Minimum:
    """Minimize a mean loss, convex in many variables, in few evaluations; never ends above its start by more than rounding.

    L-BFGS steps that begin with the approximate inverse of the Hessian at the point reached, shortened until the value falls.
    ``tolerance`` is the relative decrease, promised by a step or given by it, that makes it the last. Where no step along the
    direction gives less, or the approximation is no inverse of a Hessian, L-BFGS-B goes on.
    """
    x, n_evaluations = np.asarray(start, np.float64), 1
    value, gradient, precondition = fun(x)
    remembered: deque[tuple[Vector, Vector]] = deque(maxlen=N_REMEMBERED_STEPS)
    for _ in range(max_steps):
        step = -_times_inverse(gradient, remembered, precondition)
        slope = float(np.vdot(gradient, step))
        if not slope < 0 and gradient.any():
            break
        if -slope / 2 <= tolerance * abs(value):
            return Minimum(x, value, converged=True, n_evaluations=n_evaluations)
        is_near = -slope / 2 <= ROUNDING * abs(value)
        slack = tolerance * abs(value) if is_near else 0.0  # the difference of two sums in single precision is noise
        length = 1.0
        for _ in range(MAX_HALVINGS):
            trial = fun(x + length * step)
            n_evaluations += 1
            if trial[0] <= value + SUFFICIENT_SHARE * length * slope + slack:
                break
            length /= 2
        else:
            if is_near:
                return Minimum(x, value, converged=True, n_evaluations=n_evaluations)
            break
        change = trial[1] - gradient
        if np.vdot(step, change) > 0:
            remembered.append((length * step, change))
        x, decrease, (value, gradient, precondition) = x + length * step, value - trial[0], trial
        if decrease <= tolerance * abs(value):
            return Minimum(x, value, converged=True, n_evaluations=n_evaluations)
    rest = lbfgs(lambda flat: _flat(fun, flat, x.shape), x.ravel(), tolerance=tolerance)
    converged = rest.converged or rest.value <= NEGLIGIBLE_LOSS
    return Minimum(rest.x.reshape(x.shape), rest.value, converged, n_evaluations + rest.n_evaluations)


def _times_inverse(gradient: Vector, remembered: deque[tuple[Vector, Vector]], precondition: Precondition) -> Vector:
    """The inverse of the Hessian that explains how the gradient changed along the steps remembered, times the gradient.

    The recursion of two loops (Nocedal 1980).
    """
    vector, shares = gradient.copy(), []
    for step, change in reversed(remembered):
        share = float(np.vdot(step, vector) / np.vdot(step, change))
        vector -= share * change
        shares.append(share)
    vector = precondition(vector)
    for (step, change), share in zip(remembered, reversed(shares), strict=True):
        vector = vector + (share - float(np.vdot(change, vector) / np.vdot(step, change))) * step
    return vector


def _flat(fun: PreconditionedFunction, flat: Vector, shape: tuple[int, ...]) -> tuple[float, Vector]:
    value, gradient, _ = fun(flat.reshape(shape))
    return value, gradient.ravel()
