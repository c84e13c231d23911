"""Samples that depend on each other: one of each cluster certifies."""

import numpy as np
import pytest

import rhocal
from helpers import synthetic
from rhocal.data.predictions import Predictions
from rhocal.data.sampling import content_half
from rhocal.errors import InputError
from rhocal.evaluation.clusters import draw_one_of_each

pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")


def repeated(rng, n_questions, n_answers, base=0.08):
    """Answers to a question are right or wrong together; at every threshold an error rate of ``base``."""
    score = np.repeat(rng.normal(size=n_questions) + 3, n_answers) + 0.01 * rng.normal(size=n_questions * n_answers)
    right = np.repeat(rng.random(n_questions) > base, n_answers)
    return np.stack([0 * score, score], axis=1), right.astype(int), np.repeat(np.arange(n_questions), n_answers)


def test_certificates_hold_for_dependent_samples():
    """The error rate is above the target at every threshold, so that every certificate is false."""
    false = {"clusters": 0, "none": 0}
    for trial in range(100):
        z, y, question = repeated(np.random.default_rng(trial), 60, 10)
        false["none"] += rhocal.decide(None, z, y, target=0.075).is_feasible
        false["clusters"] += rhocal.decide(None, z, y, target=0.075, clusters=question).is_feasible
    assert false["none"] > 20
    assert false["clusters"] <= 10  # 5 expected at most; above 10 with a probability of 0.011


def test_a_draw_follows_weights_and_not_the_order_of_samples():
    n = 4000
    clusters = np.repeat(np.arange(n), 4)
    scores = np.tile([[1.0, 0], [1, 0], [1, 0], [0, 2.0]], (n, 1))  # three copies and another one
    data = Predictions.from_arrays(scores, np.tile([0, 0, 0, 1], n))
    drawn = draw_one_of_each(data, clusters)
    assert drawn.n_samples == n
    assert drawn.labels.mean() == pytest.approx(0.25, abs=0.03)
    counted = Predictions.from_arrays(scores[2::4].repeat(1, 0), data.labels[2::4])
    both = Predictions.from_arrays(
        np.stack([scores[2::4], scores[3::4]], 1).reshape(-1, 2), np.tile([0, 1], n), weights=np.tile([3, 1], n)
    )
    assert draw_one_of_each(both, np.repeat(np.arange(n), 2)).labels.mean() == drawn.labels.mean()
    assert draw_one_of_each(counted, np.arange(n)).labels.sum() == 0
    z, y = synthetic(900, 3)
    groups = np.arange(900) % 90
    order = np.random.default_rng(0).permutation(900)
    one = draw_one_of_each(Predictions.from_arrays(z, y), groups)
    other = draw_one_of_each(Predictions.from_arrays(z[order], y[order]), groups[order])
    assert sorted(one.scores[:, 0]) == sorted(other.scores[:, 0])


def test_every_kind_of_decision_takes_clusters():
    z, y = synthetic(3000, 3, seed=2)
    question = np.array([f"q{k}" for k in np.arange(3000) // 3])
    cal = rhocal.TemperatureScaling().fit(*synthetic(1000, 3, seed=3))
    assert rhocal.decide(cal, z, y, target=0.2, clusters=question).policy.certificate.n_samples == 1000
    assert rhocal.decide_sets(cal, z, y, coverage=0.9, clusters=question).evidence.n_samples == 1000
    assert rhocal.minimize_cost(cal, z, y, costs=1 - np.eye(3), clusters=question).n_samples == 1000
    labels = np.where(np.arange(3000) % 3 == 0, -100, y)
    found = rhocal.decide(cal, z, labels, target=0.2, clusters=question, ignore_index=-100)
    assert found.policy.certificate.n_samples == 1000
    segments = np.arange(3000) % 2
    each = rhocal.decide(cal, z, y, target=0.3, clusters=question, segments=segments)
    assert sum(row.n_samples for row in each.segments) == 1000
    with pytest.raises(InputError, match="clusters must hold one name for each of the 3,000 samples"):
        rhocal.decide(cal, z, y, target=0.2, clusters=question[:10])
    with pytest.raises(InputError, match="blocks carry none; give arrays in memory"):
        rhocal.decide(cal, rhocal.stream([(z, y)]), target=0.2, clusters=question)


def test_halves_keep_clusters_together():
    z, y = synthetic(900, 3)
    names = np.arange(900) // 9
    half = content_half(z, y, names)
    assert np.unique(names[half]).size == 50
    assert not np.intersect1d(names[half], names[~half]).size
