"""Chains, cross-fitting and averages: calibrators made of calibrators."""

import numpy as np
import pytest
import sklearn.base

import rhocal
from helpers import fit_map, real, synthetic
from rhocal import Chain, FieldScaling, TemperatureScaling, VectorScaling, metrics
from rhocal.calibrators.compose.cross_fit import CrossFit
from rhocal.data.predictions import Predictions
from rhocal.errors import InputError
from rhocal.numerics.special import softmax


def skewed(n=1500, seed=0):
    """Logits that are too large and shifted for some classes."""
    logits, labels = synthetic(n, 4, seed=seed)
    return logits + np.array([2.0, 0.0, -2.0, 1.0]), labels


def test_a_chain_applies_one_after_the_other():
    logits, labels = skewed()
    cal = Chain("svs", "field").fit(logits, labels)
    between = cal.first_.transform(logits)
    np.testing.assert_array_equal(cal.transform(logits), cal.second_.transform(between))
    np.testing.assert_array_equal(cal.predict(logits), cal.first_.predict(logits))
    alone = rhocal.calibrator("svs").fit(logits, labels)
    np.testing.assert_array_equal(between, alone.transform(logits))  # the first is fitted on all samples


def test_the_second_stage_sees_out_of_fold_outputs():
    logits, labels = skewed(300)
    data = Predictions.from_arrays(logits, labels)
    cal = Chain("vector", "temperature", n_folds=3).fit(logits, labels)
    parts = CrossFit.from_predictions("vector", data, 3)
    _, fold, _ = parts.folds
    assert sorted([*fold.inside, *fold.outside]) == list(range(300))
    other = VectorScaling().fit(logits[fold.inside], labels[fold.inside])
    outputs = parts.outputs(data)
    np.testing.assert_array_equal(outputs[fold.outside], other.transform(logits[fold.outside]))
    assert cal.second_.temperature_ == TemperatureScaling().fit(outputs, labels).temperature_


def test_in_sample_a_rich_first_stage_looks_better_than_it_is():
    """With few samples an unregularised map is overconfident on new samples; only out of fold is that seen."""
    logits, labels = synthetic(120, 4, seed=1)
    cal = Chain(VectorScaling(ridge=0.0), "temperature").fit(logits, labels)
    in_sample = TemperatureScaling().fit(cal.first_.transform(logits), labels)
    assert np.isclose(in_sample.temperature_, 1, atol=1e-3)
    assert cal.second_.temperature_ > 1.01


def test_names_and_options_of_stages():
    cal = rhocal.calibrator("svs:field", first__ridge_diagonal=3.0, second__guard=0.1, n_folds=4)
    assert cal.get_params()["first__ridge_diagonal"] == 3.0
    assert cal.get_params()["second__guard"] == 0.1
    assert cal.n_folds == 4
    assert "first__ridge_diagonal" not in cal.get_params(deep=False)
    copy = sklearn.base.clone(cal)
    assert copy.get_params()["first__ridge_diagonal"] == 3.0
    copy.set_params(first__ridge_diagonal=5.0)
    assert cal.get_params()["first__ridge_diagonal"] == 3.0
    assert repr(cal.first) == "StructuredScaling(ridge_diagonal=3.0, ridge_off_diagonal=None)"
    assert repr(rhocal.calibrator("svs:field", n_folds=4)) == "Chain(first='svs', second='field', n_folds=4)"


def test_a_chain_of_three():
    cal = rhocal.calibrator("vector:svs:temperature")
    assert (cal.first, cal.second) == ("vector:svs", "temperature")
    logits, labels = skewed(200)
    assert np.isfinite(cal.fit(logits, labels).predict_proba(logits)).all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("smss:field", {}, "did you mean 'sms'"),
        ("sms:", {}, "no method ''"),
        ("svs:field", {"first__nope": 1}, "no option 'nope'"),
        ("svs:field", {"third__nope": 1}, "no option 'third__nope'"),
        ("svs:field", {"nope": 1}, "no option 'nope'; it has first, second, n_folds, first__objective"),
    ],
)
def test_wrong_names_are_said(name, options, message):
    with pytest.raises(InputError, match=message):
        rhocal.calibrator(name, **options)


def test_bad_folds_are_said():
    with pytest.raises(InputError, match="n_folds"):
        Chain("svs", "field", n_folds=1).fit(*skewed(100))


@pytest.mark.parametrize(
    "cal",
    [
        Chain(VectorScaling(ridge=2.0), FieldScaling("nll")),
        rhocal.calibrator("vector:temperature"),
        rhocal.CrossFitted(VectorScaling(ridge=2.0), n_folds=3),
        rhocal.Average(("svs", VectorScaling(ridge=2.0))),
    ],
    ids=repr,
)
def test_artifacts(cal, tmp_path):
    logits, labels = skewed(200)
    path = tmp_path / "cal.safetensors"
    cal.fit(logits, labels).save(path)
    again = rhocal.load(path)
    np.testing.assert_array_equal(again.predict_proba(logits), cal.predict_proba(logits))
    assert repr(again) == repr(cal)


def test_cross_fitted_is_the_mean_of_its_members():
    logits, labels = skewed(300)
    cal = rhocal.CrossFitted("vector", n_folds=4).fit(logits, labels)
    assert len(cal.members_) == 4
    mean = np.mean([member.predict_proba(logits) for member in cal.members_], axis=0)
    np.testing.assert_allclose(cal.predict_proba(logits), mean, atol=1e-12)


def test_average_is_the_mean_of_its_members():
    logits, labels = skewed(300)
    cal = rhocal.Average(("identity", "vector")).fit(logits, labels)
    mean = (softmax(logits) + VectorScaling().fit(logits, labels).predict_proba(logits)) / 2
    np.testing.assert_allclose(cal.predict_proba(logits), mean, atol=1e-12)
    with pytest.raises(InputError, match="at least one"):
        rhocal.Average(()).fit(logits, labels)


def test_a_chain_beats_its_parts_on_language_model_options():
    tune, tune_labels, test, test_labels = real("mmbench6_llava-v1.5-7b")
    found = {}
    for name in ("sms", "field", "sms:field"):
        z = rhocal.calibrator(name).fit(tune, tune_labels).transform(test)
        found[name] = metrics.ece(z, test_labels, kind="logits"), metrics.nll(z, test_labels, kind="logits")
    assert found["sms:field"][0] < 0.7 * found["sms"][0]
    assert found["sms:field"][1] < min(found["sms"][1], found["field"][1])


@pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")
@pytest.mark.parametrize("second", ["beta", "isotonic", "dirichlet"])
def test_a_first_stage_that_leaves_rounding(second):
    """All labels are wrong: outputs of ets differ by 1e-9, which maps of probabilities cannot read. The mix is left."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(200, 4))
    logits[:9, 3] = -np.inf
    labels = (logits.argmax(axis=1) + 1) % 3
    probs = fit_map(rhocal.Chain("ets", second), logits, labels).predict_proba(logits)
    np.testing.assert_allclose(probs[9:, :3], np.tile(np.bincount(labels) / 200, (191, 1)), atol=0.05)
    assert probs[:9, 3].max() < 1e-30
    with pytest.raises(InputError, match="Multiply the logits"):
        rhocal.Chain("identity", second).fit(1e-12 * logits, labels)
