"""The smooth calibration error and the bounds of the distance to calibration."""

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import diags, vstack

from rhocal import metrics
from rhocal.metrics.scored import Scored


def binary(confidence, right):
    return np.stack([1 - confidence, confidence], axis=1), np.asarray(right, int)


def best_function(confidence, right):
    """The definition as a linear program over the heights of f at the confidences."""
    ranked = Scored.from_arrays(*binary(confidence, right), None, "probs").ranked
    d, steps = (ranked.correct - ranked.confidence) / len(confidence), np.diff(ranked.mean)
    n = len(d)
    rises = diags([-np.ones(n - 1), np.ones(n - 1)], [0, 1], shape=(n - 1, n))
    return -linprog(-d, vstack([rises, -rises]), np.r_[steps, steps], bounds=(-1, 1)).fun


def test_by_hand():
    """Residuals .25 at .75 (twice) and −.875 at .875: f(.875) = −1, and f(.75) is at most 1/8 above it."""
    value = metrics.smooth_calibration(*binary(np.array([0.75, 0.75, 0.875]), [1, 1, 0]))
    assert value == pytest.approx((0.875 - 0.5 * (1 - 1 / 8)) / 3, abs=1e-12)


@pytest.mark.parametrize(("n", "gap"), [(7, 0.0), (300, 0.1), (1500, -0.05)])
def test_it_is_the_maximum(n, gap):
    rng = np.random.default_rng(n)
    confidence = rng.uniform(0.5, 1, n)
    right = rng.random(n) < confidence - gap * (confidence > 0.7)
    value = metrics.smooth_calibration(*binary(confidence, right))
    assert 0 <= best_function(confidence, right) - value < 1 / 2048


def test_batches_add():
    rng = np.random.default_rng(1)
    probs, labels = rng.dirichlet(np.ones(4), 500), rng.integers(0, 4, 500)
    parts = metrics.smooth_calibration.of(probs[:99], labels[:99]) + metrics.smooth_calibration.of(
        probs[99:], labels[99:]
    )
    assert parts.value == pytest.approx(metrics.smooth_calibration(probs, labels), abs=1e-12)


def test_the_bounds_hold():
    """Two groups, 0.6 and 0.9, both right in 80 %: 0.8 everywhere is calibrated, and 0.15 away on average."""
    confidence = np.repeat([0.6, 0.9], 500)
    right = np.tile(np.arange(500) % 5 > 0, 2)
    low, high = metrics.distance_bounds(*binary(confidence, right))
    assert low <= 0.15 <= high + 1e-12
    assert high == pytest.approx(0.15)


def test_a_rejected_share():
    """400 samples at 0.9, of which 80 % are right, are rejected; 600 at 0.6 with 60 % right are not."""
    confidence = np.repeat([0.6, 0.9], [600, 400])
    right = np.r_[np.arange(600) % 5 < 3, np.arange(400) % 5 > 0]
    assert metrics.tce(*binary(confidence, right)) == pytest.approx(0.4)


def test_three_parts_of_the_brier_score():
    rng = np.random.default_rng(2)
    probs, labels = rng.dirichlet(np.ones(3), 400), rng.integers(0, 3, 400)
    parts = metrics.calibration_loss(probs, labels) - metrics.discrimination(probs, labels)
    parts += metrics.murphy_uncertainty(probs, labels)
    assert parts == pytest.approx(metrics.top_brier(probs, labels), abs=1e-12)
