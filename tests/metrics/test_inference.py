"""Floors, intervals, tests of calibration: by hand, by brute force, against other implementations, and by simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from helpers import TOP_TESTS, synthetic
from rhocal import metrics
from rhocal.data.predictions import Predictions
from rhocal.errors import InputError
from rhocal.metrics import METRICS, inference
from rhocal.metrics.inference.bootstrap import MEANS, bootstrap, resamples
from rhocal.metrics.inference.calibration_tests import outcomes
from rhocal.metrics.inference.ece_interval import ece_interval
from rhocal.metrics.inference.floor import Moments, _floors_from_drawn_labels
from rhocal.metrics.inference.joint_null import joint_null
from rhocal.metrics.inference.null import CumulativeDifferences, path_nulls
from rhocal.metrics.inference.statistics import statistics
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import equal_width, perfect_error
from rhocal.numerics.special import softmax


def draw(n, seed, *, over=0.0):
    """A ten-class model that is right ``confidence − over`` of the time."""
    rng = np.random.default_rng(seed)
    c = np.minimum(0.1 + 0.9 * rng.beta(2.2, 0.7, n), 1 - 1e-6)
    correct = (rng.random(n) < c - over).astype(float)
    log_label = np.log(np.where(correct > 0, c, (1 - c) / 9))
    return Scored(c, correct, log_label, c**2 + (1 - c) ** 2 / 9, np.ones(n))


def nulls(path, names, n_draws, seed):
    """The null distributions of statistics of a path."""
    return path_nulls(path, path.with_simulated(n_draws, seed), names)


# Floors ---------------------------------------------------------------------------------------------------------------


def test_floor_by_hand():
    """Two samples at .5: the number right is 0, 1 or 2 with chance ¼, ½, ¼, so ECE is .5 or 0, and its mean ¼."""
    found = inference.floor("ece", [[0.5, 0.5]] * 2, [0, 0], n_replicates=20_000)
    assert found.value == 0.5
    assert abs(found.mean - 0.25) < 0.01
    assert abs(found.p_value - 0.5) < 0.02
    assert np.isclose(found.excess, found.value - found.mean)
    assert (found.low, found.high) == (0, 0.5)


def test_the_floor_of_means_by_hand():
    """p = (.2, .8): mean entropy; variance of −log p_y is .2·.8·(log 4)²; Brier has mean 1 − .68 and labels move it by 1.2."""
    n = 50
    found = {name: inference.floor(name, [[0.2, 0.8]] * n, [1] * n) for name in MEANS}
    assert np.isclose(found["accuracy"].mean, 0.8)
    assert np.isclose(found["nll"].mean, -0.2 * math.log(0.2) - 0.8 * math.log(0.8))
    assert np.isclose(found["nll"].high - found["nll"].mean, 1.95996 * math.sqrt(0.16 / n) * math.log(4), rtol=1e-5)
    assert np.isclose(found["brier"].mean, 0.32)
    assert np.isclose(found["brier"].high - found["brier"].mean, 1.95996 * math.sqrt(0.16 / n) * 1.2, rtol=1e-5)
    assert np.isclose(found["top_brier"].mean, 0.16)
    assert np.isclose(found["accuracy"].p_value, math.erfc(0.2 / math.sqrt(0.16 / n) / math.sqrt(2)))


@pytest.mark.parametrize("name", ["ece", "adaptive_ece", "mce"])
def test_the_walk_sees_what_the_metric_sees(name):
    scored = draw(777, 0, over=0.03)
    scored = replace(scored, weights=np.random.default_rng(0).integers(0, 4, 777).astype(float))
    null = nulls(CumulativeDifferences.from_scored(scored), [name], 400, 0)[name]
    assert np.isclose(null.observed, METRICS[name].value(scored), rtol=1e-12)
    rng = np.random.default_rng(1)
    repeated = scored.take(np.repeat(np.arange(777), scored.weights.astype(int)))
    repeated = replace(repeated, weights=np.ones(len(repeated.weights)))
    slow = [
        METRICS[name].value(replace(repeated, correct=(rng.random(len(repeated.correct)) < repeated.confidence) * 1.0))
        for _ in range(400)
    ]
    assert abs(null.drawn.mean() - np.mean(slow)) < 5 * np.std(slow) / math.sqrt(200)
    assert 0.8 < null.drawn.std() / np.std(slow) < 1.25


def test_kernel_and_ks_by_brute_force():
    scored = draw(150, 3, over=0.1)  # fewer than KERNEL_CELLS, so that no confidences are joined
    walk = CumulativeDifferences.from_scored(scored)
    found = nulls(walk, ["ks", "skce"], 10, 0)
    order = np.argsort(scored.confidence)
    c, d = scored.confidence[order], (scored.correct - scored.confidence)[order] / 150
    assert np.isclose(found["ks"].observed, np.abs(np.cumsum(d)).max())
    assert np.isclose(found["skce"].observed, d @ np.exp(-np.abs(c[:, None] - c) / 0.1) @ d)


def test_drawing_labels_agrees_with_the_fast_ways():
    data = Predictions.from_arrays(*synthetic(400, 6, scale=1.0))
    values = dict.fromkeys(("ece", "nll", "brier", "top_brier", "accuracy"), 0.0)
    slow = _floors_from_drawn_labels(Scored.from_predictions(data), list(values), values, 400, 0)
    fast = inference.floors(Scored.from_predictions(data), values)
    for name in values:
        width = fast[name].high - fast[name].low
        assert abs(slow[name].mean - fast[name].mean) < 0.07 * width, name
        assert abs(slow[name].high - slow[name].low - width) < 0.2 * width, name


def test_closed_form_of_the_ece_floor():
    """``rhocal.numerics.bins.perfect_error`` takes bins as normal; with thousands of samples the drawn mean is the same."""
    scored = draw(5000, 0)
    drawn = nulls(CumulativeDifferences.from_scored(scored), ["ece"], 1000, 0)["ece"].drawn
    assert np.isclose(drawn.mean(), perfect_error(scored.confidence, scored.weights, 10), rtol=0.03)


def test_neither_order_nor_writing_out_weights_matters():
    scored = draw(300, 0, over=0.05)
    times = np.random.default_rng(0).integers(0, 4, 300)
    weighted = replace(scored, weights=times.astype(float))
    repeated = scored.take(np.random.default_rng(1).permutation(np.repeat(np.arange(300), times)))
    names = ["ece", "adaptive_ece", "nll", "brier", "accuracy"]
    a, b = (
        nulls(CumulativeDifferences.from_scored(view), ["ece", "ks", "skce", "mce"], 100, 0)
        for view in (weighted, repeated)
    )
    for name in a:
        np.testing.assert_allclose(a[name].drawn, b[name].drawn, rtol=1e-12)
        assert np.isclose(a[name].observed, b[name].observed)
    a, b = (inference.intervals(view, names, n_replicates=50) for view in (weighted, repeated))
    for name in names:
        assert np.allclose([a[name].low, a[name].high], [b[name].low, b[name].high], rtol=1e-9)
    a, b = (bootstrap(view, ["ece"], n_replicates=50)["ece"].drawn for view in (weighted, repeated))
    np.testing.assert_allclose(a, b)


def test_weights_that_are_not_whole_count_as_that_many_samples():
    """Every sample twice with weight ½ is every sample once: the same floor and interval, in distribution."""
    scored = draw(2000, 0)
    halves = scored.take(np.repeat(np.arange(2000), 2))
    halves = replace(halves, weights=np.full(4000, 0.5))
    one, two = (nulls(CumulativeDifferences.from_scored(view), ["ece"], 2000, 0)["ece"] for view in (scored, halves))
    assert np.isclose(one.observed, two.observed)
    assert np.isclose(one.drawn.mean(), two.drawn.mean(), rtol=0.05)
    assert np.isclose(one.drawn.std(), two.drawn.std(), rtol=0.1)
    one, two = (bootstrap(view, ["nll"], n_replicates=400)["nll"].drawn.std() for view in (scored, halves))
    assert np.isclose(one, two, rtol=0.15)


def test_many_samples_are_drawn_as_sums_of_neighbours():
    scored = draw(60_000, 0)
    walk = CumulativeDifferences.from_scored(scored)
    assert len(walk.ends) < 1300
    drawn = nulls(walk, ["ece"], 500, 0)["ece"].drawn
    assert np.isclose(drawn.mean(), perfect_error(scored.confidence, scored.weights, 10), rtol=0.03)


# Tests of calibration ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def p_values():
    """Of 300 perfectly calibrated models; full table: experiments/coverage."""
    seen = []
    for k in range(300):
        sample = draw(300, k)
        found = outcomes(sample, statistics(joint_null(sample, 199, k)))
        seen.append({name: test.p_value for name, test in found.items()})
    return {name: np.array([row[name] for row in seen]) for name in seen[0]}


@pytest.mark.parametrize("name", TOP_TESTS)
def test_p_values_are_uniform_for_a_perfect_model(p_values, name):
    assert scipy.stats.kstest(p_values[name], "uniform").pvalue > 0.005
    assert 0.02 < np.mean(p_values[name] <= 0.05) < 0.09


@pytest.mark.parametrize("name", TOP_TESTS)
def test_miscalibration_is_seen(name):
    p, y = synthetic(2000, 5, scale=2.0)
    assert inference.calibration_tests(softmax(p), y)[name].p_value == 1 / 500  # the smallest of 499 draws


def test_spiegelhalter_is_the_floor_test_of_the_top_brier_score():
    """Σ(y − c)² − Σc(1 − c) = Σ(y − c)(1 − 2c) because y² = y."""
    z, y = synthetic(500, 5, scale=1.2)
    data = Predictions.from_arrays(z, y)
    found = inference.floors(Scored.from_predictions(data), ["top_brier"])["top_brier"]
    drawn = inference.calibration_tests(softmax(z), y, n_replicates=4999)["spiegelhalter"].p_value
    assert abs(found.p_value - drawn) < 4 * math.sqrt(found.p_value / 5000) + 1e-3  # one is normal, the other drawn
    mean, sd = Moments.from_scored(Scored.from_predictions(data)).top_brier
    assert np.isclose((found.value - mean) / sd, inference.calibration_tests(softmax(z), y)["spiegelhalter"].statistic)


def test_certain_predictions_leave_nothing_to_chance():
    sure = [[1.0, 0.0]] * 5
    assert inference.calibration_tests(sure, [0] * 5)["gap"].p_value == 1
    assert inference.calibration_tests(sure, [1] * 5)["gap"].p_value == 1 / 500
    assert inference.floor("ece", sure, [0] * 5).p_value == 1


# Intervals --------------------------------------------------------------------------------------------------------------


def test_bca_agrees_with_scipy():
    """scipy.stats.bootstrap (SciPy 1.x), method BCa and percentile, on a skewed mean; both are random, so nearly."""
    scored = draw(300, 4, over=0.05)
    ours = bootstrap(scored, ["nll"], n_replicates=4000)["nll"]
    values = (-scored.log_label,)
    for method, peer in (("percentile", "percentile"), ("bca", "BCa")):
        theirs = scipy.stats.bootstrap(values, np.mean, n_resamples=4000, method=peer, rng=np.random.default_rng(0))
        low, high = theirs.confidence_interval
        found = ours.interval(method)
        assert abs(found.low - low) < 0.06 * (high - low)
        assert abs(found.high - high) < 0.06 * (high - low)


def test_the_way_for_any_metric_agrees_with_the_fast_one(monkeypatch):
    """Where a metric is neither a mean nor known by its bins: computed again for each resample, jackknife in 100 parts."""
    scored = draw(2000, 4, over=0.2)
    fast = {name: bootstrap(scored, [name], n_replicates=50)[name] for name in ("ece", "nll")}
    monkeypatch.setattr("rhocal.metrics.inference.bootstrap.BINNED", {})
    monkeypatch.setattr("rhocal.metrics.inference.bootstrap.PER_SAMPLE", {})
    for name, known in fast.items():
        slow = bootstrap(scored, [name], n_replicates=50)[name]
        np.testing.assert_allclose(known.drawn, slow.drawn)
        assert abs(known.acceleration - slow.acceleration) < 0.02


def test_stratified_resamples_keep_the_classes():
    scored = draw(90, 0)
    strata = np.arange(90) % 3
    counts = np.concatenate(list(resamples(scored, strata, 20, 0)))
    for k in range(3):
        assert (counts[:, strata == k].sum(axis=1) == 30).all()
    p, y = synthetic(200, 3)
    plain = inference.interval("nll", softmax(p), y, method="percentile")
    stratified = inference.interval("nll", softmax(p), y, method="percentile", stratified=True)
    assert plain.low < metrics.nll(softmax(p), y) < plain.high
    assert (plain.low, plain.high) != (stratified.low, stratified.high)


def test_means_of_many_samples_need_no_resampling():
    scored = draw(60_000, 0)
    found, slow = (
        inference.intervals(scored, ["nll"])["nll"],
        inference.intervals(scored, ["nll"], method="percentile")["nll"],
    )
    assert found.method == "errors"
    assert abs(found.low - slow.low) < 0.08 * (slow.high - slow.low)
    assert abs(found.high - slow.high) < 0.08 * (slow.high - slow.low)


def test_wilson_agrees_with_scipy():
    """scipy.stats.binomtest, Wilson's interval without continuity correction."""
    peer = scipy.stats.binomtest(45, 50).proportion_ci(0.95, "wilson")
    found = inference.wilson(0.9, 50, 0.95)
    assert np.allclose([found.low, found.high], [peer.low, peer.high])


