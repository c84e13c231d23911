"""Fits are compared with no calibration and with one temperature; guarded methods fall back, others warn."""

import warnings
from functools import cache

import numpy as np
import pytest

import rhocal
from helpers import fit_map, quick, synthetic
from rhocal import metrics
from rhocal.calibrators import CALIBRATORS
from rhocal.calibrators.folds import Folds
from rhocal.calibrators.guard import is_doubtful
from rhocal.calibrators.validated_fit import fit_validated
from rhocal.data.predictions import Predictions
from rhocal.errors import GuardWarning
from rhocal.optimize import HeldOutScores
from rhocal.profile.profile import Profile

pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")


IN_SAMPLE = {"rho-norm", "rho-norm-paper", "temperature-avuc"}
"""Named in the README and the FAQ as compared with temperature scaling alone, on the samples of the fit."""


@pytest.mark.parametrize("name", CALIBRATORS)
def test_which_fits_are_compared_on_held_out_samples(name):
    logits, labels = synthetic(400, 3)
    groups = {"groups": np.arange(400) % 2} if name == "multi-domain" else {}
    scores = quick(name).fit(logits, labels, **groups).solution_.held_out
    if name in {"identity", "temperature"}:
        assert scores is None
    else:
        assert scores.in_sample == (name in IN_SAMPLE)
        references = set(scores.nll) - {scores.method}
        assert references == ({"temperature"} if name in IN_SAMPLE else {"identity", "temperature"})


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def drawn(rng, truth):
    return (softmax(truth).cumsum(axis=1) > rng.random((len(truth), 1))).argmax(axis=1)


def tied(rng, n, n_rows, m):
    """A few different rows, over-confident."""
    truth = rng.normal(size=(n_rows, m))[rng.integers(n_rows, size=n)] * 2
    return 2.5 * truth, drawn(rng, truth)


def saturated(rng, n, m):
    """Probabilities of 0 and 1, as naive Bayes has them; three in ten of these are wrong."""
    truth = rng.normal(size=(n, m)) * 2
    return np.log(np.maximum(softmax(30 * truth).astype(np.float32), 1e-38)), drawn(rng, truth)


def rare(rng, n):
    """One positive in a hundred, scores twice too large."""
    score = rng.normal(size=n) * 1.5 - 5
    return np.stack([np.zeros(n), 2 * score + 1], axis=1), (rng.random(n) < 1 / (1 + np.exp(-score))).astype(int)


def missing(rng, n):
    """A class that never occurs in the calibration half, and hardly ever in the other."""
    truth = rng.normal(size=(n, 5)) * 2
    truth[:, 3] = -12
    return 2 * truth, drawn(rng, truth)


def few(rng, n, m):
    """Many classes."""
    truth = rng.normal(size=(n, m)) * 2
    return 2 * truth, drawn(rng, truth)


