"""The cascade: its laws above the size from which it is fitted itself, its evidence, its guard and its exported forms."""

import warnings
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import rhocal
from helpers import synthetic
from rhocal.calibrators.cascade.candidates import MAX_KERNEL_CLASSES, MAX_MATRIX_CLASSES
from rhocal.calibrators.cascade.cascade import MIN_SAMPLES
from rhocal.calibrators.cascade.evidence import SharedProblem
from rhocal.calibrators.cascade.samples import Samples
from rhocal.calibrators.cascade.simpler import MIN_SHARE_GAINED, SimplerMethod
from rhocal.calibrators.folds import effective_weight
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.calibrators.validated_fit import fit_validated
from rhocal.data.predictions import Predictions
from rhocal.errors import InputError, RhocalWarning
from rhocal.profile.profile import Profile


def biased(n=2100, m=4, *, seed=0, dtype=np.float64):
    """Over-confident logits, the large ones more so, whose classes are confused in one direction: every part gains."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, m)) * 1.5
    p = np.exp(truth) / np.exp(truth).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    mixing = np.eye(m) + 0.3 * np.roll(np.eye(m), 1, axis=0)
    logits = 2.5 * truth @ mixing + np.linspace(-1, 1, m)
    size = np.ptp(logits, axis=1, keepdims=True)
    logits *= 1 + 0.8 * (size > np.median(size))
    return logits.astype(dtype), labels


def fitted(logits, labels, weight=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        return rhocal.Cascade(**options).fit(logits, labels, weight)


@cache
def fitted_to_biased(n=2100, m=4):
    """A fit that several tests look at and none changes."""
    return fitted(*biased(n, m))


def steps(cal):
    return [row["step"] for row in cal.solution_.trials if "step" in row]


def nll(probs, labels):
    return -np.log(probs[np.arange(len(labels)), labels]).mean()


SIZES = [2, 4, MAX_KERNEL_CLASSES, MAX_KERNEL_CLASSES + 1]


@pytest.mark.parametrize("m", SIZES)
def test_order_of_samples_changes_nothing(m):
    logits, labels = biased(m=m)
    order = np.random.default_rng(0).permutation(len(labels))
    a, b = fitted_to_biased(m=m), fitted(logits[order], labels[order])
    assert not a.fallback_
    assert steps(a) == steps(b)
    np.testing.assert_allclose(a.predict_proba(logits), b.predict_proba(logits), atol=2e-6)


@pytest.mark.parametrize("m", SIZES)
def test_renaming_of_classes_changes_nothing(m):
    logits, labels = biased(m=m)
    order = np.random.default_rng(1).permutation(m)
    a, b = fitted_to_biased(m=m), fitted(logits[:, order], np.argsort(order)[labels])
    np.testing.assert_allclose(a.predict_proba(logits)[:, order], b.predict_proba(logits[:, order]), atol=2e-6)


@pytest.mark.parametrize("m", SIZES)
def test_weights_are_repetition(m):
    logits, labels = biased(m=m)
    times = np.random.default_rng(1).integers(0, 4, len(labels))
    a = fitted(logits, labels, times)
    b = fitted(np.repeat(logits, times, axis=0), np.repeat(labels, times))
    np.testing.assert_allclose(a.predict_proba(logits), b.predict_proba(logits), atol=2e-6)


def test_a_shift_of_all_logits_of_a_sample_is_invisible():
    logits, labels = biased()
    shift = np.random.default_rng(0).normal(size=(len(logits), 1)) * 300
    a, b = fitted_to_biased(), fitted(logits + shift, labels)
    np.testing.assert_allclose(a.predict_proba(logits), b.predict_proba(logits + shift), atol=2e-6)


def test_batch_cuts_are_invisible():
    logits, cal = biased()[0], fitted_to_biased()
    assert steps(cal)
    cut = np.concatenate([cal.predict_proba(part) for part in np.array_split(logits, 7)])
    np.testing.assert_array_equal(cut, cal.predict_proba(logits))


def test_it_is_better_than_temperature_scaling_where_classes_are_confused():
    logits, labels = biased(3000, 5)
    test, test_labels = biased(5000, 5, seed=1)
    cal = fitted(logits, labels)
    temperature = rhocal.TemperatureScaling().fit(logits, labels)
    assert nll(cal.predict_proba(test), test_labels) < nll(temperature.predict_proba(test), test_labels) - 0.05


def test_held_out_logits_are_not_those_of_the_fit():
    """The gain that the evidence shows must be one that new samples have."""
    logits, labels = biased(1500, 20)
    test, test_labels = biased(20_000, 20, seed=1)
    cal = fitted(logits, labels)
    shown = cal.solution_.held_out.nll["cascade"]
    assert shown == pytest.approx(nll(cal.predict_proba(test), test_labels), rel=0.06)


def test_the_evidence_has_a_row_for_each_stage_and_step():
    cal = fitted_to_biased()
    first, *rows, last = cal.solution_.trials
    assert first["stage"] == "shared"
    assert last["stage"] == "shared, out of fold"
    assert rows
    assert all(row["gain"] > 0 for row in rows)
    assert np.all(np.diff([row["nll"] + row["brier"] for row in rows]) < 0)


@pytest.mark.parametrize("n", [MIN_SAMPLES - 1, MIN_SAMPLES])
def test_few_samples_are_fitted_by_a_chain(n):
    cal = fitted(*biased(n))
    assert [member.label for member in cal.fallback_] == (["sms:field"] if n < MIN_SAMPLES else [])


def test_a_chain_of_few_samples_must_be_clearly_better():
    cal = fitted(*synthetic(200, 4))
    assert [member.label for member in cal.fallback_] == ["svs"]


def test_noise_takes_no_steps():
    """Logits that are temperature-scaled truth have nothing that a step could learn."""
    logits, labels = synthetic(4000, 6)
    test, test_labels = synthetic(20_000, 6, seed=1)
    cal, temperature = fitted(logits, labels), rhocal.TemperatureScaling().fit(logits, labels)
    assert nll(cal.predict_proba(test), test_labels) < nll(temperature.predict_proba(test), test_labels) + 0.004


def test_exchangeable_columns_have_no_positions():
    logits, labels = biased(2100, 4)
    cal = fitted(logits, labels, exchangeable=True)
    assert not steps(cal)
    order = np.array([2, 0, 3, 1])
    np.testing.assert_allclose(cal.predict_proba(logits[:, order]), cal.predict_proba(logits)[:, order], atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_difficult_scores_give_finite_probabilities(dtype):
    logits, labels = biased(800, 4, dtype=dtype)
    masked = logits.copy()
    masked[::3, 3] = -6e4
    labels_of_masked = np.where((labels == 3) & (masked[:, 3] < -1e4), 0, labels)
    saturated = np.where(logits == logits.max(1, keepdims=True), dtype(60000), dtype(0))
    absent = labels != 2
    sets = {
        "constant": (np.ones_like(logits), labels),
        "equal rows": (np.repeat(logits[:1], len(logits), axis=0), labels),
        "saturated": (saturated, labels),
        "masked": (masked, labels_of_masked),
        "absent class": (logits[absent], labels[absent]),
        "one class": (logits, np.zeros_like(labels)),
        "all correct": (logits, logits.argmax(1)),
        "rounded": (np.round(logits), labels),
    }
    for name, (scores, marks) in sets.items():
        probs = fitted(scores, marks).predict_proba(logits)
        assert np.isfinite(np.log(np.maximum(probs, 1e-300))).all(), name
        np.testing.assert_allclose(probs.astype(float).sum(1), 1, atol=3e-3 if dtype == np.float16 else 1e-6)


def test_many_classes_take_no_matrix():
    logits, labels = synthetic(1200, MAX_MATRIX_CLASSES + 1, dtype=np.float32)
    cal = fitted(logits, labels)
    assert not {"matrix", "tail", "kernel"} & set(steps(cal))
    assert np.isfinite(cal.predict_proba(logits)).all()


@pytest.mark.parametrize("has_top", [True, False])
@pytest.mark.parametrize("m", [2, 5])
def test_derivatives_of_the_shared_stage(m, has_top):
    logits, labels = biased(600, m)
    data = Predictions.from_arrays(logits, labels, weights=np.random.default_rng(0).random(600))
    search = ScaleSearch.from_profile(Profile.from_predictions(data))
    samples = Samples(data, search, 5)
    offset = np.concatenate([samples.scores(block).log_probs for block in samples.blocks])
    problem = SharedProblem(samples, offset, has_top=has_top)
    rng = np.random.default_rng(1)
    weights = 0.03 * rng.normal(size=sum(problem.sizes))
    direction = rng.normal(size=len(weights))
    h = 2e-3  # the values are sums of single-precision numbers
    below, here, above = (problem.at(weights + step * direction) for step in (-h, 0, h))
    assert (above.value - below.value) / (2 * h) == pytest.approx(here.gradient @ direction, rel=1e-2, abs=0.1)
    slope = (above.gradient - below.gradient) / (2 * h)
    np.testing.assert_allclose(here.hessian @ direction, slope, rtol=2e-2, atol=0.02 * np.abs(slope).max())


@pytest.mark.parametrize("m", [2, 4, MAX_KERNEL_CLASSES + 1])
@pytest.mark.parametrize("exchangeable", [False, True])
def test_every_form_gives_the_same_probabilities(m, exchangeable, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")
    logits, labels = biased(2100, m, dtype=np.float32)
    cal = fitted(logits, labels, exchangeable=exchangeable)
    assert bool(steps(cal)) is not exchangeable
    test = np.concatenate([biased(300, m, seed=1, dtype=np.float32)[0], 50 * logits[:20], np.zeros((2, m), np.float32)])
    want = cal.predict_proba(test)
    cal.save(tmp_path / "cascade.safetensors")
    np.testing.assert_array_equal(rhocal.load(tmp_path / "cascade.safetensors").predict_proba(test), want)
    apply, parameters = cal.apply_fn()
    np.testing.assert_allclose(apply(parameters, test), want, atol=1e-6)
    np.testing.assert_allclose(cal.to_torch(output="probs")(torch.tensor(test)), want, atol=1e-6)
    cal.to_onnx(tmp_path / "cascade.onnx")
    session = ort.InferenceSession(str(tmp_path / "cascade.onnx"))
    (got,) = session.run(None, {session.get_inputs()[0].name: test})
    np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.usefixtures("few_rows")
def test_streams_are_fitted_on_a_subsample_and_applied_block_by_block():
    logits, labels = biased(2100, 4, dtype=np.float32)
    blocks = [(logits[k : k + 300], labels[k : k + 300]) for k in range(0, 2100, 300)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        streamed = rhocal.Cascade().fit(rhocal.stream(blocks))
    np.testing.assert_allclose(streamed.predict_proba(logits), fitted(logits, labels).predict_proba(logits), atol=2e-6)


def test_an_artifact_with_missing_parts_is_refused(tmp_path):
    cal = deepcopy(fitted_to_biased())
    kind = steps(cal)[0]
    for name, value in (("first_weights_", np.zeros(3)), ("last_context_", np.zeros(0)), ("scale_", np.zeros(0))):
        broken = deepcopy(fitted_to_biased())
        vars(broken)["map_"] = replace(broken.map_, fitted={**broken.map_.fitted, name.removesuffix("_"): value})
        with pytest.raises(InputError, match="cannot be saved"):
            broken.save(tmp_path / "broken.safetensors")
    needed = {"kernel": "landmarks", "matrix": "direction_mean", "tail": "direction_mean", "slope": "x_mean"}[kind]
    vars(cal)["map_"] = replace(cal.map_, fitted={**cal.map_.fitted, needed: np.zeros(0)})
    with pytest.raises(InputError, match="steps have the numbers that they need"):
        cal.save(tmp_path / "broken.safetensors")


@pytest.mark.parametrize("n", [800, 3000])
def test_a_simpler_method_is_used_where_a_cascade_hardly_gains(n):
    """Logits that only need a temperature: every further number costs."""
    cal = fitted(*synthetic(n, 4))
    names = [member.label for member in cal.fallback_]
    assert names == ["temperature"]
    assert cal.solution_.trials[-1]["fallback"] == names[0]
    assert cal.solution_.held_out.method == "cascade"


def test_a_small_gain_is_taken_where_the_simpler_method_is_not_calibrated():
    """A scale that depends on the confidence gains little NLL, and ECE."""
    logits, labels = synthetic(8000, 4)
    bent = logits * (1 + 0.25 * (np.ptp(logits, axis=1, keepdims=True) > 6))
    cal, temperature = fitted(bent, labels), rhocal.TemperatureScaling().fit(bent, labels)
    assert not cal.fallback_
    gain = 1 - nll(cal.predict_proba(bent), labels) / nll(temperature.predict_proba(bent), labels)
    assert 0 < gain < MIN_SHARE_GAINED


def test_the_optimism_of_shared_stages_is_added():
    """On logits that only need a temperature, held-out NLL must not be below what new samples have."""
    shown, new = [], []
    test, test_labels = synthetic(50_000, 3, seed=99)
    for seed in range(8):
        cal = fitted(*synthetic(2000, 3, seed=seed))
        shown.append(cal.solution_.held_out.nll["cascade"] - cal.solution_.held_out.nll["temperature"])
        temperature = fitted_temperature(*synthetic(2000, 3, seed=seed))
        new.append(nll(cal.predict_proba(test), test_labels) - nll(temperature.predict_proba(test), test_labels))
    assert np.mean(shown) == pytest.approx(np.mean(new), abs=0.0015)


def fitted_temperature(logits, labels):
    return rhocal.TemperatureScaling().fit(logits, labels)


def test_a_few_samples_with_nearly_all_weight_do_not_decide():
    logits, labels = biased(2200, 6)
    weights = np.full(2200, 1e-6)
    weights[:3] = 1000
    probs = fitted(logits, labels, weights).predict_proba(logits[:3])
    assert nll(probs, labels[:3]) < 3


@pytest.mark.parametrize("kinds", [("bias",), ("slope", "matrix"), ("kernel",)])
def test_only_the_kinds_of_steps_that_are_named_are_taken(kinds):
    cal = fitted(*biased(2100), steps=kinds)
    assert set(steps(cal)) <= set(kinds)
    assert steps(cal)


@pytest.mark.parametrize("family", [rhocal.Cascade, rhocal.KeptCascade])
def test_a_few_samples_with_most_of_the_weight_are_few_samples(family):
    """With weights of a wide spread, steps fit the noise of a few samples, and folds hold one of them each."""
    logits, labels = biased(2500, 4)
    test, test_labels = biased(4000, 4, seed=1)
    weights = np.exp(3 * np.random.default_rng(3).normal(size=len(labels)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        cal = family().fit(logits, labels, weights)
    temperature = rhocal.TemperatureScaling().fit(logits, labels, weights)
    losses = [nll(method.predict_proba(test), test_labels) for method in (cal, temperature)]
    assert losses[0] < 1.02 * losses[1]


def test_the_effective_weight_is_that_of_samples_of_equal_weight():
    logits, labels = biased(600, 4)

    def effective(weights=None, times=1):
        data = Predictions.from_arrays(np.repeat(logits, times, 0), np.repeat(labels, times, 0), weights=weights)
        return effective_weight(ScaleSearch.from_profile(Profile.from_predictions(data)))

    assert effective() == pytest.approx(600)
    assert effective(np.full(600, 3.0)) == pytest.approx(effective(times=3)) == pytest.approx(1800)
    assert effective(np.full(600, 100.0)) == pytest.approx(600)
    assert effective(np.append(np.full(599, 1e-6), 1e6)) == pytest.approx(1)


def test_temperature_scaling_in_sample_is_corrected_for_its_one_number():
    """Half of 1/n is what it gains on its own samples, half what it loses on others."""
    own, other = [], []
    test, test_labels = synthetic(20_000, 4, seed=1000)
    for seed in range(40):
        data = Predictions.from_arrays(*synthetic(100, 4, seed=seed)).prepared()
        cal = fit_validated(rhocal.TemperatureScaling(), data)
        own.append(SimplerMethod.in_sample(cal, data, n_numbers=1).scores.nll.mean())
        other.append(nll(cal.predict_proba(test), test_labels))
    assert np.mean(own) == pytest.approx(np.mean(other), abs=2.5 * np.std(own) / np.sqrt(len(own)))
