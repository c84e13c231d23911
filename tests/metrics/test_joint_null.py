"""The joint null: labels drawn from a model's own probabilities, and the tests that are compared with them."""

import numpy as np
import pytest

from helpers import TOP_TESTS
from rhocal.metrics.inference.calibration_tests import combine, outcomes
from rhocal.metrics.inference.joint_null import joint_null
from rhocal.metrics.inference.label_draws import draw_counts, draw_labels
from rhocal.metrics.inference.localize import class_gaps, positive_gap, regions
from rhocal.metrics.inference.statistics import statistics
from rhocal.metrics.scored import Scored
from rhocal.numerics import kernels
from rhocal.numerics.special import softmax


def probabilities(n, n_classes, seed, spread=1.5):
    return softmax(np.random.default_rng(seed).normal(0, spread, (n, n_classes)))


def drawn_from(p, seed):
    rng = np.random.default_rng(seed)
    return np.minimum((p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1), p.shape[1] - 1)


def counts(logits, scale, n_classes, n_draws=60):
    n = len(logits)
    cell = np.arange(n) * 7 // n

    def place(_, probs):
        return np.arange(n_classes) * 2 + (probs > 0.3)

    shape = (7, 2 * n_classes, n_draws)
    return draw_counts(logits, np.arange(n), np.arange(n), cell, place, shape, scale=scale, seed=5)


@pytest.mark.parametrize("n_classes", [2, 3, 17, 300])
@pytest.mark.parametrize("weighted", [False, True])
def test_numpy_draws_the_same_labels(n_classes, weighted, monkeypatch):
    logits = np.random.default_rng(0).normal(0, 2, (200, n_classes))
    scale = np.random.default_rng(1).random(200) if weighted else None
    fast = counts(logits, scale, n_classes)
    monkeypatch.setattr(kernels, "is_enabled", False)
    slow = counts(logits, scale, n_classes)
    np.testing.assert_allclose(fast.right, slow.right)
    np.testing.assert_allclose(fast.drawn, slow.drawn)
    assert fast.drawn.sum() == pytest.approx(60 * (200 if scale is None else scale.sum()))


def test_labels_have_the_probabilities_they_are_drawn_from():
    p = probabilities(30, 4, 0)
    p[0], p[1] = [1, 0, 0, 0], [0, 0, 0.5, 0.5]
    labels = draw_labels(p, np.arange(30), 20_000, seed=1)
    shares = np.stack([(labels == k).mean(axis=1) for k in range(4)], axis=1)
    assert np.abs(shares - p).max() < 5 * 0.5 / np.sqrt(20_000)
    assert (labels[0] == 0).all()
    assert set(labels[1]) == {2, 3}
    together = np.corrcoef(labels[2:] == 0)
    assert np.abs(together[np.triu_indices(28, 1)]).max() < 0.04


def test_every_level_is_tested():
    p = probabilities(300, 2, 0)
    found = statistics(joint_null(Scored.from_arrays(p, drawn_from(p, 1), None, "probs"), 20, 0))
    assert set(found) == {*TOP_TESTS, "prevalence", "cox", "kuiper"}
    p = probabilities(300, 5, 0)
    found = statistics(joint_null(Scored.from_arrays(p, drawn_from(p, 1), None, "probs"), 20, 0))
    assert set(found) == {*TOP_TESTS, "class", "classwise", "skce"}
    assert all(len(values) == 21 for values in found.values())


MODELS = {
    "two classes, rare": (2, 3.0, 400),
    "ties": (2, 0.0, 200),
    "ten classes": (10, 1.5, 300),
    "sparse errors": (3, 12.0, 250),
    "more classes than samples": (300, 2.0, 120),
}


@pytest.mark.parametrize("name", MODELS)
def test_p_values_hold_for_perfect_models(name):
    """240 samples of a perfect model; full table: experiments/coverage."""
    n_classes, spread, n = MODELS[name]
    p_values = []
    for k in range(240):
        p = probabilities(n, n_classes, k, spread)
        scored = Scored.from_arrays(p, drawn_from(p, k + 1000), None, "probs")
        found = statistics(joint_null(scored, 99, k))
        single = {test: outcome.p_value for test, outcome in outcomes(scored, found).items()}
        p_values.append(single | {"combined": combine(found).p_value})
    for test in p_values[0]:
        rejected = np.mean([row[test] <= 0.05 for row in p_values])
        assert rejected <= 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / 240), (test, rejected)


