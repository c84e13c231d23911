"""Intervals of means with few errors, metrics without a valid interval, and paired differences of means."""

import json
import math

import numpy as np
import pytest

import rhocal
from helpers import run, synthetic
from rhocal.metrics import METRICS, inference
from rhocal.metrics.inference.intervals import no_interval_reason
from rhocal.metrics.inference.mean_interval import LOSSES, LossParts
from rhocal.metrics.scored import Scored
from rhocal.numerics.special import softmax

DISTANCES = ("rmsce", "mce", "smooth_ece", "ks", "kuiper", "classwise_ece", "mmce", "tace", "ici", "reliability")


def samples(confidence, correct, n_classes=10):
    other = (1 - confidence) / (n_classes - 1)
    log_label = np.log(np.where(correct > 0, confidence, other))
    squares = confidence**2 + (n_classes - 1) * other**2
    return Scored(confidence, correct, log_label, squares, np.ones(len(correct)))


@pytest.mark.parametrize(("confidence", "accuracy"), [(0.995, 0.995), (0.999, 0.999), (0.999, 0.995)])
def test_intervals_of_losses_with_few_errors_contain_the_truth(confidence, accuracy):
    """200 samples with one error expected, or none: coverage was .64 and .18."""
    rng = np.random.default_rng(0)
    c = np.full(200, confidence)
    ends = {k: samples(c[:1], np.array([k])) for k in (0.0, 1.0)}
    hits = []
    for seed in range(120):
        found = inference.intervals(samples(c, (rng.random(200) < accuracy).astype(float)), ["nll", "brier"], seed=seed)
        for name, limits in found.items():
            right, wrong = (METRICS[name].value(ends[k]) for k in (1.0, 0.0))
            hits.append(limits.low <= accuracy * right + (1 - accuracy) * wrong <= limits.high)
    assert np.mean(hits) >= 0.92


def test_no_error_still_leaves_a_doubt():
    """By hand: 0 errors of 200 allow an error rate of 2.5/200 (Jeffreys, 97.5 %), each of −log(.001/9) = 9.1."""
    found = inference.intervals(samples(np.full(200, 0.999), np.ones(200)), ["nll"])["nll"]
    assert found.low == pytest.approx(-math.log(0.999), rel=0.05)
    assert found.high == pytest.approx(2.5 / 200 * 9.1, rel=0.15)
    assert found.method == "errors"


def test_with_many_errors_the_interval_is_that_of_the_mean():
    rng = np.random.default_rng(1)
    c = np.minimum(0.1 + 0.9 * rng.beta(2.2, 0.7, 5000), 1 - 1e-6)
    scored = samples(c, (rng.random(5000) < c).astype(float))
    for name in ("nll", "brier", "top_brier", "confidence_gap"):
        values = METRICS[name].per_sample(scored)
        found, reach = inference.intervals(scored, [name])[name], 1.96 * values.std() / math.sqrt(5000)
        assert found.low == pytest.approx(values.mean() - reach, abs=0.1 * reach)
        assert found.high == pytest.approx(values.mean() + reach, abs=0.1 * reach)


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_of_an_error_is_that_of_the_metric(name):
    """With equal other classes the loss of an error is known exactly."""
    c = np.array([0.4, 0.9, 0.99])
    for correct in (0.0, 1.0):
        scored = samples(c, np.full(3, correct), 4)
        parts = LossParts.from_scored(name, scored, METRICS[name].per_sample(scored))
        assert np.allclose(parts.if_right if correct else parts.if_wrong, parts.losses)


def test_saturated_samples_have_finite_limits():
    certain = Scored(np.ones(50), np.ones(50), np.zeros(50), np.ones(50), np.ones(50))
    for name in LOSSES:
        found = inference.intervals(certain, [name])[name]
        assert math.isfinite(found.low)
        assert found.low < found.high < math.inf


def test_metrics_without_a_valid_interval_have_none_and_say_why():
    """The intervals of these contained 0 in none of twelve perfect samples."""
    logits, labels = synthetic(150, 4)
    result = rhocal.evaluate(logits, labels, kind="logits", metrics=[*DISTANCES, "spiegelhalter_z"], n_replicates=20)
    for value in result.values:
        assert math.isnan(value.low)
        assert value.no_interval_reason
        assert math.isfinite(value.floor)
    assert "no interval for RMSCE, MCE" in str(result)
    assert "no interval for Spiegelhalter Z: it is a test statistic" in str(result)
    document = json.loads(result.to_json())["values"]["ks"]
    assert document["low"] is None
    assert "floor" in document["no_interval_reason"]


def test_every_metric_has_an_interval_or_a_reason():
    logits, labels = synthetic(60, 3)
    probs = softmax(logits)
    for name in METRICS:
        found = inference.interval(name, probs, labels, n_replicates=20)
        assert math.isnan(found.low) == bool(found.reason) == bool(no_interval_reason(name))


def test_the_command_line_prints_a_dash(tmp_path):
    logits, labels = synthetic(120, 3)
    np.savez(tmp_path / "z.npz", logits=logits, labels=labels)
    text = run("evaluate", tmp_path / "z.npz", "--metrics", "ece,smooth_ece").stdout
    assert "no interval for Smooth ECE" in text
    found = json.loads(run("evaluate", tmp_path / "z.npz", "--metrics", "ece,smooth_ece", "--json").stdout)
    value = found["evaluation"]["uncalibrated"]["values"]["smooth_ece"]
    assert value["low"] is None
    assert value["no_interval_reason"]


def test_differences_of_means_with_few_errors():
    """A is perfect at .995, B at .999 for the same decisions: the truth is known, and no error must not be a proof."""
    rng = np.random.default_rng(3)
    a, b, right = 0.995, 0.9995, 0.995
    truth = {name: sum(share * (METRICS[name].value(samples(np.array([a]), np.array([k])))
                                - METRICS[name].value(samples(np.array([b]), np.array([k]))))
                       for k, share in ((1.0, right), (0.0, 1 - right))) for name in ("nll", "brier")}  # fmt: skip
    hits = []
    for seed in range(100):
        correct = (rng.random(200) < right).astype(float)
        found = inference.differences(samples(np.full(200, a), correct), samples(np.full(200, b), correct),
                                      ["nll", "brier"], seed=seed)  # fmt: skip
        hits += [found[name].low <= truth[name] <= found[name].high for name in truth]
    assert np.mean(hits) >= 0.9


def test_differences_of_biased_metrics_are_not_tested():
    logits, labels = synthetic(100, 3)
    found = inference.paired_differences(softmax(logits), softmax(logits / 2), labels, metrics=["ks"], tolerance=0.1)[
        "ks"
    ]
    assert found.verdict == "not tested"
    assert math.isnan(found.low)
    assert math.isfinite(found.value)


def test_a_single_error_does_not_show_a_difference():
    """A is right on all samples, B wrong on one: as likely A would have been the one that is wrong."""
    labels = np.arange(300) % 3
    a, b = np.eye(3)[labels], np.eye(3)[np.where(np.arange(300) == 7, (labels + 1) % 3, labels)]
    found = inference.paired_differences(a, b, labels, metrics=["nll", "brier"])
    for name in found:
        assert found[name].p_value > 0.2
        assert found[name].low < 0 < found[name].high


def test_differences_of_ece_stay_within_one():
    found = inference.paired_differences([[0.3, 0.7]], [[0.7, 0.3]], [1])["ece"]
    assert -1 <= found.low <= found.value <= found.high <= 1
