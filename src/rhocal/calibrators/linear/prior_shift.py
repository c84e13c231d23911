"""The mix of the classes where a model is used: p_k times the new share of class k over the old one, normalized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.map import Map
from rhocal.calibrators.options import Fitted
from rhocal.optimize import Solution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.numerics.special import Vector


@dataclass(eq=False, repr=False)
class PriorShift(Calibrator):
    """Probabilities for another mix of the classes (Saerens et al. 2002): samples of each class are assumed to be the same.

    ``rhocal.adapt`` puts one behind a fitted calibrator. A fit on labeled samples keeps their mix, so it changes nothing.

    Attributes
    ----------
    bias_
        What is added to each logit: log of the new share of its class over the old one.
    """

    name = "prior-shift"
    keeps_decision = False

    bias_ = Fitted["NDArray[np.float64]"](shape="classes")

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, Solution]:
        return self._new_map(bias=np.zeros(data.n_classes)), _UNCHANGED

    @classmethod
    def from_bias(cls, classes: NDArray[np.generic], bias: Vector) -> PriorShift:
        """The map that adds a bias to the logits of each class."""
        shift = cls()
        shift.classes_, shift.kind_, shift.solution_ = classes, "logits", _UNCHANGED
        vars(shift)["map_"] = shift._new_map(bias=np.asarray(bias, np.float64))
        return shift

    def _map(self, *, bias: Vector) -> Map:
        return Map(shifted, {"bias": bias})


_UNCHANGED = Solution("none", 0.0, converged=True, n_evaluations=0)


def shifted(ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """Each logit plus the bias of its class; relative to the largest, so that no bias is lost in large logits."""
    return (logits - ops.max(logits)) + parameters["bias"]
