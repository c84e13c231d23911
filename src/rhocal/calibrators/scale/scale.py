"""The base class of the families that multiply a sample's logits by a positive number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.estimator import unchanged_on_error
from rhocal.calibrators.scoring import validated_scores
from rhocal.calibrators.top_k import scales_top_k
from rhocal.data.top_k import TopK

if TYPE_CHECKING:
    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector
    from rhocal.profile.profile import Profile


class ScaleCalibrator(Calibrator):
    """Multiplies the logits of a sample by a positive number, its scale.

    The order of the classes of a sample never changes (Propositions 2 and 3), and the prediction is read off the raw
    logits, so that rounding cannot change it either.
    """

    keeps_decision = True

    searches_near_pilot: ClassVar[bool] = False
    """Whether a fit looks at scales near those that a fit on a share of the samples ends with, and at no others."""

    @property
    def has_class_maps(self) -> bool:
        return False

    @property
    def fits_on(self) -> Literal["rows", "profile"]:
        return "profile"

    @unchanged_on_error
    def fit_profile(self, profile: Profile) -> Self:
        """Fit on a profile of logits (``rhocal.load_profile``) instead of the logits themselves."""
        from rhocal.calibrators.guard import check  # noqa: PLC0415 - it imports this module
        from rhocal.calibrators.validated_fit import fit_validated  # noqa: PLC0415 - it imports this module

        fit_validated(self, profile)
        check(self, profile)
        return self

    def scale(self, logits: Any, *, kind: Kind | None = None, class_axis: int = -1, groups: Any = None) -> Vector:
        """The number that multiplies each sample's logits; 1/scale is its temperature."""
        if isinstance(logits, TopK):
            return scales_top_k(self, logits)
        return self.map_.scales(validated_scores(self, logits, kind, class_axis, groups))
