"""Calibration errors over bins of confidence. The rule for edges and the sums live in ``rhocal.bins``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rhocal.bins import BinSums, equal_mass

if TYPE_CHECKING:
    from rhocal.metrics.scores import Scored

N_BINS = 10
"""As in the paper."""


@dataclass(frozen=True)
class EqualWidth:
    """Σ_b share_b·gap_b^power over equal-width bins, as sums that add; power 1 is ECE, inf is MCE."""

    sums: BinSums
    power: float

    @classmethod
    def of(cls, scored: Scored, *, power: float, n_bins: int = N_BINS) -> EqualWidth:
        """The sums of one batch."""
        return cls(BinSums.of(scored.confidence, scored.correct, n_bins=n_bins, weights=scored.weights), power)

    def __add__(self, other: EqualWidth) -> EqualWidth:
        return EqualWidth(self.sums + other.sums, self.power)

    @property
    def value(self) -> float:
        """The calibration error."""
        return self.sums.error(self.power)


def equal_mass_error(scored: Scored, *, n_bins: int = N_BINS) -> float:
    """ECE over bins of equal mass (AdaECE). Its edges depend on all samples, so batches cannot be added."""
    bins = equal_mass(scored.confidence, n_bins, scored.weights)
    return BinSums.within(bins, scored.confidence, scored.correct, n_bins=n_bins, weights=scored.weights).error(1)
