"""How far the value of a metric can be trusted: floors, intervals, tests, paired differences, sample sizes.

One file per question: ``floor``, ``null`` and ``joint_null`` (a perfectly calibrated model), ``bootstrap``, ``intervals``,
``ece_interval``, ``l2_interval`` and ``mean_interval``, ``variational`` (lower bounds), ``calibration_tests``, ``paired``,
``power``, ``verdict``; ``design`` for weights and clusters. How to read the results: docs/statistics.md. The formula of a
metric belongs in ``rhocal.metrics``; a question about a model belongs in ``rhocal.evaluation``.
"""

from __future__ import annotations

from rhocal.metrics.inference.calibration_tests import Outcome, calibration_tests
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.inference.ece_interval import Interval
from rhocal.metrics.inference.floor import Floor, floor, floors
from rhocal.metrics.inference.intervals import interval, intervals, wilson
from rhocal.metrics.inference.paired import (
    Difference,
    differences,
    differences_to_reference,
    holm,
    paired_differences,
)
from rhocal.metrics.inference.power import RequiredSize, samples_needed, typical_confidences
from rhocal.metrics.inference.variational import LowerBound, VariationalBounds, variational_bounds

__all__ = [
    "Difference", "Floor", "Interval", "LowerBound", "Outcome", "RequiredSize", "SamplingDesign", "VariationalBounds",
    "calibration_tests", "differences",
    "differences_to_reference", "floor", "floors", "holm", "interval", "intervals", "paired_differences",
    "samples_needed", "typical_confidences", "variational_bounds", "wilson",
]  # fmt: skip
