"""Beta calibration: log-odds a·log p − b·log(1 − p) + c, with a, b ≥ 0."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal import optimize
from rhocal.calibrators.binary.binary_map import BinaryMap, FittedBinaryMap, Outcomes
from rhocal.calibrators.binary.one_vs_rest import ONE_VS_REST, BinaryCalibrator, Scope
from rhocal.calibrators.options import Fitted, option
from rhocal.numerics.special import Vector, expit, softplus

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.ops import Ops, Parameters, Value

# Which of a, b and c may differ from 0. The optimum with a, b ≥ 0 is the best of those that obey.
FREE = ([0, 1, 2], [1, 2], [0, 2], [2])


@dataclass(frozen=True)
class BetaMap(BinaryMap):
    """The map of log-odds s: log p = −softplus(−s), log(1 − p) = −softplus(s)."""

    a: float
    b: float
    c: float

    @staticmethod
    def formula(ops: Ops, parameters: Parameters, score: Value) -> Value:
        """The probability at every score."""
        rise, fall = ops.softplus(score), ops.softplus(-score)
        return ops.expit(parameters["b"] * rise - parameters["a"] * fall + parameters["c"])


@dataclass(eq=False, repr=False)
class BetaCalibration(BinaryCalibrator):
    """Beta calibration of each class (Kull, Silva Filho & Flach 2017). It may change the predicted class.

    a = b = 1, c = 0 is no change; a = b is Platt scaling of the log-odds.

    Parameters
    ----------
    ridge
        Strength of the pull toward no change, ridge/2 · ((a − 1)² + (b − 1)² + c²) beside the sum over samples. The
        original has none, and its optimum is infinite where a class is cleanly separated.
    scope
        ``"one-vs-rest"``: a map for each class, rows normalized. ``"top"`` or ``"top-capped"``: one for the confidence.

    Attributes
    ----------
    a_, b_, c_
        The parameters of each map; ``m_`` is the probability that becomes ½.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits(name="table")
    >>> calibrator = rhocal.BetaCalibration().fit(logits, labels)
    >>> calibrator.predict_proba(logits[:2]).round(3)
    array([[0.968, 0.032],
           [0.987, 0.013]], dtype=float32)
    """

    name = "beta"
    map = BetaMap
    score_kind = "log-odds"

    ridge: float = option(1.0, minimum=0)
    _: KW_ONLY
    scope: Scope = ONE_VS_REST

    a_ = Fitted[Vector](shape="maps", allows_nan=True, minimum=0)
    b_ = Fitted[Vector](shape="maps", allows_nan=True, minimum=0)
    c_ = Fitted[Vector](shape="maps", allows_nan=True)

    def _fit_map(self, data: Outcomes) -> FittedBinaryMap:
        minimum = beta_fit(data, self.ridge)
        return FittedBinaryMap(BetaMap(*minimum.x.tolist()), minimum.converged, minimum.n_evaluations)

    @property
    def m_(self) -> NDArray[np.float64]:
        """The probability that each map sends to ½: b·log(1 − m) − a·log m = c. NaN where a map is constant."""
        low, high = np.full((2, len(self.a_)), [[-1e3], [1e3]])
        for _ in range(100):  # the map rises with the log-odds, so halving the interval finds the place
            middle = (low + high) / 2
            above = self.b_ * softplus(middle) - self.a_ * softplus(-middle) + self.c_ > 0
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return np.where(self.a_ + self.b_ > 0, expit((low + high) / 2), np.nan)


def beta_fit(data: Outcomes, ridge: float) -> optimize.Minimum:
    """(a, b, c) with the highest likelihood among a, b ≥ 0."""
    features = np.stack([-softplus(-data.score), softplus(data.score), np.ones(len(data.score))])
    toward = np.array([1.0, 1.0, 0.0])
    best, n_evaluations = None, 0
    for free in FREE:
        minimum = optimize.logistic(features[free], data.rate, data.weight, ridge, toward[free])
        n_evaluations += minimum.n_evaluations
        x = np.zeros(3)
        x[free] = minimum.x
        fixed = ridge / 2 * (3 - len(free)) / data.total
        if (x[:2] >= 0).all() and (best is None or minimum.value + fixed < best.value):
            best = optimize.Minimum(x, minimum.value + fixed, minimum.converged, n_evaluations)
        if best is not None and len(free) == 3:
            break  # the optimum without bounds obeys them
    assert best is not None  # the last choice always obeys
    return best
