"""A network small enough to train while the gallery is drawn: one hidden layer, full-batch gradient descent with momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_TRAIN, N_HELD, N_HIDDEN, N_CLASSES = 300, 1000, 64, 4
N_EPOCHS, STEPS_AN_EPOCH, LEARNING_RATE, MOMENTUM = 40, 25, 0.3, 0.9
SPREAD = 0.9


def _points(rng: np.random.Generator, n: int) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    labels = rng.integers(0, N_CLASSES, n)
    angle = 2 * np.pi * labels / N_CLASSES
    centre = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.concatenate([centre + SPREAD * rng.normal(size=(n, 2)), rng.normal(size=(n, 8))], axis=1), labels


def logits_by_epoch(decay: float, seed: int = 0) -> list[NDArray[np.float64]]:
    """Logits of held-out points after each epoch."""
    rng = np.random.default_rng(seed)
    (x, y), (held, _) = _points(rng, N_TRAIN), _points(rng, N_HELD)
    weights = [rng.normal(size=(x.shape[1], N_HIDDEN)) / 3, rng.normal(size=(N_HIDDEN, N_CLASSES)) / 8]
    speed = [np.zeros_like(w) for w in weights]
    truth = np.eye(N_CLASSES)[y]
    logits_by_epoch = []
    for _ in range(N_EPOCHS):
        for _ in range(STEPS_AN_EPOCH):
            hidden = np.maximum(x @ weights[0], 0)
            z = hidden @ weights[1]
            p = np.exp(z - z.max(axis=1, keepdims=True))
            slope = (p / p.sum(axis=1, keepdims=True) - truth) / len(x)
            slopes = [x.T @ ((slope @ weights[1].T) * (hidden > 0)), hidden.T @ slope]
            for k, g in enumerate(slopes):
                speed[k] = MOMENTUM * speed[k] - LEARNING_RATE * (g + decay * weights[k])
                weights[k] = weights[k] + speed[k]
        logits_by_epoch.append(np.maximum(held @ weights[0], 0) @ weights[1])
    return logits_by_epoch
