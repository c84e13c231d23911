"""Shape-restricted polynomial regression: its quadratic program, its shape, and the best any increasing map can do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression

import rhocal
from helpers import examples, real, synthetic
from rhocal import optimize
from rhocal.calibrators.order.polynomial import bernstein, elevation, regress
from rhocal.errors import InputError
from rhocal.numerics.special import log_softmax, softmax


def nll(cal, logits, labels):
    return -log_softmax(cal.transform(logits.astype(np.float64)))[np.arange(len(labels)), labels].mean()


@given(seed=st.integers(0, 10_000), total=st.sampled_from([0.3, 1.0, 50.0]))
@examples(30)
def test_the_quadratic_program_against_a_general_optimiser(seed, total):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(6, 4))
    gram, linear, low = a.T @ a + 0.1 * np.eye(4), rng.normal(size=4) * 3, np.full(4, 0.01)

    def value(x):
        return x @ gram @ x / 2 - linear @ x

    x = optimize.quadratic(gram, linear, low, total)
    bound = {"type": "ineq", "fun": lambda x: total - x.sum()}
    peer = minimize(value, low + 0.01, bounds=[(v, None) for v in low], constraints=bound, method="SLSQP", tol=1e-12)
    assert (x >= low - 1e-12).all()
    assert x.sum() <= total + 1e-9
    assert value(x) <= peer.fun + 1e-7


def test_bernstein_by_hand():
    np.testing.assert_allclose(bernstein(np.array([0.25]), 2)[:, 0], [9 / 16, 6 / 16, 1 / 16])
    s = np.linspace(0, 1, 7)
    c = np.array([0.1, 0.2, 0.9])
    np.testing.assert_allclose(c @ bernstein(s, 2), (elevation(2, 5) @ c) @ bernstein(s, 5), atol=1e-15)


@pytest.mark.parametrize("degree", [1, 3, 8, 20])
def test_every_polynomial_increases(degree):
    logits, labels = synthetic(300, 3)
    cal = rhocal.PolynomialScaling(degree=degree).fit(logits, labels)
    assert len(cal.coefficients_) == degree + 1
    values = cal.coefficients_ @ bernstein(np.linspace(0, 1, 1001), degree)
    assert (np.diff(values) > 0).all()
    assert values[0] >= 0
    assert values[-1] <= 1 + 1e-12


def test_regression_finds_an_increasing_polynomial_that_made_the_data():
    """Membership probabilities ½·s + ½·s² on a grid: exact from degree 2 on."""
    s = np.linspace(0, 1, 2001)
    truth = (s + s**2) / 2
    for degree in (2, 5, 9):
        basis = bernstein(s, degree)
        c = regress(basis @ basis.T / len(s), basis @ truth / len(s), degree, 1e-12)
        np.testing.assert_allclose(c @ basis, truth, atol=1e-5)


def test_close_to_the_best_increasing_map_there_is():
    """scikit-learn's isotonic regression has the least squared error of all increasing maps; ours is smooth and near it."""
    logits, labels, *_ = real("imdb_cleanlab_cv_logp")
    cal = rhocal.PolynomialScaling(degree=12).fit(logits.astype(np.float64), labels)
    s = softmax(cal.unit_ * logits.astype(np.float64)).ravel()
    y = np.eye(2)[labels].ravel()
    best = ((IsotonicRegression().fit(s, y).predict(s) - y) ** 2).mean() * 2
    assert best < cal.solution_.value < best * 1.02


def test_it_finds_labels_that_are_noise():
    """A tenth of the labels drawn blindly: P(0) must be above 0, which no temperature can say."""
    rng = np.random.default_rng(0)
    truth, labels = synthetic(6000, 4, scale=1)
    truth *= 4
    labels = (softmax(truth).cumsum(1) > rng.random((6000, 1))).argmax(1)
    noise = rng.random(6000) < 0.1
    labels[noise] = rng.integers(0, 4, noise.sum())
    cal = rhocal.PolynomialScaling().fit(truth, labels)
    p = 0.9 * softmax(truth) + 0.1 / 4
    best = -np.log(p[np.arange(6000), labels]).mean()
    assert nll(cal, truth, labels) < best + 0.02
    assert nll(rhocal.TemperatureScaling().fit(truth, labels), truth, labels) > best + 0.05


@pytest.mark.parametrize("network", ["cifar100_vgg16_bn", "agnews_gpt2", "20news_cleanlab_cv_logp"])
def test_better_than_temperature_on_real_networks(network):
    logits, labels, test, y = real(network)
    cal = rhocal.PolynomialScaling().fit(logits, labels)
    assert nll(cal, test, y) < nll(rhocal.TemperatureScaling().fit(logits, labels), test, y)
    assert {row["degree"] for row in cal.solution_.trials} == {0, 1, 2, 3, 5, 8}


@pytest.mark.parametrize("options", [{"degree": 0}, {"degree": "auto"}, {"ridge": -1}, {"n_folds": 1}])
def test_bad_options(options):
    with pytest.raises(InputError, match=next(iter(options))):
        rhocal.PolynomialScaling(**options).fit(*synthetic(50, 3))