@pytest.mark.parametrize(("over", "n"), [(0.0, 500), (0.01, 2000), (0.05, 500), (0.05, 2000)])
def test_the_interval_of_ece_holds_the_truth(over, n):
    """150 trials at nominal 95 %: fewer than 87 % is a chance of 1 in 10,000. Full table: experiments/coverage."""
    hits = 0
    for seed in range(150):
        sample = draw(n, seed, over=over)
        found = ece_interval(sample, equal_width(sample.confidence, 10), 10, 0.95)
        hits += found.low <= over + 1e-12 and over <= found.high
        assert found.low <= found.estimate <= found.high
    assert hits / 150 > 0.87


def test_a_plain_bootstrap_never_holds_zero():
    sample = draw(500, 0)
    assert bootstrap(sample, ["ece"])["ece"].interval("percentile").low > 0
    assert inference.intervals(sample, ["ece"])["ece"].low == 0


def test_intervals_of_odd_samples():
    one = inference.interval("ece", [[0.3, 0.7]], [1])
    assert 0 <= one.low <= one.high <= 1
    sure = inference.interval("ece", [[0.0, 1.0]] * 20, [1] * 20)
    assert sure.low == 0
    assert 0.05 < sure.high < 0.2  # 20 of 20 right still allow an error rate of 3/20
    wrong = inference.interval("ece", [[0.0, 1.0]] * 20, [0] * 20)
    assert wrong.high > 0.99
    assert wrong.low > 0.9


