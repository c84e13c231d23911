"""What scale maps of standardised features share: the steps before their map is fitted, and what they remember of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rhocal.calibrators.scale.features import Standardization
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.optimize import Solution

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.numerics.special import Vector
    from rhocal.objectives import Objective
    from rhocal.profile.profile import Profile


class Remembers(Protocol):
    """A calibrator that keeps the NLL-optimal scale, and of each feature the range, mean and deviation in tuning."""

    unit_: float
    low_: Vector
    high_: Vector
    mean_: Vector
    sd_: Vector


@dataclass(frozen=True)
class StandardizedFeatures:
    """A tune set as a map of features sees it."""

    fit: ScaleSearch | None
    """None: every logit of every sample is equal, so there is nothing to read, and every scale gives the same rows."""
    unit: float
    """The NLL-optimal scale, in which logits are measured before features are taken."""
    standard: Standardization
    inputs: Vector
    """The standardised features of every sample."""

    @classmethod
    def of(cls, profile: Profile, features: Callable[[float], Vector]) -> StandardizedFeatures:
        """Find the NLL-optimal scale and standardise the features, which depend on it."""
        fit = ScaleSearch.from_profile(profile) if profile.spread > 0 else None
        unit = float(np.exp(fit.log_scale)) if fit else 1.0
        raw = features(unit)
        standard = Standardization.from_features(raw, profile.weights)
        return cls(fit, unit, standard, standard(raw))

    def left_to(self, calibrator: Remembers) -> None:
        """Let a calibrator remember what it needs to see other samples the same way."""
        calibrator.unit_ = self.unit
        calibrator.low_, calibrator.high_ = self.standard.low, self.standard.high
        calibrator.mean_, calibrator.sd_ = self.standard.mean, self.standard.sd


def nothing_to_read(target: Objective | str) -> Solution:
    """The evidence of a fit on logits that are all equal."""
    return Solution(str(target), float("nan"), True, 0, "every logit of every sample is equal")  # noqa: FBT003
