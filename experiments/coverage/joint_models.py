"""Models with every probability known: what they predict, and what is true.

A model draws probabilities and the true distribution of the label given them; a perfect model's are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.metrics.inference.design import SamplingDesign

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.numerics.special import Vector


@dataclass(frozen=True)
class Model:
    """``draw(rng, n)`` gives predicted and true probabilities, n × n_classes each."""

    name: str
    n: int
    draw: Callable[[np.random.Generator, int], tuple[Vector, Vector]]
    cluster_size: int = 1
    """Samples of a cluster, whose labels are correlated by about .2."""
    weight_spread: float = 0.0
    """Standard deviation of the logarithm of importance weights; they are larger where the model is less sure."""

    def sample(self, rng: np.random.Generator, n: int | None = None) -> tuple[Vector, Any, Vector]:
        """Predicted probabilities, labels, and the true probabilities."""
        p, q = self.draw(rng, n or self.n)
        uniform = rng.random(len(q))
        if self.cluster_size > 1:  # a sample shares the draw of its cluster, or has one of its own
            shared = np.repeat(rng.random(-(-len(q) // self.cluster_size)), self.cluster_size)[: len(q)]
            uniform = np.where(rng.random(len(q)) < np.sqrt(CORRELATION), shared, uniform)
        labels = (np.cumsum(q, axis=1) < uniform[:, None]).sum(axis=1)
        return p, np.minimum(labels, q.shape[1] - 1), q

    def design(self, rng: np.random.Generator, p: Vector) -> tuple[Vector | None, SamplingDesign]:
        """Weights of the samples, if they have any, and what is known about their selection."""
        if self.weight_spread:
            weights = np.exp(self.weight_spread * rng.standard_normal(len(p)) - p.max(axis=1))
            return weights, SamplingDesign("importance")
        if self.cluster_size > 1:
            return None, SamplingDesign(clusters=np.arange(len(p)) // self.cluster_size)
        return None, SamplingDesign()


def softmax(z: Vector) -> Vector:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def two(p: Vector) -> Vector:
    p = np.clip(p, 0, 1)
    return np.stack([1 - p, p], axis=1)


CORRELATION = 0.2


def perfect(name: str, n: int, probabilities: Callable[[np.random.Generator, int], Vector], **design: Any) -> Model:
    def draw(rng: np.random.Generator, size: int) -> tuple[Vector, Vector]:
        p = probabilities(rng, size)
        return p, p

    return Model(name, n, draw, **design)


def masked(rng: np.random.Generator, n: int) -> Vector:
    z = rng.normal(0, 2, (n, 8))
    z[rng.random((n, 8)) < 0.5] = -1e4
    z[:, 0] = rng.normal(0, 2, n)
    return softmax(z)


def half_precision(rng: np.random.Generator, n: int) -> Vector:
    return softmax(rng.normal(0, 3, (n, 6)).astype(np.float16).astype(np.float64))


def long_tail(rng: np.random.Generator, n: int) -> Vector:
    return softmax(rng.normal(0, 1.5, (n, 50)) - 0.15 * np.arange(50))


def bimodal(rng: np.random.Generator, n: int) -> Vector:
    return two(np.where(rng.random(n) < 0.5, rng.beta(60, 4, n), rng.beta(4, 60, n)))


BUILDING = [
    perfect("two classes, uniform", 500, lambda r, n: two(r.random(n))),
    perfect("two classes, rare", 1000, lambda r, n: two(r.beta(0.3, 12, n))),
    perfect("two classes, confidence .999", 110, lambda _, n: two(np.full(n, 0.999))),
    perfect("two classes, one value", 300, lambda _, n: two(np.full(n, 0.3))),
    perfect("two classes, three values", 400, lambda r, n: two(r.choice([0.05, 0.5, 0.9], n))),
    perfect("ten classes", 500, lambda r, n: softmax(r.normal(0, 1.5, (n, 10)))),
    perfect("ten classes, sparse errors", 500, lambda r, n: softmax(r.normal(0, 14, (n, 10)))),
    perfect("100 classes", 400, lambda r, n: softmax(r.normal(0, 2, (n, 100)))),
    perfect("1,000 classes", 300, lambda r, n: softmax(r.normal(0, 3, (n, 1000)))),
    perfect("three classes, 30 samples", 30, lambda r, n: softmax(r.normal(0, 1, (n, 3)))),
]
ASIDE = [
    perfect("two classes, bimodal", 600, bimodal),
    perfect("two classes, rarer than 1 in 1,000", 1500, lambda r, n: two(r.beta(0.2, 300, n))),
    perfect("two classes, 20 samples", 20, lambda r, n: two(r.random(n))),
    perfect("two classes, saturated", 500, lambda r, n: two(1 / (1 + np.exp(-r.normal(0, 12, n))))),
    perfect("three classes, ties", 400, lambda r, n: np.array([[0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])[r.integers(0, 2, n)]),
    perfect("four classes, dirichlet .3", 800, lambda r, n: r.dirichlet([0.3] * 4, n)),
    perfect("masked classes", 500, masked),
    perfect("half precision", 500, half_precision),
    perfect("50 classes, long tail", 600, long_tail),
    perfect("300 classes, confident", 400, lambda r, n: softmax(r.normal(0, 8, (n, 300)))),
    perfect("1,000 classes, flat", 250, lambda r, n: softmax(r.normal(0, 0.5, (n, 1000)))),
    perfect("ten classes, 3,000 samples", 3000, lambda r, n: softmax(r.normal(0, 2, (n, 10)))),
    perfect("two classes, importance weights", 600, lambda r, n: two(r.random(n)), weight_spread=1.0),
    perfect("ten classes, importance weights", 600, lambda r, n: softmax(r.normal(0, 2, (n, 10))), weight_spread=1.0),
    perfect("two classes, ten samples a cluster", 1000, lambda r, n: two(r.random(n)), cluster_size=10),
    perfect("five classes, ten samples a cluster", 1000, lambda r, n: softmax(r.normal(0, 2, (n, 5))), cluster_size=10),
]


# Models that are not calibrated ------------------------------------------------------------------------------------------


def temperature(n_classes: int, t: float) -> Callable[[np.random.Generator, int], tuple[Vector, Vector]]:
    def draw(rng: np.random.Generator, n: int) -> tuple[Vector, Vector]:
        z = rng.normal(0, 2, (n, n_classes))
        return softmax(z * t), softmax(z)

    return draw


def prior_shift(prevalence: float, predicted: float) -> Callable[[np.random.Generator, int], tuple[Vector, Vector]]:
    """Scores N(1.5 y, 1): the right logit is 1.5 s − 1.125 + logit of the prevalence."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Vector, Vector]:
        y = rng.random(n) < prevalence
        s = rng.normal(1.5 * y, 1)
        slope = 1.5 * s - 1.125
        odds = np.log(prevalence / (1 - prevalence)), np.log(predicted / (1 - predicted))
        right, said = (1 / (1 + np.exp(-(slope + o))) for o in odds)
        return two(said), two(right)

    return draw


