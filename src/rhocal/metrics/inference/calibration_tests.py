"""Tests of calibration: the probability that a perfectly calibrated model looks at least as bad.

Every test compares a statistic (``statistics.py``) with its values on labels drawn from the model's own probabilities
(``joint_null.py``), so p-values hold for any number of samples. They are combined by their minimum, whose distribution comes
from the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.inference.joint_null import N_DRAWS, joint_null
from rhocal.metrics.inference.null import NullDistribution
from rhocal.metrics.inference.statistics import TITLES, statistics
from rhocal.metrics.scored import Scored
from rhocal.metrics.smooth import spiegelhalter_z, standardized_residual

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

__all__ = ["TITLES", "CombinedTest", "Outcome", "calibration_tests", "combine", "outcomes"]


@dataclass(frozen=True)
class Outcome:
    """A statistic and its p-value."""

    statistic: float
    p_value: float


@dataclass(frozen=True)
class CombinedTest:
    """Whether any test rejects perfect calibration: the smallest p-value, compared with that of perfect models."""

    p_value: float
    smallest: str
    """The name of the test with the smallest p-value."""
    n_draws: int

    @property
    def least_p_value(self) -> float:
        """The smallest p-value that so many draws can give."""
        return 1 / (1 + self.n_draws)


def calibration_tests(
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    weight_kind: str = "frequency",
    clusters: Any = None,
    kind: Kind = "probs",
    classes: Any = None,
    positive: Any = None,
    n_replicates: int = N_DRAWS,
    seed: int = 0,
) -> dict[str, Outcome]:
    """Every test of calibration: of the top label, of single classes and of all classes together.

    ``classes``, ``positive``, ``weight_kind`` and ``clusters`` are those of ``rhocal.evaluate``.

    >>> calibration_tests([[0.2, 0.8]] * 100, [1] * 79 + [0] * 21)["spiegelhalter"].p_value > 0.5
    True
    """
    scored = Scored.from_arrays(
        probs, labels, sample_weight, kind, purpose="a test", classes=classes, positive=positive
    )
    scored = SamplingDesign(weight_kind, clusters).apply(scored)
    return outcomes(scored, statistics(joint_null(scored, n_replicates, seed)))


def outcomes(scored: Scored, drawn: Mapping[str, Vector]) -> dict[str, Outcome]:
    """The tests: statistics of the samples (the first of each vector) among those of the replicates.

    The mean gap (positive: under-confident) and Spiegelhalter's statistic are reported with their sign, in standard deviations.
    """
    signed = {
        "gap": standardized_residual(scored, np.ones(len(scored.confidence))).value,
        "spiegelhalter": spiegelhalter_z(scored).value,
    }
    return {
        name: Outcome(signed.get(name, float(values[0])), NullDistribution(float(values[0]), values[1:]).p_value)
        for name, values in drawn.items()
    }


SHARES = {"ece": 0.5, "kuiper": 0.5, "classwise": 0.5, "skce": 0.25}
"""How much a test counts in the combination, 1 unless it is listed: its p-value is divided by this. Tests that mostly see what
another one sees get less, so that they take less power from the others. Any shares give a valid test."""


def combine(drawn: Mapping[str, Vector]) -> CombinedTest:
    """The smallest p-value of all tests as a test: each replicate is ranked among the others as the samples are."""
    names = list(drawn)
    ranks = np.stack([_p_values(drawn[name]) / SHARES.get(name, 1.0) for name in names])
    smallest = ranks.min(axis=0)
    p_value = float(np.mean(smallest <= smallest[0] + 1e-12))
    return CombinedTest(p_value, names[int(ranks[:, 0].argmin())], len(smallest) - 1)


def _p_values(values: Vector) -> Vector:
    """The share of values at least as large as each; nearly equal ones are equal."""
    ordered = np.sort(values)
    tolerance = 1e-9 * np.abs(values)
    return (len(values) - np.searchsorted(ordered, values - tolerance, side="left")) / len(values)
