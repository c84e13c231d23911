"""Matrix scaling and Dirichlet calibration: a full linear map, held back off the diagonal and in the intercept (ODIR)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from rhocal.calibrators.linear import linear
from rhocal.calibrators.linear.linear import LinearCalibrator
from rhocal.calibrators.linear.odir import Odir, Part
from rhocal.calibrators.map import unchanged
from rhocal.calibrators.options import Fitted, option
from rhocal.calibrators.solutions import solution_at, warn_if_few
from rhocal.data.predictions import SMALLEST_PROB
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.objectives import Objective, objective
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rhocal.calibrators.folds import Fold
    from rhocal.calibrators.map import Map
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.numerics.special import Floats, Vector
    from rhocal.optimize import Solution


def log_probs(ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """Log-probabilities, none below that of ``SMALLEST_PROB``."""
    x = ops.maximum(ops.log_softmax(logits), float(np.log(SMALLEST_PROB)))
    return linear.neutral_where_masked(ops, parameters, logits, x)


@dataclass(eq=False, repr=False)
class MatrixScaling(LinearCalibrator):
    """softmax(W x + b) of logits x = z (Guo et al. 2017), or of x = log softmax(z): Dirichlet calibration (Kull et al. 2019).

    The ridge is λ · mean of (W_jk/a₀)² off the diagonal + μ · mean of b_j², with 1/a₀ the temperature of temperature
    scaling. It may change the predicted class.

    Parameters
    ----------
    objective
        What to minimize; see ``rhocal.objectives``.
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
    weight_, bias_, center_
        W and b, and whether the mean of each row of logits is taken away before them (with two classes it is).

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.MatrixScaling(ridge_off_diagonal=10.0).fit(logits, labels)
    >>> calibrator.weight_.shape, calibrator.bias_.shape
    ((10, 10), (10,))
    """

    name = "matrix"

    objective: str | Objective = "nll"
    _: KW_ONLY
    inputs: Literal["logits", "log-probs"] = "logits"
    ridge_off_diagonal: float | Literal["cv"] = option("cv", minimum=0, finite=True)
    ridge_intercept: float | Literal["cv"] = option("cv", minimum=0, finite=True)
    n_folds: int = option(3, minimum=2)
    kappa: float = option(1e-4, above=0)

    center_ = Fitted[bool](dtype="bool")
    absent_in_old_artifacts = {"center_": False}  # noqa: RUF012 - declared by the base

    @property
    def reads_probs(self) -> bool:  # type: ignore[override]
        return self.inputs == "log-probs"

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, Solution]:
        odir = Odir(self.ridge_off_diagonal, self.ridge_intercept, self.n_folds, self.kappa)
        linear.check_size(data.n_classes, "matrix or dirichlet", "sms or svs", linear.MAX_SEARCHED_CLASSES)
        part, scale = self._part(data)
        samples = part.profile.total_weight / data.n_classes
        warn_if_few(self.label, samples, "sms, whose ridge grows with the classes")
        strengths, first, trials = odir.choose(part, objective(self.objective))
        problem = odir.problem(part, objective(self.objective), *strengths)
        minimum = problem.minimum(first)
        weight, bias = problem.weight_and_bias(minimum.x)
        solution = solution_at(minimum, problem.target, "matrix scaling", trials=trials)
        return self._new_map(weight=scale * weight, bias=bias, center=data.n_classes == 2), solution

    def _part(self, data: Predictions) -> tuple[Part, float]:
        """What the map is linear in, times the scale of temperature scaling, and that scale."""
        profile = Profile.from_predictions(data)
        scale = linear.nll_scale(profile)
        if self.inputs == "logits":
            x = linear.class_logits(data)
        else:
            x = np.asarray(log_probs(NUMPY, {"mask_gap": self.mask_gap_}, data.logits.astype(np.float64)))
        return Part(scale * x, data, profile), scale

    def _held_out_logits(self, data: Predictions, folds: Iterable[Fold]) -> Floats | None:
        """By fits with the strengths that were chosen on all samples, which start at their map: a search takes far longer."""
        chosen = next((row for row in self.solution_.trials if row.get("chosen")), None)
        if chosen is None:
            return None
        odir = Odir(self.ridge_off_diagonal, self.ridge_intercept, self.n_folds, self.kappa)
        strengths = chosen["ridge_off_diagonal"], chosen["ridge_intercept"]
        target = objective(self.objective)
        inverse = None
        outputs = np.empty(data.logits.shape)
        for fold in folds:
            part, scale = self._part(data.take(fold.inside))
            problem = odir.problem(part, target, *strengths)
            start = np.column_stack([self.weight_ / scale - np.eye(data.n_classes), self.bias_])
            if inverse is None and problem.has_blocks:
                inverse = problem.row_inverse(start)
            weight, bias = problem.weight_and_bias(problem.minimum(start, precondition=inverse).x)
            map_ = self._new_map(weight=scale * weight, bias=bias, center=data.n_classes == 2)
            outputs[fold.outside] = map_.logits(data.take(fold.outside))
        return outputs

    def with_choices(self) -> MatrixScaling:
        chosen = next((row for row in self.solution_.trials if row.get("chosen")), None)
        if chosen is None:
            return self
        return replace(self, ridge_off_diagonal=chosen["ridge_off_diagonal"], ridge_intercept=chosen["ridge_intercept"])

    def _map(self, *, weight: Vector, bias: Vector, center: bool) -> Map:
        features = log_probs if self.inputs == "log-probs" else linear.centered if center else unchanged
        return linear.linear_map(features, weight, bias, mask_gap=self.mask_gap_)
