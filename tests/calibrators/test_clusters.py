"""Samples that depend on each other: folds, standard errors and choices by cluster."""

import numpy as np
import pytest

import rhocal
from rhocal.calibrators import calibrator
from rhocal.calibrators.clusters import design_effect
from rhocal.calibrators.cross_validation import paired_over_samples
from rhocal.calibrators.folds import Folds
from rhocal.data.predictions import Predictions
from rhocal.errors import FewSamplesWarning, InputError
from rhocal.evaluation.compare import random_split
from rhocal.objectives.soft_bins import WIDTHS, SoftECE
from rhocal.profile.profile import Profile
from rhocal.profile.statistics import Facts

METHODS = ("field", "svs:field", "polynomial")


def questions(n: int, seed: int = 0, n_options: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are over-confident, with one class too rare, and labels."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, n_options))
    probs = np.exp(logits / 1.8 + np.linspace(0, 0.5, n_options))
    labels = (rng.random(n)[:, None] > np.cumsum(probs / probs.sum(axis=1, keepdims=True), axis=1)).sum(axis=1)
    return logits, labels


def sampled_answers(n_questions: int, n_answers: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Several answers of each question: nearly the same scores, and the same label."""
    logits, labels = questions(n_questions, seed, 4)
    noise = 0.2 * np.random.default_rng(seed).normal(size=(n_questions * n_answers, 4))
    clusters = np.repeat(np.arange(n_questions), n_answers)
    return logits[clusters] + noise, labels[clusters], clusters


@pytest.mark.parametrize("by_label", [True, False])
@pytest.mark.parametrize("shuffle_ties", [True, False])
def test_a_cluster_is_in_one_fold(by_label: bool, shuffle_ties: bool):
    logits, labels = questions(500)
    clusters = np.random.default_rng(1).integers(0, 120, 500)
    weights = np.random.default_rng(2).integers(0, 3, 500).astype(float)
    data = Predictions.from_arrays(logits, labels, weights=weights, clusters=clusters)
    folds = Folds.from_profile(Profile.from_predictions(data), 5, by_label=by_label, shuffle_ties=shuffle_ties)
    assert len(folds) == 5
    assert all(len(np.unique(folds.codes[clusters == name])) == 1 for name in np.unique(clusters))
    assert all(0.1 < fold.share < 0.32 for fold in folds)


@pytest.mark.parametrize("method", METHODS)
def test_copies_under_one_cluster_are_one_sample(method: str):
    logits, labels = questions(250)
    copies = np.repeat(np.arange(250), 3)
    single = calibrator(method).fit(logits, labels)
    copied = calibrator(method).fit(logits[copies], labels[copies], clusters=copies)
    np.testing.assert_allclose(copied.predict_proba(logits), single.predict_proba(logits), atol=1e-12)
    first, second = single.solution_.held_out, copied.solution_.held_out
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert second.above == pytest.approx(first.above, abs=1e-10)


def test_copies_lead_to_the_same_choice():
    for n_questions, chosen in ((120, "temperature"), (900, "svs")):
        logits, labels = questions(n_questions)
        copies = np.repeat(np.arange(n_questions), 5)
        auto = rhocal.AutoCalibrator(methods=("temperature", "svs")).fit(
            logits[copies], labels[copies], clusters=copies
        )
        assert auto.chosen_.label == chosen
        assert rhocal.AutoCalibrator(methods=("temperature", "svs")).fit(logits, labels).chosen_.label == chosen


def test_clusters_of_one_sample_change_nothing():
    logits, labels = questions(250)
    names = [f"q{k}" for k in range(250)]
    assert Predictions.from_arrays(logits, labels, clusters=names).clusters is None
    plain = rhocal.FieldScaling().fit(logits, labels)
    named = rhocal.FieldScaling().fit(logits, labels, clusters=names)
    assert (plain.predict_proba(logits) == named.predict_proba(logits)).all()
    assert plain.solution_.held_out == named.solution_.held_out


def test_the_order_of_samples_does_not_matter():
    logits, labels, clusters = sampled_answers(150, 4, 0)
    order = np.random.default_rng(0).permutation(len(labels))
    names = np.array([f"q{k}" for k in clusters])
    one = calibrator("field").fit(logits, labels, clusters=names)
    other = calibrator("field").fit(logits[order], labels[order], clusters=names[order])
    np.testing.assert_allclose(one.predict_proba(logits), other.predict_proba(logits), atol=1e-9)


def test_answers_of_a_question_do_not_confirm_each_other():
    """Held-out answers of a question that a fit has seen make a map of the training labels look good."""
    trusted = {True: 0, False: 0}
    for seed in range(2):
        logits, labels, clusters = sampled_answers(100, 8, seed)
        fresh, fresh_labels = questions(3000, 100 + seed, 4)
        for has_clusters in (True, False):
            cal = rhocal.AutoCalibrator(methods=("temperature", "matrix"))
            cal.fit(logits, labels, clusters=clusters if has_clusters else None)
            held_out = cal.solution_.held_out
            nll = {
                name: rhocal.metrics.nll(fitted.predict_proba(fresh), fresh_labels)
                for name, fitted in (("mine", cal), ("temperature", rhocal.TemperatureScaling().fit(logits, labels)))
            }
            gain = nll["mine"] - nll["temperature"]
            trusted[has_clusters] += gain > held_out.above["nll"] + 3 * held_out.above["nll_error"] + 0.005
    assert trusted[True] == 0
    assert trusted[False] == 2


def test_the_design_effect_is_the_number_of_copies():
    logits, labels = questions(300)
    copies = np.repeat(np.arange(300), 4)
    data = Predictions.from_arrays(logits[copies], labels[copies], clusters=copies)
    assert design_effect(Profile.from_predictions(data)) == pytest.approx(4)
    others = np.random.default_rng(0).permutation(np.repeat(np.arange(75), 4))
    data = Predictions.from_arrays(logits, labels, clusters=others)
    assert 1 <= design_effect(Profile.from_predictions(data)) < 1.6


def test_a_standard_error_counts_clusters():
    values, weights = np.array([1.0, 1.0, 3.0, 3.0]), np.full(4, 0.25)
    assert paired_over_samples(values, np.zeros(4), weights, 4.0) == pytest.approx((2.0, 0.5))
    by_cluster = paired_over_samples(values, np.zeros(4), weights, 4.0, np.array([0, 0, 1, 1]))
    assert by_cluster == pytest.approx((2.0, np.sqrt(0.5)))


def test_halves_of_a_comparison_share_no_cluster():
    logits, labels, clusters = sampled_answers(41, 5, 0)
    data = Predictions.from_arrays(logits, labels, clusters=clusters)
    for seed in range(5):
        split = random_split(data, seed)
        first, second = (set(part.predictions.clusters) for part in (split.calibration, split.test))
        assert not first & second
        assert len(first | second) == 41
    with pytest.raises(InputError, match="one cluster"):
        random_split(Predictions.from_arrays(logits, labels, clusters=np.zeros(len(labels), int)), 0)


def test_one_cluster_gives_no_evidence():
    logits, labels = questions(300)
    with pytest.warns(FewSamplesWarning, match="in one cluster"):
        cal = rhocal.FieldScaling().fit(logits, labels, clusters=np.zeros(300, int))
    assert cal.solution_.held_out is None


@pytest.mark.parametrize("name", ["cascade", "cascade-top", "auto"])
@pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")
def test_few_clusters_are_too_few_for_a_cascade(name: str):
    logits, labels = questions(600)
    for n_clusters in (1, 3, 9):
        cal = calibrator(name).fit(logits, labels, clusters=np.arange(600) % n_clusters)
        assert np.isfinite(cal.predict_proba(logits)).all()


@pytest.mark.parametrize("clusters", [[0, 1], np.zeros((4, 2)), [0.5] * 300, [None] * 300, ["a", ""] * 150])
def test_clusters_are_validated(clusters: object):
    logits, labels = questions(300)
    with pytest.raises(InputError, match="clusters"):
        rhocal.TemperatureScaling().fit(logits, labels, clusters=clusters)


def test_the_width_of_soft_bins_is_not_confirmed_by_copies():
    """Nearly equal samples of a cluster leave together; apart, they confirm the narrowest bins."""
    confidence = np.repeat(np.random.default_rng(0).uniform(0.4, 1.0, 60), 20)
    confidence += 1e-6 * np.arange(1200)
    correct = np.repeat((np.random.default_rng(1).random(60) < confidence[::20]).astype(float), 20)
    clusters = np.repeat(np.arange(60), 20)
    widths = [
        SoftECE().prepare({"confidence": confidence}, Facts(correct, np.full(1200, 1 / 1200), 2, numbers)).width
        for numbers in (None, clusters)
    ]
    assert widths[0] == min(WIDTHS) < 5 * widths[0] < widths[1]
