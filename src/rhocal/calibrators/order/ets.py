"""Ensemble temperature scaling: p = w₁·softmax(z/T) + w₂·softmax(z) + w₃/m."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal import optimize
from rhocal.calibrators.fitted_values import POSITIVE
from rhocal.calibrators.map import Map
from rhocal.calibrators.options import Fitted
from rhocal.calibrators.order.order import KAPPA, SMALLEST, OrderCalibrator
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.calibrators.solutions import equal_logits_solution, solution_at
from rhocal.numerics.caching import cached_property
from rhocal.numerics.special import Vector, log_softmax, softmax
from rhocal.objectives import Objective, objective
from rhocal.profile.profile import Profile
from rhocal.profile.statistics import of_logits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.profile.passes import Curve

MAX_UNIFORM = 0.999
"""Largest weight of the uniform distribution: alone it would forget the order of the classes."""

STARTS = ((0.0, 0.05, 0.05), (0.4, 0.05, 0.2), (-0.4, 0.3, 0.01))
"""Log scale above temperature scaling's, and the two shares, from which the fit starts; the lowest end counts."""


@dataclass(eq=False, repr=False)
class EnsembleTemperatureScaling(OrderCalibrator):
    """A mixture of temperature scaling, the network itself and the uniform distribution (Zhang, Kailkhura & Han 2020).

    The original fits T first and the weights after it; here all three numbers are fitted together, so the objective is never
    above that of temperature scaling nor that of the original.

    Parameters
    ----------
    objective
        What to minimize; see ``rhocal.objectives``.

    Attributes
    ----------
    temperature_, weights_
        T, and the three weights, which sum to 1.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.EnsembleTemperatureScaling().fit(logits, labels)
    >>> calibrator.weights_.round(2)
    array([0.98, 0.02, 0.  ])
    """

    name = "ets"

    objective: str | Objective = "nll"

    temperature_ = Fitted[float](**POSITIVE)
    weights_ = Fitted[Vector](shape="3", minimum=0, maximum=1)
    constraints = (("weights_ sum to 1", lambda fitted: abs(float(fitted["weights"].sum()) - 1) < 1e-9),)

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, optimize.Solution]:
        target = objective(self.objective)
        profile = Profile.from_predictions(data)
        if not profile.spread > 0:
            return self._new_map(temperature=1.0, weights=np.array([1.0, 0.0, 0.0])), equal_logits_solution(target)
        search = ScaleSearch.from_profile(profile)
        mixture = Mixture(data, search, search.prepared(target))
        bounds = [search.bounds, (0.0, 1.0), (0.0, MAX_UNIFORM)]
        plain = np.array([search.log_scale, 0.0, 0.0])
        value = mixture(plain)[0]
        lowest = optimize.Minimum(plain, value, converged=True, n_evaluations=1)
        for above, *both in STARTS:
            first = np.clip([search.log_scale + above, *both], *np.transpose(bounds))
            trial = optimize.lbfgs(mixture, first, bounds)
            lowest = trial if trial.value < lowest.value else lowest
        if not mixture.is_exact:
            lowest = optimize.lbfgs(Mixture(data, search, mixture.target, exact=True), lowest.x, bounds)
        weights = shares(lowest.x)
        scale_bounds = search.bounds if weights[0] > 0 else None
        solution = solution_at(lowest, target, "ensemble temperature scaling", bounds=scale_bounds)
        return self._new_map(temperature=float(np.exp(-lowest.x[0])), weights=weights), solution

    def _map(self, *, temperature: float, weights: Vector) -> Map:
        numbers = {"temperature": np.array(temperature), "weights": weights}
        return Map(mixture, {**numbers, "n_classes": float(len(self.classes_)), "mask_gap": self.mask_gap_})


