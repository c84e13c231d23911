"""No calibration: what everything else is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.base import ScaleCalibrator
from rhocal.optimize import Solution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.portable import Formula
    from rhocal.numerics.special import Floats
    from rhocal.profile.profile import Profile


@dataclass(eq=False, repr=False)
class Identity(ScaleCalibrator):
    """Leaves the logits as they are."""

    name = "identity"

    def _fit_profile(self, profile: Profile) -> Solution:  # noqa: ARG002
        return Solution("none", 0.0, converged=True, n_evaluations=0)

    def _scale(self, logits: Floats) -> NDArray[np.float64]:
        return np.ones(len(logits))

    def _portable_scale(self) -> tuple[dict[str, NDArray[Any]], Formula]:
        return {}, lambda _ops, _c, _z: 1.0
