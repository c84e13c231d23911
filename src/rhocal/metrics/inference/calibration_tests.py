"""Tests of calibration: the probability that a perfectly calibrated model looks at least as bad.

``ece``, ``ks`` and ``skce`` are compared with simulations (``null.py``), so their p-values hold for any number of samples;
Spiegelhalter's Z and the mean gap (positive: under-confident) are normal for a perfectly calibrated model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.metrics.inference.defaults import N_REPLICATES
from rhocal.metrics.inference.null import CumulativeDifferences, simulate_nulls
from rhocal.metrics.scored import Scored
from rhocal.metrics.smooth import spiegelhalter_z, standardized_residual

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.data.predictions import Kind
    from rhocal.metrics.inference.null import NullDistribution

SIMULATED_TESTS = ("ece", "ks", "skce")
TITLES = {
    "ece": "floor test (ECE)",
    "ks": "Kolmogorov–Smirnov",
    "skce": "kernel (SKCE)",
    "spiegelhalter": "Spiegelhalter",
    "gap": "mean gap",
}


@dataclass(frozen=True)
class Outcome:
    """A statistic and its p-value."""

    statistic: float
    p_value: float


def calibration_tests(
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    kind: Kind = "probs",
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> dict[str, Outcome]:
    """Every test of top-label calibration.

    >>> calibration_tests([[0.2, 0.8]] * 100, [1] * 79 + [0] * 21)["spiegelhalter"].p_value > 0.5
    True
    """
    scored = Scored.from_arrays(probs, labels, sample_weight, kind, purpose="a test")
    nulls = simulate_nulls(CumulativeDifferences.from_scored(scored), list(SIMULATED_TESTS), n_replicates, seed)
    return outcomes(scored, nulls)


def outcomes(scored: Scored, drawn: Mapping[str, NullDistribution]) -> dict[str, Outcome]:
    """The tests with simulated nulls, and those whose null distribution is normal."""
    return {name: Outcome(drawn[name].observed, drawn[name].p_value) for name in SIMULATED_TESTS if name in drawn} | {
        "spiegelhalter": _normal_test(spiegelhalter_z(scored).value),
        "gap": _normal_test(standardized_residual(scored, np.ones(len(scored.confidence))).value),
    }


def _normal_test(z: float) -> Outcome:
    """A statistic that is standard normal for a calibrated model, both sides."""
    return Outcome(z, math.erfc(abs(z) / math.sqrt(2)))
