"""Shape-restricted polynomial regression: an increasing polynomial from scores to probabilities."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rhocal import optimize
from rhocal.calibrators.cross_validation import N_FOLDS, CrossValidation, HeldOut, Rule
from rhocal.calibrators.fitted_values import POSITIVE
from rhocal.calibrators.folds import Fold, Folds
from rhocal.calibrators.map import Map
from rhocal.calibrators.options import Fitted, option
from rhocal.calibrators.order.order import SMALLEST, OrderCalibrator
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.calibrators.scale.temperature import TemperatureScaling
from rhocal.calibrators.solutions import equal_logits_solution, warn_at_bound
from rhocal.numerics.scaling import scaled_softmax
from rhocal.numerics.special import Floats, Vector
from rhocal.numerics.threads import row_blocks
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.base import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.ops import Ops, Parameters, Value

DEGREES = (1, 2, 3, 5, 8)
"""Degrees that cross-validation tries, beside the polynomial s itself, which is temperature scaling."""

STRICTLY = 0.02
"""Smallest increment of a coefficient, in units of the straight line's: the slope is nowhere 0, so the order stays."""


@dataclass(eq=False, repr=False)
class PolynomialScaling(OrderCalibrator):
    """g_j = P(s_j) / Σ_k P(s_k), P an increasing polynomial on [0, 1] (Wang, Li & Dang 2019).

    As in the original P is fitted by least squares to membership (1 for the label, 0 for the others) under P(0) ≥ 0,
    P(1) ≤ 1 and P′ ≥ 0. The original is binary; here one P serves all classes, so the decision stays. The scores s are
    probabilities at the NLL-optimal temperature. The original has P′ ≥ 0 as a semidefinite constraint; here the
    Bernstein coefficients increase, which is enough for P′ > 0 and leaves a small quadratic program; with growing degree
    both reach every increasing polynomial.

    Parameters
    ----------
    degree
        Of the polynomial, or ``"cv"``: chosen by cross-validated NLL from ``DEGREES`` and temperature scaling itself.
    ridge
        Strength of the pull toward P(s) = s, in samples.
    n_folds
        Of the cross-validation.

    Attributes
    ----------
    unit_, coefficients_
        The NLL-optimal scale, and the Bernstein coefficients of P, from P(0) to P(1).

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.PolynomialScaling().fit(logits, labels)
    >>> calibrator.coefficients_.shape
    (3,)
    >>> bool((calibrator.predict(logits) == logits.argmax(1)).all())
    True
    """

    name = "polynomial"

    degree: int | Literal["cv"] = option("cv", minimum=1, maximum=20)
    _: KW_ONLY
    ridge: float = option(1.0, minimum=0)
    n_folds: int = option(N_FOLDS, minimum=2)

    unit_ = Fitted[float](**POSITIVE)
    coefficients_ = Fitted[Vector](shape="coefficients", minimum=0, increasing=True)
    constraints = (("there are 2 to 21 coefficients_", lambda fitted: 2 <= len(fitted["coefficients"]) <= 21),)

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, optimize.Solution]:
        line = np.array([0.0, 1.0])
        profile = Profile.from_predictions(data)
        what = "squared error of membership"
        if not profile.spread > 0:
            return self._new_map(unit=1.0, coefficients=line), equal_logits_solution(what)
        search = ScaleSearch.from_profile(profile)
        unit = float(np.exp(search.log_scale))
        at_bound = warn_at_bound(search.log_scale, search.bounds)
        if at_bound:  # nothing to regress on
            solution = optimize.Solution(what, float("nan"), True, 1, at_bound)  # noqa: FBT003
            return self._new_map(unit=unit, coefficients=line), solution
        top = DEGREES[-1] if isinstance(self.degree, str) else self.degree
        moments = Moments(data, profile, unit, top)
        trials: tuple[dict[str, Any], ...] = ()
        degree = self.degree
        if isinstance(degree, str):
            degree, trials = choose_degree(moments, search, self.ridge, self.n_folds)
        strength = self.ridge / profile.total_weight
        gram, linear = moments.on_rows(np.arange(profile.n_samples))
        coefficients = regress(gram, linear, degree, strength)
        c = elevation(len(coefficients) - 1, top) @ coefficients
        value = float(c @ gram @ c - 2 * c @ linear + 1)
        solution = optimize.Solution(what, value, True, 2, "", trials)  # noqa: FBT003
        return self._new_map(unit=unit, coefficients=coefficients), solution

    def with_choices(self) -> Calibrator:
        if np.array_equal(self.coefficients_, [0.0, 1.0]):
            return TemperatureScaling()
        return replace(self, degree=len(self.coefficients_) - 1)

    def _map(self, *, unit: float, coefficients: Vector) -> Map:
        degree = len(coefficients) - 1
        # Σ c_k C(d, k) s^k (1 − s)^(d − k), the binomials taken into the numbers.
        numbers = coefficients * [math.comb(degree, k) for k in range(degree + 1)]
        return Map(log_polynomial, {"unit": np.array(unit), "coefficients": numbers, "degree": degree})


