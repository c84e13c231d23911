"""Paired differences of ECE: debiased, with coverage and error rates measured by simulation; tests of equivalence."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rhocal.errors import InputError
from rhocal.metrics import METRICS, inference
from rhocal.metrics.inference.ece_difference import JointBinSums
from rhocal.metrics.inference.paired import Difference, adjust_for_candidates
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import equal_width

N_TRIALS = 80


def samples(confidence, correct, weights=None):
    c = np.asarray(confidence, float)
    log_label = np.log(np.where(correct > 0, c, (1 - c) / 9))
    return Scored(c, correct, log_label, c**2 + (1 - c) ** 2 / 9, np.ones(len(c)) if weights is None else weights)


def draw(rng, n, second, accuracy=lambda c: c):
    """A model with confidences c, and another that shows ``second(c)`` for the same decisions."""
    c = np.minimum(0.1 + 0.9 * rng.beta(2.2, 0.7, n), 1 - 1e-6)
    correct = (rng.random(n) < accuracy(c)).astype(float)
    return samples(c, correct), samples(np.clip(second(c), 1e-6, 1 - 1e-9), correct)


def sharpen(c):
    return 1 / (1 + ((1 - c) / c) ** 1.5)


MEAN = float(np.mean(0.1 + 0.9 * np.random.default_rng(1).beta(2.2, 0.7, 1_000_000)))


def test_equal_models_are_not_called_different():
    """A perfect model against a coarse perfect one: their floors differ, their true errors do not (type I error .5 before)."""
    rng = np.random.default_rng(0)
    found = [inference.differences(*draw(rng, 500, lambda c: 0 * c + MEAN), ["ece"])["ece"] for _ in range(N_TRIALS)]
    assert np.mean([d.p_value <= 0.05 for d in found]) <= 0.1
    assert abs(np.mean([d.value for d in found])) < 0.005
    assert np.mean([d.observed for d in found]) > 0.015  # what was printed before


def test_intervals_contain_the_true_difference_before_and_after():
    """Coverage was .30 at 300 samples and .16 at 1,000."""
    c = np.minimum(0.1 + 0.9 * np.random.default_rng(3).beta(2.2, 0.7, 1_000_000), 1 - 1e-6)
    truth = -float(np.abs(np.bincount(equal_width(sharpen(c), 10), c - sharpen(c), 10)).sum() / len(c))
    for n in (300, 1000):
        rng = np.random.default_rng(n)
        found = [inference.differences(*draw(rng, n, sharpen), ["ece"])["ece"] for _ in range(N_TRIALS)]
        assert np.mean([d.low <= truth <= d.high for d in found]) >= 0.86  # .90, less than two standard errors


def test_a_minus_b_is_minus_b_minus_a_and_a_minus_a_is_nothing():
    a, b = draw(np.random.default_rng(0), 400, sharpen)
    one, back = (
        inference.differences(a, b, ["ece", "adaptive_ece"]),
        inference.differences(b, a, ["ece", "adaptive_ece"]),
    )
    for name in one:
        assert one[name].value == -back[name].value
        assert one[name].p_value == back[name].p_value
        assert one[name].verdict in {"better", "no difference detected"}
    same = inference.differences(a, replace(a), ["ece"], tolerance=0.01)["ece"]
    assert (same.value, same.p_value, same.verdict) == (0.0, 1.0, "equal within 0.01")


def test_order_of_samples_and_whole_weights():
    rng = np.random.default_rng(5)
    a, b = draw(rng, 300, sharpen)
    counts = rng.integers(0, 4, 300).astype(float)
    expected = inference.differences(a.take(np.repeat(np.arange(300), counts.astype(int))),
                                     b.take(np.repeat(np.arange(300), counts.astype(int))), ["ece"])["ece"]  # fmt: skip
    order = rng.permutation(300)
    weighted = [replace(view, weights=counts).take(order) for view in (a, b)]
    found = inference.differences(*weighted, ["ece"])["ece"]
    for name in ("value", "low", "high", "p_value", "observed"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9)


def test_the_noise_of_the_bins_is_that_of_the_samples():
    """By hand: two samples in one bin of A, in two bins of B; correlations are of columns of residuals."""
    a = samples([0.95, 0.92, 0.55], np.array([1.0, 0.0, 1.0]))
    b = samples([0.85, 0.95, 0.55], np.array([1.0, 0.0, 1.0]))
    joint = JointBinSums.from_samples(a, b, (equal_width(a.confidence, 10), equal_width(b.confidence, 10)), 10)
    assert joint.n_first == 2
    assert np.allclose(joint.shares, [1 / 3, 2 / 3, 1 / 3, 1 / 3, 1 / 3])
    columns = np.array([[0, 0, 0.45], [0.05, -0.92, 0], [0, 0, 0.45], [0.15, 0, 0], [0, -0.95, 0]])
    assert np.allclose(joint.sums, columns.sum(axis=1) / 3)
    assert np.allclose(joint.correlation, np.corrcoef(columns))


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_saturated_confidences(right):
    """Every sample certain and right (or wrong), and the same with less confidence: finite, and not called certain."""
    n = 50
    correct = np.full(n, right)
    certain, less = (Scored(np.full(n, c), correct, np.zeros(n), np.ones(n), np.ones(n)) for c in (1.0, 0.99))
    found = inference.differences(certain, less, ["ece"])["ece"]
    assert math.isfinite(found.value)
    assert found.low < found.value < found.high
    if right:
        assert found.verdict == "no difference detected"


def test_equivalence_needs_samples_and_a_tolerance():
    verdicts = {}
    for n in (200, 40_000):
        a, b = draw(np.random.default_rng(n), n, lambda c: np.clip(c + 0.001, 0, 1))
        found = inference.differences(a, b, ["ece"], tolerance=0.02)["ece"]
        verdicts[n] = found.verdict
        assert found.equivalent == (found.p_equivalent <= 0.05)
        assert inference.differences(a, b, ["ece"])["ece"].p_equivalent is None
    assert verdicts == {200: "no difference detected", 40_000: "equal within 0.02"}
    with pytest.raises(InputError, match="tolerance must be positive"):
        inference.differences(a, b, ["ece"], tolerance=0)


def test_models_that_differ_by_the_tolerance_are_rarely_called_equal():
    rng = np.random.default_rng(8)
    found = [
        inference.differences(*draw(rng, 4000, lambda c: c + 0.05 * (1 - c)), ["nll", "ece"], tolerance=0.009)["ece"]
        for _ in range(40)
    ]  # the true difference is .0108
    assert np.mean([d.equivalent for d in found]) <= 0.1


def test_holm_adjusts_equivalence_too():
    one = Difference("ece", 0.0, -0.01, 0.01, 0.5, 0.0, 0.005, 0.02, 0.03)
    found = adjust_for_candidates({"a": {"ece": one}, "b": {"ece": one}})
    assert found["a"]["ece"].p_equivalent == pytest.approx(0.06)
    assert found["a"]["ece"].verdict == "no difference detected"


def test_observed_is_the_difference_of_the_values():
    a, b = draw(np.random.default_rng(2), 500, sharpen)
    for name, found in inference.differences(a, b, ["ece", "adaptive_ece", "nll"]).items():
        assert found.observed == METRICS[name].value(a) - METRICS[name].value(b)


def test_no_difference_is_beyond_the_errors_themselves():
    """Debiased, a model that scores below its floor seems better by more than there was to gain: in 10 to 40 % of samples."""
    rng, n_beyond = np.random.default_rng(0), 0
    for _ in range(10):
        b, a = draw(rng, 400, sharpen)
        free = inference.differences(a, b, ["ece", "adaptive_ece"], tolerance=0.5, bounded=False)
        for name, found in inference.differences(a, b, ["ece", "adaptive_ece"], tolerance=0.5).items():
            value, high = METRICS[name].value(a), inference.intervals(a, [name])[name].high
            n_beyond += free[name].value > value or free[name].high > high
            assert found.value == min(free[name].value, value, found.high)
            assert found.high == pytest.approx(min(free[name].high, high))
            assert found.low <= found.value <= found.high
            assert (found.p_value, found.p_equivalent) == (free[name].p_value, free[name].p_equivalent)
        back = inference.differences(b, a, ["ece"])["ece"]
        ahead = inference.differences(a, b, ["ece"])["ece"]
        assert (back.value, back.low, back.high) == pytest.approx((-ahead.value, -ahead.high, -ahead.low))
    assert n_beyond > 0


def test_differences_of_rmsce_are_valid_near_zero():
    """A perfect model against an over-confident one: resamples of an error near 0 are biased, and covered .85."""
    c = np.minimum(0.1 + 0.9 * np.random.default_rng(3).beta(2.2, 0.7, 400_000), 1 - 1e-6)
    bins = equal_width(sharpen(c), 10)
    gaps, counts = np.bincount(bins, c - sharpen(c), 10), np.bincount(bins, minlength=10)
    truth = -math.sqrt((gaps**2 / np.maximum(counts, 1)).sum() / len(c))
    rng, name = np.random.default_rng(7), "debiased_rmsce"
    found = [inference.differences(*draw(rng, 1000, sharpen), [name])[name] for _ in range(150)]
    assert 0.91 <= np.mean([d.low <= truth <= d.high for d in found]) <= 0.99  # .95, and two standard errors
    assert all(d.low <= d.value <= d.high for d in found)
    assert all((d.p_value <= 0.05) == (not d.low <= 0 <= d.high) for d in found)
    assert np.mean([d.verdict == "better" for d in found]) > 0.2
    a, b = draw(rng, 400, sharpen)
    one, back = inference.differences(a, b, [name])[name], inference.differences(b, a, [name])[name]
    assert (back.low, back.high) == pytest.approx((-one.high, -one.low))
    same = inference.differences(a, replace(a), [name])[name]
    assert (same.value, same.low, same.high, same.p_value) == (0, 0, 0, 1)
