"""Bets on the probabilities of classes: a class that gets too much probability, or too little.

The top label does not show it: where a rare class is predicted at 25 % and occurs at 3 %, the confidence in the predicted
class may be right on average. A bet states that the odds of a class are r times those predicted. Its factor is the ratio of
likelihoods r^y / (1 − q + r·q), with q the probability of the class, lowered by the margin for r < 1 and raised for r > 1. Its
expectation is at most 1 wherever the gap is within the margin, and it lies between 1/r and r: no sample ruins a bet.

Two classes have one probability: that of the positive class. There r is a constant (the prior shifts), or depends on the
probability (a tilt: too extreme, or not extreme enough). More classes have bets with constant r each, and the wealth is shared
out equally among the classes, so the promise holds for all of them together. Shares enter over time as in ``bets.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError
from rhocal.evaluation.bets import waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rhocal.evaluation.bets import Margin
    from rhocal.metrics import Scored
    from rhocal.numerics.special import Vector

POSITIVE_RATIOS = (1 / 5, 1 / 2, 1 / 1.2, 1.2, 2.0, 5.0)
"""Of the odds of the positive class of two."""
TILTS = (1 / 3, 1 / 1.5, 1.5, 3.0)
"""Ratios of the odds at high probabilities, and their inverse at low ones."""
CLASS_RATIOS = (1 / 4, 1 / 1.5, 1.5, 4.0)
"""Of the odds of each of three classes or more."""
TILT_SHARE = 0.35
"""Of the wealth of two classes."""
TILT_WIDTH = 1.5
"""Distance of the log odds from those of the mean probability at which the tilt counts fully."""
RECENT_HALF_LIFE = 1000.0
"""Of the sums that an alarm quotes, unless those over all samples show the gap more clearly."""
SMALLEST = 1e-12


@dataclass(frozen=True)
class ClassProbs:
    """The probabilities of every class, read a few rows at a time."""

    names: list[str]
    labels: NDArray[np.intp]
    probs: Callable[[slice], Vector]

    @classmethod
    def from_scored(cls, samples: Scored) -> ClassProbs:
        """Of samples; of two classes the positive one is the last."""
        data = samples.source
        names = [str(name) for name in data.classes]
        if len(names) == 2 and data.positive is not None and str(data.positive) == names[0]:
            return cls(names[::-1], 1 - samples.labels, lambda rows: samples.probs(rows)[:, ::-1])
        return cls(names, samples.labels, samples.probs)

    def in_order_of(self, names: list[str]) -> ClassProbs:
        """The same with columns in the order of the names."""
        if names == self.names:
            return self
        if sorted(names) != sorted(self.names):
            shown = [", ".join(some[:5]) + ", …" * (len(some) > 5) for some in (names, self.names)]
            raise InputError(f"the stream began with the {len(names)} classes {shown[0]}; got {shown[1]}")
        columns = [self.names.index(name) for name in names]
        position = np.argsort(columns)
        return ClassProbs(names, position[self.labels], lambda rows: self.probs(rows)[:, columns])

    def rows(self, part: slice) -> tuple[Vector, NDArray[np.intp]]:
        """Probabilities and labels of some rows."""
        return self.probs(part), self.labels[part]


@dataclass(frozen=True)
class ClassBets:
    """What is remembered of the classes of a stream: four bets a class, and sums."""

    names: list[str]
    log_capital: float
    """Log of the wealth that the bets on classes began with."""
    n_units: int = 0
    log_wealth: list[float] = field(default_factory=list)
    """Log of the wealth of every bet, as a multiple of what it was given; the bets of a ratio stand together."""
    center: float = 0.0
    """Log odds of the mean probability of the positive class of two, as of the last change of the center of the tilt."""
    all_sums: list[list[float]] = field(default_factory=list)
    """Of every class: the sums of its probability and of its labels."""
    recent_sums: list[list[float]] = field(default_factory=list)
    n: int = 0

    @classmethod
    def start(cls, names: list[str], log_capital: float) -> ClassBets:
        """Bets on nothing yet."""
        zeros = [[0.0] * len(names), [0.0] * len(names)]
        return cls(names, log_capital, log_wealth=[-math.inf] * n_bets(len(names)), all_sums=zeros, recent_sums=zeros)

    @property
    def total(self) -> float:
        """Log of all wealth together."""
        terms = np.array(self.log_wealth) + np.log(_shares(len(self.names)))
        left = math.log(float(waiting(np.array(self.n_units))))
        return float(np.logaddexp(np.logaddexp.reduce(terms), left)) + self.log_capital

    def advance(
        self, probs: Vector, labels: NDArray[np.intp], margin: Margin, starts: NDArray[np.intp]
    ) -> tuple[ClassBets, Vector]:
        """The bets after the rows, and the log of all their wealth after each unit; units begin at ``starts``.

        There are at most ``UNITS_AT_ONCE`` units: 5^256 is still a number.
        """
        m = len(self.names)
        if m == 2:
            factors = _positive_factors(probs[:, 1], labels == 1, margin, self.center)
        else:
            factors = _class_factors(probs, labels, margin)
        if len(starts) < len(labels):
            factors = np.add.reduceat(factors, starts, axis=0) / np.diff(np.append(starts, len(labels)))[:, None]
        n = np.arange(self.n_units, self.n_units + len(starts) + 1)
        log_wealth = np.array(self.log_wealth)
        high = np.maximum(log_wealth, 0.0)
        wealth, unit, highest = np.exp(log_wealth - high), np.exp(-high), float(high.max())
        weights, together = _shares(m) * np.exp(high - highest), waiting(n[1:]) * math.exp(-highest)
        for k, share in enumerate(-np.diff(waiting(n))):  # a vector of bets stays in the cache; all paths would not
            wealth += share * unit
            wealth *= factors[k]
            together[k] += wealth @ weights
        log_wealth = np.log(wealth) + high
        after = replace(self._with_sums(probs, labels), n_units=int(n[-1]), log_wealth=log_wealth.tolist())
        return after, highest + np.log(together) + self.log_capital

    def _with_sums(self, probs: Vector, labels: NDArray[np.intp]) -> ClassBets:
        m, age = len(self.names), 0.5 ** (np.arange(len(labels) - 1, -1, -1) / RECENT_HALF_LIFE)
        old = 0.5 ** (len(labels) / RECENT_HALF_LIFE)
        total = np.add(self.all_sums, [probs.sum(axis=0), np.bincount(labels, minlength=m)])
        recent = np.add(old * np.array(self.recent_sums), [age @ probs, np.bincount(labels, age, minlength=m)])
        return replace(self, n=self.n + len(labels), all_sums=total.tolist(), recent_sums=recent.tolist())

    def with_center(self) -> ClassBets:
        """The tilt begins at the mean probability so far."""
        if len(self.names) > 2 or not self.n:
            return self
        mean = min(max(self.all_sums[0][1] / self.n, SMALLEST), 1 - SMALLEST)
        return replace(self, center=math.log(mean / (1 - mean)))

    def worst(self) -> dict[str, Any]:
        """The class whose bets have most wealth, what they are on, and its mean probability and share of labels."""
        wealth = np.exp(np.array(self.log_wealth) - max(self.log_wealth)) * _shares(len(self.names))
        if len(self.names) == 2:
            k, ratios = 1, np.array(POSITIVE_RATIOS)
            flat, extreme = wealth[: len(ratios)], wealth[len(ratios) :]
            by_gap = {"too much probability": flat[ratios < 1].sum(), "too little probability": flat[ratios > 1].sum()}
            tilts = np.array(TILTS)
            by_gap |= {"too extreme": extreme[tilts < 1].sum(), "not extreme enough": extreme[tilts > 1].sum()}
        else:
            table = wealth.reshape(len(CLASS_RATIOS), -1)
            k, ratios = int(table.sum(axis=0).argmax()), np.array(CLASS_RATIOS)
            by_gap = {
                "too much probability": table[ratios < 1, k].sum(),
                "too little probability": table[ratios > 1, k].sum(),
            }
        gap = max(by_gap, key=lambda name: float(by_gap[name]))
        sums = ((self.all_sums, float(self.n)), (self.recent_sums, float(sum(self.recent_sums[1]))))
        means = [(predicted[k] / n, observed[k] / n, n) for (predicted, observed), n in sums]
        sign = -1 if gap == "too much probability" else 1
        p, y, _ = max(means, key=lambda mean: sign * (mean[1] - mean[0]) * math.sqrt(mean[2] / _variance(mean[0])))
        return {"class": self.names[k], "gap": gap, "mean_probability": p, "observed": y}

    def sentence(self) -> str:
        """What is wrong, with the class."""
        worst = self.worst()
        means = f"mean probability {_percent(worst['mean_probability'])}, observed {_percent(worst['observed'])}"
        if worst["gap"].endswith("probability"):
            return f"class {worst['class']} gets {worst['gap']}: {means}"
        return f"the probabilities of class {worst['class']} are {worst['gap']}: {means}"


def n_bets(n_classes: int) -> int:
    """Number of bets on classes."""
    return len(POSITIVE_RATIOS) + len(TILTS) if n_classes == 2 else n_classes * len(CLASS_RATIOS)


def _shares(n_classes: int) -> Vector:
    """The share of wealth of every bet."""
    if n_classes == 2:
        n, k = len(POSITIVE_RATIOS), len(TILTS)
        return np.repeat([(1 - TILT_SHARE) / n, TILT_SHARE / k], [n, k])
    return np.full(n_bets(n_classes), 1 / n_bets(n_classes))


def _positive_factors(probs: Vector, positive: NDArray[np.bool_], margin: Margin, center: float) -> Vector:
    """Of the positive class of two, shape (n_samples, n_bets)."""
    p = np.clip(probs, SMALLEST, 1 - SMALLEST)
    tilt = np.clip((np.log(p) - np.log1p(-p) - center) / TILT_WIDTH, -1, 1)
    flat = np.tile(POSITIVE_RATIOS, (len(p), 1))
    ratios = np.concatenate([flat, np.exp(tilt[:, None] * np.log(TILTS))], axis=1)
    gap = margin(probs)
    low, high = np.maximum(probs - gap, 0)[:, None], np.minimum(probs + gap, 1)[:, None]
    return np.where(positive[:, None], ratios, 1.0) / (1 + (ratios - 1) * np.where(ratios < 1, low, high))


def _class_factors(probs: Vector, labels: NDArray[np.intp], margin: Margin) -> Vector:
    """Of every class, shape (n_samples, n_bets); the bets with the same ratio stand together."""
    n, m = probs.shape
    gap = margin(probs)
    low, high = np.maximum(probs - gap, 0), np.minimum(probs + gap, 1)
    factors = np.empty((n, len(CLASS_RATIOS), m))
    for k, ratio in enumerate(CLASS_RATIOS):
        np.divide(1.0, 1 + (ratio - 1) * (low if ratio < 1 else high), out=factors[:, k])
        factors[np.arange(n), k, labels] *= ratio
    return factors.reshape(n, -1)


def _variance(p: float) -> float:
    return max(p * (1 - p), SMALLEST)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share < 0.9995 else f"{100 * share:.5g} %"
