"""Parameterized temperature scaling: a small network reads the largest logits and gives the scale."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rhocal.calibrators.cross_validation import CAUTION, GUARD, N_FOLDS
from rhocal.calibrators.fitted_values import POSITIVE
from rhocal.calibrators.map import Map, scale_map
from rhocal.calibrators.options import Fitted, option
from rhocal.calibrators.scale import ridge as ridges
from rhocal.calibrators.scale.features import ORDERED_RANGE, standardize
from rhocal.calibrators.scale.scale import ScaleCalibrator
from rhocal.calibrators.scale.standardized_features import StandardizedFeatures
from rhocal.calibrators.solutions import equal_logits_solution
from rhocal.numerics.special import Vector
from rhocal.objectives import Objective, objective
from rhocal.profile.profile import TOP_K
from rhocal.profile.sample_features import ProfileFeatures

if TYPE_CHECKING:
    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.optimize import Solution
    from rhocal.profile.profile import Profile
    from rhocal.profile.sample_features import SampleFeatures

RIDGES = (np.inf, 50.0, 5.0)
"""Strengths of the ridge that cross-validation tries, in samples; infinite is plain temperature scaling."""

WIDTHS = (2, 5)
"""Numbers of hidden units that cross-validation tries; 1 was worse and 10 no better on real networks."""


@dataclass(eq=False, repr=False)
class ParameterizedTemperatureScaling(ScaleCalibrator):
    """log σ = bias + v · tanh(W·top + c), top the k largest logits in order (Tomani, Cremers & Buettner 2022).

    The network starts as temperature scaling (v = 0) and is trained with all samples at once by L-BFGS.

    Parameters
    ----------
    objective
        What to minimize; see ``rhocal.objectives``.
    top_k
        Inputs of the network.
    n_hidden
        Hidden units of the network, or ``"cv"``: chosen by cross-validation from ``WIDTHS``, together with the ridge.
    ridge, guard, caution, n_folds
        As in ``FieldScaling``; the ridge pulls all weights of the network to 0.
    random_state
        Seed of the first weights W.

    Attributes
    ----------
    network_
        All parameters of the network: bias, v, c, W.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.ParameterizedTemperatureScaling(n_hidden=4, ridge=1.0).fit(logits, labels)
    >>> calibrator.predict_proba(logits).shape
    (5000, 10)
    >>> bool((calibrator.predict(logits) == logits.argmax(1)).all())
    True
    """

    name = "pts"

    objective: str | Objective = "top-brier + sce + 0.03*nll"
    _: KW_ONLY
    top_k: int = option(10, minimum=1, maximum=TOP_K)
    n_hidden: int | Literal["cv"] = option("cv", minimum=1)
    ridge: float | Literal["cv"] = option("cv", minimum=0)
    guard: float = option(GUARD, minimum=0)
    caution: float = option(CAUTION, minimum=0)
    n_folds: int = option(N_FOLDS, minimum=2)
    random_state: int = option(0, minimum=0)

    unit_ = Fitted[float](**POSITIVE)
    network_ = Fitted[Vector](shape="weights")
    low_ = Fitted[Vector](shape="inputs")
    high_ = Fitted[Vector](shape="inputs")
    mean_ = Fitted[Vector](shape="inputs")
    sd_ = Fitted[Vector](shape="inputs", minimum=1e-9)
    ridge_ = Fitted[float](minimum=0, maximum=np.inf)
    constraints = (
        ORDERED_RANGE,
        (
            "there is an input for each of the top_k largest logits",
            lambda fitted: (
                len(fitted["low"])
                == min(fitted["calibrator"].top_k, fitted["calibrator"].n_best_ or fitted["n_classes"])
            ),
        ),
        (
            "network_ has 1 + h·(2 + inputs) numbers, h at least 1",
            lambda fitted: len(fitted["network"]) > 1 and (len(fitted["network"]) - 1) % (2 + len(fitted["low"])) == 0,
        ),
    )

    def _fit(self, data: Profile, start: Map | None = None) -> tuple[Map, Solution]:
        target = objective(self.objective)
        options = ridges.RidgeOptions(self.ridge, self.guard, self.caution, self.n_folds)
        top = ProfileFeatures(data).centered_top(self.top_k)
        features = StandardizedFeatures.from_profile(data, lambda unit: unit * top)
        widths = WIDTHS if isinstance(self.n_hidden, str) else (self.n_hidden,)
        networks = [ScaleNetwork(features.values, features.unit, width, self.random_state) for width in widths]
        if features.search is None:
            fitted = {"network": networks[0].start(0.0), "ridge": np.inf}
            return self._new_map(**features.fitted, **fitted), equal_logits_solution(target)
        prepared = features.search.prepared(target)
        choices = [ridges.choose_ridge(features.search, network, prepared, RIDGES, options) for network in networks]
        best = min(range(len(widths)), key=lambda i: choices[i].score)
        x, ridge, solution = ridges.fit_scale_map(
            features.search, networks[best], target, RIDGES, options, "parameterized temperature scaling", choices[best]
        )
        rows = [{"n_hidden": w, **row} for w, choice in zip(widths, choices, strict=True) for row in choice.trials]
        return self._new_map(**features.fitted, network=x, ridge=ridge), replace(solution, trials=tuple(rows))

    def _map(self, *, network: Vector, ridge: float, **numbers: Any) -> Map:
        k = len(numbers["low"])
        h = (len(network) - 1) // (2 + k)
        bias, v, c, w = np.split(network, [1, 1 + h, 1 + 2 * h])
        own = ridges.bias_from_unit(float(bias[0]), numbers["unit"])
        return scale_map(scale, **numbers, bias=own, v=v, c=c, w=w.reshape(h, k).T, k=k)


def scale(ops: Ops, parameters: Parameters, sample: SampleFeatures) -> Value:
    """exp(bias + v · tanh(W·top + c)) times the unit for every sample, kept within reach of it, the NLL-optimal scale."""
    inputs = standardize(ops, parameters["unit"] * sample.centered_top(parameters["k"]), parameters)
    hidden = ops.tanh(ops.matmul(inputs, parameters["w"]) + parameters["c"])
    away = parameters["bias"] + ops.sum(parameters["v"] * hidden)
    return ridges.bounded_scale_formula(ops, away, parameters["unit"])


class ScaleNetwork:
    """One hidden layer: x = (bias, v, c, W)."""

    def __init__(self, inputs: Vector, unit: float, n_hidden: int, seed: int) -> None:
        self.inputs, self.unit, self.n_hidden, self.seed = inputs, unit, n_hidden, seed

    def start(self, log_scale: float) -> Vector:
        """Temperature scaling: the hidden units are drawn, with weight 0."""
        h, k = self.n_hidden, self.inputs.shape[1]
        drawn = np.random.default_rng(self.seed).normal(size=h * k) / np.sqrt(k)
        return np.r_[log_scale, np.zeros(2 * h), drawn]

    def scales(self, x: Vector) -> tuple[Vector, ridges.Vjp]:
        """Every sample's scale, and the way back to the parameters."""
        h = self.n_hidden
        v, c, w = x[1 : 1 + h], x[1 + h : 1 + 2 * h], x[1 + 2 * h :].reshape(h, -1)
        hidden = np.tanh(w @ self.inputs.T + c[:, None])
        scale, slope = ridges.bounded_scale(x[0] + v @ hidden, self.unit)

        def vjp(outer: Vector) -> Vector:
            to_log = slope * outer
            back = v[:, None] * (1 - hidden**2) * to_log
            return np.r_[to_log.sum(), hidden @ to_log, back.sum(axis=1), (back @ self.inputs).ravel()]

        return scale, vjp
