"""Models whose true figures are known: where confidences come from, and how often a sample of each is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference.bootstrap import PER_SAMPLE
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import N_BINS, equal_mass, equal_width

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.numerics.special import Vector

OTHER_CLASSES = 9
MIDDLE, SURE, UNSURE, NEAR_ONE = (2.2, 0.7), (6.0, 0.5), (1.5, 1.5), (60.0, 0.8)
"""Parameters of Beta; confidences are .1 + .9·Beta, with means .78, .93, .55 and .988."""


@dataclass(frozen=True)
class Model:
    """Where confidences come from, and how often a sample of each confidence is right."""

    name: str
    accuracy: Callable[[Vector], Vector]
    beta: tuple[float, float] = MIDDLE
    values: tuple[float, ...] = ()
    """If given, confidences are one of these, equally often."""

    def draw(self, rng: np.random.Generator, n: int) -> Scored:
        """Samples of a ten-class model: what is not the top class is shared equally."""
        c = self.confidences(rng, n)
        return scored(c, (rng.random(n) < self.right(c)).astype(np.float64))

    def confidences(self, rng: np.random.Generator, n: int) -> Vector:
        if self.values:
            return np.array(self.values)[rng.integers(0, len(self.values), n)]
        return np.minimum(0.1 + 0.9 * rng.beta(*self.beta, n), 1 - 1e-6)

    def right(self, c: Vector) -> Vector:
        """The chance of being right."""
        return np.clip(self.accuracy(c), 0, 1)

    def typical(self) -> tuple[Vector, Vector]:
        """A million confidences, and the chance of being right at each."""
        c = self.confidences(np.random.default_rng(2026), 1_000_000)
        return c, self.right(c)

    def binned_errors(self) -> dict[str, float]:
        """ECE and AdaECE on endlessly many samples."""
        c, right = self.typical()
        bins = {"ece": equal_width(c, N_BINS), "adaptive_ece": equal_mass(c, N_BINS)}
        return {name: float(np.abs(np.bincount(of, right - c, N_BINS)).sum() / len(c)) for name, of in bins.items()}

    def truth(self) -> dict[str, float]:
        """All figures on endlessly many samples: expectations over the label."""
        c, right = self.typical()
        means = {
            name: float(np.mean(right * of(scored(c, np.ones_like(c))) + (1 - right) * of(scored(c, np.zeros_like(c)))))
            for name, of in PER_SAMPLE.items()
        }
        return means | self.binned_errors()


def scored(c: Vector, correct: Vector) -> Scored:
    other = (1 - c) / OTHER_CLASSES
    log_label = np.log(np.where(correct > 0, c, other))
    return Scored(c, correct, log_label, c**2 + OTHER_CLASSES * other**2, np.ones(len(c)))


def within(c: Vector, low: float, high: float) -> Vector:
    """1 inside (low, high], else 0."""
    return ((c > low) & (c <= high)).astype(np.float64)


MODELS = [
    Model("perfect", lambda c: c),
    Model("over-confident by .01", lambda c: c - 0.01),
    Model("over-confident by .05", lambda c: c - 0.05),
    Model("tilted", lambda c: c - 0.0235 * np.tanh(8 * (c - 0.75))),
    Model("one bin", lambda c: c - 0.03 * within(c, 0.9, 1)),
]

OTHERS = [
    Model("sure, perfect", lambda c: c, SURE),
    Model("sure, over-confident by .02", lambda c: c - 0.02, SURE),
    Model("unsure, perfect", lambda c: c, UNSURE),
    Model("unsure, under-confident by .03", lambda c: c + 0.03, UNSURE),
    Model("unsure, wavy", lambda c: c + 0.04 * np.sin(8 * c), UNSURE),
]

HELD_BACK = [
    Model("over-confident by .005", lambda c: c - 0.005),
    Model("one sparse bin", lambda c: c - 0.15 * within(c, 0.3, 0.4)),
    Model("two bins", lambda c: c + 0.06 * within(c, 0.5, 0.6) - 0.03 * within(c, 0.9, 1)),
    Model("tilted the other way", lambda c: c + 0.03 * np.tanh(8 * (c - 0.6))),
    Model("bins in turn", lambda c: c + 0.03 * np.where(np.ceil(c * 10) % 2, 1, -1)),
    Model("near one, perfect", lambda c: c, NEAR_ONE),
    Model("near one, over-confident by .01", lambda c: c - 0.01, NEAR_ONE),
    Model("three values, perfect", lambda c: c, values=(0.55, 0.75, 0.95)),
    Model("three values, one wrong", lambda c: c - 0.04 * (c == 0.75), values=(0.55, 0.75, 0.95)),
    Model("unsure, one bin", lambda c: c - 0.1 * within(c, 0.5, 0.6), UNSURE),
]
"""Looked at once, after the interval was settled."""
