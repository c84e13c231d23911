"""How a full matrix is held back off its diagonal and in its intercept (ODIR), and how strongly: by cross-validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.linear.linear import LinearProblem, Ridge
from rhocal.calibrators.scale.ridge import stratified_folds
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Vector
    from rhocal.objectives import Objective

STRENGTHS = (1e5, 1e4, 1e3, 1e2, 10.0, 1.0, 0.1, 1e-2, 1e-3)
"""What cross-validation may try for λ and for μ: it walks from the middle value either way until the held-out objective
rises."""

OFF_DIAGONAL = 1e3
"""The λ it begins with."""

RISE = 1e-4
"""A relative rise of the held-out objective smaller than this may still be followed by a fall."""

BEHIND = 0.02
"""Strengths whose held-out objective is by this share above the best one's are not tried on further folds."""

INTERCEPT = 0.1
"""The μ with which λ is chosen; then μ is chosen with that λ, beginning here."""

DIAGONAL = 0.5
"""ODIR leaves the diagonal free. This, divided by the number of samples, keeps a class that never occurs finite."""

ROUGH = {"tolerance": 1e-7, "max_steps": 50}
"""When a fit inside cross-validation stops; the next strength goes on from there."""

Strengths = tuple[float, float]
"""λ and μ."""


@dataclass(frozen=True)
class Part:
    """Samples to fit on or to measure on: what the map is linear in, and what is known of them."""

    x: Vector
    data: Predictions
    profile: Profile

    def take(self, chosen: Vector) -> Part:
        """Some of the samples."""
        rows = np.flatnonzero(chosen)
        data = self.data.take(rows)
        return Part(self.x[rows], data, Profile.of(data))


@dataclass(frozen=True)
class Odir:
    """How a full map is held back, as its options say it."""

    off_diagonal: float | str
    intercept: float | str
    n_folds: int
    kappa: float

    def problem(self, part: Part, target: Objective, off_diagonal: float, intercept: float) -> LinearProblem:
        """What is minimised for one λ and μ."""
        m = part.data.n_classes
        ridge = Ridge(DIAGONAL / part.profile.total_weight, intercept / m, off_diagonal / (m * (m - 1)))
        return LinearProblem(part.x, part.data, part.profile, target, ridge, self.kappa)

    def chosen(self, part: Part, target: Objective) -> tuple[float, float, Vector | None, tuple[dict[str, Any], ...]]:
        """λ, μ, where a fit with them may start, and what was tried: first λ with a middling μ, then μ with that λ."""
        free = [isinstance(given, str) for given in (self.off_diagonal, self.intercept)]
        first = [
            float(middle) if isinstance(given, str) else float(given)
            for given, middle in ((self.off_diagonal, OFF_DIAGONAL), (self.intercept, INTERCEPT))
        ]
        folds = self._folds(part) if any(free) else []
        if not folds:  # nothing to choose, or nothing to choose by: the strongest
            strongest = [STRENGTHS[0] if chosen else value for chosen, value in zip(free, first, strict=True)]
            return strongest[0], strongest[1], None, ()
        shares = np.array([test.profile.total_weight for _, test in folds])
        walk = Walk(lambda pair, k, start: self._held_out(folds[k], target, pair, start), shares / shares.sum())
        best = (first[0], first[1])
        if free[0]:
            best = walk.along(0, best)
        if free[1]:
            best = walk.along(1, best)
        start = np.mean(np.array(walk.ends[best]), axis=0)
        return *best, start, tuple(walk.trials())

    def _folds(self, part: Part) -> list[tuple[Part, Part]]:
        """What to fit on and what to measure on, for every fold."""
        if not part.profile.spread > 0:
            return []
        fold = stratified_folds(ScaleSearch.from_profile(part.profile), self.n_folds)
        present = np.unique(fold[part.profile.weights > 0])
        return [(part.take(fold != k), part.take(fold == k)) for k in present] if len(present) > 1 else []

    def _held_out(
        self,
        fold: tuple[Part, Part],
        target: Objective,
        strengths: Strengths,
        start: Vector | None,
    ) -> tuple[float, Vector]:
        """The objective on a fold held out, and where the fit on the others ended."""
        tune, test = fold
        problem = self.problem(tune, target, *strengths)
        end = problem.minimum(start, **ROUGH).x
        return self.problem(test, problem.target, *strengths).evaluate(end), end


class Walk:
    """A search of (λ, μ) along one of them at a time; each fit starts where its neighbour's ended."""

    def __init__(
        self,
        held_out: Callable[[Strengths, int, Vector | None], tuple[float, Vector]],
        shares: Vector,
    ) -> None:
        self.held_out, self.shares = held_out, shares
        self.values: dict[Strengths, Vector] = {}
        """On every fold held out; of those that fell far behind, on some."""
        self.ends: dict[Strengths, list[Vector]] = {}

    def along(self, which: int, pair: Strengths) -> Strengths:
        """The best value of one of the two, from the pair given towards stronger ones and then towards weaker ones."""
        self._try(pair, None, None)
        lowest, best = self._mean(pair), pair
        middle = STRENGTHS.index(pair[which])
        for way in (range(middle - 1, -1, -1), range(middle + 1, len(STRENGTHS))):
            near = pair
            for k in way:
                tried = (STRENGTHS[k], pair[1]) if which == 0 else (pair[0], STRENGTHS[k])
                self._try(tried, near, best)
                value = self._mean(tried)
                if value > lowest + RISE * abs(lowest) or len(self.ends[tried]) < len(self.shares):
                    break
                near = tried
                if value < lowest:
                    lowest, best = value, tried
            if best != pair:  # one way leads down: the other leads up
                break
        return best

    def trials(self) -> list[dict[str, Any]]:
        """What was tried, and its figure."""
        return [
            {"ridge_off_diagonal": pair[0], "ridge_intercept": pair[1], "held_out": self._mean(pair)}
            for pair in self.values
        ]

    def _try(self, pair: Strengths, near: Strengths | None, best: Strengths | None) -> None:
        """Fold by fold, as long as it does not fall far behind the best pair on the same folds."""
        if pair in self.values:
            return
        values, self.ends[pair] = [], []
        for k in range(len(self.shares)):
            value, end = self.held_out(pair, k, None if near is None else self.ends[near][k])
            values.append(value)
            self.ends[pair].append(end)
            if best is not None:
                others = self.values[best][: k + 1]
                behind = self.shares[: k + 1] @ (np.array(values) - others)
                if behind > BEHIND * abs(float(self.shares[: k + 1] @ others)):
                    break
        self.values[pair] = np.array(values)

    def _mean(self, pair: Strengths) -> float:
        values = self.values[pair]
        shares = self.shares[: len(values)]
        return float(shares @ values / shares.sum())
