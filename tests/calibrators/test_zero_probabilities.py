"""Probabilities of 0: what they mean depends on how finely a model counts."""

import warnings

import numpy as np
import pytest

import rhocal
from helpers import fit_map, quick
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
    cal = fit_map(quick(name), probs, labels, kind="probs")
    raised = fit_map(quick(name), np.log(np.maximum(probs, 1 / 40)), labels)
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
    np.testing.assert_allclose(cal.compiled()(rows), expected, atol=1e-9)


def between(n=600, seed=0):
    """Shares of trees none of which is 0 or 1."""
    probs, labels = votes(4 * n, seed=seed)
    rows = np.flatnonzero(probs.min(axis=1) > 0)[:n]
    return probs[rows], labels[rows]


@pytest.mark.parametrize("name", ["identity", "temperature", "svs", "isotonic", "dirichlet"])
def test_a_later_zero_is_below_the_smallest_share_too(name):
    """Where the calibration set has no 0, one that comes later was 1e-30: a few of them made NLL three times as large."""
    probs, labels = between()
    test, test_labels = votes(seed=1)
    cal = rhocal.calibrator(name).fit(probs, labels, kind="probs")
    smallest = 1 / 602**2  # twice as deep as one in n + 2
    assert np.isclose(cal.map_.smallest_prob, smallest)
    raised = np.maximum(test, smallest)
    np.testing.assert_allclose(
        cal.predict_proba(test), cal.predict_proba(raised / raised.sum(1, keepdims=True)), atol=2e-4
    )
    assert nll(cal, test, test_labels) < 0.82


def test_probabilities_without_zeros_stay_as_they_are():
    probs, labels = votes()
    positive = (probs + 1e-9) / (1 + 2e-9)
    cal = rhocal.calibrator("platt").fit(positive, labels, kind="probs")
    assert np.isclose(cal.map_.smallest_prob, positive.min() ** 2)
    np.testing.assert_allclose(
        cal.predict_proba(positive), cal.predict_proba(np.log(positive), kind="logits"), atol=1e-12
    )


def test_weights_are_repetition_for_what_a_zero_means():
    probs, labels = between()
    twice = rhocal.calibrator("temperature").fit(np.tile(probs, (2, 1)), np.tile(labels, 2), kind="probs")
    weighted = rhocal.calibrator("temperature").fit(probs, labels, np.full(600, 2.0), kind="probs")
    assert twice.smallest_prob_ == weighted.smallest_prob_


def late_zeros(n_classes=2):
    """24 blocks of 100 rows; zeros, and a share smaller than all before, are in a block that is not read for the plan."""
    rng = np.random.default_rng(3)
    probs = np.clip(rng.dirichlet(np.full(n_classes, 0.6), 2_400), 0.05 / n_classes, None)
    probs /= probs.sum(axis=1, keepdims=True)
    labels = (probs.cumsum(axis=1) > rng.random((2_400, 1))).argmax(axis=1)
    probs[510:520, 0], probs[520, 0] = 0.0, 0.01 / n_classes
    return probs / probs.sum(axis=1, keepdims=True), labels


@pytest.mark.parametrize("has_zeros", [True, False])
@pytest.mark.parametrize("n_classes", [2, 80])
@pytest.mark.parametrize("name", ["temperature", "svs"])
def test_streams_know_the_smallest_of_all_blocks(name, n_classes, has_zeros, monkeypatch, tmp_path):
    monkeypatch.setattr("rhocal.data.sampling.PILOT_ENTRIES", 1)
    probs, labels = late_zeros(n_classes)
    if not has_zeros:
        probs = (probs + 1e-4) / (1 + n_classes * 1e-4)
    blocks = [(probs[k : k + 100], labels[k : k + 100]) for k in range(0, 2_400, 100)]
    files = [tmp_path / f"{k:02d}.npz" for k in range(len(blocks))]
    for file, (scores, outcomes) in zip(files, blocks, strict=True):
        np.savez(file, logits=scores, labels=outcomes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        expected = rhocal.calibrator(name).fit(probs, labels, kind="probs")
        streamed = rhocal.calibrator(name).fit(rhocal.stream(files), kind="probs")
    assert streamed.smallest_prob_ == expected.smallest_prob_
    np.testing.assert_allclose(streamed.predict_proba(probs), expected.predict_proba(probs), atol=2e-4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        once = rhocal.calibrator(name).fit(rhocal.stream(iter(blocks)), kind="probs")
    assert any("a probability of 0 counts as 1e-30" in str(one.message) for one in caught) == has_zeros
    assert once.smallest_prob_ == (1e-30 if has_zeros else expected.smallest_prob_)


def test_saved_profiles_know_what_a_zero_means(tmp_path):
    probs, labels = votes()
    rhocal.save_profile(rhocal.profile_logits(probs, labels, kind="probs"), tmp_path / "profile.safetensors")
    cal = rhocal.calibrator("temperature").fit_profile(rhocal.load_profile(tmp_path / "profile.safetensors"))
    expected = rhocal.calibrator("temperature").fit(probs, labels, kind="probs")
    np.testing.assert_allclose(cal.predict_proba(probs), expected.predict_proba(probs), atol=1e-6)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("kind", ["probs", "log_probs"])
def test_streams_and_log_probabilities(kind):
    probs, labels = votes()
    with np.errstate(divide="ignore"):
        scores = probs if kind == "probs" else np.log(probs)
    expected = rhocal.calibrator("temperature").fit(probs, labels, kind="probs").temperature_
    assert np.isclose(rhocal.calibrator("temperature").fit(scores, labels, kind=kind).temperature_, expected)
    blocks = [(scores[k : k + 100], labels[k : k + 100]) for k in range(0, 600, 100)]
    assert np.isclose(rhocal.calibrator("temperature").fit(rhocal.stream(blocks), kind=kind).temperature_, expected)
