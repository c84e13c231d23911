"""Samples of which only the k best classes are known."""

import json
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch

import rhocal
from helpers import run, synthetic
from rhocal.calibrators.exporting import exported_map
from rhocal.calibrators.top_k import calibrate_top_k, rest_bounds
from rhocal.data.top_k import TopK
from rhocal.errors import InputError, SuspiciousInputWarning
from rhocal.numerics.special import log_softmax
from rhocal.onnx.graph import GraphSpec, standalone
from rhocal.profile.top_k import profile_top_k
from rhocal.torch.module import CalibratorModule


def known(logits, k):
    """What an API would say of these logits."""
    log_p = log_softmax(np.asarray(logits, np.float64))
    order = np.argsort(-log_p, axis=1)
    best = np.take_along_axis(log_p, order[:, :k], axis=1)
    return best, order[:, :k], np.log(np.maximum(1 - np.exp(best).sum(axis=1), 1e-30))


def uneven(n, m):
    """Logits whose amplitude differs between samples and shows in their temperature."""
    logits, labels = synthetic(n, m)
    return logits * np.exp(0.6 * np.random.default_rng(0).normal(size=(n, 1))), labels


def test_an_even_rest_is_exact():
    rng = np.random.default_rng(0)
    logits = np.repeat(rng.normal(size=(400, 1)) - 4, 100, axis=1)
    logits[:, :6] = np.abs(rng.normal(size=(400, 6))) * 2  # the rest is even
    labels = (logits / 1.7 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    profile = profile_top_k(TopK.from_arrays(*known(logits, 10), 100), labels, is_cut=False)
    whole = rhocal.profile_logits(log_softmax(logits), labels, kind="log_probs")
    for method in ("temperature", "rho-norm"):
        mine, same = (rhocal.calibrator(method).fit_profile(p) for p in (profile, whole))
        np.testing.assert_allclose(mine.map_.scales(whole), same.map_.scales(whole), rtol=1e-6)
    mine, same = (rhocal.FieldScaling().fit_profile(p) for p in (profile, whole))
    np.testing.assert_allclose(np.r_[mine.bias_, mine.weights_], np.r_[same.bias_, same.weights_], atol=1e-4)


@pytest.mark.parametrize(
    ("method", "k", "options"),
    [
        ("rho-norm", 5, {}),
        ("field", 20, {"ridge": 1.0}),
        ("pts", 5, {"ridge": 1.0, "n_hidden": 2}),
        ("temperature", 2, {}),
    ],
)
def test_a_fit_on_the_k_best_scales_all_logits_as_it_scales_the_k_best(method, k, options, tmp_path):
    logits, labels = uneven(700, 200)
    log_probs = log_softmax(logits)
    rest = np.log(
        np.exp(-np.sort(-log_probs, axis=1)[:, k:]).sum(axis=1)
    )  # 1 − Σp is a rounding error in saturated rows
    top = TopK.from_arrays(*known(logits, k)[:2], rest, 200)
    fitted = rhocal.calibrator(method, **options).fit(top, labels)
    fitted.save(tmp_path / "cal.safetensors")
    for cal in (fitted, rhocal.load(tmp_path / "cal.safetensors")):
        assert cal.n_best_ == k
        np.testing.assert_allclose(cal.scale(log_probs, kind="log_probs"), cal.scale(top), rtol=1e-9)
        np.testing.assert_allclose(cal.scale(TopK.from_arrays(*known(logits, k + 9), 200)), cal.scale(top), rtol=1e-9)
        probs = cal.predict_proba(log_probs, kind="log_probs")
        function, parameters = cal.apply_fn()
        np.testing.assert_allclose(function(parameters, log_probs), probs, atol=1e-9)
        _, low, high = calibrate_top_k(cal, top)
        assert ((low <= probs.max(axis=1) + 1e-9) & (probs.max(axis=1) <= high + 1e-9)).all()
    assert (np.ptp(fitted.scale(top)) > 0.01) == (method != "temperature")
    assert fitted.fit(logits, labels).n_best_ is None


def test_fewer_classes_than_in_the_fit_are_refused_where_they_are_read():
    logits, labels = synthetic(500, 100, scale=2.0)
    ten, five = (TopK.from_arrays(*known(logits, k), 100) for k in (10, 5))
    with pytest.raises(InputError, match="k = 5: the calibrator was fitted on the 10 best"):
        rhocal.FieldScaling(ridge=1.0).fit(ten, labels).predict_proba(five)
    assert np.isfinite(rhocal.TemperatureScaling().fit(ten, labels).predict_proba(five)).all()


def test_the_best_class_alone_is_refused_where_more_are_read():
    logits, labels = synthetic(300, 100, scale=2.0)
    five, one = (TopK.from_arrays(*known(logits, k), 100) for k in (5, 1))
    with pytest.raises(InputError, match="k = 1: the calibrator was fitted on the 5 best"):
        calibrate_top_k(rhocal.calibrator("rho-norm").fit(five, labels), one)
    assert np.isfinite(rhocal.TemperatureScaling().fit(five, labels).predict_proba(one)).all()


@pytest.mark.parametrize("low", [-np.inf, -1e9, -1e30])
def test_masked_classes_are_not_among_the_k_best(low):
    logits, labels = uneven(400, 30)
    logits = logits.astype(np.float64)
    top = TopK.from_arrays(*known(logits, 5), 30)
    rows = logits[:8].copy()
    rows[:4, 3:] = low
    rows[4:, 20:] = low  # more than k are left
    rho_norm = rhocal.calibrator("rho-norm", rho=2.0).fit(top, labels)
    assert rho_norm.gamma_ > 0
    for row, scale in zip(rows, rho_norm.scale(rows, kind="logits"), strict=True):
        best = -np.sort(-row[row > -1e3])[:5]
        expected = 1 / (rho_norm.gamma_ * np.linalg.norm(best - best.mean()) + rho_norm.beta_)
        np.testing.assert_allclose(scale, expected, rtol=1e-9)
    pts = rhocal.calibrator("pts", ridge=1.0, n_hidden=2).fit(top, labels)
    field = rhocal.calibrator("field", ridge=1.0).fit(top, labels)
    for cal in (rho_norm, pts, field):
        probs = cal.predict_proba(rows, kind="logits")
        assert (probs[:4, 3:] < 1e-30).all()
        assert (probs[4:, 20:] < 1e-30).all()
        same = np.where(rows <= -1e3, -1e6, rows)
        np.testing.assert_allclose(probs, cal.predict_proba(same, kind="logits"), atol=1e-12)
        scaled = rows[:4, :3] * cal.scale(rows, kind="logits")[:4, None]
        np.testing.assert_allclose(probs[:4, :3], np.exp(log_softmax(scaled)), atol=1e-12)
        on_device = replace(exported_map(cal), kind="logits")
        module = CalibratorModule(on_device, output="probs")
        np.testing.assert_allclose(module(torch.as_tensor(rows)).numpy(), probs, atol=1e-6)
        model = standalone(on_device, GraphSpec("probs"), names=("logits", "calibrated_probs"), about={})
        session = onnxruntime.InferenceSession(model.SerializeToString())
        (exported,) = session.run(["calibrated_probs"], {"logits": rows.astype(np.float32)})
        np.testing.assert_allclose(exported, probs, atol=1e-5)


def test_norms_of_all_logits_are_estimated_with_a_warning():
    logits, labels = synthetic(500, 100, scale=2.0)
    top = TopK.from_arrays(*known(logits, 10), 100)
    with pytest.warns(SuspiciousInputWarning, match="reads the norm or mean of all logits"):
        rhocal.RhoNormScaling(rho=2.0).fit(logits, labels).predict_proba(top)


def test_bounds_hold_for_the_true_rest():
    logits, labels = synthetic(300, 80, scale=1.5)
    for k in (1, 5, 40):
        top = TopK.from_arrays(*known(logits, k), 80)
        for temperature in (0.6, 1.0, 2.5):
            cal = rhocal.TemperatureScaling().fit(logits, labels)
            cal.temperature_ = temperature
            probs, low, high = calibrate_top_k(cal, top)
            truth = cal.predict_proba(logits).max(axis=1)
            assert (low <= truth + 1e-9).all()
            assert (truth <= high + 1e-9).all()
            assert (low <= probs[:, 0] + 1e-9).all()
            assert (probs[:, 0] <= high + 1e-9).all()
            if temperature == 1.0:
                np.testing.assert_allclose(low, high, rtol=1e-9)


TAILS = {
    "saturated": lambda rng, rank: np.where(rank == 1, 60.0, rng.normal(size=(40, len(rank)))),
    "cliff": lambda rng, rank: np.where(rank <= rng.integers(2, 200, (40, 1)), 3.0, -40.0) + 0.0 * rank,
    "zipf": lambda rng, rank: -rng.uniform(0.8, 3, (40, 1)) * np.log(rank),
    "two bumps": lambda rng, rank: np.where(
        rank <= rng.integers(5, 20, (40, 1)), 8 - rank / 4, np.where((rank > 100) & (rank <= 600), 4.0, -3.0)
    ),
    "flat": lambda rng, rank: np.where(rank <= rng.integers(1, 60, (40, 1)), rng.normal(6, 2, (40, len(rank))), 0.0),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("tail", TAILS)
def test_bounds_hold_where_the_rest_is_what_the_k_best_leave(tail, dtype):
    """Of saturated rows 1 − Σp is a rounding error: at T = 4 the true confidence was .002 below the lower bound."""
    rank = np.arange(1, 3001)
    log_p = log_softmax(np.atleast_2d(TAILS[tail](np.random.default_rng(0), rank)))
    fit_on = TopK.from_arrays(np.log(np.tile([0.5, 0.3], (60, 1))), np.tile([0, 1], (60, 1)), None, len(rank))
    cal = rhocal.TemperatureScaling().fit(fit_on, np.arange(60) % 2)
    for k in (1, 5, 20):
        values, indices, _ = known(log_p, k)
        top = TopK.from_arrays(values.astype(dtype), indices, None, len(rank))
        for cal.temperature_ in (0.5, 1.0, 2.0, 4.0):
            probs, low, high = calibrate_top_k(cal, top.take(np.arange(top.n_samples)))
            truth = np.exp(log_softmax(log_p / cal.temperature_)).max(axis=1)
            near = 1e-9 if dtype == np.float64 else 2e-6  # the k best themselves are rounded
            assert ((low <= truth + near) & (truth <= high + near)).all()
            assert ((low <= probs[:, 0] + 1e-9) & (probs[:, 0] <= high + 1e-9)).all()


def test_many_known_classes_give_nearly_the_whole_fit():
    logits, labels = synthetic(800, 100, scale=2.5)
    whole = rhocal.TemperatureScaling().fit(logits, labels).temperature_
    profiles = [profile_top_k(TopK.from_arrays(*known(logits, k), 100), labels) for k in (2, 20, 80)]
    away = [abs(rhocal.TemperatureScaling().fit_profile(profile).temperature_ - whole) for profile in profiles]
    assert away[0] > away[1] > away[2]
    assert away[2] < 0.01 * whole


def test_a_rest_below_the_smallest_probability_is_read_as_it_is():
    """It was raised to 1e-30, and bounds at a high temperature did not hold what all logits give."""
    logits = np.r_[0.0, -16.0, -np.arange(30.0, 72, 3)[:13], -71.0, -71.0, -79.0, -80.0, -85.0][None]
    log_p = log_softmax(logits)
    for k in range(1, 20):
        rest = np.logaddexp.reduce(log_p[:, k:], axis=1)
        top = TopK.from_arrays(log_p[:, :k], np.arange(k)[None], rest, 20)
        np.testing.assert_allclose(top.rest, rest, rtol=1e-12)
        cal = rhocal.TemperatureScaling().fit(*synthetic(400, 20))
        cal.temperature_ = 8.0
        _, low, high = calibrate_top_k(cal, top)
        expected = cal.predict_proba(logits)[:, 0]
        assert low <= expected + 1e-12
        assert expected <= high + 1e-12
    deep = TopK.from_arrays([[0.0, -5.0]], [[0, 1]], [-1e308], 20)  # its products do not overflow
    with np.errstate(all="raise", under="ignore"):
        probs, low, high = calibrate_top_k(cal, deep)
    assert low <= probs[:, 0] <= high


def test_bounds_by_hand():
    low, high = rest_bounds(np.log([0.1]), np.log([0.25]), 100, np.array([2.0]))
    assert low == pytest.approx(100 * 0.0025**2)
    assert high == pytest.approx(2 * 0.1**2 + 0.05**2)


def test_impossible_input_is_an_error():
    values, indices, rest = known(synthetic(5, 20)[0], 4)
    for bad, message in [
        ((values[0], indices, rest, 20), "shape"),
        ((values, indices, rest, 4), "k = 4"),
        ((values, indices + 18, rest, 20), "column numbers"),
        ((values + 1, indices, rest, 20), "sums to"),
        ((np.full((1, 2), np.log(0.001)), indices[:1, :2], np.log([0.998]), 20), "more than its classes"),
    ]:
        with pytest.raises(InputError, match=message):
            TopK.from_arrays(*bad)
    with pytest.raises(InputError, match="labels"):
        profile_top_k(TopK.from_arrays(values, indices, rest, 20), np.full(5, 30))


def test_every_verb_takes_the_k_best():
    logits, labels = synthetic(600, 120, scale=2.0)
    values, indices, rest = known(logits, 30)
    top = TopK.from_arrays(values, indices, rest, 120)
    assert np.allclose(TopK.from_arrays(values, indices, None, 120).rest, rest, atol=1e-6)  # what the k best leave of 1
    assert np.allclose(TopK.from_arrays(np.exp(values), indices, n_classes=120, kind="probs").rest, rest, atol=1e-6)
    cal = rhocal.TemperatureScaling().fit(top, labels)
    assert cal.temperature_ == pytest.approx(rhocal.TemperatureScaling().fit(logits, labels).temperature_, rel=0.04)
    whole = cal.predict_proba(log_softmax(logits), kind="log_probs")
    np.testing.assert_allclose(cal.predict_proba(top), np.take_along_axis(whole, indices, axis=1), atol=0.02)
    np.testing.assert_array_equal(cal.predict(top), logits.argmax(axis=1))
    np.testing.assert_allclose(cal.scale(top), 1 / cal.temperature_)
    calibrated = cal.transform(top)
    np.testing.assert_allclose(np.exp(calibrated.log_probs), cal.predict_proba(top))
    # Of a label in the rest the expected log-probability counts, which is too large while scores are over-confident.
    for data, probs, nll_atol in ((top, np.exp(log_softmax(logits)), 0.15), (calibrated, whole, 0.03)):
        mine, full = rhocal.evaluate(data, labels, n_replicates=50), rhocal.evaluate(probs, labels, n_replicates=50)
        for name, atol in (("accuracy", 1e-12), ("ece", 0.01), ("nll", nll_atol), ("brier", 0.01)):
            assert mine[name].value == pytest.approx(full[name].value, abs=atol)
        assert mine["ece"].floor == pytest.approx(full["ece"].floor, abs=0.005)
        assert rhocal.metrics.ece(data, labels) == mine["ece"].value
    with pytest.raises(InputError, match="needs the probability of every class"):
        rhocal.evaluate(top, labels, metrics=["classwise_ece"])
    with pytest.raises(InputError, match="the k best are enough for methods that multiply"):
        rhocal.calibrator("vector").fit(top, labels)
    with pytest.raises(InputError, match="130 classes"):
        cal.predict_proba(TopK.from_arrays(values, indices, rest, 130))


def test_tokens_without_a_target_are_left_out():
    logits, labels = synthetic(400, 50)
    top = TopK.from_arrays(*known(logits, 8), 50)
    kept = np.arange(400) % 3 > 0
    ignoring = rhocal.TemperatureScaling().fit(top, np.where(kept, labels, -100), ignore_index=-100)
    assert (
        ignoring.temperature_
        == rhocal.TemperatureScaling().fit(top.take(np.flatnonzero(kept)), labels[kept]).temperature_
    )
    with pytest.raises(InputError, match="every one of the 400 labels is ignore_index"):
        rhocal.TemperatureScaling().fit(top, np.full(400, -100), ignore_index=-100)


def test_a_power_law_is_recovered():
    ranks = np.arange(1, 5001)
    for power in (0.0, 0.7, 1.5):
        log_p = -power * np.log(ranks)
        log_p -= np.log(np.exp(log_p).sum())
        top = TopK.from_arrays(log_p[None, :20], np.arange(20)[None], None, 5000)
        values, counts = top.tail
        for scale in (0.6, 1.0, 1.8):
            assert (counts * np.exp(scale * values)).sum() == pytest.approx(np.exp(scale * log_p[20:]).sum(), rel=0.02)


@pytest.mark.parametrize(
    ("values", "indices", "rest", "message"),
    [
        ([[-0.7, -0.7]], [[1, 1]], None, "name a class more than once"),
        ([[-0.7, np.nan]], [[0, 1]], None, "must be finite"),
        ([[-0.1, -0.1]], [[0, 1]], None, "row 0 sums to 1.8"),
        ([[-0.7, -0.8]], [[0, 1]], [-1.0, -1.0], r"rest_log_mass has shape \(n_samples,\)"),
    ],
)
def test_what_the_k_best_cannot_be(values, indices, rest, message):
    with pytest.raises(InputError, match=message):
        TopK.from_arrays(values, indices, rest, 10)


def test_probabilities_that_were_rounded_are_accepted():
    top = TopK.from_arrays([[0.6, 0.4001]], [[3, 1]], None, 10, kind="probs")  # 1.0001
    assert rhocal.evaluate(top, [3])["accuracy"].value == 1
    assert (top.rest < -60).all()


@pytest.mark.parametrize("rest", [None, np.full(50, -np.inf)])
def test_saturated_scores_leave_nothing(rest):
    values, indices = np.tile([0.0, -800.0, -900.0], (50, 1)), np.tile([3, 1, 2], (50, 1))
    top = TopK.from_arrays(values, indices, rest, 50)
    labels = np.r_[np.full(45, 3), np.full(5, 9)]
    cal = rhocal.TemperatureScaling().fit(top, labels)
    assert cal.predict_proba(top)[0, 0] == pytest.approx(0.9, abs=0.03)


def test_scores_of_answers():
    log_probs, answers = [-0.1, -2.0, -0.3, -0.5], ["b", "a", "b", "b"]
    for how, expected in (("sum", [-0.9, -2.0]), ("mean", [-0.3, -2.0]), ("min", [-0.5, -2.0])):
        scores, names = rhocal.aggregate_tokens(log_probs, answers, how)
        np.testing.assert_allclose(scores, expected)
        assert names.tolist() == ["b", "a"]
    scores, _ = rhocal.aggregate_tokens(log_probs, answers, "sum", labels=[5, 7, -100, 2], ignore_index=-100)
    np.testing.assert_allclose(scores, [-0.6, -2.0])
    for bad in ({"how": "max"}, {"log_probs": [0.5, 0, 0, 0]}, {"answers": ["a"]}, {"labels": [1] * 4}):
        with pytest.raises(InputError):
            rhocal.aggregate_tokens(**({"log_probs": log_probs, "answers": answers} | bad))


def test_commands_on_the_k_best(tmp_path):
    logits, labels = synthetic(500, 60, scale=2.0)
    values, indices, _ = known(logits, 10)
    path, target = tmp_path / "top.npz", tmp_path / "cal.safetensors"
    np.savez(
        path,
        top_log_probs=values,
        top_indices=indices,
        n_classes=60,
        labels=np.where(np.arange(500) < 20, -100, labels),
    )
    document = json.loads(run("fit", path, "-o", target, "--ignore-index", -100, "--json").stdout)
    assert document["method"] == "temperature"
    done = run("evaluate", path, "-c", target, "--ignore-index", -100, "--json")
    assert "the 10 best of 60 classes" in done.stderr
    found = json.loads(done.stdout)["evaluation"]
    nll = [found[name]["values"]["nll"]["value"] for name in found]
    assert nll[1] < nll[0]
    run("apply", target, path, "-o", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as written:
        np.testing.assert_allclose(written["top_probs"].sum(axis=1) + np.exp(written["rest_log_mass"]), 1)
        np.testing.assert_array_equal(written["predicted"], logits.argmax(axis=1))
        truth = rhocal.load(target).predict_proba(log_softmax(logits), kind="log_probs").max(axis=1)
        assert (written["confidence_low"] <= np.minimum(truth, written["confidence"]) + 1e-9).all()
        assert (written["confidence_high"] >= np.maximum(truth, written["confidence"]) - 1e-9).all()
    again = json.loads(run("evaluate", tmp_path / "out.npz", "--ignore-index", -100, "--json").stdout)["evaluation"]
    assert again["uncalibrated"]["values"]["nll"]["value"] == pytest.approx(nll[1], rel=0.01)
    np.savez(path, top_log_probs=values, top_indices=indices, labels=labels)
    assert "has top_log_probs without n_classes" in run("fit", path, "-o", target, code=2).stderr


@pytest.mark.filterwarnings("ignore:rho-norm reads the norm or mean of all logits")
@pytest.mark.parametrize("k", [1, 2, 13])
def test_equal_probabilities_stay_equal(k):
    """ρ-Norm Scaling gives equal logits a huge scale, which must not multiply rounding errors."""
    calibrator = rhocal.RhoNormScaling().fit(*synthetic(400, 20, seed=1))
    data = TopK.from_arrays(np.full((1, k), np.log(1 / 20)), [np.arange(k)], [np.log(1 - k / 20)], n_classes=20)
    probs, low, high = calibrate_top_k(calibrator, data)
    np.testing.assert_allclose(probs, 1 / 20, atol=1e-12)
    assert low[0] - 1e-12 <= 1 / 20 <= high[0] + 1e-12
    np.testing.assert_allclose(calibrator.predict_proba(data), 1 / 20, atol=1e-12)