def over(points: float) -> Callable[[np.random.Generator, int], tuple[Vector, Vector]]:
    """Over-confident by so much everywhere, in two classes that are equally frequent."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Vector, Vector]:
        c = 0.5 + points + (0.5 - points) * rng.beta(2, 1, n)
        side = rng.random(n) < 0.5
        return two(np.where(side, c, 1 - c)), two(np.where(side, c - points, 1 - c + points))

    return draw


def one_bin(size: float) -> Callable[[np.random.Generator, int], tuple[Vector, Vector]]:
    """Over-confident at confidences of .8 to .9 only."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Vector, Vector]:
        p = rng.random(n)
        c = np.maximum(p, 1 - p)
        right = np.where((c > 0.8) & (c < 0.9), c - size, c)
        return two(p), two(np.where(p > 0.5, right, 1 - right))

    return draw


def tail(said: float, made: float) -> Callable[[np.random.Generator, int], tuple[Vector, Vector]]:
    """Errors of a share ``made`` where ``said`` are expected, in the most confident fifth."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Vector, Vector]:
        is_tail = rng.random(n) < 0.2
        c = np.where(is_tail, 1 - said * 2 * rng.random(n), rng.uniform(0.5, 0.98, n))
        right = np.where(is_tail, 1 - made, c)
        side = rng.random(n) < 0.5
        return two(np.where(side, c, 1 - c)), two(np.where(side, right, 1 - right))

    return draw


def class_bias(size: float, n_classes: int = 10) -> Callable[[np.random.Generator, int], tuple[Vector, Vector]]:
    def draw(rng: np.random.Generator, n: int) -> tuple[Vector, Vector]:
        z = rng.normal(0, 1.5, (n, n_classes))
        shifted = z.copy()
        shifted[:, 3] += size
        return softmax(shifted), softmax(z)

    return draw


def wave(size: float) -> Callable[[np.random.Generator, int], tuple[Vector, Vector]]:
    def draw(rng: np.random.Generator, n: int) -> tuple[Vector, Vector]:
        p = rng.uniform(0.1, 0.9, n)
        return two(p), two(p + size * np.sin(4 * np.pi * p))

    return draw


ALTERNATIVES = [
    Model("temperature 1.3, two classes", 1000, temperature(2, 1.3)),
    Model("prior shift, 30 % said, 25 % true", 1000, prior_shift(0.25, 0.30)),
    Model("confident tail, 0.5 % said, 2.4 % made", 2000, tail(0.005, 0.024)),
    Model("wave of 6 points", 1000, wave(0.06)),
    Model("one class of ten, logit + 0.25", 1500, class_bias(0.25)),
]
SPOKEN_OF = [
    *(Model(f"over-confident by {points} points", 1500, over(points / 100)) for points in (0, 2, 5, 10)),
    Model("over-confident at .8 to .9 only", 4000, one_bin(0.08)),
    Model("prior shift, 50 % said, 2 % true", 2000, prior_shift(0.02, 0.5)),
    Model("temperature 1.2, ten classes", 1500, temperature(10, 1.2)),
    Model("one class of ten, logit + 0.6", 2000, class_bias(0.6)),
    Model("confident tail", 4000, tail(0.005, 0.024)),
    Model("ten classes, perfect", 4000, class_bias(0.0)),
]

# Small samples -----------------------------------------------------------------------------------------------------------

SMALL_SIZES = (10, 20, 50, 100, 300)
THREE_ROWS = np.array([[0.9, 0.1, 0.0], [0.5, 0.4, 0.1], [0.2, 0.2, 0.6]])
SMALL = [
    perfect("two classes, uniform", 20, lambda r, n: two(r.random(n))),
    perfect("two classes, 10 % positive", 20, lambda r, n: two(r.beta(0.3, 2.7, n))),
    perfect("two classes, saturated", 20, lambda r, n: two(1 / (1 + np.exp(-r.normal(0, 12, n))))),
    perfect("two classes, three values", 20, lambda r, n: two(r.choice([0.05, 0.5, 0.9], n))),
    perfect("three classes, dirichlet 1", 20, lambda r, n: r.dirichlet([1, 1, 1], n)),
    perfect("three classes, 80, 15 and 5 %", 20, lambda r, n: r.dirichlet([1.6, 0.3, 0.1], n)),
    perfect("three classes, saturated", 20, lambda r, n: softmax(r.normal(0, 12, (n, 3)))),
    perfect("three classes, three rows", 20, lambda r, n: THREE_ROWS[r.integers(0, 3, n)]),
    Model("over-confident by 10 points", 20, over(0.1)),
    Model("prior shift, 50 % said, 2 % true", 20, prior_shift(0.02, 0.5)),
    Model("temperature 2, three classes", 20, temperature(3, 2.0)),
]