def test_what_cannot_be_is_said():
    p, y = [[0.3, 0.7]] * 4, [1, 1, 0, 1]
    for wrong, message in (
        (lambda: inference.interval("ece", p, y, method="magic"), "method is one of auto"),
        (lambda: inference.interval("nll", p, y, method="inverted"), "is for .*ece"),
        (lambda: inference.interval("nll", p, y, method="wilson"), "is for accuracy"),
        (lambda: inference.interval("nll", p, y, level=95), "between 0 and 1"),
        (lambda: inference.interval("nll", p, None), "labels are missing"),
        (lambda: inference.floor("acc", p, y), "no metric 'acc'"),
        (lambda: inference.floor("ece", p, None), "labels are missing"),
        (lambda: inference.calibration_tests(p, None), "labels are missing"),
        (lambda: inference.paired_differences(p, p, None), "labels are missing"),
        (lambda: inference.paired_differences(p, p, y, metrics=["acc"]), "no metric 'acc'"),
        (lambda: inference.samples_needed([0.5, 2.0]), "between 0 and 1"),
        (lambda: inference.samples_needed([0.5], [0.0]), "excess must lie between"),
        (lambda: inference.typical_confidences(1.0), "accuracy must lie"),
    ):
        with pytest.raises(InputError, match=message):
            wrong()


