"""Matrix scaling and Dirichlet calibration: a full linear map, held back off the diagonal and in the intercept (ODIR)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators import linear
from rhocal.calibrators.linear import LinearCalibrator, LinearProblem, Ridge
from rhocal.calibrators.ridge import stratified_folds
from rhocal.calibrators.scale_fit import ScaleFit
from rhocal.errors import InputError
from rhocal.objectives import Objective, objective
from rhocal.predictions import SMALLEST_PROB
from rhocal.profile import Profile
from rhocal.special import log_softmax

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rhocal.portable import Formula
    from rhocal.predictions import Predictions
    from rhocal.solve import Solution
    from rhocal.special import Vector

STRENGTHS = (1e5, 1e4, 1e3, 1e2, 10.0, 1.0, 0.1, 1e-2, 1e-3)
"""What cross-validation tries for λ and for μ, from the strongest on, until the held-out objective rises."""

RISE = 1e-4
"""A relative rise of the held-out objective smaller than this may still be followed by a fall."""

INTERCEPT = 0.1
"""The μ with which λ is chosen; then μ is chosen with that λ."""

DIAGONAL = 0.5
"""ODIR leaves the diagonal free. This, divided by the number of samples, keeps a class that never occurs finite."""

ROUGH = {"tolerance": 1e-8, "max_steps": 50}
"""When a fit inside cross-validation stops; the next strength goes on from there."""

INPUTS: dict[str, Callable[[Vector], Vector]] = {
    "logits": lambda logits: logits,
    "log-probs": lambda logits: np.maximum(log_softmax(logits), np.log(SMALLEST_PROB)),
}


class MatrixScaling(LinearCalibrator):
    """softmax(W x + b) of logits x = z (Guo et al. 2017), or of x = log softmax(z): Dirichlet calibration (Kull et al. 2019).

    The ridge is λ · mean of (W_jk/a₀)² off the diagonal + μ · mean of b_j², with 1/a₀ the temperature of temperature
    scaling. It may change the predicted class.

    Parameters
    ----------
    objective
        What to minimise; see ``rhocal.objectives``.
    inputs
        ``"logits"``, or ``"log-probs"`` (cut off at log 1e−30), which do not see a shift of all logits of a sample.
    ridge_off_diagonal, ridge_intercept
        λ and μ, or ``"cv"``: chosen by cross-validation from ``STRENGTHS``.
    n_folds
        Of the cross-validation.
    kappa
        Smoothing of the maximum, which has no slope where the top class changes.

    Attributes
    ----------
    weight_, bias_
        W and b.
    """

    name = "matrix"

    def __init__(
        self,
        objective: str | Objective = "nll",
        *,
        inputs: str = "logits",
        ridge_off_diagonal: float | str = "cv",
        ridge_intercept: float | str = "cv",
        n_folds: int = 3,
        kappa: float = 1e-4,
    ) -> None:
        self.objective = objective
        self.inputs = inputs
        self.ridge_off_diagonal = ridge_off_diagonal
        self.ridge_intercept = ridge_intercept
        self.n_folds = n_folds
        self.kappa = kappa

    def _fit(self, data: Predictions) -> Solution:
        if self.inputs not in INPUTS:
            raise InputError(f"inputs is one of {', '.join(INPUTS)}; got {self.inputs!r}")
        odir = Odir(self.ridge_off_diagonal, self.ridge_intercept, self.n_folds, self.kappa)
        linear.check_size(data.n_classes, "matrix or dirichlet", "svs or vector")
        profile = Profile.of(data)
        scale = linear.nll_scale(profile)
        part = Part(scale * self._features(data.logits.astype(np.float64)), data, profile)
        off_diagonal, intercept, trials = odir.chosen(part, objective(self.objective))
        problem = odir.problem(part, objective(self.objective), off_diagonal, intercept)
        weight, self.bias_, evidence = linear.fitted_map(problem, problem.minimum(), "matrix scaling")
        self.weight_ = scale * weight
        return replace(evidence, trials=trials)

    def _features(self, logits: Vector) -> Vector:
        return INPUTS[self.inputs](logits)

    def _portable_features(self) -> tuple[dict[str, Vector], Formula]:
        if self.inputs == "logits":
            return {}, lambda _ops, _c, z: z
        return {}, lambda ops, _c, z: ops.maximum(ops.log_softmax(z), float(np.log(SMALLEST_PROB)))


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

    def __post_init__(self) -> None:
        said = {"ridge_off_diagonal": self.off_diagonal, "ridge_intercept": self.intercept}
        for name, value in said.items():
            if isinstance(value, str) and value != "cv":
                raise InputError(f"{name} is 'cv' or a number that is not negative; got {value!r}")
        linear.check_options(kappa=self.kappa, **{k: v for k, v in said.items() if not isinstance(v, str)})
        if not self.n_folds >= 2:
            raise InputError(f"n_folds must be at least 2; got {self.n_folds!r}")

    def problem(self, part: Part, target: Objective, off_diagonal: float, intercept: float) -> LinearProblem:
        """What is minimised for one λ and μ."""
        m = part.data.n_classes
        ridge = Ridge(DIAGONAL / part.profile.total_weight, intercept / m, off_diagonal / (m * (m - 1)))
        return LinearProblem(part.x, part.data, part.profile, target, ridge, self.kappa)

    def chosen(self, part: Part, target: Objective) -> tuple[float, float, tuple[dict[str, Any], ...]]:
        """λ, μ and what was tried: first λ with a middling μ, then μ with that λ."""
        lambdas, mus = (
            STRENGTHS if isinstance(said, str) else (float(said),) for said in (self.off_diagonal, self.intercept)
        )
        folds = self._folds(part) if len(lambdas) + len(mus) > 2 else []
        trials: list[dict[str, Any]] = []

        def best(grid: Sequence[tuple[float, float]]) -> tuple[float, float]:
            if len(grid) == 1 or not folds:  # nothing to choose, or nothing to choose by: the strongest
                return grid[0]
            starts: list[Vector | None] = [None] * len(folds)
            lowest, found = np.inf, grid[0]
            for pair in grid:
                value = self._held_out(folds, target, pair, starts)
                trials.append({"ridge_off_diagonal": pair[0], "ridge_intercept": pair[1], "held_out": value})
                if value < lowest:
                    lowest, found = value, pair
                elif value > lowest + RISE * abs(lowest):
                    break
            return found

        chosen_lambda, _ = best([(value, INTERCEPT if len(mus) > 1 else mus[0]) for value in lambdas])
        return *best([(chosen_lambda, value) for value in mus]), tuple(trials)

    def _folds(self, part: Part) -> list[tuple[Part, Part]]:
        """What to fit on and what to measure on, for every fold."""
        if not part.profile.spread > 0:
            return []
        fold = stratified_folds(ScaleFit.of(part.profile), self.n_folds)
        present = np.unique(fold[part.profile.weights > 0])
        return [(part.take(fold != k), part.take(fold == k)) for k in present] if len(present) > 1 else []

    def _held_out(
        self,
        folds: list[tuple[Part, Part]],
        target: Objective,
        strengths: tuple[float, float],
        starts: list[Vector | None],
    ) -> float:
        """The mean objective on the folds held out; each fit starts where the last one on its fold ended."""
        total = 0.0
        for k, (tune, test) in enumerate(folds):
            problem = self.problem(tune, target, *strengths)
            starts[k] = found = problem.minimum(starts[k], **ROUGH).x
            total += test.profile.total_weight * self.problem(test, problem.target, *strengths).evaluate(found)
        return total / sum(test.profile.total_weight for _, test in folds)
