"""The intra order-preserving map: its slope, its optimum, and what it can do that a temperature cannot."""

import numpy as np
import pytest
from scipy.optimize import minimize

import rhocal
from helpers import real, slope_error, synthetic
from rhocal.calibrators.order.iop import KNOTS, Pieces, height, pieces_of
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.data.predictions import Predictions
from rhocal.errors import InputError
from rhocal.numerics.special import log_softmax
from rhocal.objectives import OBJECTIVES, objective
from rhocal.profile.profile import Profile


def nll(cal, logits, labels):
    return -log_softmax(cal.transform(logits.astype(np.float64)))[np.arange(len(labels)), labels].mean()


def test_by_hand():
    """Slope 2 up to ½, then 1, then 3 from gap 1 on: f(.25) = .5, f(.75) = 1.25, f(2.5) = 1.5 + 4.5."""
    slopes = np.array([2.0, 1.0, *[3.0] * (len(KNOTS) - 2)])
    knots = np.array(KNOTS)
    found = height(*pieces_of(np.array([[0.0, 0.25, 0.75, 2.5]]), knots), knots, slopes)
    np.testing.assert_allclose(found, [[0, 0.5, 1.25, 6.0]])


@pytest.mark.parametrize("text", [*OBJECTIVES, "sce + 0.01*kl"])
def test_slope(text):
    logits, labels = synthetic(60, 4, scale=4)
    data = Predictions.from_arrays(logits, labels, weights=np.random.default_rng(0).random(60))
    fit = ScaleSearch.from_profile(Profile.from_predictions(data))
    pieces = Pieces(data, fit, fit.prepared(objective(text)), np.arange(60))
    x = np.random.default_rng(1).uniform(0.5, 1.5, len(KNOTS))
    assert slope_error(pieces.evaluate, x) < 1e-5


def test_the_minimum_is_that_of_another_optimiser():
    """With NLL it is convex: SciPy's SLSQP, from elsewhere, ends at the same value."""
    logits, labels = synthetic(400, 4)
    cal = rhocal.IntraOrderPreserving(ridge=5.0).fit(logits, labels)
    gap = cal.unit_ * (logits.max(1, keepdims=True) - logits)
    at = pieces_of(gap, cal.knots_)

    def value(slopes):
        log_p = log_softmax(-height(*at, cal.knots_, slopes))[np.arange(400), labels]
        return -log_p.mean() + 5 / 400 / 2 * ((slopes - 1) ** 2).sum()

    peer = minimize(value, np.full(len(KNOTS), 2.5), method="SLSQP", bounds=[(0.02, 20)] * len(KNOTS), tol=1e-12)
    assert np.isclose(cal.solution_.value, peer.fun, rtol=1e-8)


def test_an_infinite_ridge_is_temperature_scaling():
    logits, labels = synthetic(300, 5)
    a = rhocal.IntraOrderPreserving(ridge=np.inf).fit(logits, labels).predict_proba(logits)
    np.testing.assert_allclose(a, rhocal.TemperatureScaling().fit(logits, labels).predict_proba(logits), atol=1e-9)


def test_it_undoes_a_bent_network():
    """Logits bent by a known increasing function: the fit bends them back, a temperature cannot."""
    truth, labels = synthetic(8000, 5, scale=1)
    gap = truth.max(1, keepdims=True) - truth
    bent = -np.where(gap < 1, 4 * gap, 4 + 0.5 * (gap - 1))
    cal = rhocal.IntraOrderPreserving().fit(bent, labels)
    other = rhocal.TemperatureScaling().fit(bent, labels)
    best = -log_softmax(truth)[np.arange(8000), labels].mean()
    assert nll(cal, bent, labels) < best + 0.005
    assert nll(other, bent, labels) > best + 0.05


def test_pure_noise_is_left_to_the_temperature():
    """Where a temperature is the truth, cross-validation keeps (nearly) to it."""
    logits, labels = synthetic(1500, 5, seed=4)
    cal = rhocal.IntraOrderPreserving().fit(logits, labels)
    other, (z, y) = rhocal.TemperatureScaling().fit(logits, labels), synthetic(20_000, 5, seed=5)
    assert nll(cal, z, y) < nll(other, z, y) * 1.003


def test_no_worse_than_temperature_on_real_networks():
    for network in ("cifar100_vgg16_bn", "agnews_gpt2"):
        logits, labels, test, y = real(network)
        cal = rhocal.IntraOrderPreserving().fit(logits, labels)
        assert nll(cal, test, y) < nll(rhocal.TemperatureScaling().fit(logits, labels), test, y) - 0.01


@pytest.mark.parametrize("options", [{"ridge": -1}, {"ridge": "auto"}, {"n_folds": 1}])
def test_bad_options(options):
    with pytest.raises(InputError, match=next(iter(options))):
        rhocal.IntraOrderPreserving(**options).fit(*synthetic(50, 3))
