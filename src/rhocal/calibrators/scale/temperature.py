"""Temperature scaling: p = softmax(z / T)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.fitted_values import POSITIVE
from rhocal.calibrators.guard import score_in_sample
from rhocal.calibrators.map import Map, scale_map
from rhocal.calibrators.options import Fitted
from rhocal.calibrators.scale.scale import ScaleCalibrator
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.calibrators.solutions import equal_logits_solution, solution_at
from rhocal.objectives import NLL, Objective, objective

if TYPE_CHECKING:
    from rhocal import optimize
    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.numerics.special import Vector
    from rhocal.profile.profile import Profile
    from rhocal.profile.sample_features import SampleFeatures


@dataclass(eq=False, repr=False)
class TemperatureScaling(ScaleCalibrator):
    """One temperature for all samples (Guo et al. 2017).

    NLL is convex in 1/T: the optimum is bracketed by the sign of its slope and cannot diverge, at any scale of the logits.

    Parameters
    ----------
    objective
        What to minimize; see ``rhocal.objectives``. ``"nll + avuc"`` is the paper's TS-AvUC.

    Attributes
    ----------
    temperature_
        T.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(2000, 5))
    >>> labels = np.array([rng.choice(5, p=np.exp(t) / np.exp(t).sum()) for t in truth])
    >>> bool(abs(TemperatureScaling().fit(3 * truth, labels).temperature_ - 3) < 0.2)
    True
    """

    name = "temperature"
    searches_near_pilot = True

    objective: str | Objective = "nll"

    temperature_ = Fitted[float](**POSITIVE)

    def _fit(self, data: Profile, start: Map | None = None) -> tuple[Map, optimize.Solution]:
        target = objective(self.objective)
        if not data.spread > 0:
            return self._new_map(temperature=1.0), equal_logits_solution(target)
        search = ScaleSearch.from_profile(data)
        prepared = search.prepared(target)
        minimum = search.nll  # exact
        if not isinstance(prepared, NLL):

            def scales(x: Vector) -> tuple[Vector, Vector]:
                scale = np.full(data.n_samples, np.exp(x[0]))
                return scale, scale[None]

            minimum = search.finish(prepared, scales, search.single_scale(prepared), [search.bounds])
        solution = solution_at(minimum, target, "temperature scaling", bounds=search.bounds)
        if minimum is not search.nll:
            scale = np.full(data.n_samples, np.exp(minimum.x[0]))
            solution = replace(
                solution, held_out=score_in_sample(f"temperature ({target})", search, scale, search.confidence(scale))
            )
        return self._new_map(temperature=float(np.exp(-minimum.x[0]))), solution

    def _map(self, *, temperature: float) -> Map:
        return scale_map(scale, temperature=temperature)


def scale(_ops: Ops, parameters: Parameters, _sample: SampleFeatures) -> Value:
    """1/T for every sample."""
    return 1.0 / parameters["temperature"]
