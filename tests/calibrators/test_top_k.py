"""Samples of which only the k best classes are known."""

import numpy as np
import pytest

import rhocal
from helpers import synthetic
from rhocal.calibrators.top_k import calibrate_top_k, rest_bounds
from rhocal.data.top_k import TopK
from rhocal.errors import InputError
from rhocal.numerics.special import log_softmax
from rhocal.profile.top_k import profile_top_k


def known(logits, k):
    """What an API would say of these logits."""
    log_p = log_softmax(np.asarray(logits, np.float64))
    order = np.argsort(-log_p, axis=1)
    best = np.take_along_axis(log_p, order[:, :k], axis=1)
    return best, order[:, :k], np.log(np.maximum(1 - np.exp(best).sum(axis=1), 1e-30))


def test_an_even_rest_is_exact():
    rng = np.random.default_rng(0)
    logits = np.repeat(rng.normal(size=(400, 1)) - 4, 100, axis=1)
    logits[:, :6] = np.abs(rng.normal(size=(400, 6))) * 2  # the rest is even
    labels = (logits / 1.7 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    profile = profile_top_k(TopK.from_arrays(*known(logits, 10), 100), labels)
    whole = rhocal.profile_logits(log_softmax(logits), labels, kind="log_probs")
    for method in ("temperature", "rho-norm"):
        mine, same = (rhocal.calibrator(method).fit_profile(p) for p in (profile, whole))
        np.testing.assert_allclose(mine.map_.scales(whole), same.map_.scales(whole), rtol=1e-6)
    mine, same = (rhocal.FieldScaling().fit_profile(p) for p in (profile, whole))
    np.testing.assert_allclose(np.r_[mine.bias_, mine.weights_], np.r_[same.bias_, same.weights_], atol=1e-4)


def test_bounds_hold_for_the_true_rest():
    logits, labels = synthetic(300, 80, scale=1.5)
    for k in (1, 5, 40):
        top = TopK.from_arrays(*known(logits, k), 80)
        for temperature in (0.6, 1.0, 2.5):
            cal = rhocal.TemperatureScaling().fit(logits, labels)
            cal.temperature_ = temperature
            probs, low, high = calibrate_top_k(cal, top)
            truth = cal.predict_proba(logits).max(axis=1)
            assert (low <= truth + 1e-9).all()
            assert (truth <= high + 1e-9).all()
            assert (low <= probs[:, 0] + 1e-9).all()
            assert (probs[:, 0] <= high + 1e-9).all()
            if temperature == 1.0:
                np.testing.assert_allclose(low, high, rtol=1e-9)


def test_many_known_classes_give_nearly_the_whole_fit():
    logits, labels = synthetic(800, 100, scale=2.5)
    whole = rhocal.TemperatureScaling().fit(logits, labels).temperature_
    profiles = [profile_top_k(TopK.from_arrays(*known(logits, k), 100), labels) for k in (2, 20, 80)]
    away = [abs(rhocal.TemperatureScaling().fit_profile(profile).temperature_ - whole) for profile in profiles]
    assert away[0] > away[1] > away[2]
    assert away[2] < 0.01 * whole


def test_bounds_by_hand():
    low, high = rest_bounds(np.log([0.1]), np.log([0.25]), 100, np.array([2.0]))
    assert low == pytest.approx(100 * 0.0025**2)
    assert high == pytest.approx(2 * 0.1**2 + 0.05**2)


def test_impossible_input_is_an_error():
    values, indices, rest = known(synthetic(5, 20)[0], 4)
    for bad, message in [
        ((values[0], indices, rest, 20), "shape"),
        ((values, indices, rest, 4), "k = 4"),
        ((values, indices + 18, rest, 20), "column numbers"),
        ((values + 1, indices, rest, 20), "sums to"),
        ((np.full((1, 2), np.log(0.001)), indices[:1, :2], np.log([0.998]), 20), "more than its classes"),
    ]:
        with pytest.raises(InputError, match=message):
            TopK.from_arrays(*bad)
    with pytest.raises(InputError, match="labels"):
        profile_top_k(TopK.from_arrays(values, indices, rest, 20), np.full(5, 30))
