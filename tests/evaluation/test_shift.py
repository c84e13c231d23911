"""Shift: two sets compared on confidence alone."""

import numpy as np
import pytest
import scipy.stats

from helpers import synthetic
from rhocal.errors import InputError, ShiftWarning
from rhocal.evaluation.shift import _atc, ks_distance, ks_p_value, shift
from rhocal.numerics.special import softmax


def test_ks_agrees_with_scipy():
    """scipy.stats.ks_2samp, the asymptotic p-value; Stephens' correction makes ours a little smaller."""
    rng = np.random.default_rng(0)
    for moved in (0.0, 0.02, 0.05):
        a, b = rng.random(2000), rng.random(1500) + moved
        peer = scipy.stats.ks_2samp(a, b, method="asymp")
        distance = ks_distance(a, b)
        assert np.isclose(distance, peer.statistic)
        assert np.isclose(ks_p_value(distance, 2000, 1500), peer.pvalue, atol=0.02)
    assert ks_p_value(0.0, 10, 10) == 1


def test_ks_p_values_are_uniform_when_nothing_has_changed():
    rng = np.random.default_rng(1)
    found = [ks_p_value(ks_distance(rng.random(200), rng.random(300)), 200, 300) for _ in range(300)]
    assert scipy.stats.kstest(found, "uniform").pvalue > 0.005


def test_averaged_thresholded_confidence_by_hand():
    """Two of four right: the threshold lies between .6 and .8, and one of three production samples is above it."""
    tune, production = np.array([0.5, 0.6, 0.8, 0.9]), np.array([0.4, 0.55, 0.85])
    assert np.isclose(_atc(tune, 2.0, np.ones(4), production, np.ones(3)), 1 / 3)
    tied = np.full(4, 0.7)  # all alike: the same share of what lies exactly there
    assert np.isclose(_atc(tied, 3.0, np.ones(4), tied, np.ones(4)), 0.75)
    assert _atc(tune, 4.0, np.ones(4), production, np.ones(3)) == 2 / 3  # none wrong: all from .5 on


def test_the_accuracy_of_the_tune_set_is_recovered():
    z, y = synthetic(3000, 5, scale=1.5)
    found = shift(z, y, z)
    assert found.ks_distance == 0
    assert found.p_value == 1
    assert np.isclose(found.accuracy_atc.value, found.accuracy_calibration, atol=1e-3)
    assert np.isclose(found.accuracy_doc.value, found.accuracy_calibration)
    assert found.verdict.startswith("no shift of confidence is detected")


def test_a_harder_set_is_noticed_and_its_accuracy_estimated():
    """Production from a model as calibrated as before, on harder samples.

    Then the difference of confidences is right. Averaged thresholded confidence is not: it takes harder samples for
    samples on which the model is over-confident too, and comes out far too low. The verdict shows both.
    """
    z, y = synthetic(4000, 5, scale=1.0, seed=0)
    rng = np.random.default_rng(1)
    truth = rng.normal(size=(4000, 5))
    labels = (softmax(truth).cumsum(1) > rng.random((4000, 1))).argmax(1)
    found = shift(z, y, truth)
    accuracy = (truth.argmax(1) == labels).mean()
    assert found.p_value < 1e-6
    assert accuracy < found.accuracy_calibration - 0.05
    assert abs(found.accuracy_doc.value - accuracy) < 0.03
    before, after = (softmax(logits).max(1) for logits in (z, truth))
    assert np.isclose(
        found.accuracy_atc.value, (after > np.quantile(before, 1 - found.accuracy_calibration)).mean(), atol=1e-3
    )
    assert found.accuracy_atc.value < accuracy - 0.1
    assert found.accuracy_doc.low < found.accuracy_doc.value < found.accuracy_doc.high
    assert "confidence fell by" in found.verdict


def test_error_bars_have_the_size_of_the_sampling_error():
    z, y = synthetic(3000, 5, scale=1.0)
    guesses = [shift(z[k::10], y[k::10], z[(k + 5) % 10 :: 10], n_replicates=200) for k in range(10)]
    spread = np.std([g.accuracy_doc.value for g in guesses], ddof=1)
    widths = np.mean([(g.accuracy_doc.high - g.accuracy_doc.low) / 3.92 for g in guesses])
    assert 0.5 < spread / widths < 1.7


def test_leaving_the_tuned_range_is_a_warning():
    z, y = synthetic(1000, 4)
    with pytest.warns(ShiftWarning, match="leaves the range of the calibration set .* by norm"):
        found = shift(z, y, 3 * z)
    assert found.outside["norm"] > 0.3
    assert shift(z, y, z).outside["norm"] <= 0.011


def test_what_cannot_be_is_said():
    z, y = synthetic(50, 4)
    with pytest.raises(InputError, match="calibration_labels are missing"):
        shift(z, None, z)
    with pytest.raises(InputError, match="have 3 classes, calibration_logits 4"):
        shift(z, y, z[:, :3])
    assert set(shift(z, y, z, n_replicates=10).to_dict()) >= {"verdict", "accuracy_atc", "outside"}