# Paired differences -------------------------------------------------------------------------------------------------------


def test_paired_differences():
    z, y = synthetic(1000, 5, scale=2.5)
    better, worse = softmax(z / 2.5), softmax(z)
    found = inference.paired_differences(better, worse, y, metrics=["ece", "nll", "brier", "accuracy"])
    for name in ("ece", "nll", "brier"):
        value = getattr(metrics, name)(better, y) - getattr(metrics, name)(worse, y)
        assert np.isclose(found[name].observed, value)
        assert found[name].low < value < found[name].high
        assert found[name].verdict == "better"
    assert found["accuracy"].value == 0
    assert found["accuracy"].verdict == "no difference detected"
    back = inference.paired_differences(worse, better, y)
    assert back["nll"].verdict == "worse"
    assert inference.paired_differences(worse, worse, y)["nll"].p_value == 1


def test_the_interval_of_a_paired_difference_is_that_of_the_mean_difference():
    """NLL is a mean, so the difference is the mean of differences: a normal interval, nearly."""
    a, b = draw(1000, 0), draw(1000, 0, over=0.02)
    found = inference.differences(a, b, ["nll"])["nll"]
    each = b.log_label - a.log_label
    assert np.isclose(found.high - found.low, 2 * 1.96 * each.std() / math.sqrt(1000), rtol=0.1)


