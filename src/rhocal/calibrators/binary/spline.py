"""Spline calibration: the slope of a spline fitted to the cumulative difference of hits and probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.binary.binary_map import ORDERED_BOUNDS, BinaryMap, FittedBinaryMap, Outcomes, smoothed
from rhocal.calibrators.binary.one_vs_rest import SMOOTHING, TOP_CAPPED, BinaryCalibrator, Scope
from rhocal.calibrators.cross_validation import LOWEST, N_FOLDS, CrossValidation, HeldOut
from rhocal.calibrators.folds import Fold, Folds
from rhocal.calibrators.options import Fitted, option
from rhocal.numerics.special import Vector
from rhocal.numerics.tables import line_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rhocal.numerics.ops import Ops, Parameters, Value

N_NODES = 513
"""Places in (0, 1), evenly spaced in mass, at which the cumulative sums are looked at: far finer than any knots."""

DECIMALS = 9
"""Decimals in which places differ: lines between nearer ones would be steep."""


@dataclass(frozen=True)
class Correction(BinaryMap):
    """p plus a correction, linear between places in p, kept between ``low`` and ``high``."""

    rounds_scores = False
    places: Vector
    corrections: Vector
    low: float
    high: float

    @classmethod
    def tables(cls, arrays: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
        bounds = {name: np.nan_to_num(arrays[name]) for name in ("low", "high")}
        return line_tables(arrays["places"], arrays["corrections"]) | bounds

    @staticmethod
    def formula(ops: Ops, parameters: Parameters, score: Value) -> Value:
        """The probability at every score."""
        return ops.clip(score + ops.interpolate(parameters, score), parameters["low"], parameters["high"])


@dataclass(eq=False, repr=False)
class SplineCalibration(BinaryCalibrator):
    """Spline calibration of the cumulative distribution (Gupta et al. 2021). It may change the predicted class.

    With samples in the order of their probability and t the share of them passed, D(t) is the mean of (hit − probability) so
    far. A natural cubic spline with evenly spaced knots is fitted to D by least squares; its slope D′(t) is what must be
    added to the probability at t.

    Parameters
    ----------
    n_knots
        Number of knots, or several to choose from by cross-validation (the lowest held-out squared error).
    n_folds
        Of the cross-validation.
    scope
        ``"top-capped"`` or ``"top"``: one map for the confidence, as in the paper. ``"one-vs-rest"``: a map for each class,
        rows normalized.
    smoothing
        The sum is kept away from 0 and 1 by the rule of succession for as many samples as there are for each knot.

    Attributes
    ----------
    places_, corrections_, low_, high_
        What is added to which probability, and between which values the sum is kept.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.SplineCalibration().fit(logits, labels)
    >>> calibrator.predict_proba(logits[:3]).shape
    (3, 10)
    """

    name = "spline"
    map = Correction

    n_knots: int | Sequence[int] = option((3, 4, 6, 8, 11, 15), minimum=2, maximum=N_NODES // 4)
    _: KW_ONLY
    n_folds: int = option(N_FOLDS, minimum=2)
    scope: Scope = TOP_CAPPED
    smoothing: float = option(SMOOTHING, minimum=0)

    places_ = Fitted[Vector](shape="maps places | maps", allows_nan=True, minimum=0, maximum=1, increasing=True)
    corrections_ = Fitted[Vector](shape="maps places | maps", allows_nan=True)
    low_ = Fitted[Vector](shape="maps", allows_nan=True, minimum=0, maximum=1)
    high_ = Fitted[Vector](shape="maps", allows_nan=True, minimum=0, maximum=1)
    constraints = (*BinaryCalibrator.constraints, ORDERED_BOUNDS)

    def _fit_map(self, data: Outcomes) -> FittedBinaryMap:
        tried = [int(k) for k in np.atleast_1d(self.n_knots)]
        n_knots, trials = (
            choose_n_knots(data, tried, self.smoothing, self.n_folds) if len(tried) > 1 else (tried[0], ())
        )
        return FittedBinaryMap(
            fit_correction(data, n_knots, self.smoothing), n_evaluations=1 + self.n_folds * len(trials), trials=trials
        )


def choose_n_knots(
    data: Outcomes, tried: Sequence[int], smoothing: float, n_folds: int
) -> tuple[int, tuple[dict[str, Any], ...]]:
    """The number of knots with the lowest held-out Brier score (less the mean square of the rate), and the evidence."""
    rows = np.arange(len(data.score))
    # Every fold has every level of probability.
    folds = Folds.from_codes(rows % n_folds, data.weight / data.total, rows)
    if not folds:
        return tried[0], ()

    def fit(n_knots: int, fold: Fold, _: Correction | None) -> Correction:
        return fit_correction(data.take(fold.inside), n_knots, smoothing)

    def score(_: int, model: Correction, fold: Fold) -> HeldOut:
        outside = data.take(fold.outside)
        p = model(outside.score)
        return HeldOut(float(outside.weight @ (p * (p - 2 * outside.rate))) / outside.total)

    choice = CrossValidation(folds, fit, score).choose(tried, LOWEST, "n_knots")
    return choice.candidate, choice.trials


def fit_correction(data: Outcomes, n_knots: int, smoothing: float) -> Correction:
    """The map with a given number of knots."""
    passed = np.append(0, np.cumsum(data.weight)) / data.total
    difference = np.append(0, np.cumsum(data.hits - data.weight * data.score)) / data.total
    nodes = np.linspace(0, 1, N_NODES)
    at_knots, slopes = least_squares_spline(n_knots)
    correction = slopes @ (at_knots @ np.interp(nodes, passed, difference))
    places = np.interp(nodes, (passed[:-1] + passed[1:]) / 2, data.score)
    # Where many samples share one probability several nodes fall on it: their mean correction counts.
    _, inverse, count = np.unique(np.round(places, DECIMALS), return_inverse=True, return_counts=True)
    places, correction = (np.bincount(inverse, values) / count for values in (places, correction))
    low, high = smoothed(np.array([0.0, 1.0]), data.total / n_knots, data.n_classes, smoothing)
    return Correction(places, correction, float(low), float(high))


@cache
def least_squares_spline(n_knots: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The matrices from values at the nodes to the knots of the best natural spline, and from these to its slopes there."""
    values, slopes = natural_spline(n_knots, np.linspace(0, 1, N_NODES))
    return np.asarray(np.linalg.pinv(values), dtype=np.float64), slopes


