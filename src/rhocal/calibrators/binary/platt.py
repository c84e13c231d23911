"""Platt scaling: p = sigmoid(a·s + b) of the log-odds s of a class."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal import optimize
from rhocal.calibrators.binary.binary_map import BinaryMap, FittedBinaryMap, Outcomes
from rhocal.calibrators.binary.one_vs_rest import ONE_VS_REST, BinaryCalibrator, Scope
from rhocal.calibrators.options import Fitted
from rhocal.numerics.special import Vector

if TYPE_CHECKING:
    from rhocal.numerics.ops import Ops, Parameters, Value


@dataclass(frozen=True)
class Sigmoid(BinaryMap):
    """sigmoid(slope · s + intercept)."""

    slope: float
    intercept: float

    @staticmethod
    def formula(ops: Ops, parameters: Parameters, score: Value) -> Value:
        """The probability at every score."""
        return ops.expit(parameters["slope"] * score + parameters["intercept"])


@dataclass(eq=False, repr=False)
class PlattScaling(BinaryCalibrator):
    """A logistic function of the log-odds of each class (Platt 1999). It may change the predicted class.

    The targets are the original's (N₊ + 1)/(N₊ + 2) and 1/(N₋ + 2) instead of 1 and 0, so that the optimum is finite even
    where the classes are cleanly separated.

    Parameters
    ----------
    scope
        ``"one-vs-rest"``: a map for each class, rows normalized. ``"top"`` or ``"top-capped"``: one for the confidence.

    Attributes
    ----------
    slope_, intercept_
        a and b of each map.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits(name="table")
    >>> calibrator = rhocal.PlattScaling().fit(logits, labels)
    >>> calibrator.slope_.round(2), calibrator.intercept_.round(2)
    (array([0.95]), array([-2.88]))
    """

    name = "platt"
    map = Sigmoid
    score_kind = "log-odds"

    _: KW_ONLY
    scope: Scope = ONE_VS_REST

    slope_ = Fitted[Vector](shape="maps", allows_nan=True)
    intercept_ = Fitted[Vector](shape="maps", allows_nan=True)

    def _fit_map(self, data: Outcomes) -> FittedBinaryMap:
        minimum = optimize.logistic(np.stack([data.score, np.ones(len(data.score))]), platt_targets(data), data.weight)
        return FittedBinaryMap(Sigmoid(*minimum.x.tolist()), minimum.converged, minimum.n_evaluations)


def platt_targets(data: Outcomes) -> Vector:
    """Mean target of every score, with the rule of succession for hits and for misses (Platt 1999, Eq. 6)."""
    hits = data.hits.sum()
    misses = data.total - hits
    return np.asarray(data.rate * (hits + 1) / (hits + 2) + (1 - data.rate) / (misses + 2))