def mixture(ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """Log of the mixture. Sums of non-decreasing functions of a logit are non-decreasing in floating point too."""
    z, w = logits - ops.max(logits), parameters["weights"]
    scaled = ops.softmax(z / parameters["temperature"])
    n_classes = parameters["n_classes"]
    if parameters["mask_gap"] < math.inf:  # a masked class, which is read at twice the gap, is none
        n_classes = ops.sum(ops.where(z <= -1.5 * parameters["mask_gap"], 0.0, 1.0))
    return ops.safe_log(w[0] * scaled + w[1] * ops.softmax(z) + w[2] / n_classes)


def shares(x: Vector) -> Vector:
    """The three weights from (·, share of the network in what is not uniform, weight of the uniform): a box is a simplex."""
    return np.array([(1 - x[2]) * (1 - x[1]), (1 - x[2]) * x[1], x[2]])


class Mixture:
    """The objective as a function of x = (log scale, and the two shares).

    Label and top probability of a mixture are mixtures of label and top probabilities, and Σp² follows from
    Σ softmax(az) softmax(bz) = exp(L(a + b) − L(a) − L(b)). So objectives that look at nothing else cost O(n_samples),
    whatever the number of classes. Others are evaluated on all classes.
    """

    def __init__(self, data: Predictions, search: ScaleSearch, target: Objective, *, exact: bool = False) -> None:
        assert data.labels is not None
        self.target, self.facts, self.labels = target, search.facts, data.labels
        self.profile, self.curves = search.profile, search.profile if exact else search.fast
        self.reads_curves = target.needs <= {"log_label", "confidence", "sum_squares"}
        masked = data.masked
        self.is_class = 1.0 if masked is None else ~masked
        self.n_classes = np.array(float(data.n_classes)) if masked is None else (~masked).sum(axis=1).astype(np.float64)
        """Of every sample, without masked ones; one number if none is masked."""
        self.is_exact = not self.reads_curves or self.curves is search.profile
        if not self.reads_curves:
            self.z = data.logits.astype(np.float64) - search.profile.top[:, None]
            self.base = log_softmax(self.z).astype(np.float64, copy=False)

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        return self._through_curves(x) if self.reads_curves else self._through_all(x)

    def _through_curves(self, x: Vector) -> tuple[float, Vector]:
        scale, w = float(np.exp(x[0])), shares(x)
        at, base = self.curves.curve(np.full(self.profile.n_samples, scale)), self.profile.base
        values: dict[str, Vector] = {}
        slopes: dict[str, Vector] = {}
        gaps = {"log_label": self.profile.label_gap, "confidence": np.zeros(self.profile.n_samples)}
        for name, gap in gaps.items():
            if name not in self.target.needs:
                continue
            parts = np.stack(
                [scale * gap - at.value, gap - base.value, np.broadcast_to(-np.log(self.n_classes), gap.shape)]
            )
            log_p, by_part = _mixed(parts, w)
            # slopes of log p in log scale and in the two shares
            slope = np.vstack([w[0] * by_part[0] * scale * (gap - at.first), _share_slopes(x) @ by_part])
            values[name] = log_p if name == "log_label" else np.exp(log_p)
            slopes[name] = slope if name == "log_label" else slope * values[name]
        if "sum_squares" in self.target.needs:
            values["sum_squares"], slopes["sum_squares"] = self._squares(x, at)
        value, outer = self.target.evaluate(values, self.facts)
        return value, sum((slopes[name] @ slope for name, slope in outer.items()), np.zeros(3))

    def _squares(self, x: Vector, at: Curve) -> tuple[Vector, Vector]:
        """Σp² of the mixture, wᵀGw with G the products of its three parts, and its slopes."""
        scale, w, base = np.full(self.profile.n_samples, np.exp(x[0])), shares(x), self.profile.base
        double, both = self.curves.curve(2 * scale), self.curves.curve(1 + scale)
        scaled = np.exp(double.value - 2 * at.value)
        cross = np.exp(both.value - at.value - base.value)
        flat = np.broadcast_to(1 / self.n_classes, scaled.shape)
        products = np.array([[scaled, cross, flat], [cross, self._plain_squares, flat], [flat, flat, flat]])
        by_part = np.einsum("k,kln->ln", w, products)
        in_scale = 2 * w[0] * scaled * (double.first - at.first) + 2 * w[1] * cross * (both.first - at.first)
        return w @ by_part, np.vstack([w[0] * scale * in_scale, 2 * _share_slopes(x) @ by_part])

    @cached_property
    def _plain_squares(self) -> Vector:
        return np.exp(self.profile.curve(np.full(self.profile.n_samples, 2.0)).value - 2 * self.profile.base.value)

    def _through_all(self, x: Vector) -> tuple[float, Vector]:
        scale, w = float(np.exp(x[0])), shares(x)
        scaled, plain = softmax(scale * self.z), np.exp(self.base)
        flat = self.is_class / np.reshape(self.n_classes, (-1, 1))
        mixed = np.maximum(w[0] * scaled + w[1] * plain + w[2] * flat, SMALLEST)
        stats = of_logits(np.log(mixed), self.labels, self.base, self.target.needs, KAPPA)
        value, slopes = self.target.evaluate(stats.values, self.facts)
        back = stats.vjp(slopes) / mixed
        by_part = np.array([(back * scaled).sum(), (back * plain).sum(), (back * flat).sum()])
        mean = np.vecdot(scaled, self.z)[:, None]
        to_scale = w[0] * scale * float((back * scaled * (self.z - mean)).sum())
        return value, np.r_[to_scale, _share_slopes(x) @ by_part]


def _mixed(parts: Vector, w: Vector) -> tuple[Vector, Vector]:
    """Log Σ_k w_k exp(parts_k), and its derivative in each w_k."""
    with np.errstate(divide="ignore"):
        log_p = np.logaddexp.reduce(parts + np.log(w)[:, None], axis=0)
    return log_p, np.exp(np.minimum(parts - log_p, 700))


def _share_slopes(x: Vector) -> NDArray[np.float64]:
    """Derivative of the three weights in the two shares."""
    return np.array([[x[2] - 1, 1 - x[2], 0.0], [x[1] - 1, -x[1], 1.0]])
