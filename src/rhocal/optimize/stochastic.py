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
