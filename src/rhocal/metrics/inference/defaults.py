"""Levels and numbers of draws that all of inference uses."""

from __future__ import annotations

from statistics import NormalDist

CONFIDENCE_LEVEL = 0.95
TAILS = ((1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2)
"""Quantiles between which the central 95 % lie."""
Z = NormalDist().inv_cdf(TAILS[1])
"""Standard deviations on either side of the mean in which they lie, if the distribution is normal."""
SIGNIFICANCE_LEVEL = 0.05
"""Probability of reporting miscalibration, or a difference, where there is none."""
N_REPLICATES = 1000
"""Resamples, or samples simulated from a perfectly calibrated model."""
JEFFREYS = 0.5
"""Events of either kind that are added to those counted: the prior of a rate (Jeffreys)."""
