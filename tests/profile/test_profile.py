"""The one-variable function L of a sample, and its table."""

import numpy as np
import pytest

from helpers import real, synthetic
from rhocal import RhoNormScaling, TemperatureScaling, objective
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.data.predictions import Predictions
from rhocal.numerics.special import softmax
from rhocal.profile.curve_table import Table
from rhocal.profile.profile import Profile


def profile_of(m, dtype=np.float64, n=300):
    return Profile.from_predictions(Predictions.from_arrays(*synthetic(n, m, dtype=dtype)))


def test_derivatives_of_the_curve():
    profile = profile_of(7)
    scale = np.random.default_rng(0).uniform(0.1, 2, 300)
    h = 1e-5
    at, up, down = profile.curve(scale), profile.curve(scale + h), profile.curve(scale - h)
    np.testing.assert_allclose(at.first, (up.value - down.value) / (2 * h), atol=1e-8)
    np.testing.assert_allclose(at.second, (up.first - down.first) / (2 * h), atol=1e-8)


def test_confidence_from_the_curve():
    profile = profile_of(7)
    scale = np.random.default_rng(0).uniform(0.1, 2, 300)
    np.testing.assert_allclose(
        np.exp(-profile.curve(scale).value), softmax(profile.passes.logits * scale[:, None]).max(1), rtol=1e-12
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_table_is_near_the_truth_in_every_ring(dtype):
    profile = profile_of(200, dtype)
    table = Table(profile, -1.0)
    for reach, rings in ((0.69, [0]), (4.0, [-3, -2, -1, 0, 1, 2, 3])):
        scale = np.exp(np.random.default_rng(0).uniform(-1 - reach, -1 + reach, 300))
        fast, exact = table.curve(scale), profile.curve(scale)
        assert np.abs(fast.value - exact.value).max() < 3e-4
        assert np.abs(fast.first - exact.first).max() < 1e-2 * np.abs(exact.first).max()
        assert sorted(table.rings) == rings


def test_a_few_samples_far_away_build_no_ring():
    profile = profile_of(200)
    table = Table(profile, -1.0)
    scale = np.full(300, np.exp(-1.0))
    scale[7] = 1e-4
    assert table.curve(scale).value[7] == profile.curve(scale).value[7]
    assert list(table.rings) == [0]


def test_the_worst_case_of_the_table():
    """Many rivals at one gap: L has a singularity next to the real axis. The errors stated in ``curve_table.py``."""
    for m, stated in ((100, 3e-5), (1000, 5e-4)):
        logits = np.zeros((400, m))
        logits[:, 0] = np.geomspace(1, 60, 400)
        profile = Profile.from_predictions(Predictions.from_arrays(logits, np.zeros(400, int)))
        scale = np.exp(np.random.default_rng(0).uniform(-0.69, 0.69, 400))
        error = np.abs(Table(profile, 0.0).curve(scale).value - profile.curve(scale).value).max()
        assert stated / 50 < error < stated


def test_the_table_on_a_real_network():
    logits, labels, _, _ = real("cifar100_resnet56")
    profile = Profile.from_predictions(Predictions.from_arrays(logits, labels))
    fit = ScaleSearch.from_profile(profile)
    rng = np.random.default_rng(0)
    scale = np.exp(fit.rough_log_scale + rng.uniform(-1.5, 1.5, profile.n_samples))
    error = np.abs(fit.fast.curve(scale).value - profile.curve(scale).value)
    assert error.max() < 2e-5
    assert error.mean() < 5e-7


@pytest.mark.parametrize("text", ["nll", "sce", "brier", "nll + top-brier", "sce + 0.01*kl"])
def test_fits_through_the_table_end_at_the_exact_optimum(text):
    """Brute force on the raw logits around the answer finds nothing lower."""
    logits, labels, _, _ = real("cifar100_resnet20")
    fit = ScaleSearch.from_profile(Profile.from_predictions(Predictions.from_arrays(logits, labels)))
    target = fit.prepared(objective(text))

    def value(scale):
        return fit.evaluate(target, scale, exact=True)[0]

    n = len(labels)
    cal = TemperatureScaling(objective=text).fit(logits, labels)
    best = min(value(np.full(n, np.exp(d) / cal.temperature_)) for d in np.linspace(-1e-3, 1e-3, 21))
    assert cal.solution_.value <= best * (1 + 1e-7)
    rho = RhoNormScaling(rho=2.0, objective=text).fit(logits, labels)
    norm = fit.profile.norms([2.0], center=True)[0]
    for dg in (-1e-3, 0, 1e-3):
        for db in (-1e-3, 0, 1e-3):
            moved = 1 / (rho.gamma_ * np.exp(dg) * norm + rho.beta_ * np.exp(db))
            assert rho.solution_.value <= value(moved) * (1 + 1e-7)
