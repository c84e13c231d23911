"""A chain: one calibrator, then a second one on its outputs, such as a linear map followed by a scale."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING

from rhocal.calibrators.base import Calibrator, fit_validated
from rhocal.calibrators.compose.cross_fit import CrossFit
from rhocal.calibrators.estimator import unfitted
from rhocal.calibrators.map import chain_map
from rhocal.calibrators.options import Fitted, option
from rhocal.optimize import Solution

if TYPE_CHECKING:
    from rhocal.calibrators.map import Map
    from rhocal.data.predictions import Predictions


@dataclass(eq=False, repr=False)
class Chain(Calibrator):
    """The second calibrator on the outputs of the first; written ``first:second`` where a name of a method is expected.

    The second is fitted on outputs that the first gives for samples it was not fitted on (out of fold), because on its own
    calibration set a rich map looks better than it is. Then the first is fitted again on all samples.

    Parameters
    ----------
    first, second
        Calibrators, or names of methods. Their options are written ``first__ridge_diagonal=2``.
    n_folds
        Folds of the outputs that the second is fitted on; more of them differ less from a first stage fitted on all.

    Attributes
    ----------
    first_, second_
        The fitted calibrators.
    """

    name = "chain"
    keeps_decision = False

    first: str | Calibrator = option(stage=True)
    second: str | Calibrator = option(stage=True)
    _: KW_ONLY
    n_folds: int = option(10, minimum=2)

    first_ = Fitted[Calibrator]("calibrator")
    second_ = Fitted[Calibrator]("calibrator")

    def _fit(self, data: Predictions) -> Solution:
        self.first_ = fit_validated(unfitted(self.first), data, kind="logits")
        parts = CrossFit.from_predictions(self.first, data, self.n_folds, self.first_)
        outputs = parts.outputs(data) if parts.models else self.first_.map_.logits(data)
        self.second_ = fit_validated(unfitted(self.second), replace(data, kind="logits", scores=outputs), kind="logits")
        first, second = self.first_.solution_, self.second_.solution_
        return Solution(
            f"{first.objective}, then {second.objective}",
            second.value,
            first.converged and second.converged,
            first.n_evaluations + second.n_evaluations,
            "; ".join(filter(None, (first.at_bound, second.at_bound))),
            (*({"stage": 1, **row} for row in first.trials), *({"stage": 2, **row} for row in second.trials)),
        )

    def _map(self) -> Map:
        return chain_map(self.first_.map_, self.second_.map_)