CASES = {
    "2 rows": (2500, lambda rng, n: tied(rng, n, 2, 2)),
    "20 rows": (2500, lambda rng, n: tied(rng, n, 20, 5)),
    "saturated": (2000, lambda rng, n: saturated(rng, n, 2)),
    "saturated, 10 classes": (2000, lambda rng, n: saturated(rng, n, 10)),
    "1 % positives": (4000, rare),
    "a class is missing": (2000, missing),
    "10 samples a class": (300, lambda rng, n: few(rng, n, (n - N_OTHERS) // 10)),
}
"""Samples to calibrate on, and what draws them together with others."""

N_OTHERS = 10_000
"""Samples to measure on: so many that chance moves a ratio of two methods by about a percent."""

SLOW = {name: {} for name in ("auto", "average", "cross-fitted", "dirichlet", "iop", "matrix", "pts", "smart")}
SLOW["rho-norm-paper"] = {"n_steps": 200}
"""Thousands of steps, or fits by the dozen: a fifth of the samples, and options that make them quicker."""


@cache
def samples(case, n):
    """Samples to calibrate on, then others."""
    return CASES[case][1](np.random.default_rng(7), n + N_OTHERS)


def nll_on_others(calibrator, case, n):
    logits, labels = samples(case, n)
    calibrator.fit(logits[:n], labels[:n], classes=np.arange(logits.shape[1]))
    return metrics.nll(calibrator.predict_proba(logits[n:]), labels[n:])


@cache
def reference_nll(case, n):
    return min(nll_on_others(rhocal.calibrator(method), case, n) for method in ("identity", "temperature"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", [name for name in rhocal.CALIBRATORS if name != "identity"])
def test_no_method_collapses_in_silence(name, case):
    """NLL on other samples at most 1.05 times the better of identity and temperature scaling; else a warning says so."""
    n = CASES[case][0]
    n = max(n // 5, 120) if name in SLOW else n
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nll = nll_on_others(rhocal.calibrator(name, **SLOW.get(name, {})), case, n)
    warned = any(isinstance(one.message, GuardWarning | rhocal.errors.FewSamplesWarning) for one in caught)
    assert nll <= 1.05 * reference_nll(case, n) or warned


@pytest.mark.parametrize("name", ["vector", "isotonic", "field"])
def test_the_comparison_changes_no_map_of_a_method_without_a_guard(name):
    """Many tests rest on it: they fit without it (``fit_map``)."""
    logits, labels = synthetic(300, 4)
    compared, alone = rhocal.calibrator(name).fit(logits, labels), fit_map(rhocal.calibrator(name), logits, labels)
    np.testing.assert_array_equal(compared.predict_proba(logits), alone.predict_proba(logits))
    assert compared.solution_.held_out is not None
    assert (alone.solution_.held_out is not None) == compared.is_guarded


def test_samples_of_tied_scores_are_spread():
    """A tree has few different scores, each with both outcomes: folds have their part of every outcome, few as they are."""
    score = np.repeat([0.0, 0.05, 1.0], [300, 700, 12])
    labels = np.concatenate([np.arange(300) < 5, np.arange(700) < 50, np.arange(12) < 6]).astype(int)
    logits = np.log(np.stack([1 - score, score], axis=1).clip(1e-4, 1))
    profile = Profile.from_predictions(Predictions.from_arrays(logits, labels))
    for by_label in (True, False):
        folds = Folds.from_profile(profile, 5, by_label=by_label)
        for value, label in ((0.0, 1), (1.0, 0), (1.0, 1)):
            counts = np.bincount(folds.codes[(score == value) & (labels == label)], minlength=5)
            assert counts.max() <= 2
    assert rhocal.calibrator("auto").fit(logits, labels).solution_.held_out.fell_back_to == ""


def test_copies_share_a_fold():
    """Where no other outcome has the same scores, equal samples are copies of one: repeating a sample is giving it weight."""
    logits, labels = synthetic(200, 4)
    copied, of = np.repeat(logits, 3, axis=0), np.repeat(np.arange(200), 3)
    codes = Folds.from_profile(Profile.from_predictions(Predictions.from_arrays(copied, labels[of])), 5).codes
    assert all(len(set(codes[of == row])) == 1 for row in range(200))


def test_folds_of_tied_samples_are_alike():
    """In size and class shares, and of a row that many samples share each fold has its part, to one sample."""
    logits, labels = saturated(np.random.default_rng(0), 5000, 3)
    logits = np.round(logits / 40) * 40
    folds = Folds.from_profile(Profile.from_predictions(Predictions.from_arrays(logits, labels)), 5)
    sizes = np.bincount(folds.codes)
    assert sizes.max() <= 1.1 * sizes.min()
    for k in range(3):
        counts = np.bincount(folds.codes[labels == k])
        assert counts.max() <= 1.15 * counts.min()
    _, row = np.unique(logits, axis=0, return_inverse=True)
    largest = np.bincount(row.ravel()).argmax()
    for k in range(3):
        counts = np.bincount(folds.codes[(row.ravel() == largest) & (labels == k)], minlength=5)
        assert counts.max() - counts.min() <= 1


def tied_profile(order=None):
    """Four different rows, one label in ten differs."""
    rng = np.random.default_rng(0)
    row = rng.integers(4, size=1000)
    logits, labels = np.array([[0.0, 1.0], [0, 2], [0, 3], [0, 4]])[row], (rng.random(1000) < 0.9).astype(int)
    order = np.arange(1000) if order is None else order
    return Profile.from_predictions(Predictions.from_arrays(logits[order], labels[order])), row[order], labels[order]


def test_folds_by_confidence_do_not_share_out_the_labels_of_a_tie():
    """Each fold has its part of a row, but the share of a class in it is left to chance, as on other samples."""
    profile, row, labels = tied_profile()
    codes = Folds.from_profile(profile, 5, by_label=False, shuffle_ties=True).codes
    sizes = np.array([np.bincount(codes[row == k], minlength=5) for k in range(4)])
    assert np.ptp(sizes, axis=1).max() <= 1
    counts = np.array([np.bincount(codes[(row == k) & (labels == 0)], minlength=5) for k in range(4)])
    assert np.ptp(counts, axis=1).max() > 2


def test_folds_by_confidence_do_not_depend_on_the_order_of_samples():
    order = np.random.default_rng(1).permutation(1000)
    (first, row, labels), (second, other_row, other_labels) = tied_profile(), tied_profile(order)
    for k in range(4):
        for label in range(2):
            counts = [
                np.bincount(
                    Folds.from_profile(profile, 5, by_label=False, shuffle_ties=True).codes[(rows == k) & (y == label)],
                    minlength=5,
                )
                for profile, rows, y in ((first, row, labels), (second, other_row, other_labels))
            ]
            np.testing.assert_array_equal(*counts)


def test_held_out_scores_are_those_of_other_samples():
    """With ten samples a class a map of single classes is worse on other samples; in folds by label it would look better."""
    found, expected = [], []
    for seed in range(104, 108):
        logits, labels = few(np.random.default_rng(seed), 240, 12)
        rng = np.random.default_rng(seed + 1000)
        truth = rng.normal(size=(10_000, 12)) * 2
        others = drawn(rng, truth)
        cal, single = (
            rhocal.calibrator(name).fit(logits, labels, classes=np.arange(12)) for name in ("vector", "temperature")
        )
        held_out = cal.solution_.held_out.nll
        found.append(held_out["vector"] / held_out["temperature"])
        expected.append(np.divide(*(metrics.nll(one.predict_proba(2 * truth), others) for one in (cal, single))))
    assert np.mean(found) == pytest.approx(np.mean(expected), abs=0.02)


@pytest.mark.parametrize(
    ("above", "error", "brier", "doubtful"),
    [
        (0.03, 0.01, 0.0, False),
        (0.03, 0.03, 0.0, True),  # it may be 6 % worse
        (0.06, 0.001, 0.0, True),
        (-0.01, 0.02, 0.0, False),
        (-0.01, 0.09, 0.0, True),
        (0.04, 0.005, 0.0, True),  # within 5 %, but worse by more than 2 %
        (0.0, 0.0, 0.04, True),
        (0.0, 0.0, 0.025, False),
        (np.nan, 0.0, 0.0, True),
    ],
)
def test_a_fit_is_in_doubt_unless_it_is_shown_to_be_nearly_as_good(above, error, brier, doubtful):
    scores = HeldOutScores(
        {"identity": 2.0, "temperature": 1.0, "platt": 1 + above},
        {"identity": 2.0, "temperature": 1.0, "platt": 1 + brier},
        "temperature",
        {"nll": above, "nll_error": error, "brier": brier, "brier_error": 0.01},
        500,
    )
    assert is_doubtful(scores) == doubtful


def test_the_evidence_is_in_the_solution_and_in_the_artifact(tmp_path):
    logits, labels = synthetic(600, 4)
    cal = rhocal.calibrator("vector").fit(logits, labels)
    held_out = cal.solution_.held_out
    assert set(held_out.nll) == set(held_out.brier) == {"identity", "temperature", "vector"}
    assert held_out.n_samples == 600
    cal.save(tmp_path / "cal.safetensors")
    assert rhocal.load(tmp_path / "cal.safetensors").solution_.held_out == held_out


def test_held_out_scores_by_hand():
    """The identity's scores are those of the samples themselves, whatever the folds."""
    logits, labels = synthetic(600, 4)
    held_out = rhocal.calibrator("svs:field").fit(logits, labels).solution_.held_out
    probs = softmax(logits)
    assert held_out.nll["identity"] == pytest.approx(metrics.nll(probs, labels))
    assert held_out.brier["identity"] == pytest.approx(metrics.brier(probs, labels))


def test_a_method_that_is_worse_warns_with_the_numbers():
    logits, labels = saturated(np.random.default_rng(0), 3000, 10)
    with pytest.warns(GuardWarning, match=r"histogram-binning: NLL .* on 2,\d+ held-out samples; temperature has"):
        rhocal.calibrator("histogram-binning").fit(logits, labels)


@pytest.mark.parametrize("name", ["histogram-binning:temperature", "field"])
def test_a_guarded_method_falls_back(name, monkeypatch):
    """With a guard that finds every fit worse, the map is that of the better reference."""
    monkeypatch.setattr("rhocal.calibrators.guard.is_worse", lambda *_: True)
    logits, labels = synthetic(600, 4)
    with pytest.warns(GuardWarning, match="which is used instead"):
        cal = rhocal.calibrator(name).fit(logits, labels)
    assert cal.solution_.held_out.fell_back_to == "temperature"
    expected = rhocal.calibrator("temperature").fit(logits, labels).predict_proba(logits)
    np.testing.assert_allclose(cal.predict_proba(logits), expected, rtol=1e-6)


def test_a_fit_on_a_profile_has_the_same_evidence():
    logits, labels = synthetic(800, 12)
    cal = rhocal.calibrator("field").fit(logits, labels)
    again = fit_validated(rhocal.calibrator("field"), Profile.from_predictions(Predictions.from_arrays(logits, labels)))
    assert again.solution_.held_out is None  # a fit inside another one is not checked
    assert cal.solution_.held_out.nll["field"] < 1.02 * cal.solution_.held_out.nll["temperature"]


def test_knots_a_subnormal_number_apart():
    """Scores of 1e-318 and the like, as 300 times too large logits have them: no slope is infinite."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=1000)
    labels = (rng.random(1000) < 1 / (1 + np.exp(-score))).astype(int)
    held_out = (
        rhocal.calibrator("centered-isotonic").fit(np.stack([-score, score], axis=1) * 300, labels).solution_.held_out
    )
    assert np.isfinite(list(held_out.nll.values())).all()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("name", ["rho-norm", "auto"])
def test_rows_of_equal_logits(name, dtype):
    """Their norm is 0: with beta = 0 their scale is infinite."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(200, 5))
    logits /= np.linalg.norm(logits, axis=1, keepdims=True)
    labels = (2 * logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    logits = (logits * rng.lognormal(1, 1, size=(200, 1))).astype(dtype)
    logits[:5] = 0
    assert np.isfinite(rhocal.calibrator(name).fit(logits, labels).predict_proba(logits)).all()


@pytest.mark.parametrize("name", ["auto", "svs:field"])
def test_weights_are_repetition_for_the_guard(name):
    """Few rows that count often: neither the guard nor the choice may count rows."""
    rng = np.random.default_rng(6)
    logits = rng.normal(size=(150, 3)) * 3
    labels = (logits * 0.4 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    times = rng.integers(1, 4, 150)
    a = rhocal.calibrator(name).fit(logits, labels, times)
    b = rhocal.calibrator(name).fit(np.repeat(logits, times, axis=0), np.repeat(labels, times))
    np.testing.assert_allclose(a.predict_proba(logits), b.predict_proba(logits), atol=2e-6)


@pytest.mark.usefixtures("few_rows")
def test_a_streamed_fit_warns_once():
    """The comparison belongs to the fit of the profile, and is made once."""
    rng = np.random.default_rng(1)
    truth = rng.normal(size=(130, 5))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    logits = truth * np.exp(1.5 * rng.normal(size=(130, 1)))
    blocks = [(logits[rows], labels[rows]) for rows in (slice(0, 70), slice(70, 130))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GuardWarning)
        rhocal.calibrator("rho-norm-paper", n_steps=300).fit(rhocal.stream(blocks))
    assert [type(warning.message) for warning in caught] == [GuardWarning]
