"""Probabilities of 0: what they mean depends on how finely a model counts."""

import warnings

import numpy as np
import pytest

import rhocal
from rhocal.calibrators import CALIBRATORS
from rhocal.errors import RhocalWarning


def votes(n=600, n_trees=20, seed=0):
    """Shares of trees that vote for class 1; 0 and 1 are frequent, and wrong now and then."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=n) * 3
    share = rng.binomial(n_trees, 1 / (1 + np.exp(-2 * truth))) / n_trees
    return np.stack([1 - share, share], axis=1), (rng.random(n) < 1 / (1 + np.exp(-truth))).astype(int)


def nll(cal, probs, labels):
    return float(-np.log(cal.predict_proba(probs)[np.arange(len(labels)), labels]).mean())


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name not in {"identity", "multi-domain", "cascade"}])
def test_a_zero_is_below_the_smallest_share_that_can_be_counted(name):
    probs, labels = votes()
    test, test_labels = votes(seed=1)
    quick = {"rho-norm-paper": {"n_steps": 50}, "auto": {"n_folds": 2}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        cal = rhocal.calibrator(name, **quick.get(name, {})).fit(probs, labels, kind="probs")
        raised = rhocal.calibrator(name, **quick.get(name, {})).fit(np.log(np.maximum(probs, 1 / 40)), labels)
    assert np.isclose(cal.map_.smallest_prob, 1 / 40)
    np.testing.assert_allclose(
        cal.predict_proba(test), raised.predict_proba(np.log(np.maximum(test, 1 / 40))), atol=1e-9
    )
    assert nll(cal, test, test_labels) < 0.55


def test_the_smallest_probability_is_kept(tmp_path):
    probs, labels = votes()
    cal = rhocal.calibrator("platt").fit(probs, labels, kind="probs")
    cal.save(tmp_path / "cal.safetensors")
    loaded = rhocal.load(tmp_path / "cal.safetensors")
    rows = np.array([[0.0, 1.0], [1e-9, 1 - 1e-9], [0.5, 0.5]])
    expected = cal.predict_proba(rows)
    np.testing.assert_array_equal(expected[0].round(6), expected[1].round(6))
    np.testing.assert_array_equal(loaded.predict_proba(rows), expected)
    apply, parameters = cal.apply_fn()
    np.testing.assert_allclose(apply(parameters, rows), expected, atol=1e-9)


def test_probabilities_without_zeros_stay_as_they_are():
    probs, labels = votes()
    positive = (probs + 1e-9) / (1 + 2e-9)
    assert rhocal.calibrator("platt").fit(positive, labels, kind="probs").map_.smallest_prob == 1e-30


@pytest.mark.parametrize("kind", ["probs", "log_probs"])
def test_streams_and_log_probabilities(kind):
    probs, labels = votes()
    with np.errstate(divide="ignore"):
        scores = probs if kind == "probs" else np.log(probs)
    expected = rhocal.calibrator("temperature").fit(probs, labels, kind="probs").temperature_
    assert np.isclose(rhocal.calibrator("temperature").fit(scores, labels, kind=kind).temperature_, expected)
    blocks = [(scores[k : k + 100], labels[k : k + 100]) for k in range(0, 600, 100)]
    assert np.isclose(rhocal.calibrator("temperature").fit(rhocal.stream(blocks), kind=kind).temperature_, expected)
