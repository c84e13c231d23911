"""A temperature that cannot diverge."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

import rhocal
from helpers import real, synthetic
from rhocal import TemperatureScaling
from rhocal.errors import BoundaryWarning
from rhocal.numerics.special import log_softmax

NETWORKS = [
    "cifar100_resnet20", "cifar100_vgg16_bn", "cifar10_resnet56", "cifar10_densenet40_ce", "fashionmnist_densenet",
    "pathmnist_resnet50", "agnews_gpt2", "emotion6_Qwen-14B_task", "imdb_cleanlab_cv_logp", "mmbench6_llava-v1.5-7b",
]  # fmt: skip

# scikit-learn needs every class among the labels and takes one column for two classes: three others stand in.
FOR_SKLEARN = [
    *(name for name in NETWORKS if not name.startswith(("emotion6", "imdb", "mmbench6"))),
    "cifar100_resnet56", "cifar10_vgg16_bn", "20news_cleanlab_cv_logp",
]  # fmt: skip


def brute_force(logits, labels):
    """The temperature by golden-section search on the raw logits, from a grid of 200 starts in log T."""
    z = logits.astype(np.float64)
    rows = np.arange(len(labels))

    def nll(log_t):
        return -log_softmax(z / np.exp(log_t))[rows, labels].mean()

    grid = np.linspace(-12, 12, 121)
    best = int(np.argmin([nll(t) for t in grid]))
    found = minimize_scalar(nll, bounds=(grid[best - 1], grid[best + 1]), method="bounded", options={"xatol": 1e-12})
    # A parabola through three points near the minimum places it below the rounding of the values themselves.
    h = 1e-3
    left, middle, right = nll(found.x - h), nll(found.x), nll(found.x + h)
    return np.exp(found.x + h * (left - right) / (2 * (left - 2 * middle + right)))


class Fixed(ClassifierMixin, BaseEstimator):
    """A classifier whose decision function is its input."""

    def fit(self, _, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, z):
        return self.classes_[z.argmax(axis=1)]

    def decision_function(self, z):
        return z if z.shape[1] > 2 else z[:, 1] - z[:, 0]


@pytest.mark.parametrize("name", NETWORKS)
def test_agrees_with_brute_force_and_stays_right_at_other_scales(name):
    logits, labels, _, _ = real(name)
    truth = brute_force(logits, labels)
    for factor in (1, 40, 0.01):
        found = TemperatureScaling().fit(logits * np.float32(factor), labels).temperature_
        assert np.isclose(found / factor, truth, rtol=1e-6)


@pytest.mark.parametrize("name", FOR_SKLEARN)
def test_agrees_with_scikit_learn(name):
    logits, labels, _, _ = real(name)
    z = logits.astype(np.float64)
    peer = CalibratedClassifierCV(FrozenEstimator(Fixed().fit(z, labels)), method="temperature", ensemble=False)
    beta = peer.fit(z, labels).calibrated_classifiers_[0].calibrators[0].beta_
    assert np.isclose(1 / beta, TemperatureScaling().fit(z, labels).temperature_, rtol=1e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("temperature", [0.01, 0.5, 1.0, 3.0, 100.0])
def test_temperatures_from_a_hundredth_to_a_hundred(temperature, dtype):
    logits, labels = synthetic(4000, 6, scale=1.0)
    base = TemperatureScaling().fit(logits, labels).temperature_
    found = TemperatureScaling().fit((logits * temperature).astype(dtype), labels).temperature_
    assert np.isclose(found / temperature, base, rtol=2e-3 if dtype is np.float16 else 1e-6)


@pytest.mark.parametrize("m", [3, 80])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_scales_of_the_logits(scale, m):
    logits, labels = synthetic(1000, m, scale=1.0)
    base = TemperatureScaling().fit(logits, labels).temperature_
    assert np.isclose(TemperatureScaling().fit(logits * scale, labels).temperature_ / scale, base, rtol=1e-6)


@pytest.mark.parametrize("objective", ["nll", "brier", "sce", "nll + avuc", "sb-ece"])
def test_all_right_stops_at_the_rule_of_succession(objective):
    logits, _ = synthetic(100, 4)
    with pytest.warns(BoundaryWarning, match="all calibration samples are predicted correctly"):
        cal = TemperatureScaling(objective=objective).fit(logits, logits.argmax(1))
    assert np.isclose(cal.predict_proba(logits).max(1).mean(), 101 / 102)
    assert "n + 1" in cal.solution_.at_bound


@pytest.mark.filterwarnings("ignore::rhocal.errors.SuspiciousInputWarning")
def test_worse_than_chance_becomes_uniform():
    logits, _ = synthetic(100, 4)
    with pytest.warns(BoundaryWarning, match="no better than chance"):
        cal = TemperatureScaling().fit(logits, logits.argmin(1))
    np.testing.assert_allclose(cal.predict_proba(logits), 0.25, atol=1e-4)


def test_equal_logits_leave_the_temperature_alone():
    cal = TemperatureScaling().fit(np.ones((5, 3)), [0, 1, 2, 0, 1])
    assert cal.temperature_ == 1
    assert "equal" in cal.solution_.at_bound


def test_single_sample():
    with pytest.warns(BoundaryWarning):
        cal = TemperatureScaling().fit([[2.0, 1.0]], [0])
    assert 0 < cal.temperature_ < np.inf


def separable(n=200, m=4):
    """Logits of which every prediction is right."""
    logits, _ = synthetic(n, m)
    return logits, logits.argmax(1)


def test_a_wrong_sample_without_weight_does_not_count():
    """Folds held out have weight 0: with errors there, and none elsewhere, the scale was unbounded."""
    logits, labels = separable()
    more = np.append(labels, (labels[0] + 1) % 4), np.append(np.ones(200), 0.0)
    for method in ("temperature", "rho-norm", "field"):
        with pytest.warns(BoundaryWarning):
            alone = rhocal.calibrator(method).fit(logits, labels)
        with pytest.warns(BoundaryWarning):
            beside = rhocal.calibrator(method).fit(np.vstack([logits, logits[:1]]), *more)
        np.testing.assert_allclose(beside.predict_proba(logits), alone.predict_proba(logits), atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"objective": "nll"}, {"rho": "learn"}])
def test_rho_norm_of_no_error_is_temperature_scaling(options):
    logits, labels = separable()
    with pytest.warns(BoundaryWarning):
        cal = rhocal.calibrator("rho-norm", **options).fit(logits, labels)
    assert cal.gamma_ == 0
    with pytest.warns(BoundaryWarning):
        assert np.isclose(cal.beta_, TemperatureScaling().fit(logits, labels).temperature_)


@pytest.mark.parametrize("m", [2, 4])
def test_auto_does_not_choose_by_confidence_alone(m):
    """Without an error the most confident method has the lowest NLL, held out too."""
    logits, labels = separable(600, m)
    with pytest.warns(BoundaryWarning, match="all calibration samples are predicted correctly"):
        cal = rhocal.calibrator("auto").fit(logits, labels)
    assert cal.chosen_.name == "temperature"
    assert np.isclose(cal.predict_proba(logits).max(1).mean(), 601 / 602)
    assert any("no calibration sample is wrong" in row.get("skipped", "") for row in cal.solution_.trials)


def test_others_warn_if_they_are_more_confident_than_no_error_supports():
    logits, labels = separable()
    with pytest.warns(BoundaryWarning, match=r"vector: .* is above \(n \+ 1\) / \(n \+ 2\)"):
        rhocal.calibrator("vector").fit(logits, labels)


@pytest.mark.parametrize("m", [2, 4, 80])
@pytest.mark.parametrize("method", ["temperature", "rho-norm", "auto"])
def test_a_near_tie_that_is_wrong_does_not_make_all_others_certain(method, m):
    """NLL alone ends at T of about 1e-4 here: at any scale the wrong sample costs log 2."""
    logits, labels = separable(300, m)
    order = np.argsort(logits[0])
    logits[0, order[-2]] = logits[0, order[-1]] - 1e-5
    labels[0] = order[-2]
    with pytest.warns(BoundaryWarning, match="predicted correctly .near ties aside., so confidence cannot be learned"):
        cal = rhocal.calibrator(method).fit(logits, labels)
    assert np.isclose(cal.predict_proba(logits)[1:].max(1).mean(), 300 / 301)


def test_with_a_few_clear_errors_the_likelihood_decides():
    logits, labels = separable(300)
    logits *= 3
    wrong = np.argsort(np.sort(logits, axis=1)[:, -1])[-5:]
    labels[wrong] = logits[wrong].argmin(1)
    found = TemperatureScaling().fit(logits, labels).temperature_

    def nll(log_t):
        return -log_softmax(logits / np.exp(log_t))[np.arange(300), labels].mean()

    assert np.isclose(found, np.exp(minimize_scalar(nll, bounds=(-5, 5), method="bounded").x), rtol=1e-4)
