"""Matrix scaling and Dirichlet calibration: a full linear map, held back off the diagonal and in the intercept (ODIR)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from rhocal.calibrators.linear import linear
from rhocal.calibrators.linear.linear import LinearCalibrator
from rhocal.calibrators.linear.odir import Odir, Part
from rhocal.calibrators.options import option
from rhocal.data.predictions import SMALLEST_PROB
from rhocal.numerics.special import log_softmax
from rhocal.objectives import Objective, objective
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.portable import Formula
    from rhocal.numerics.special import Vector
    from rhocal.optimize import Solution

INPUTS: dict[str, Callable[[Vector], Vector]] = {
    "logits": lambda logits: logits,
    "log-probs": lambda logits: np.maximum(log_softmax(logits), np.log(SMALLEST_PROB)),
}


@dataclass(eq=False, repr=False)
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
        λ and μ, or ``"cv"``: chosen by cross-validation from ``rhocal.calibrators.linear.odir.STRENGTHS``.
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

    objective: str | Objective = "nll"
    _: KW_ONLY
    inputs: Literal["logits", "log-probs"] = "logits"
    ridge_off_diagonal: float | Literal["cv"] = option("cv", minimum=0, finite=True)
    ridge_intercept: float | Literal["cv"] = option("cv", minimum=0, finite=True)
    n_folds: int = option(3, minimum=2)
    kappa: float = option(1e-4, above=0)

    def _fit(self, data: Predictions) -> Solution:
        odir = Odir(self.ridge_off_diagonal, self.ridge_intercept, self.n_folds, self.kappa)
        linear.check_size(data.n_classes, "matrix or dirichlet", "svs or vector")
        profile = Profile.of(data)
        scale = linear.nll_scale(profile)
        part = Part(scale * self._features(data.logits.astype(np.float64)), data, profile)
        strengths, start, trials = odir.choose(part, objective(self.objective))
        problem = odir.problem(part, objective(self.objective), *strengths)
        weight, self.bias_, evidence = linear.fitted_map(problem, problem.minimum(start), "matrix scaling")
        self.weight_ = scale * weight
        return replace(evidence, trials=trials)

    def _features(self, logits: Vector) -> Vector:
        return INPUTS[self.inputs](logits)

    def _portable_features(self) -> tuple[dict[str, Vector], Formula]:
        if self.inputs == "logits":
            return {}, lambda _ops, _c, z: z
        return {}, lambda ops, _c, z: ops.maximum(ops.log_softmax(z), float(np.log(SMALLEST_PROB)))
