"""Structured matrix and vector scaling: a linear map of smoothed, temperature-scaled log-probabilities.

Berta, Holzmüller, Jordan & Bach, *Structured matrix scaling for multi-class calibration*, 2026. The ridge grows with the
number of parameters of each kind and falls with the number of samples, so that nothing needs to be tuned.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.fitted_values import POSITIVE, SMALLEST_POSITIVE
from rhocal.calibrators.linear import linear
from rhocal.calibrators.linear.linear import LinearCalibrator
from rhocal.calibrators.linear.linear_problem import LinearProblem, Ridge
from rhocal.calibrators.linear.preconditioners import MAX_CLASSES
from rhocal.calibrators.options import Fitted, option
from rhocal.calibrators.solutions import solution_at
from rhocal.objectives import NLL, Objective, objective
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rhocal.calibrators.folds import Fold
    from rhocal.calibrators.map import Map
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.numerics.special import Floats, Vector
    from rhocal.optimize import Precondition, Solution

MIN_SHARED_SAMPLES = 20_000
"""From so many samples on fits without a fold have the temperature of all samples: it knows 1/n nats of the fold."""

FEW_CLASSES = 11
"""Up to here a matrix has few parameters (``FEW_PARAMETERS``), and Newton steps share nothing."""


@dataclass(eq=False, repr=False)
class StructuredScaling(LinearCalibrator):
    """softmax((I + M) x + b), x = log((1 − ε)·softmax(z/T) + ε/m), ε = 1/(n + 1). It may change the predicted class.

    The ridge m/n · (diagonal·Σ M_jj² + intercept·Σ b_j²) + m (m − 1)/n · off_diagonal·Σ_{j≠k} M_jk² pulls toward temperature
    scaling with temperature T, which is fitted first. ε keeps x above log(ε/m), so that no sample weighs too much.

    Parameters
    ----------
    objective
        What to minimize; see ``rhocal.objectives``.
    ridge_diagonal, ridge_off_diagonal, ridge_intercept
        Strengths of the ridge. ``ridge_off_diagonal=None`` is infinite: M is diagonal, which is structured *vector* scaling.
    kappa
        Smoothing of the maximum, which has no slope where the top class changes.

    Attributes
    ----------
    scale_, mix_
        1/T and ε.
    weight_, bias_
        I + M (or its diagonal) and b.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.StructuredScaling().fit(logits, labels)
    >>> calibrator.predict_proba(logits[:3]).shape
    (3, 10)
    """

    name = "structured"

    objective: str | Objective = "nll"
    _: KW_ONLY
    ridge_diagonal: float = option(1.0, minimum=0, finite=True)
    ridge_off_diagonal: float | None = option(1.0, minimum=0, finite=True)
    ridge_intercept: float = option(1.0, minimum=0, finite=True)
    kappa: float = option(1e-4, above=0)

    scale_ = Fitted[float](**POSITIVE)
    mix_ = Fitted[float](minimum=SMALLEST_POSITIVE, maximum=1)

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, Solution]:
        problem, (scale, mix) = self._problem(data)
        first = None if start is None or "mix" not in start.parameters else problem.start_from(start)
        is_shared = first is None and problem.full and problem.has_blocks
        minimum = problem.minimum(first, precondition=self._row_inverse(data, problem) if is_shared else None)
        weight, bias = problem.weight_and_bias(minimum.x)
        solution = solution_at(minimum, problem.target, "structured scaling")
        return self._new_map(weight=weight, bias=bias, scale=scale, mix=mix), solution

    def _problem(self, data: Predictions) -> tuple[LinearProblem, tuple[float, float]]:
        """What is minimized, and the scale and ε of its features."""
        profile = Profile.from_predictions(data)
        scale, mix = linear.nll_scale(profile), 1 / (profile.total_weight + 1)
        each = data.n_classes / profile.total_weight
        off_diagonal = None
        if self.ridge_off_diagonal is not None:
            linear.check_size(data.n_classes, "sms", "svs", linear.max_classes_in_memory())
            off_diagonal = each * (data.n_classes - 1) * self.ridge_off_diagonal
        ridge = Ridge(each * self.ridge_diagonal, each * self.ridge_intercept, off_diagonal)
        target = objective(self.objective)
        mask_gap = np.inf if data.masked is None else self.mask_gap_
        dtype = np.float32 if self._is_single(data) else np.float64
        x = linear.block_features(features, smoothing(scale, mix, data.n_classes, mask_gap), data, dtype)
        return LinearProblem(x, data, profile, target, ridge, self.kappa), (scale, mix)

    def _held_out_logits(self, data: Predictions, folds: Iterable[Fold]) -> Floats | None:
        is_shared = data.total_weight >= MIN_SHARED_SAMPLES and self._is_single(data)
        has_rows = self.ridge_off_diagonal is not None and FEW_CLASSES < data.n_classes <= MAX_CLASSES
        is_nll = isinstance(objective(self.objective), NLL)
        if data.masked is not None or not is_nll or not (is_shared or has_rows):
            return None
        whole = self._problem(data)[0] if is_shared else None
        inverse = self._row_inverse(data, whole) if has_rows else None
        outputs = np.empty(data.logits.shape, data.logits.dtype)
        for fold in folds:
            if whole is not None:
                part, x = whole.without(fold), whole.x[fold.outside]
            else:
                part, (scale, mix) = self._problem(data.take(fold.inside))
                mixing = smoothing(scale, mix, data.n_classes, np.inf)
                dtype = np.float32 if self._is_single(data) else np.float64
                x = linear.block_features(features, mixing, data.take(fold.outside), dtype)
            start = part.start_from(self.map_)
            if start is None:
                return None
            minimum = part.minimum(start, precondition=inverse)
            weight, bias = (numbers.astype(x.dtype) for numbers in part.weight_and_bias(minimum.x))
            outputs[fold.outside] = (x @ weight.T if part.full else x * weight) + bias
        return outputs

    def _row_inverse(self, data: Predictions, problem: LinearProblem | None) -> Precondition:
        """The inverse that steps begin with, of all samples at temperature scaling: fits without a fold need it again."""
        key = "row inverse", self.ridge_diagonal, self.ridge_off_diagonal, self.ridge_intercept
        if key not in data.shared:
            data.shared[key] = (problem or self._problem(data)[0]).row_inverse()
        return data.shared[key]

    def _is_single(self, data: Predictions) -> bool:
        return linear.is_single(data, objective(self.objective), is_matrix=self.ridge_off_diagonal is not None)

    def _map(self, *, weight: Vector, bias: Vector, scale: float, mix: float) -> Map:
        return linear.linear_map(features, weight, bias, **smoothing(scale, mix, len(bias), self.mask_gap_))


def smoothing(scale: float, mix: float, n_classes: int, mask_gap: float) -> dict[str, Any]:
    """The parameters of ``features``."""
    return {"scale": np.array(scale), "mix": np.array(mix), "n_classes": float(n_classes), "mask_gap": mask_gap}


def features(ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """log((1 − ε)·softmax(z/T) + ε/m)."""
    mix = parameters["mix"]
    p = ops.softmax(parameters["scale"] * (logits - ops.max(logits)))
    return linear.neutral_where_masked(
        ops, parameters, logits, ops.log((1.0 - mix) * p + mix / parameters["n_classes"])
    )
