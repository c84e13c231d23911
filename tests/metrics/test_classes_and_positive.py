"""Whatever takes labels and scores takes ``classes`` and ``positive``: names of columns, and the class of a single score."""

import numpy as np
import pytest

from rhocal import metrics
from rhocal.evaluation.shift import shift
from rhocal.reporting import curves

RNG = np.random.default_rng(0)
P = RNG.uniform(0.05, 0.95, 80)
PROBS = np.column_stack([P, 1 - P])
LABELS = np.where(RNG.random(80) < P, "yes", "no")
"""The first column is the class that stands last in the alphabet."""
NUMBERS = (LABELS == "no").astype(int)

FUNCTIONS = {
    "class_errors": metrics.class_errors,
    "murphy": lambda probs, labels, **o: metrics.murphy(probs, labels, **o).reliability,
    "accuracy_rejection_curve": lambda probs, labels, **o: (
        metrics.accuracy_rejection_curve(probs, labels, **o).accuracy
    ),
    "histogram": lambda probs, labels, **o: curves.histogram(probs, labels, **o).mean_accuracy,
    "class_heat": lambda probs, labels, **o: curves.class_heat(probs, labels, **o).error,
    "smooth_reliability": lambda probs, labels, **o: (
        curves.smooth_reliability(probs, labels, n_replicates=9, **o).accuracy
    ),
    "risk_coverage": lambda probs, labels, **o: curves.risk_coverage(probs, labels, **o).area,
    "shift": lambda probs, labels, **o: (
        shift(probs, labels, probs, kind="probs", n_replicates=9, **o).accuracy_calibration
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_classes_and_positive(name):
    function = FUNCTIONS[name]
    expected = function(PROBS, NUMBERS)
    assert np.allclose(function(PROBS, LABELS, classes=["yes", "no"]), expected)
    single = function(P, LABELS, positive="yes")  # its columns are no, yes
    assert np.allclose(np.sort(np.ravel(single)), np.sort(np.ravel(expected)))


def test_kl_to_uncalibrated_of_single_scores():
    base = np.clip(P + 0.04, 0, 1)
    expected = metrics.kl_to_uncalibrated(PROBS, np.column_stack([base, 1 - base]))
    assert metrics.kl_to_uncalibrated(P, base, classes=["no", "yes"], positive="yes") == pytest.approx(expected)
