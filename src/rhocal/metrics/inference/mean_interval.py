"""Draws of the population mean of a loss, when errors may be few.

Most of an NLL or Brier score comes from the samples that are wrong. With three errors in 200 samples, resampling never sees
a fourth, and without any error all resamples are alike. So the mean is taken apart:

    mean loss = q·(mean loss of errors) + (1 − q)·(mean loss of right decisions),

where the three parts are independent given the samples. The error rate q ~ Beta(k + ½, n − k + ½) (Jeffreys). Each mean loss is
a mean of the observed losses with Dirichlet weights (the Bayesian bootstrap) and one more loss: what an error
would cost at one of the samples, drawn half from all samples, half in proportion to 1 − confidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference.defaults import JEFFREYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

N_DRAWS = 4000
MAX_DIRICHLET = 200
"""Samples of a part up to which their weights are drawn; the mean of more is nearly normal."""
MIN_PROBABILITY = 1e-16
"""Of a class that is not the top one, in the loss of an error."""


def _other(scored: Scored) -> Vector:
    """The mean probability of the label if the top class is wrong: Σp² over the other classes divided by their sum."""
    left = 1 - scored.confidence
    mean = (scored.sum_squares - scored.confidence**2) / np.maximum(left, MIN_PROBABILITY)
    return np.clip(mean, MIN_PROBABILITY, np.maximum(left, MIN_PROBABILITY))


LOSSES: dict[str, tuple[Callable[[Scored], Vector], Callable[[Scored], Vector]]] = {
    "nll": (lambda s: -np.log(_other(s)), lambda s: -np.log(np.maximum(s.confidence, MIN_PROBABILITY))),
    "brier": (lambda s: s.sum_squares - 2 * _other(s) + 1, lambda s: s.sum_squares - 2 * s.confidence + 1),
    "top_brier": (lambda s: s.confidence**2, lambda s: (1 - s.confidence) ** 2),
    "binary_brier": (
        lambda s: (s.sum_squares + 1) / 2 - _other(s),
        lambda s: (s.sum_squares + 1) / 2 - s.confidence,
    ),
    "spherical": (
        lambda s: _other(s) / np.sqrt(s.sum_squares),
        lambda s: s.confidence / np.sqrt(s.sum_squares),
    ),
    "confidence_gap": (lambda s: s.confidence, lambda s: s.confidence - 1),
}
"""What an error and what a right decision would cost at each sample."""


@dataclass(frozen=True)
class LossParts:
    """Losses, which of them are of errors, and what an error and a right decision would cost at every sample."""

    losses: Vector
    wrong: NDArray[np.bool_]
    if_wrong: Vector
    if_right: Vector
    confidence: Vector
    weights: Vector

    @classmethod
    def from_scored(cls, name: str, scored: Scored, losses: Vector) -> LossParts:
        """The losses of one metric."""
        if_wrong, if_right = (loss(scored) for loss in LOSSES[name])
        return cls(losses, scored.correct == 0, if_wrong, if_right, scored.confidence, scored.weights)

    def __sub__(self, other: LossParts) -> LossParts:
        """Differences of the losses; a sample counts as right if both are.

        Where the two decide differently, one more error is one of A or one of B, as often: a single sample on which only B is
        wrong does not show that A is better.
        """
        if_wrong = self.if_wrong - other.if_wrong
        if (self.wrong != other.wrong).any():
            only_first = np.arange(len(if_wrong)) % 2 == 0
            if_wrong = np.where(only_first, self.if_wrong - other.if_right, self.if_right - other.if_wrong)
        return LossParts(
            self.losses - other.losses,
            self.wrong | other.wrong,
            if_wrong,
            self.if_right - other.if_right,
            (self.confidence + other.confidence) / 2,
            self.weights,
        )

    def draw_means(self, seed: int, n_draws: int = N_DRAWS) -> Vector:
        """Draws of the population mean."""
        rng = np.random.default_rng(seed)
        w = self.weights
        n_wrong, n_right = float(w[self.wrong].sum()), float(w[~self.wrong].sum())
        rate = rng.beta(n_wrong + JEFFREYS, n_right + JEFFREYS, n_draws)
        means = []
        for part, extra, chance in (
            (self.wrong, self.if_wrong, 1 - self.confidence),
            (~self.wrong, self.if_right, self.confidence),
        ):
            means.append(_draw_mean(self.losses[part], w[part], _draw_values(extra, w, chance, n_draws, rng), rng))
        wrong, right = means
        return np.asarray(rate * wrong + (1 - rate) * right)


def _draw_values(values: Vector, weights: Vector, chance: Vector, n: int, rng: np.random.Generator) -> Vector:
    """Values of samples: half drawn by weight, half by weight and chance."""
    drawn = np.empty(n)
    half = n // 2
    for rows, shares in ((slice(0, half), weights), (slice(half, n), weights * np.maximum(chance, 0))):
        levels = np.cumsum(shares if shares.sum() > 0 else weights)
        u = rng.random(rows.stop - rows.start) * levels[-1]
        drawn[rows] = values[np.minimum(np.searchsorted(levels, u, side="right"), len(values) - 1)]
    return rng.permutation(drawn)


def _draw_mean(values: Vector, weights: Vector, extra: Vector, rng: np.random.Generator) -> Vector:
    """Means of the values with Dirichlet weights, together with one extra value in each draw."""
    total = float(weights.sum())
    if len(values) > MAX_DIRICHLET:
        mean = float(weights @ values) / total
        spread = np.sqrt(float(weights @ (values - mean) ** 2)) / total
        return np.asarray(mean + spread * rng.standard_normal(len(extra)))
    shares = rng.standard_gamma(np.append(weights, 1.0), (len(extra), len(values) + 1))
    return np.asarray((shares[:, :-1] @ values + shares[:, -1] * extra) / shares.sum(axis=1))
