"""No calibration: what everything else is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rhocal.calibrators.map import Map, scale_map
from rhocal.calibrators.scale.scale import ScaleCalibrator
from rhocal.optimize import Solution

if TYPE_CHECKING:
    from rhocal.numerics.ops import Ops, Parameters
    from rhocal.profile.profile import Profile
    from rhocal.profile.sample_features import SampleFeatures


@dataclass(eq=False, repr=False)
class Identity(ScaleCalibrator):
    """Leaves the logits as they are.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> probs = rhocal.Identity().fit(logits, labels).predict_proba(logits)
    >>> round(rhocal.metrics.ece(probs, labels), 3)
    0.153
    """

    name = "identity"

    def _fit(self, data: Profile, start: Map | None = None) -> tuple[Map, Solution]:
        return self._new_map(), Solution("none", 0.0, converged=True, n_evaluations=0)

    def _map(self) -> Map:
        return scale_map(scale)


def scale(_ops: Ops, _parameters: Parameters, _sample: SampleFeatures) -> float:
    """1 for every sample."""
    return 1.0
