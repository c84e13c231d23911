"""Quadratic calibration: log-odds a·x²/4 + b·x + c of the smoothed, temperature-scaled log-odds x of a class."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal import optimize
from rhocal.calibrators.binary.binary_map import BinaryMap, FittedBinaryMap, Outcomes
from rhocal.calibrators.binary.one_vs_rest import ONE_VS_REST, BinaryCalibrator, Scope
from rhocal.calibrators.binary.platt import platt_targets
from rhocal.calibrators.fitted_values import POSITIVE, SMALLEST_POSITIVE
from rhocal.calibrators.options import Fitted, option
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.numerics.special import Vector

if TYPE_CHECKING:
    from rhocal.numerics.ops import Ops, Parameters, Value

SMALLEST_SCALE = 1e-6
"""Of scores that are worse than chance: they are flattened, not turned around; b decides about that."""


@dataclass(frozen=True)
class Quadratic(BinaryMap):
    """The map of log-odds; ``mix`` bounds x, so that no sample weighs too much."""

    scale: float
    mix: float
    curvature: float
    slope: float
    intercept: float

    @staticmethod
    def formula(ops: Ops, parameters: Parameters, score: Value) -> Value:
        """The probability at every score."""
        x = smoothed_log_odds(ops, parameters, score)
        bend = parameters["curvature"] * (0.25 * x * x)
        return ops.expit(bend + parameters["slope"] * x + parameters["intercept"])


@dataclass(eq=False, repr=False)
class QuadraticCalibration(BinaryCalibrator):
    """A parabola in the log-odds of each class. It may change the predicted class.

    Platt scaling corrects a bias and a slope; the square corrects a model that is over-confident on one side only, as most
    classifiers of rare events are. x = log(p′/(1 − p′)) with p′ = (1 − ε)·sigmoid(s/T) + ε/2 and ε = 1/(n + 1), where 1/T is
    the slope of Platt scaling: saturated scores count as certain as n samples can show, and no more.

    Parameters
    ----------
    ridge
        Strength of the pull toward temperature scaling, ridge/2 · (a² + (b − 1)² + c²) beside the sum over samples.
    scope
        ``"one-vs-rest"``: a map for each class, rows normalized. ``"top"`` or ``"top-capped"``: one for the confidence.

    Attributes
    ----------
    scale_, mix_
        1/T and ε of each map.
    curvature_, slope_, intercept_
        a, b and c of each map.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits(name="table")
    >>> calibrator = rhocal.QuadraticCalibration().fit(logits, labels)
    >>> calibrator.predict_proba(logits[:2]).round(3)
    array([[0.971, 0.029],
           [0.987, 0.013]], dtype=float32)
    """

    name = "quadratic"
    map = Quadratic
    score_kind = "log-odds"

    ridge: float = option(1.0, minimum=0)
    _: KW_ONLY
    scope: Scope = ONE_VS_REST

    scale_ = Fitted[Vector](shape="maps", allows_nan=True, **POSITIVE)
    mix_ = Fitted[Vector](shape="maps", allows_nan=True, minimum=SMALLEST_POSITIVE, maximum=1)
    curvature_ = Fitted[Vector](shape="maps", allows_nan=True)
    slope_ = Fitted[Vector](shape="maps", allows_nan=True)
    intercept_ = Fitted[Vector](shape="maps", allows_nan=True)

    def _fit_map(self, data: Outcomes) -> FittedBinaryMap:
        both = np.stack([data.score, np.ones(len(data.score))])
        platt = optimize.logistic(both, platt_targets(data), data.weight)  # finite where classes are separated
        scale, mix = max(float(platt.x[0]), SMALLEST_SCALE), 1 / (data.total + 1)
        x = smoothed_log_odds(NUMPY, {"scale": scale, "mix": mix}, data.score)
        features = np.stack([0.25 * x * x, x, np.ones(len(x))])
        minimum = optimize.logistic(features, data.rate, data.weight, self.ridge, np.array([0.0, 1.0, 0.0]))
        return FittedBinaryMap(
            Quadratic(scale, mix, *minimum.x.tolist()),
            platt.converged and minimum.converged,
            platt.n_evaluations + minimum.n_evaluations,
        )


def smoothed_log_odds(ops: Ops, parameters: Parameters, score: Value) -> Value:
    """Log-odds of (1 − ε)·sigmoid(scale·s) + ε/2."""
    mix, scaled = parameters["mix"], parameters["scale"] * score
    rest = 0.5 * mix
    return ops.log((1.0 - mix) * ops.expit(scaled) + rest) - ops.log((1.0 - mix) * ops.expit(-scaled) + rest)
