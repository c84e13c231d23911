"""Levels and numbers of draws that all of inference uses."""

from __future__ import annotations

CONFIDENCE_LEVEL = 0.95
TAILS = ((1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2)
"""Quantiles between which the central 95 % lie."""
SIGNIFICANCE_LEVEL = 0.05
"""Probability of reporting miscalibration, or a difference, where there is none."""
N_REPLICATES = 1000
"""Resamples, or samples simulated from a perfectly calibrated model."""
