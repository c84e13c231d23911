"""Maps that are not a scale and still keep the order of a sample's classes."""

from __future__ import annotations

import numpy as np

from rhocal.calibrators.base import Calibrator

KAPPA = 1e-7
"""Smoothing of the maximum where statistics are taken from logits: none to speak of, the top class cannot change."""

SMALLEST = float(np.finfo(np.float64).tiny)
"""No probability is below this where its logarithm is taken: that stays finite."""


class OrderCalibrator(Calibrator):
    """Maps every row of logits so that a larger logit never becomes a smaller one (intra order-preserving).

    The formula of its map never decreases in the logit, to the last bit. The prediction is read off the raw logits, so that
    rounding cannot change it.
    """

    keeps_decision = True

    @property
    def has_class_maps(self) -> bool:
        return False
