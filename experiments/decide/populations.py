"""Populations whose risks are known: a table of scores, how often each occurs, and how often its event does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector

N_SCORES = 20_000


@dataclass(frozen=True, eq=False)
class Population:
    """Scores in descending order; ``event`` is the chance of an error, or of the positive class."""

    name: str
    scores: Vector
    event: Vector
    mass: Vector

    @classmethod
    def from_draws(cls, name: str, scores: Vector, event: Vector, n_levels: int = 0) -> Population:
        """Equally frequent scores; with ``n_levels`` they are rounded, so that many are tied."""
        if n_levels:
            scores = np.round(scores * n_levels) / n_levels
        order = np.argsort(-scores, kind="stable")
        return cls(name, scores[order], event[order], np.full(len(scores), 1 / len(scores)))

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Vector, Vector]:
        """Scores and events of independent samples."""
        index = rng.integers(0, len(self.scores), n)
        return self.scores[index], (rng.random(n) < self.event[index]).astype(np.float64)

    def accepted(self, threshold: float) -> NDArray[np.bool_]:
        """Which scores are accepted."""
        return self.scores >= threshold

    def rate(self, threshold: float) -> float:
        """The rate of events among accepted samples."""
        inside = self.accepted(threshold)
        return float(self.event[inside].mean()) if inside.any() else 0.0

    def share_above(self, threshold: float, *, of_events: bool) -> float:
        """The share of events (or of the others) with scores of at least the threshold."""
        weight = self.event if of_events else 1 - self.event
        return float(weight[self.accepted(threshold)].sum() / weight.sum())


def confidence_models(target: float) -> list[Population]:
    """Confidences of classifiers; events are errors."""
    rng = np.random.default_rng(22)
    c = 1 - 0.5 * rng.beta(0.35, 2.0, N_SCORES)
    bad = rng.random(N_SCORES) < 0.02
    return [
        Population.from_draws("calibrated", c, 1 - c),
        Population.from_draws("tied", c, 1 - c, n_levels=25),
        Population.from_draws("overconfident", c, np.minimum(2.5 * (1 - c), 1)),
        # 2 % of the samples have the largest scores and are wrong in a third of the cases
        Population.from_draws("wrong at the top", np.where(bad, 1.0, c * 0.999), np.where(bad, 1 / 3, (1 - c) / 4)),
        # the risk is just above the target at every threshold: whatever is certified is false
        Population.from_draws("flat", c, np.full(N_SCORES, target * 1.001)),
    ]


def positive_models() -> list[Population]:
    """Probabilities of the positive class; events are positives."""
    rng = np.random.default_rng(23)
    p, rare = rng.beta(0.5, 1.2, N_SCORES), rng.beta(0.05, 4.95, N_SCORES)
    return [
        Population.from_draws("30 % positives", p, p),
        Population.from_draws("30 % positives, tied", p, p, n_levels=25),
        Population.from_draws("1 % positives", rare, rare),
    ]
