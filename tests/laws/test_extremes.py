"""Degenerate rows, extreme sizes and extreme weights: finite probabilities or an error of ours, never a warning of NumPy."""

import warnings

import numpy as np
import pytest
import torch

import rhocal
from helpers import fit_map
from rhocal.calibrators import CALIBRATORS
from rhocal.data.scores import finite_masks
from rhocal.errors import InputError, RhocalError, RhocalWarning
from rhocal.torch.device import TensorScores, on_device

QUICK = {
    "rho-norm-paper": {"n_steps": 20},
    "auto": {"methods": ("temperature", "svs", "field"), "n_folds": 2},
    "cascade": {"min_samples": 100},
}
RNG = np.random.default_rng(0)
NORMAL = RNG.normal(size=(120, 3))
CHANCE = RNG.integers(0, 3, 120)

LOGITS = {
    "zeros": np.zeros((120, 3)),
    "constant": np.full((120, 3), 5.1, np.float32),
    "equal rows": np.repeat(NORMAL[:, :1], 3, axis=1),
    "ties": np.round(NORMAL),
    "ties with an equal row": np.vstack([np.zeros((1, 3)), np.round(NORMAL[1:])]),
    "shift of 1e8": (NORMAL + 1e8).astype(np.float32),
    "ends of float32": np.where(NORMAL > 0, 3e38, -3e38).astype(np.float32),
    "1e30": 1e30 * NORMAL,
}
WEIGHTS = {
    "uneven": np.exp(8 * NORMAL[:, 0]),
    "very uneven": np.exp(50 * NORMAL[:, 0]),
    "negligible": np.where(np.arange(120) % 2, 1e-30, 1.0),
    "1e-30": np.full(120, 1e-30),
}


READS_PROBABILITIES = {
    name for name, method in CALIBRATORS.items() if method.family.__module__.startswith("rhocal.calibrators.binary")
}


def outputs(name, logits, labels, weights=None):
    groups = {"groups": np.arange(len(labels)) % 2} if name == "multi-domain" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        warnings.simplefilter("error", RuntimeWarning)
        cal = rhocal.calibrator(name, **QUICK.get(name, {})).fit(logits, labels, weights, **groups)
        return cal, cal.predict_proba(logits, **groups), cal.predict(logits, **groups), cal.transform(logits, **groups)


def check(name, logits, labels, weights=None):
    cal, probs, predicted, calibrated = outputs(name, logits, labels, weights)
    assert np.isfinite(probs).all()
    assert np.isfinite(calibrated).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(probs.argmax(axis=1), predicted)
    if cal.map_.keeps_decision:
        np.testing.assert_array_equal(predicted, logits.argmax(axis=1))


@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.parametrize("logits", LOGITS)
def test_logits(name, logits):
    check(name, LOGITS[logits], CHANCE)


@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_weights(name, weights):
    labels = np.where(np.arange(120) < 40, CHANCE, NORMAL.argmax(axis=1))
    check(name, 2 * NORMAL, labels, WEIGHTS[weights])


@pytest.mark.parametrize("name", ["cascade-scale", "field", "rho-norm"])
def test_equal_logits_whose_mean_is_rounded_up(name):
    logits = np.full((120, 17), 1e30)
    check(name, logits, RNG.integers(0, 17, 120), WEIGHTS["negligible"])


@pytest.mark.parametrize("seed", range(20))
def test_rho_norm_at_chance_with_ties(seed):
    rng = np.random.default_rng(seed)
    logits = rng.integers(0, 2, size=(60, 3)) * 1.0
    logits[0] = 1
    check("rho-norm", logits, rng.integers(0, 3, 60))


@pytest.mark.parametrize(
    ("logits", "weights"),
    [
        (1e300 * NORMAL, None),
        (1e-21 * NORMAL, None),
        (1e-200 * NORMAL, None),
        ((1e-44 * NORMAL).astype(np.float32), None),
        (np.where(np.arange(3) == CHANCE[:, None], 1e-21 * NORMAL, -np.inf), None),
        (NORMAL, 1e300),
        (NORMAL, 1e-300),
    ],
)
def test_what_no_fit_can_use_is_refused(logits, weights):
    with pytest.raises(InputError, match=r"constant|multiply all"):
        rhocal.calibrator("rho-norm").fit(logits, CHANCE, None if weights is None else np.full(120, weights))


@pytest.mark.parametrize("name", ["temperature", "rho-norm", "field", "svs", "vector", "isotonic"])
def test_logits_of_any_size_are_calibrated_or_refused(name):
    labels = np.where(np.arange(120) < 40, CHANCE, NORMAL.argmax(axis=1))
    cal, *_ = outputs(name, NORMAL, labels)
    for size in (0.0, 1e-310, 1e-30, 1e30, 1e100, 1e300):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                probs = cal.predict_proba(size * NORMAL)
            except RhocalError:
                continue
            assert np.isfinite(probs).all()
            np.testing.assert_array_equal(probs.argmax(axis=1), cal.predict(size * NORMAL))


@pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")
@pytest.mark.parametrize("name", ["temperature", "rho-norm", "vector", "matrix", "ets"])
def test_rows_of_the_lowest_number_alone(name):
    """It stands for −∞ beside larger logits; alone it is a logit like any other, and its double overflowed."""
    largest = float(np.finfo(np.float32).max)
    logits = np.where(np.arange(12)[:, None] >> np.arange(3) & 1, largest, -largest).astype(np.float32)
    labels = np.array([0, 2, 2, 0, 0, 0, 1, 0, 1, 2, 0, 0])
    with np.errstate(all="raise", under="ignore"):
        probs = rhocal.calibrator(name).fit(logits, labels, np.eye(12)[8]).predict_proba(logits)
    assert np.isfinite(probs).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-6)


@pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")
@pytest.mark.parametrize("name", ["temperature", "rho-norm", "vector", "isotonic"])
def test_the_lowest_number_of_single_precision_is_a_mask_beside_infinite_ones(name):
    """−∞ in another row made it a class: logits of 1e38 leave no room for masks and are widened."""
    labels = np.where(np.arange(120) < 40, CHANCE, NORMAL.argmax(axis=1))
    cal = rhocal.calibrator(name).fit((5e37 * NORMAL).astype(np.float32), labels)
    low = float(np.finfo(np.float32).min)
    rows = np.array([[1e38, low, 5e37], [2e38, 1e38, -np.inf], [low, low, low], [low, -np.inf, low]], np.float32)
    alone = np.vstack([cal.predict_proba(row[None]) for row in rows])
    there = on_device(cal, torch.from_numpy(rows), "probs", "logits", -1)
    for probs in (cal.predict_proba(rows), there.numpy()):
        np.testing.assert_allclose(probs, alone, atol=1e-6)
    held = TensorScores(torch.from_numpy(rows)).finite_masks().table
    np.testing.assert_array_equal(held.numpy(), finite_masks(rows))
    assert alone[0, 1] == alone[1, 2] == alone[3, 1] == 0
    apply, parameters = cal.apply_fn()
    for kind in (np.float32, np.float64):  # the same number in double precision, which others made of single
        np.testing.assert_allclose(apply(parameters, rows.astype(kind)), alone, atol=1e-6)
        np.testing.assert_allclose(cal.predict_proba(rows.astype(kind)), alone, atol=1e-6)
    np.testing.assert_array_equal(cal.predict_proba([[1e38, 1.001 * low, 5e37]])[0] > 0, True)  # a logit as any other


@pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")
@pytest.mark.parametrize("name", ["temperature", "rho-norm", "field", "svs", "cascade"])
@pytest.mark.parametrize("size", [0.0, 5e-324, 1e-150])
def test_a_sample_with_weight_that_tells_nothing_beside_huge_ones_without(name, size):
    """The unit of scales was that of the one sample with weight: products with the others overflowed."""
    logits = size * np.array([[-4.0, 2.0, 0.0], *[[0.0, 1.0, -2.0]] * 7, *[[2.0, 0.0, 1.0]] * 4])
    logits[1:8, 2] = -3e38
    labels, weights = np.where(logits[:, 2] < -1, 2, 0), np.eye(12)[0]  # a class that occurred is not masked
    with np.errstate(all="raise", under="ignore"):
        probs = rhocal.calibrator(name).fit(logits, labels, weights).predict_proba(logits)
    assert np.isfinite(probs).all()


@pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")
@pytest.mark.parametrize("name", CALIBRATORS)
def test_rows_that_are_far_below_what_a_fit_takes_are_refused(name):
    """Only rows above 1e60 were refused: products of weights of 1e36 with -1e300 overflowed."""
    labels = np.where(np.arange(120) < 40, CHANCE, NORMAL.argmax(axis=1))
    size = 1e-6 if name in {*READS_PROBABILITIES, "dirichlet"} else 1e-18
    cal, *_ = outputs(name, size * NORMAL, labels)
    groups = {"groups": np.arange(4)} if name == "multi-domain" else {}
    below = NORMAL[:4] - np.array([[0.0], [1e300], [0.0], [0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for logits in (below, np.where(np.arange(3) == 1, -np.inf, below)):
            for apply in (cal.predict_proba, cal.transform):
                with pytest.raises(InputError, match=r"at least -1e\+60; that of one is -1e\+300\. Divide"):
                    apply(logits, **groups)
        masked = np.where(np.arange(3) == NORMAL[:4].argmin(axis=1)[:, None], -1e300, size * NORMAL[:4])
        assert np.isfinite(cal.predict_proba(masked, **groups)).all()  # a row of masks and others is none of these


NOT_EQUIVARIANT = READS_PROBABILITIES | {"identity", "rho-norm-paper", "ets", "dirichlet"}
"""Maps that depend on the uncalibrated probabilities by definition: other logits have others."""


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name not in NOT_EQUIVARIANT])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("power", [-66, 100])
def test_a_factor_of_all_logits_changes_no_probability(name, dtype, power):
    """rho-norm gave uniform rows at 1e-30; fits on float32 logits of 1e-20 were off by .1, because squares vanish."""
    rng = np.random.default_rng(0)
    truth = 1.5 * rng.normal(size=(450, 4))
    probs = np.exp(truth) / np.exp(truth).sum(axis=1, keepdims=True)
    labels = (probs.cumsum(axis=1) > rng.random((450, 1))).argmax(axis=1)[:400]
    logits = (2 * truth * np.exp(0.4 * rng.normal(size=(450, 1)))).astype(dtype)
    groups, later = ({"groups": np.arange(n) % 2} if name == "multi-domain" else {} for n in (400, 50))
    options = {"n_folds": 2, "methods": ("temperature", "svs", "field")} if name == "auto" else {}
    results = []
    for factor in (1.0, 2.0**power):
        scaled = (logits * dtype(factor)).astype(dtype)
        cal = fit_map(rhocal.calibrator(name, **options), scaled[:400], labels, **groups)
        results.append(cal.predict_proba(scaled[400:], **later))
    np.testing.assert_allclose(results[1], results[0], atol=1e-6)


@pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")
@pytest.mark.parametrize("name", [*sorted(READS_PROBABILITIES), "dirichlet", "isotonic:field"])
@pytest.mark.parametrize(("size", "dtype"), [(1e-9, "f8"), (1e-13, "f4"), (1e-15, "f8"), (1e-18, "f8")])
def test_probabilities_that_do_not_hold_the_logits_are_refused(name, size, dtype):
    """Weights of 1e15 magnified rounding, steps were decided by it, and from equal probabilities nothing was learned."""
    labels = np.where(np.arange(120) < 40, CHANCE, NORMAL.argmax(axis=1))
    logits = (size * NORMAL).astype(dtype)
    logits[1, NORMAL[1].argmin()] = -np.inf
    labels[1] = NORMAL[1].argmax()
    remedy = r"probabilities, .* must by 1e-07 at least\. Multiply the logits by a constant, or use temperature"
    with pytest.raises(InputError, match=remedy):
        rhocal.calibrator(name).fit(logits, labels)
    mixed, weights = np.vstack([logits, NORMAL[:1]]), np.append(np.ones(120), 0.0)
    with pytest.raises(InputError, match=remedy):  # a row without weight tells nothing
        rhocal.calibrator(name).fit(mixed.astype(dtype), np.append(labels, 0), weights)
    auto = fit_map(rhocal.AutoCalibrator(["temperature", name], n_folds=2), logits, labels)
    assert isinstance(auto.chosen_, rhocal.TemperatureScaling)
    assert any("reads probabilities" in trial.get("skipped", "") for trial in auto.solution_.trials)


def test_probabilities_that_are_equal_but_for_rounding_are_refused():
    probs = np.full((200, 2), [sum([0.05] * 10), 0.5])
    assert probs[0, 0] != 0.5
    with pytest.raises(InputError, match=r"equal but for rounding.* make them exactly equal"):
        rhocal.calibrator("isotonic").fit(probs, CHANCE[:1].repeat(200) % 2, kind="probs")


@pytest.mark.parametrize("name", ["platt", "quadratic"])
def test_the_log_odds_of_two_classes_are_held_at_any_size(name):
    labels = np.where(np.arange(120) < 40, CHANCE % 2, NORMAL[:, :2].argmax(axis=1))
    want = fit_map(rhocal.calibrator(name), 1e-4 * NORMAL[:, :2], labels).predict_proba(1e-4 * NORMAL[:, :2])
    got = fit_map(rhocal.calibrator(name), 1e-18 * NORMAL[:, :2], labels).predict_proba(1e-18 * NORMAL[:, :2])
    np.testing.assert_allclose(got, want, atol=1e-3)
    assert np.ptp(got[:, 1]) > 0.5


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("name", ["temperature", "rho-norm", "vector"])
def test_one_block_of_a_stream_may_be_small(name):
    labels = np.where(np.arange(120) < 40, CHANCE, NORMAL.argmax(axis=1))
    logits = NORMAL * np.where(np.arange(120) < 80, 2.0, 1e-25)[:, None]
    blocks = [(logits[k : k + 40], labels[k : k + 40]) for k in (0, 40, 80)]
    streamed = fit_map(rhocal.calibrator(name), rhocal.stream(blocks))
    whole = fit_map(rhocal.calibrator(name), logits, labels)
    np.testing.assert_allclose(streamed.predict_proba(logits), whole.predict_proba(logits), atol=1e-6)


@pytest.mark.parametrize("name", ["pts", "field", "rho-norm", "ets", "temperature"])
def test_single_precision_rows_far_from_zero_are_those_in_double_precision(name):
    """Their mean is taken from a sum whose rounding is as large as the logits themselves."""
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 3, (1000, 10))
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    cal = fit_map(rhocal.calibrator(name), logits, labels)
    for offset in (300, 1e4, 1e6):
        rows = (logits + offset).astype(np.float32)
        expected = cal.predict_proba(rows.astype(np.float64))
        np.testing.assert_allclose(cal.predict_proba(rows), expected, atol=1e-6)
        np.testing.assert_allclose(cal.predict_proba(rows[:1]), expected[:1], atol=1e-6)
