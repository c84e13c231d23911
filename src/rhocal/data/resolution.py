"""How finely the probabilities of a calibration set are counted: what a probability of 0 means there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rhocal.numerics.special import Floats

SMALLEST_PROB = 1e-30
"""A smaller probability counts as 0."""


@dataclass(frozen=True)
class Resolution:
    """The smallest probabilities of a calibration set. Those of blocks add.

    A forest of 100 trees counts in hundredths. With the logarithm of 1e-30 for its 0 a few samples would decide a fit, or,
    where they come later, the NLL of everything.
    """

    has_zeros: bool
    least: float
    """The smallest probability that is not 0; infinite if all are."""
    weight: float
    """Of all samples."""

    @classmethod
    def from_probs(cls, probs: Floats, weight: float, smallest: float = SMALLEST_PROB) -> Resolution:
        """Of a matrix; what is below ``smallest`` counts as 0."""
        least = float(probs.min())
        if least >= smallest:
            return cls(has_zeros=False, least=least, weight=weight)
        positive = probs[probs >= smallest]
        return cls(has_zeros=True, least=float(positive.min()) if positive.size else math.inf, weight=weight)

    @classmethod
    def from_log_probs(cls, log_probs: Floats, weight: float) -> Resolution:
        """The same of logarithms."""
        positive = log_probs[log_probs >= math.log(SMALLEST_PROB)]
        least = math.exp(float(positive.min())) if positive.size else math.inf
        return cls(has_zeros=positive.size < log_probs.size, least=least, weight=weight)

    def __add__(self, other: Resolution) -> Resolution:
        return Resolution(self.has_zeros or other.has_zeros, min(self.least, other.least), self.weight + other.weight)

    def smallest_prob(self, n_classes: int, smallest: float = SMALLEST_PROB) -> float:
        """What smaller probabilities are raised to: where some are 0, half of the smallest that is not.

        Where none is 0, it is the square of the smallest, or of 1/(n + 2) if that is less. So nothing of the calibration set
        changes, and later probabilities count as they are down to twice the depth, in logarithms, that was seen.
        """
        if self.has_zeros:
            return max(min(self.least, 1 / n_classes) / 2, smallest)
        return max(min(self.least, 1 / (self.weight + 2)) ** 2, smallest)
