"""Intervals of fits that chose a method or a ridge: replicates are those of the richest that is not excluded."""

import numpy as np
import pytest

import rhocal
from helpers import synthetic
from rhocal.calibrators.bootstrap.refitted_method import method_of_refits, richest_method
from rhocal.calibrators.cascade.cascade import FreeCascade
from rhocal.calibrators.guard import fit_without_warnings
from rhocal.data.predictions import Predictions
from rhocal.errors import RhocalWarning
from rhocal.numerics.special import log_softmax, softmax

pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")
Z, Y = synthetic(250, 3, seed=2)
DATA = Predictions.from_arrays(Z, Y).prepared()


def true_probs(logits):
    """A law with slopes and biases of classes, which temperature scaling is too simple for."""
    return softmax(log_softmax(logits / 1.7) * np.array([0.85, 1.0, 1.15]) + np.array([-0.3, 0.0, 0.3]))


def drawn(n, seed):
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, 3))
    return z, np.minimum((true_probs(z).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1), 2)


def test_intervals_cover_the_choice_of_a_method():
    """Replicates of the method that was chosen, mostly temperature scaling, held 56 % of the true probabilities."""
    points = 2 * np.random.default_rng(1).normal(size=(30, 3))
    truth, covered, chosen = true_probs(points), [], []
    for k in range(20):
        z, y = drawn(300, k)
        auto = rhocal.calibrator("auto", methods=("temperature", "svs")).fit(z, y)
        low, high = rhocal.bootstrap(auto, z, y, n_replicates=40).predict_interval(points)
        covered.append(((low <= truth) & (truth <= high)).mean())
        chosen.append(auto.chosen_.label)
    assert chosen.count("temperature") > 10
    assert np.mean(covered) > 0.88


def test_the_number_of_parameters_alone_does_not_exclude_a_method():
    """By held-out losses alone 4 of 24 choices excluded matrices, which hold the truth: for their estimation error."""
    excluded = 0
    for k in range(24):
        z, y = drawn(200, k)
        auto = rhocal.calibrator("auto", methods=("temperature", "sms")).fit(z, y)
        excluded += richest_method(auto, Predictions.from_arrays(z, y).prepared()).label == "temperature"
    assert excluded <= 2


def test_a_richer_method_that_is_not_excluded_is_fitted_again():
    auto = rhocal.calibrator("auto", methods=("temperature", "vector")).fit(Z, Y)
    assert auto.chosen_.label == "temperature"
    with pytest.warns(RhocalWarning, match="intervals are those of vector: .* temperature, which is used"):
        low, high = rhocal.bootstrap(auto, Z, Y, n_replicates=40).predict_interval(Z)
    probs = auto.predict_proba(Z)
    assert ((low <= probs) & (probs <= high)).all()
    alone = rhocal.bootstrap(rhocal.calibrator("vector").fit(Z, Y), Z, Y, n_replicates=40).predict_interval(Z)
    np.testing.assert_allclose(low, np.minimum(alone.low, probs), atol=1e-6)
    np.testing.assert_allclose(high, np.maximum(alone.high, probs), atol=1e-6)


def test_an_excluded_method_is_not():
    auto = rhocal.calibrator("auto", methods=("temperature", "histogram-binning")).fit(Z, Y)
    assert auto.chosen_.label == richest_method(auto, DATA).label == "temperature"
    last = rhocal.calibrator("auto", methods=("vector", "temperature")).fit(Z, Y)
    assert richest_method(last, DATA).label == last.chosen_.label == "temperature"


def test_a_cascade_is_fitted_again_without_its_fallback():
    few = rhocal.calibrator("cascade").fit(Z, Y)
    assert few.fallback_[0].label == "svs"
    assert richest_method(few, DATA).label == "sms:field"
    options = rhocal.calibrator("cascade", exchangeable=True).fit(Z, Y)
    assert richest_method(options, DATA).label == "field"
    z, y = synthetic(600, 3, seed=2)
    cascade = rhocal.calibrator("cascade").fit(z, y)
    auto = rhocal.calibrator("auto", methods=("temperature", "cascade")).fit(z, y)
    assert cascade.fallback_[0].label == method_of_refits(auto).label == "temperature"
    data = Predictions.from_arrays(z, y).prepared()
    for fitted in (cascade, auto):
        method = richest_method(fitted, data)
        assert isinstance(method, FreeCascade)
    assert not fit_without_warnings(method, data.take(np.arange(300))).fallback_


def test_the_ridge_of_field_is_a_choice_too():
    field = rhocal.calibrator("field").fit(Z, Y)
    assert field.ridge_ == np.inf
    assert richest_method(field, DATA).ridge < np.inf
    probs = field.predict_proba(Z)
    low, high = rhocal.bootstrap(field, Z, Y, n_replicates=20).predict_interval(Z)
    single = rhocal.bootstrap(rhocal.TemperatureScaling().fit(Z, Y), Z, Y, n_replicates=20).predict_interval(Z)
    assert ((low <= probs) & (probs <= high)).all()
    assert (high - low).mean() > 1.2 * (single.high - single.low).mean()
    chain = rhocal.calibrator("svs:field").fit(Z, Y)
    assert chain.second_.ridge_ == np.inf
    assert richest_method(chain, DATA).second.ridge < np.inf
    fixed = rhocal.calibrator("field", ridge=50.0).fit(Z, Y)
    assert richest_method(fixed, DATA).ridge == 50


def test_adapted_clustered_weighted_and_two_classes():
    clusters, weights = np.arange(250) // 2, 1.0 + np.arange(250) % 3
    for z, y in ((Z, Y), (Z[:, :2], Y % 2)):
        auto = rhocal.calibrator("auto", methods=("temperature", "isotonic")).fit(z, y, weights, clusters=clusters)
        moved = rhocal.adapt(
            auto, priors=np.linspace(2, 1, z.shape[1]) / np.linspace(2, 1, z.shape[1]).sum()
        ).calibrator
        for fitted in (auto, moved):
            replicates = rhocal.bootstrap(fitted, z, y, weights, clusters=clusters, n_replicates=20)
            low, high = replicates.predict_interval(z)
            probs = fitted.predict_proba(z)
            assert ((low >= 0) & (low <= probs) & (probs <= high) & (high <= 1)).all()


def test_intervals_of_bbq_hold_the_probability_at_extreme_scores():
    """Replicates of its bins, which are wide at the ends, held a third of the true probabilities there."""
    points = np.array([[3.2, -3.2], [-2.4, 2.4]])
    rng = np.random.default_rng(0)
    truth = 1 / (1 + np.exp(0.3 - 0.6 * (points[:, 1] - points[:, 0])))
    covered = []
    for _ in range(12):
        z = 2 * rng.normal(size=(500, 2))
        y = (rng.random(500) < 1 / (1 + np.exp(0.3 - 0.6 * (z[:, 1] - z[:, 0])))).astype(int)
        low, high = rhocal.bootstrap(rhocal.calibrator("bbq").fit(z, y), z, y).predict_interval(points)
        covered.append((low[:, 1] <= truth) & (truth <= high[:, 1]))
    assert np.mean(covered) > 0.85