def natural_spline(n_knots: int, t: Vector) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values and slopes at t of the natural cubic splines that are 1 at one of the knots on [0, 1] and 0 at the others.

    The curvatures M at the knots, 0 at both ends, solve M_{k−1} + 4 M_k + M_{k+1} = 6 (y_{k−1} − 2 y_k + y_{k+1}) / h².
    """
    h = 1 / (n_knots - 1)
    second = np.eye(n_knots, k=-1) - 2 * np.eye(n_knots) + np.eye(n_knots, k=1)
    curvature = np.zeros((n_knots, n_knots))
    if n_knots > 2:
        curvature[1:-1] = np.linalg.solve((second + 6 * np.eye(n_knots))[1:-1, 1:-1], 6 / h**2 * second[1:-1])
    left = np.minimum((t / h).astype(np.intp), n_knots - 2)
    u = (t / h - left)[:, None]
    y, m = np.eye(n_knots), curvature
    values = (1 - u) * y[left] + u * y[left + 1]
    values += h**2 / 6 * (((1 - u) ** 3 - (1 - u)) * m[left] + (u**3 - u) * m[left + 1])
    slopes = (y[left + 1] - y[left]) / h + h / 6 * ((1 - 3 * (1 - u) ** 2) * m[left] + (3 * u**2 - 1) * m[left + 1])
    return values, slopes
