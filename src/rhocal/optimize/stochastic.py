"""Mini-batch gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector

HALVING_SHARE = 0.02
"""Share of the steps of ``sgd`` after which the learning rate has halved."""

MAX_STEP = 0.05
"""Longest step of ``sgd``, in units of the start."""

ADAM_STEP = 0.05
"""First step of ``adam``, in units of the start; with 0.02 NLL of 100 classes ends at the same value."""

FIRST_DECAY, SECOND_DECAY = 0.9, 0.999
"""Of the running means of slopes and of their squares, as Kingma and Ba recommend."""

MAX_SHARE_LEFT, NEAR_ZERO = 0.02, 1e-5
"""A descent has converged if exact steps lower the objective by no more than this share, or this much."""


def has_converged(value: float, lower: float) -> bool:
    """Whether a mini-batch descent ended near the minimum: ``lower`` is what exact steps from its end reach.

    The steps of a descent become short by themselves, so that standing still proves nothing.
    """
    return bool(value - lower <= MAX_SHARE_LEFT * abs(value) + NEAR_ZERO)


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

    Every row of ``start`` is a problem of its own; all use the same draws. Batches are drawn with replacement in proportion to
    the weights. The learning rate falls like 1/t, so that the descent converges to the optimum: with a fixed rate the noise of
    the draws biases it where the objective is curved. The mean of the last quarter of the steps is returned. No step is longer
    than ``MAX_STEP``, so that one bad batch cannot move the parameters far.
    """
    rng = np.random.default_rng(random_state)
    cumulative = np.cumsum(weights)
    x, tail, n_tail = start.copy(), np.zeros_like(start), 0
    for t in range(n_steps):
        rows = np.searchsorted(cumulative, rng.random(batch_size) * cumulative[-1], side="right")
        step = learning_rate / (1 + t / (HALVING_SHARE * n_steps)) * gradient(x, rows)
        length = np.linalg.norm(step, axis=1, keepdims=True)
        x = x - step * np.minimum(1, MAX_STEP / np.maximum(length, 1e-300))
        if t >= n_steps - max(1, n_steps // 4):
            tail, n_tail = tail + x, n_tail + 1
    return tail / n_tail if n_tail else x


def adam(
    gradient: Callable[[Vector, NDArray[np.intp]], Vector],
    start: Vector,
    *,
    weights: Vector,
    batch_size: int,
    n_steps: int,
    random_state: int | None,
) -> Vector:
    """Mini-batch descent with a step length of its own for every parameter (Kingma and Ba 2015), bit-reproducible.

    ``sgd`` needs thousands of steps more where the slopes of parameters differ in size, as those of rare and frequent classes
    do. The step length falls linearly to 0. The mean of the second half of the steps is taken: the noise of that mean is the
    excess that is left, about p / (2·draws) for NLL and p parameters.
    """
    rng = np.random.default_rng(random_state)
    cumulative = np.cumsum(weights)
    x, first, second = start.copy(), np.zeros_like(start), np.zeros_like(start)
    tail, n_tail = np.zeros_like(start), 0
    for t in range(n_steps):
        rows = np.searchsorted(cumulative, rng.random(batch_size) * cumulative[-1], side="right")
        slope = gradient(x, rows)
        first = FIRST_DECAY * first + (1 - FIRST_DECAY) * slope
        second = SECOND_DECAY * second + (1 - SECOND_DECAY) * slope**2
        root = np.sqrt(second / (1 - SECOND_DECAY ** (t + 1)))
        rate = ADAM_STEP * (1 - t / n_steps) / (1 - FIRST_DECAY ** (t + 1))
        x = x - rate * first / np.maximum(root, 1e-300)
        if 2 * t >= n_steps - 1:
            tail, n_tail = tail + x, n_tail + 1
    return tail / n_tail if n_tail else x
