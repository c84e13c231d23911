"""Importance weights of a fit, as a fitted calibrator states them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Weighting:
    """That a calibrator was fitted with importance weights, for another population than that of its calibration set."""

    origin: str
    """``estimated`` or ``given``."""
    n_samples: int
    effective_size: float

    @property
    def sentence(self) -> str:
        """The same in words."""
        return (
            f"{self.origin} importance weights, {self.effective_size:,.0f} effective samples of {self.n_samples:,}: for "
            "another population than that of the calibration set"
        )