def test_holm_by_hand():
    """Sorted .01, .02, .03, .2 times 4, 3, 2, 1 = .04, .06, .06, .2, never falling."""
    assert np.allclose(inference.holm([0.03, 0.01, 0.2, 0.02]), [0.06, 0.04, 0.2, 0.06])
    assert inference.holm([0.6, 0.9]) == [1.0, 1.0]
    reference = draw(500, 0, over=0.1)
    found = inference.differences_to_reference({"same": reference, "other": draw(500, 0)}, reference, ["nll"])
    assert found["same"]["nll"].p_value == 1
    alone = inference.differences(draw(500, 0), reference, ["nll"])["nll"].p_value
    assert np.isclose(found["other"]["nll"].p_value, min(1, 2 * alone))


# Power --------------------------------------------------------------------------------------------------------------------


def test_samples_needed_are_neither_too_few_nor_too_many():
    """With as many samples as it says, the floor test sees the excess in about 80 % of trials."""
    confidence = draw(20_000, 99).confidence
    (needed,) = inference.samples_needed(confidence, [0.05])
    found = []
    for seed in range(200):
        sample = draw(needed.n_samples, seed, over=0.05)
        found.append(nulls(CumulativeDifferences.from_scored(sample), ["ece"], 199, seed)["ece"].p_value <= 0.05)
    assert 0.7 < np.mean(found) < 0.9
    assert np.isclose(
        needed.floor, perfect_error(confidence, np.full(20_000, needed.n_samples / 20_000), 10), rtol=0.05
    )


def test_smaller_excesses_need_more_samples():
    sizes = [
        needed.n_samples
        for needed in inference.samples_needed(inference.typical_confidences(0.8), [0.1, 0.05, 0.02, 0.01])
    ]
    assert sizes == sorted(sizes)
    assert inference.samples_needed([0.7] * 10, [1e-6])[0].n_samples == 0  # more than anybody has
