"""The probability that an answer is right: features, and subjects with few answers."""

import numpy as np
import pytest

import rhocal
from rhocal import CorrectnessModel
from rhocal.errors import BoundaryWarning, InputError, SuspiciousInputWarning


def answers(n, n_subjects, spread, seed=0):
    rng = np.random.default_rng(seed)
    offsets = spread * rng.normal(size=n_subjects)
    subject, score, length = rng.integers(0, n_subjects, n), rng.normal(size=n), rng.exponential(100, size=n)
    odds = 0.3 + 0.8 * score - 0.004 * (length - 100) + offsets[subject]
    p = 1 / (1 + np.exp(-odds))
    return score, length, subject, p, (rng.random(n) < p).astype(int)


def nll(p, correct):
    return -np.mean(np.log(np.where(correct, p, 1 - p)))


def test_features_and_subjects_lower_the_loss_on_new_answers():
    score, length, subject, p, correct = answers(6000, 40, 0.8)
    fit, new = slice(0, 1200), slice(1200, None)  # 30 answers a subject
    models = {
        "score": rhocal.CorrectnessModel().fit(score[fit], correct[fit]).predict_proba(score[new]),
        "features": rhocal.CorrectnessModel()
        .fit(score[fit], correct[fit], features={"length": length[fit]})
        .predict_proba(score[new], features={"length": length[new]}),
        "subjects": rhocal.CorrectnessModel()
        .fit(score[fit], correct[fit], features={"length": length[fit]}, subjects=subject[fit])
        .predict_proba(score[new], features={"length": length[new]}, subjects=subject[new]),
    }
    losses = [nll(probs[:, 1], correct[new]) for probs in models.values()]
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < nll(p[new], correct[new]) + 0.02  # nearly that of the truth
    evaluation = rhocal.evaluate(models["subjects"], correct[new], groups=subject[new], positive=1, n_replicates=50)
    assert len(evaluation.groups) == 40


def test_few_answers_are_pooled():
    for seed in range(5):
        score, _, subject, _, correct = answers(1200, 40, 0.0, seed)  # 30 answers a subject, which do not differ
        model = rhocal.CorrectnessModel().fit(score, correct, subjects=subject)
        assert model.deviation_ <= 0.2
        assert max(map(abs, model.offsets_.values())) < 0.3
    score, _, subject, _, correct = answers(6000, 20, 1.0)
    model = rhocal.CorrectnessModel().fit(score, correct, subjects=subject)
    assert 0.4 <= model.deviation_ <= 1.6
    with pytest.warns(SuspiciousInputWarning, match="5 samples are of subjects that the fit has not seen"):
        unknown = model.predict_proba(score[:5], subjects=np.full(5, 99))
    np.testing.assert_allclose(unknown, model.predict_proba(score[:5]))


def test_weights_are_repetitions_and_kinds_agree():
    score, _, subject, _, correct = answers(400, 5, 0.5)
    times = np.random.default_rng(1).integers(1, 4, 400)
    repeated = [np.repeat(values, times) for values in (score, correct, subject)]
    weighted = rhocal.CorrectnessModel().fit(score, correct, subjects=subject, sample_weight=times)
    plain = rhocal.CorrectnessModel().fit(repeated[0], repeated[1], subjects=repeated[2])
    both = (model.predict_proba(score, subjects=subject) for model in (weighted, plain))
    np.testing.assert_allclose(*both, atol=1e-6)
    p = 1 / (1 + np.exp(-score))
    as_probs = rhocal.CorrectnessModel().fit(p, correct, kind="probs").predict_proba(p)
    np.testing.assert_allclose(as_probs, rhocal.CorrectnessModel().fit(score, correct).predict_proba(score), atol=1e-6)
    as_logs = rhocal.CorrectnessModel().fit(np.log(p), correct, kind="log_probs").predict_proba(np.log(p))
    np.testing.assert_allclose(as_logs, as_probs, atol=1e-6)


def test_what_cannot_be_used_is_named():
    score, length, _, _, correct = answers(50, 5, 0.5)
    model = rhocal.CorrectnessModel()
    with pytest.raises(rhocal.errors.NotFittedError):
        model.predict_proba(score)
    for message, arguments in {
        "correct must be 1 or 0": (score, correct + 0.5, {}),
        "score must have shape": (np.stack([score, score], axis=1), correct, {}),
        "features.'length'. must hold finite numbers": (score, correct, {"features": {"length": np.full(50, np.nan)}}),
        "differ in length": (score, correct, {"features": {"length": length[:3]}}),
    }.items():
        with pytest.raises(InputError, match=message):
            model.fit(*arguments[:2], **arguments[2])
    model.fit(score, correct, features={"length": length})
    with pytest.raises(InputError, match="features must be those of the fit: length"):
        model.predict_proba(score)


def test_one_outcome_and_one_subject():
    with pytest.warns(BoundaryWarning):
        model = rhocal.CorrectnessModel().fit(np.arange(10.0), np.ones(10), subjects=["a"] * 10)
    assert (model.predict_proba([3.0], subjects=["a"])[:, 1] > 0.5).all()


def test_answers_that_are_all_right_do_not_make_everything_certain():
    with pytest.warns(BoundaryWarning, match="every answer is right"):
        model = CorrectnessModel().fit([0.1, 0.4, 0.5], [1, 1, 1], subjects=["a", "a", "b"])
    assert model.predict_proba([0.1, 0.4, 0.5])[:, 1].mean() == pytest.approx(4 / 5)
    assert model.predict_proba([-5.0])[0, 1] < 0.1
    with pytest.warns(BoundaryWarning, match="every answer is wrong"):
        model = CorrectnessModel().fit([0.1, 0.4], [0, 0])
    assert model.predict_proba([0.1, 0.4])[:, 1].mean() == pytest.approx(1 / 4)


def test_subjects_are_matched_by_name_whatever_their_type():
    rng = np.random.default_rng(0)
    subjects = np.repeat([1, 2], 200)
    right = rng.random(400) < np.where(subjects == 1, 0.9, 0.2)
    model = CorrectnessModel().fit(np.full(400, 2.0), right, subjects=subjects)
    by_number = model.predict_proba([2.0, 2.0], subjects=[1, 2])
    np.testing.assert_array_equal(by_number, model.predict_proba([2.0, 2.0], subjects=["1", "2"]))
    assert by_number[0, 1] > by_number[1, 1] + 0.3


@pytest.mark.parametrize(
    ("ridge", "features", "message"),
    [
        (-1.0, None, "ridge must be a number of at least 0; got -1.0"),
        (float("nan"), None, "ridge must be a number"),
        ("a", None, "ridge must be a number"),
        (1.0, [1, 2], "features are numbers by name"),
    ],
)
def test_what_a_model_cannot_use(ridge, features, message):
    with pytest.raises(InputError, match=message):
        CorrectnessModel(ridge=ridge).fit([0.1, 0.4], [0, 1], features=features)