def test_the_smallest_p_value_is_ranked_among_those_of_the_draws():
    """Test a: the samples are third of 10; test b: first. Of the draws one is first in a, and none can be first in b."""
    a = np.array([7.0, 9, 8, 1, 2, 3, 4, 5, 6, 0])
    b = np.array([9.0, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    found = combine({"a": a, "b": b})
    assert (found.p_value, found.smallest, found.n_draws) == (0.2, "b", 9)


def test_classes_and_regions_are_named_with_their_error():
    p = probabilities(4000, 5, 0)
    logits = np.log(p)
    logits[:, 3] += 0.6
    y = drawn_from(p, 1)
    null = joint_null(Scored.from_arrays(softmax(logits), y, None, "probs"), 199, 0)
    gaps = class_gaps(null.classes)
    worst = max(gaps, key=lambda gap: abs(gap.z))
    assert (worst.column, worst.p_value) == (3, 1 / 200)
    assert worst.expected == pytest.approx(softmax(logits)[:, 3].mean())
    assert worst.observed == pytest.approx((y == 3).mean())
    assert worst.low < worst.gap < worst.high < 0
    c = np.repeat([0.65, 0.85], 1000)
    y = np.r_[np.arange(1000) < 350, np.arange(1000) < 300].astype(int)  # 65 % and 70 % right
    p = np.stack([c, 1 - c], axis=1)
    null = joint_null(Scored.from_arrays(p, y, None, "probs"), 199, 0)
    fine, off = regions(null.top, null.top_paths)
    assert (fine.low, fine.high, off.low, off.high) == pytest.approx((0.6, 0.7, 0.8, 0.9))
    assert fine.p_value > 0.5
    assert off.p_value == 1 / 200
    assert (fine.gap, off.gap) == pytest.approx((0, -0.15))
    gap = positive_gap(null.positive, null.positive_paths, 1)
    assert (gap.expected, gap.observed) == pytest.approx(((1 - c).mean(), y.mean()))
    assert gap.n_labels == pytest.approx(650)


def test_a_class_that_is_never_seen_or_never_predicted():
    p = np.zeros((500, 4))
    p[:, 0], p[:, 1] = 0.7, 0.3
    y = (np.arange(500) < 150).astype(int)
    found = combine(statistics(joint_null(Scored.from_arrays(p, y, None, "probs"), 99, 0)))
    assert found.p_value > 0.5
    y[::10] = 3  # a class whose probability is 0
    null = joint_null(Scored.from_arrays(p, y, None, "probs"), 99, 0)
    assert max(class_gaps(null.classes), key=lambda gap: abs(gap.z)).column == 3


def test_fractional_weights_are_shares_of_samples():
    """Every sample twice with weight ½ has the null distribution of every sample once."""
    p = probabilities(1500, 3, 0)
    y = drawn_from(p, 1)
    once = statistics(joint_null(Scored.from_arrays(p, y, None, "probs"), 400, 0))
    twice = Scored.from_arrays(np.repeat(p, 2, axis=0), np.repeat(y, 2), np.full(3000, 0.5), "probs")
    halves = statistics(joint_null(twice, 400, 0))
    for name in ("gap", "ece", "class", "classwise"):
        assert once[name][0] == pytest.approx(halves[name][0], rel=1e-6), name
        assert np.mean(once[name][1:]) == pytest.approx(np.mean(halves[name][1:]), rel=0.12), name


def test_a_subsample_beyond_the_limit_keeps_the_top_label_of_all(monkeypatch):
    from rhocal.metrics.inference import joint_null as module

    p = probabilities(3000, 4, 0)
    y = drawn_from(p, 1)
    scored = Scored.from_arrays(p, y, None, "probs")
    whole = joint_null(scored, 300, 0)
    monkeypatch.setattr(module, "MAX_DRAWN_SAMPLES", 700)
    part = joint_null(scored, 300, 0)
    assert (whole.n_class_samples, part.n_class_samples) == (3000, 700)
    assert part.top_paths[0] == pytest.approx(whole.top_paths[0])
    assert part.top_paths[1:].std(axis=0)[-1] == pytest.approx(whole.top_paths[1:].std(axis=0)[-1], rel=0.15)
    assert part.classes.n_labels.sum() == 700


def test_skce_of_many_samples_with_ties_is_unbiased(monkeypatch):
    """Half of the samples share one distribution. Groups must not depend on labels, nor ties count more than others."""
    from rhocal import metrics
    from rhocal.metrics import kernel

    whole, parts = [], []
    for seed in range(30):
        p = probabilities(400, 3, seed)
        p[::2] = [0.6, 0.3, 0.1]
        right = p.copy()
        right[::2] = [0.45, 0.35, 0.2]  # over-confident in the ties only
        y = drawn_from(right, seed + 1)
        whole.append(metrics.skce(p, y))
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "MAX_SAMPLES_ALL_PAIRS", 100)
            patch.setattr(kernel, "GROUP_SIZE", 40)
            parts.append(metrics.skce(p, y))
    error = np.std(np.array(parts) - whole) / np.sqrt(30)
    assert np.mean(parts) == pytest.approx(np.mean(whole), abs=4 * error)
    assert error < 0.2 * np.mean(whole)