def log_polynomial(ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """Log P of the probabilities at the NLL-optimal temperature."""
    s, c = ops.scaled_softmax(logits, parameters["unit"]), parameters["coefficients"]
    rest, power = 1.0 - s, s
    # By degree: Σ_k n_k s^k r^(d−k) grows from its first two terms, r times what was there plus the next power of s.
    total = rest * c[0] + s * c[1]
    for k in range(2, parameters["degree"] + 1):
        power = power * s
        total = total * rest + power * c[k]
    return ops.keep_order(ops.safe_log(total), logits)


class Moments:
    """What least squares and NLL need of a calibration set: sums over its entries, in the Bernstein basis of one degree."""

    def __init__(self, data: Predictions, profile: Profile, unit: float, degree: int) -> None:
        assert data.labels is not None
        self.logits, self.labels, self.weights = data.logits, data.labels, profile.weights
        self.unit, self.degree, self.masked = unit, degree, data.masked

    def on_rows(self, rows: NDArray[np.intp]) -> tuple[Vector, Vector]:
        """Σ w B Bᵀ over all entries and Σ w B over the labels', of some rows."""
        gram, linear = np.zeros((self.degree + 1, self.degree + 1)), np.zeros(self.degree + 1)
        for part in row_blocks(len(rows), self.logits.shape[1]):
            basis, labels, w = self._block(rows[part])
            gram += np.einsum("kij,lij,i->kl", basis, basis, w, optimize=True)
            linear += basis[:, np.arange(len(labels)), labels] @ w
        return gram, linear

    def nll(self, rows: NDArray[np.intp], coefficients: Vector) -> Vector:
        """The weighted NLL on some rows of several polynomials."""
        total = np.zeros(len(coefficients))
        for part in row_blocks(len(rows), self.logits.shape[1]):
            basis, labels, w = self._block(rows[part])
            for k, c in enumerate(coefficients):
                values = np.maximum(np.tensordot(c, basis, 1), SMALLEST)
                total[k] -= w @ np.log(values[np.arange(len(labels)), labels] / values.sum(axis=1))
        return total

    def _block(self, rows: NDArray[np.intp]) -> tuple[Vector, NDArray[np.intp], Vector]:
        z = self.logits[rows].astype(np.float64)
        scores = scaled_softmax(z, np.array([self.unit]))
        basis = bernstein(scores, self.degree)
        if self.masked is not None:
            basis[:, self.masked[rows]] = 0
        return basis, self.labels[rows], self.weights[rows]


def choose_degree(
    moments: Moments, search: ScaleSearch, ridge: float, n_folds: int
) -> tuple[int, tuple[dict[str, Any], ...]]:
    """The degree with the lowest held-out NLL, and the evidence; 0 stands for the straight line."""
    degrees = (0, *DEGREES)
    folds = Folds.stratified(search, n_folds)
    if not folds:
        return 0, ()
    sums = [moments.on_rows(fold.outside) for fold in folds]
    gram, linear = sum(g for g, _ in sums), sum(b for _, b in sums)

    @lru_cache(maxsize=1)  # one pass over a fold scores all degrees
    def fits(fold: Fold) -> tuple[Vector, Vector]:
        inside = 1 - fold.share
        own_gram, own_linear = sums[fold.number]
        rest = (gram - own_gram) / inside, (linear - own_linear) / inside
        strength = ridge / (search.profile.total_weight * inside)
        coefficients = [elevation(max(d, 1), moments.degree) @ regress(*rest, d, strength) for d in degrees]
        return np.array(coefficients), moments.nll(fold.outside, np.array(coefficients)) / fold.share

    def fit(degree: int, fold: Fold, _: Vector | None) -> Vector:
        return np.asarray(fits(fold)[0][degrees.index(degree)])

    def score(degree: int, _: Vector, fold: Fold) -> HeldOut:
        return HeldOut(float(fits(fold)[1][degrees.index(degree)]))

    choice = CrossValidation(folds, fit, score).choose(degrees, Rule(), "degree")
    return choice.candidate, choice.trials


def bernstein(s: Floats, degree: int) -> Vector:
    """C(d, k) s^k (1 − s)^(d − k) for k = 0 … d, along a new first axis."""
    powers, rest_powers = [np.ones_like(s)], [np.ones_like(s)]
    for _ in range(degree):
        powers.append(powers[-1] * s)
        rest_powers.append(rest_powers[-1] * (1 - s))
    return np.stack([math.comb(degree, k) * powers[k] * rest_powers[degree - k] for k in range(degree + 1)])


def elevation(degree: int, to: int) -> Vector:
    """The matrix that writes Bernstein coefficients of one degree in a higher one.

    >>> elevation(1, 2).tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    """
    out = np.zeros((to + 1, degree + 1))
    for j in range(to + 1):
        for k in range(degree + 1):
            if 0 <= j - k <= to - degree:
                out[j, k] = math.comb(degree, k) * math.comb(to - degree, j - k) / math.comb(to, j)
    return out


def regress(gram: Vector, linear: Vector, degree: int, strength: float) -> Vector:
    """Coefficients of the best increasing polynomial of a degree; degree 0 stands for P(s) = s.

    ``gram`` and ``linear`` may be of a higher degree. The unknowns are the first coefficient and the increments.
    """
    if degree == 0:
        return np.array([0.0, 1.0])
    increments = np.tril(np.ones((degree + 1, degree + 1)))
    up = elevation(degree, len(linear) - 1) @ increments
    line = np.r_[0.0, np.full(degree, 1 / degree)]
    ridge = strength * np.eye(degree + 1)
    x = optimize.quadratic(up.T @ gram @ up + ridge, up.T @ linear + ridge @ line, STRICTLY * line, 1.0)
    return increments @ x
