"""Agreement of the binary maps with independent implementations, on real logits.

Peers: scikit-learn 1.9.1, betacal 1.1.0, venn-abers 1.5.4, netcal 1.4.0, probmetrics 1.3.0.
Known differences, all avoided or allowed for below:

- A class absent from tuning: peers raise or give a constant; ours divides its probability by 1 + the hits expected of it.
- scikit-learn's isotonic regression gives exact zeros, and uniform rows where all are zero; ours smooths unless told not to.
  It counts probabilities closer than 1e-15 as equal, ours those that agree to 13 digits: on 20news, where thousands of
  probabilities are cut at 1.7547e-6 with noise, single values differ by 1e-3.
- betacal's logistic regression stops at the loose default tolerance of L-BFGS: its parameters are near the optimum, ours at
  it. It cuts p at 2e-16.
- venn-abers ranks by p, ours by log-odds, and ours merges neighbours whose p₀ and p₁ differ by less than 1e-6.
- netcal gives the middle of a bin that was empty in tuning, ours the probability itself. It has no equal-mass bins
  (`equal_intervals=False` is "not implemented"), so its BBQ is equal-width, and scored with BIC instead of the paper's Bayesian
  score: another method. Our BBQ is checked against the formula in test_binary_maps.py. On float32 it does
  nothing: it gets float64.
- probmetrics' spline calibration gives what the spline says, also below 0 and above 1; ours stays inside. It takes the sums at
  every sample, ours at 513 evenly spaced shares of them.
- No installed peer has centred isotonic regression (probmetrics asks for another package).
"""

import numpy as np
import pytest
from betacal import BetaCalibration as PeerBeta
from netcal.binning import HistogramBinning as PeerBinning
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from venn_abers import VennAbers as PeerVennAbers

import rhocal
from helpers import real
from rhocal.calibrators.binary.class_scores import ClassScores
from rhocal.numerics.special import softmax

pytestmark = pytest.mark.filterwarnings("ignore:::sklearn", "ignore:::netcal", "ignore:::venn_abers")

NETWORKS = ["imdb_cleanlab_cv_logp", "cifar10_resnet56", "fashionmnist_densenet"]
on_networks = pytest.mark.parametrize("network", NETWORKS)


def double(network):
    tune, labels, test, test_labels = real(network)
    return tune.astype(np.float64), labels, test.astype(np.float64), test_labels


def rows(columns):
    p = np.stack(columns, axis=1)
    return np.hstack([1 - p, p]) if p.shape[1] == 1 else p / p.sum(axis=1, keepdims=True)


class Network(ClassifierMixin, BaseEstimator):
    """A fitted classifier as scikit-learn sees one; its features are the logits."""

    def __init__(self, n_classes):
        self.n_classes = n_classes
        self.classes_ = np.arange(n_classes)

    def fit(self, _x, _y):
        return self

    def predict(self, z):
        return z.argmax(axis=1)


class WithProbs(Network):
    def predict_proba(self, z):
        return softmax(z)


class WithLogOdds(Network):
    def decision_function(self, z):
        scores = ClassScores.from_logits(z, "log-odds")
        if z.shape[1] == 2:
            return scores.of_class(1)
        return np.stack([scores.of_class(column) for column in range(z.shape[1])], axis=1)


@on_networks
@pytest.mark.parametrize(
    ("ours", "network_kind", "method", "atol"),
    [
        (rhocal.PlattScaling(), WithLogOdds, "sigmoid", 2e-6),
        (rhocal.IsotonicRegression(smoothing=0.0), WithProbs, "isotonic", 1e-9),
    ],
)
def test_scikit_learn(network, ours, network_kind, method, atol):
    tune, labels, test, _ = double(network)
    estimator = FrozenEstimator(network_kind(tune.shape[1]))
    peer = CalibratedClassifierCV(estimator, method=method, ensemble=False).fit(tune, labels).predict_proba(test)
    np.testing.assert_allclose(ours.fit(tune, labels).predict_proba(test), peer, atol=atol)


@on_networks
def test_betacal(network):
    tune, labels, test, _ = double(network)
    p, p_test = softmax(tune), softmax(test)
    ours = rhocal.BetaCalibration(ridge=0.0).fit(tune, labels)
    columns, losses = [], []
    for c in [1] if p.shape[1] == 2 else range(p.shape[1]):
        peer = PeerBeta(parameters="abm").fit(p[:, c], labels == c)
        columns.append(peer.predict(p_test[:, c]))
        q = np.clip(peer.predict(p[:, c]), 1e-300, 1 - 1e-16)
        losses.append(-np.log(np.where(labels == c, q, 1 - q)).mean())
    apart = np.abs(ours.predict_proba(test) - rows(columns))
    assert apart.mean() < 5e-5
    assert apart.max() < 5e-3
    assert ours.solution_.value <= np.mean(losses) + 1e-9  # where they differ, ours is lower on what both minimise


@on_networks
def test_venn_abers(network):
    tune, labels, test, _ = double(network)
    p, p_test = softmax(tune), softmax(test)
    ours = rhocal.VennAbers().fit(tune, labels)
    low, high = ours.interval(test)
    columns = []
    for c in [1] if p.shape[1] == 2 else range(p.shape[1]):
        peer = PeerVennAbers()
        peer.fit(np.stack([1 - p[:, c], p[:, c]], axis=1), (labels == c).astype(int))
        probs, interval = peer.predict_proba(np.stack([1 - p_test[:, c], p_test[:, c]], axis=1))
        columns.append(probs[:, 1])
        np.testing.assert_allclose(low[:, c], interval[:, 0], atol=1.1e-6)
        np.testing.assert_allclose(high[:, c], interval[:, 1], atol=1.1e-6)
    np.testing.assert_allclose(
        ours.predict_proba(test), rows(columns), atol=1e-5
    )  # normalising adds errors of 10 classes


@on_networks
def test_netcal_histogram_binning(network):
    tune, labels, test, _ = double(network)
    p, p_test = softmax(tune), softmax(test)
    two = p.shape[1] == 2
    peer = PeerBinning(10)
    peer.fit(p[:, 1] if two else p, labels)
    theirs = peer.transform(p_test[:, 1] if two else p_test)
    cal = rhocal.HistogramBinning(scope="one-vs-rest", smoothing=0.0).fit(tune, labels)
    ours = cal.predict_proba(test)
    seen = ~np.isnan(cal.bins_[np.arange(p.shape[1]), np.ceil(p_test * 10).astype(int) - 1]).any(axis=1)
    assert seen.mean() > 0.99
    np.testing.assert_allclose((ours[:, 1] if two else ours)[seen], theirs[seen], atol=1e-9)


@pytest.mark.filterwarnings("ignore:::probmetrics", "ignore::DeprecationWarning")
@pytest.mark.parametrize("n_knots", [4, 6, 8])
def test_probmetrics_spline(n_knots):
    from probmetrics.calibrators.splines import CDFSplineCalibrator

    tune, labels, test, _ = double("imdb_cleanlab_cv_logp")
    theirs = CDFSplineCalibrator(splines=n_knots).fit(softmax(tune), labels).predict_proba(softmax(test))
    ours = rhocal.SplineCalibration(n_knots, scope="one-vs-rest").fit(tune, labels).predict_proba(test)
    inside = ((theirs > 0.001) & (theirs < 0.999)).all(axis=1)
    assert inside.mean() > 0.7
    np.testing.assert_allclose(ours[inside], theirs[inside], atol=1e-3)
