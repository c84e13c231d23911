"""Ensemble temperature scaling: its slope, its optimum, and the original's."""

import numpy as np
import pytest
from scipy.optimize import minimize

import rhocal
from helpers import real, slope_error, synthetic
from rhocal.calibrators.order.ets import Mixture
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.data.predictions import Predictions
from rhocal.numerics.special import softmax
from rhocal.objectives import OBJECTIVES, objective
from rhocal.profile.profile import Profile


def mixture(text, m=4):
    logits, labels = synthetic(60, m)
    data = Predictions.from_arrays(logits, labels, weights=np.random.default_rng(0).random(60))
    fit = ScaleSearch.from_profile(Profile.from_predictions(data))
    return Mixture(data, fit, fit.prepared(objective(text)))


@pytest.mark.parametrize("text", [*OBJECTIVES, "nll + 0.5*brier", "sce + 0.01*kl"])
def test_slope(text):
    fun = mixture(text)
    assert slope_error(fun, np.array([-0.6, 0.2, 0.1])) < 1e-5


@pytest.mark.parametrize("text", ["nll", "brier", "top-brier", "nll + 0.5*brier"])
def test_the_short_way_and_the_one_through_all_classes_agree(text):
    short, x = mixture(text), np.array([-0.6, 0.2, 0.1])
    long = mixture(f"{text} + 0.0*kl")  # kl is only known to the long way
    np.testing.assert_allclose(short(x)[0], long(x)[0], rtol=1e-9)
    np.testing.assert_allclose(short(x)[1], long(x)[1], rtol=1e-5)


@pytest.mark.parametrize("text", ["nll", "brier"])
def test_the_minimum_is_that_of_a_search_without_slopes(text):
    logits, labels = synthetic(600, 5)
    logits[:150] = logits[150:300]  # a quarter of the labels belongs to other logits: the uniform part has work to do
    cal = rhocal.EnsembleTemperatureScaling(objective=text).fit(logits, labels)

    def value(x):
        w = np.exp(x[1:]) / np.exp(x[1:]).sum()
        p = w[0] * softmax(np.exp(x[0]) * logits) + w[1] * softmax(logits) + w[2] / 5
        chosen = p[np.arange(600), labels]
        return -np.log(chosen).mean() if text == "nll" else ((p**2).sum(1) - 2 * chosen + 1).mean()

    starts = np.random.default_rng(0).normal(size=(5, 4))
    peer = min(minimize(value, x, method="Nelder-Mead", options={"maxiter": 4000, "fatol": 1e-12}).fun for x in starts)
    assert cal.solution_.value < peer + 1e-7
    assert cal.weights_[2] > 0.05


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # probmetrics imports torch.jit.script
@pytest.mark.parametrize("network", ["cifar10_resnet110_ce", "20news_cleanlab_cv_logp", "fashionmnist_densenet"])
def test_never_above_the_original_on_its_own_objective(network):
    """probmetrics 1.3.0 (T, then the weights): our joint fit is lower or equal on the calibration set.

    Where its first step leaves little to the second the two agree; on 20news, where T alone ends at the wrong place,
    the joint fit is far lower.
    """
    from probmetrics.calibrators.temperature_scaling import ETSCalibrator

    logits, labels, *_ = real(network)
    logits = logits.astype(np.float64)
    for text, loss in (("nll", "ce"), ("brier", "mse")):
        cal = rhocal.EnsembleTemperatureScaling(objective=text).fit(logits, labels)
        peer = ETSCalibrator(loss=loss)
        peer._fit_impl(softmax(logits), labels)
        p = peer._predict_proba_impl(softmax(logits))
        chosen = p[np.arange(len(labels)), labels]
        theirs = -np.log(chosen).mean() if text == "nll" else ((p**2).sum(1) - 2 * chosen + 1).mean()
        assert cal.solution_.value <= theirs * (1 + 1e-6)
        if network != "20news_cleanlab_cv_logp":
            assert cal.solution_.value > theirs * 0.995


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # probmetrics imports torch.jit.script
def test_the_second_step_of_the_original_is_ours_at_its_temperature():
    """With T held at probmetrics 1.3.0's, the best weights give the same predictions to 1e−3."""
    from probmetrics.calibrators.temperature_scaling import ETSCalibrator

    logits, labels, *_ = real("fashionmnist_densenet")
    logits = logits.astype(np.float64)
    peer = ETSCalibrator(loss="ce")
    peer._fit_impl(softmax(logits), labels)
    data = Predictions.from_arrays(logits, labels)
    fit = ScaleSearch.from_profile(Profile.from_predictions(data))
    fun = Mixture(data, fit, objective("nll"))
    x = -np.log(peer.t_)
    best = rhocal.optimize.lbfgs(fun, np.array([x, 0.1, 0.1]), [(x, x), (0, 1), (0, 0.999)])
    cal = rhocal.EnsembleTemperatureScaling().fit(logits, labels)
    cal.temperature_, cal.weights_ = peer.t_, rhocal.calibrators.order.ets.shares(best.x)
    p, theirs = cal.predict_proba(logits), peer._predict_proba_impl(softmax(logits))
    np.testing.assert_allclose(p, theirs, atol=1e-3)


def test_a_network_that_knows_nothing_becomes_uniform():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(500, 4)) * 5, rng.integers(0, 4, 500)
    probs = rhocal.EnsembleTemperatureScaling().fit(logits, labels).predict_proba(logits)
    assert np.abs(probs - 0.25).max() < 0.1
    np.testing.assert_array_equal(probs.argmax(1), logits.argmax(1))
