"""What scale maps of standardized features share: the steps before the fit, and the numbers that are kept of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.scale.features import STANDARD, Standardization
from rhocal.calibrators.scale.scale_search import ScaleSearch

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.numerics.special import Vector
    from rhocal.profile.profile import Profile


@dataclass(frozen=True)
class StandardizedFeatures:
    """The features of a calibration set that a scale is a function of."""

    search: ScaleSearch | None
    """None: every logit of every sample is equal, and every scale gives the same rows."""
    unit: float
    """The NLL-optimal scale, in which logits are measured before features are taken."""
    standard: Standardization
    values: Vector
    """The standardized features of every sample."""

    @classmethod
    def from_profile(cls, profile: Profile, features: Callable[[float], Vector]) -> StandardizedFeatures:
        """Find the NLL-optimal scale and standardize the features, which depend on it."""
        search = ScaleSearch.from_profile(profile) if profile.spread > 0 else None
        unit = float(np.exp(search.log_scale)) if search else 1.0
        raw = features(unit)
        standard = Standardization.from_features(raw, profile.weights)
        return cls(search, unit, standard, standard(raw))

    @property
    def fitted(self) -> dict[str, Any]:
        """The numbers that the features of other samples are standardized with."""
        return {"unit": self.unit, **{name: getattr(self.standard, name) for name in STANDARD}}
