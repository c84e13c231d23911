"""Tests of calibration: the probability that a perfectly calibrated model looks at least as bad.

``ece``, ``ks`` and ``skce`` are compared with simulations (``null.py``), so their p-values hold for any number of samples;
Spiegelhalter's Z and the mean gap are normal for a perfectly calibrated model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.metrics.inference.defaults import N_REPLICATES
from rhocal.metrics.inference.null import CumulativeDifferences, simulate_nulls
from rhocal.metrics.scored import Scored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.data.predictions import Kind
    from rhocal.metrics.inference.null import NullDistribution
    from rhocal.numerics.special import Vector

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
        "spiegelhalter": spiegelhalter(scored),
        "gap": gap(scored),
    }


def spiegelhalter(scored: Scored) -> Outcome:
    """Whether the Brier score of the top label is as expected: Z = Σ (y − c)(1 − 2c) / sqrt(Σ (1 − 2c)² c (1 − c))."""
    return _normal_test(scored, 1 - 2 * scored.confidence)


def gap(scored: Scored) -> Outcome:
    """Whether accuracy equals the mean confidence. Positive: under-confident."""
    return _normal_test(scored, np.ones(len(scored.confidence)))


def _normal_test(scored: Scored, direction: Vector) -> Outcome:
    """Σ w·direction·(correct − confidence) in units of its standard deviation, both sides."""
    w, c = scored.weights, scored.confidence
    spread = math.sqrt(float(w @ (direction**2 * c * (1 - c))))
    away = float(w @ (direction * (scored.correct - c)))
    if spread == 0:  # every confidence is 0 or 1 (or 1/2, for Spiegelhalter): nothing is left to chance
        return Outcome(0.0, 1.0) if abs(away) < 1e-9 else Outcome(math.copysign(math.inf, away), 0.0)
    z = away / spread
    return Outcome(z, math.erfc(abs(z) / math.sqrt(2)))
