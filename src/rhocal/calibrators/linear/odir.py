"""The ridge of a full matrix off its diagonal and in its intercept (ODIR), with strengths chosen by cross-validation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.cross_validation import CrossValidation, HeldOut
from rhocal.calibrators.folds import Fold, Folds
from rhocal.calibrators.linear.linear import is_single
from rhocal.calibrators.linear.linear_problem import LinearProblem, Ridge
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Floats, Vector
    from rhocal.objectives import Objective

STRENGTHS = (1e5, 1e4, 1e3, 1e2, 10.0, 1.0, 0.1, 1e-2, 1e-3)
"""Candidates for λ and for μ: the search goes from the middle value either way until the held-out objective rises."""

OFF_DIAGONAL = 1e3
"""The λ it begins with."""

RISE = 1e-4
"""A relative rise of the held-out objective smaller than this may still be followed by a fall."""

INTERCEPT = 0.1
"""The μ with which λ is chosen; then μ is chosen with that λ, beginning here."""

DIAGONAL = 0.5
"""ODIR leaves the diagonal free. This, divided by the number of samples, keeps a class that never occurs finite."""

ROUGH: dict[str, Any] = {"tolerance": 1e-7, "max_steps": 50}
"""When a fit inside cross-validation stops; the next strength goes on from there."""

MAX_SINGLE_INPUT = 100.0
"""Largest |x| of a search in single precision, which rounds logits to 1e−5 then."""

Strengths = tuple[float, float]
"""λ and μ."""


@dataclass(frozen=True)
class Part:
    """Samples to fit on or to measure on: what the map is linear in, and what is known of them."""

    x: Floats
    data: Predictions
    profile: Profile

    def single(self, target: Objective) -> Part:
        """The same for a search, in single precision where it keeps the digits that matter: half of the time."""
        is_near = float(np.abs(self.x).max(initial=0.0)) <= MAX_SINGLE_INPUT
        if not (is_near and is_single(self.data, target, is_matrix=True)):
            return self
        return replace(self, x=self.x.astype(np.float32))

    def take(self, rows: NDArray[np.intp]) -> Part:
        """Some of the samples."""
        data = self.data.take(rows)
        return Part(self.x[rows], data, Profile.from_predictions(data))


@dataclass(frozen=True)
class Odir:
    """The ridge of a full map, as its options state it."""

    off_diagonal: float | str
    intercept: float | str
    n_folds: int
    kappa: float

    def problem(self, part: Part, target: Objective, off_diagonal: float, intercept: float) -> LinearProblem:
        """What is minimized for one λ and μ."""
        m = part.data.n_classes
        ridge = Ridge(DIAGONAL / part.profile.total_weight, intercept / m, off_diagonal / (m * (m - 1)))
        return LinearProblem(part.x, part.data, part.profile, target, ridge, self.kappa)

    def choose(self, part: Part, target: Objective) -> tuple[Strengths, Vector | None, tuple[dict[str, Any], ...]]:
        """λ and μ, where a fit with them may start, and the evidence: first λ with a middling μ, then μ with that λ."""
        is_free = [isinstance(option, str) for option in (self.off_diagonal, self.intercept)]
        middle = (
            OFF_DIAGONAL if isinstance(self.off_diagonal, str) else float(self.off_diagonal),
            INTERCEPT if isinstance(self.intercept, str) else float(self.intercept),
        )
        folds = Folds.from_profile(part.profile, self.n_folds) if any(is_free) else None
        if not folds:  # nothing to choose, or nothing to choose by: the strongest
            strongest = [STRENGTHS[0] if free else value for free, value in zip(is_free, middle, strict=True)]
            return (strongest[0], strongest[1]), None, ()
        part = part.single(target)
        inside = [part.take(fold.inside) for fold in folds]
        outside = [part.take(fold.outside) for fold in folds]
        targets = [self.problem(fit_on, target, *middle).target for fit_on in inside]

        hessians: dict[int, Vector] = {}

        def fit(strengths: Strengths, fold: Fold, start: Vector | None) -> Vector:
            problem = self.problem(inside[fold.number], targets[fold.number], *strengths)
            if not problem.has_few_parameters:
                return problem.minimum(start, **ROUGH).x
            if fold.number not in hessians:  # strengths change the ridge, and the Hessian of NLL little
                first = problem.minimum(start, **ROUGH).x
                hessians[fold.number] = problem.hessian(first) - np.diag(2 * problem.strengths.ravel())
                return first
            return problem.minimum(start, precondition=problem.inverse(hessians[fold.number]), **ROUGH).x

        def score(strengths: Strengths, parameters: Vector, fold: Fold) -> HeldOut:
            problem = self.problem(outside[fold.number], targets[fold.number], *strengths)
            return HeldOut(problem.evaluate(parameters))

        validation: CrossValidation[Strengths, Vector] = CrossValidation(folds, fit, score)
        best = middle
        for coordinate, free in enumerate(is_free):
            if free:
                best = search_coordinate(validation, coordinate, best)
        trials = tuple(
            {
                "ridge_off_diagonal": pair[0],
                "ridge_intercept": pair[1],
                "held_out": validation.mean(pair),
                "chosen": pair == best,
            }
            for pair in validation.models
        )
        return best, np.mean(validation.models[best], axis=0), trials


def search_coordinate(validation: CrossValidation[Strengths, Vector], coordinate: int, middle: Strengths) -> Strengths:
    """The best value of λ (0) or μ (1), from the pair in the middle toward stronger ones and then toward weaker ones.

    Each fit starts where its neighbor's ended.
    """
    validation.complete(middle)
    lowest, best = validation.mean(middle), middle
    position = STRENGTHS.index(middle[coordinate])
    for direction in (range(position - 1, -1, -1), range(position + 1, len(STRENGTHS))):
        neighbor = middle
        for k in direction:
            pair = (STRENGTHS[k], middle[1]) if coordinate == 0 else (middle[0], STRENGTHS[k])
            is_complete = validation.complete(pair, neighbor, rival=best)
            value = validation.mean(pair)
            if value > lowest + RISE * abs(lowest) or not is_complete:
                break
            neighbor = pair
            if value < lowest:
                lowest, best = value, pair
        if best != middle:  # values fall in this direction, so they rise in the other
            break
    return best
