"""Vector scaling: p = softmax(a∘z + b), a scale and a bias for every class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal import solve
from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.scale_fit import ScaleFit, warn_unless
from rhocal.errors import InputError
from rhocal.objectives import Objective, objective
from rhocal.portable import Portable
from rhocal.profile import Profile
from rhocal.special import Floats, log_softmax
from rhocal.statistics import Facts, of_logits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.predictions import Predictions


class VectorScaling(Calibrator):
    """A scale and a bias for every class (Guo et al. 2017). It may change the predicted class.

    Parameters
    ----------
    objective
        What to minimise; see ``rhocal.objectives``.
    ridge
        Strength of the pull toward temperature scaling, ridge / (2 n) · (‖a/a₀ − 1‖² + ‖b‖²): the weight of that many
        samples. Without it a class that never occurs in the tune set would get a bias of −∞.
    kappa
        Smoothing of the maximum, which has no slope where the top class changes.

    Attributes
    ----------
    weight_, bias_
        a and b.
    """

    name = "vector"
    keeps_decision = False
    parameters = ("weight_", "bias_")
    weight_: NDArray[np.float64]
    bias_: NDArray[np.float64]

    def __init__(self, objective: str | Objective = "nll", *, ridge: float = 1.0, kappa: float = 1e-4) -> None:
        self.objective = objective
        self.ridge = ridge
        self.kappa = kappa

    def _fit(self, data: Predictions) -> solve.Solution:
        if not (self.ridge >= 0 and self.kappa > 0):
            raise InputError(f"need ridge ≥ 0 and kappa > 0; got {self.ridge!r}, {self.kappa!r}")
        profile = Profile.of(data)
        start = 1.0
        if profile.spread > 0:
            start = float(np.exp(ScaleFit.of(profile).log_scale))
        problem = LinearProblem(data, profile, objective(self.objective), start, self.ridge, self.kappa)
        minimum = solve.smooth(problem, problem.start())
        self.weight_, self.bias_ = problem.unpack(minimum.x)
        warn_unless(converged=minimum.converged, what="vector scaling", stacklevel=5)
        return solve.Solution(str(objective(self.objective)), minimum.value, minimum.converged, minimum.n_evaluations)

    def _transform(self, logits: Floats) -> Floats:
        return logits * self.weight_.astype(logits.dtype) + self.bias_.astype(logits.dtype)

    def _portable(self) -> Portable:
        numbers = {"weight": self.weight_, "bias": self.bias_}
        return Portable(numbers, lambda _ops, c, z: z * c["weight"] + c["bias"])


class LinearProblem:
    """The objective as a function of x = (a/a₀ − 1, b), with the ridge; a₀ is the scale of temperature scaling."""

    def __init__(
        self, data: Predictions, profile: Profile, target: Objective, scale: float, ridge: float, kappa: float
    ) -> None:
        assert data.labels is not None
        self.logits = data.logits.astype(np.float64)
        self.labels, self.profile, self.scale, self.kappa = data.labels, profile, scale, kappa
        self.strength = ridge / profile.total_weight
        self.base = log_softmax(self.logits)
        stats = of_logits(self.logits * scale, self.labels, self.base, target.needs, kappa)
        self.target = target.prepared(stats.values, self._facts(stats.correct))

    def start(self) -> NDArray[np.float64]:
        """Temperature scaling."""
        return np.zeros(2 * self.logits.shape[1])

    def unpack(self, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The scale and the bias of every class."""
        a, b = np.split(x, 2)
        return self.scale * (1 + a), b

    def __call__(self, x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weight, bias = self.unpack(x)
        stats = of_logits(self.logits * weight + bias, self.labels, self.base, self.target.needs, self.kappa)
        value, slopes = self.target.evaluate(stats.values, self._facts(stats.correct))
        pulled = stats.pull(slopes)
        gradient = np.concatenate([self.scale * np.einsum("ij,ij->j", pulled, self.logits), pulled.sum(axis=0)])
        return value + self.strength / 2 * float(x @ x), gradient + self.strength * x

    def _facts(self, correct: NDArray[np.float64]) -> Facts:
        return Facts(correct, self.profile.weights, self.profile.n_classes)
