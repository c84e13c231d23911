"""Laws of every metric of the table beyond order, weights and batches, and the algorithms beside their slow twins."""

import inspect
import math
import re
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import ROOT, examples, synthetic
from rhocal import metrics
from rhocal.data.predictions import Predictions
from rhocal.errors import InputError
from rhocal.metrics import CORE, METRICS, OTHERS, Scored, kernel
from rhocal.metrics.decompositions import isotonic_accuracy
from rhocal.numerics.special import log_gamma, softmax

NEEDS_PAIRS = {"top_skce", "skce", "kde_ce", "debiased_rmsce"}
every = pytest.mark.parametrize("name", METRICS)


@every
@given(
    n=st.integers(1, 60), m=st.integers(2, 5), scale=st.sampled_from([0.0, 0.5, 2.0, 200.0]), seed=st.integers(0, 999)
)
@examples(15)
def test_range(name, n, m, scale, seed):
    """Whatever comes, the value lies in the stated range."""
    logits, labels = synthetic(n, m, scale=scale, seed=seed)
    if name in NEEDS_PAIRS:
        logits, labels = np.repeat(logits, 2, axis=0), np.repeat(labels, 2)
    value = METRICS[name](softmax(logits), labels)
    low, high = METRICS[name].range
    assert low - 1e-12 <= value <= high + 1e-12 or (name == "auroc" and math.isnan(value))


@every
def test_renaming_classes(name):
    logits, labels = synthetic(500, 5)
    order = np.random.default_rng(0).permutation(5)
    renamed = METRICS[name](logits[:, order], np.argsort(order)[labels], kind="logits")
    assert np.isclose(renamed, METRICS[name](logits, labels, kind="logits"), rtol=1e-9)


@every
@pytest.mark.parametrize("m", [2, 1000])
def test_few_and_many_classes_and_absent_ones(name, m):
    logits, labels = synthetic(60, m)
    assert np.isfinite(METRICS[name](logits, np.minimum(labels, m - 2), kind="logits"))


@every
def test_single_precision(name):
    logits, labels = synthetic(300, 4, dtype=np.float32)
    single = METRICS[name](softmax(logits), labels)
    assert np.isclose(single, METRICS[name](logits.astype(np.float64), labels, kind="logits"), rtol=1e-4, atol=1e-5)


@every
def test_a_line_says_all(name):
    metric = METRICS[name]
    assert metric.name == name
    assert metric.better in {"lower", "higher", "zero", "neither"}
    assert metric.range[0] < metric.range[1]
    assert metric.title
    assert metric.reference
    assert metric.summary.endswith((".", ":"))
    assert metric.__doc__.startswith(metric.summary)
    assert list(inspect.signature(metric).parameters)[:2] == ["probs", "labels"]
    assert getattr(metrics, name) is metric
    assert name in dir(metrics)


def test_per_sample_is_what_the_mean_is_of():
    data = Predictions.from_arrays(*synthetic(300, 4), weights=np.random.default_rng(0).random(300))
    scored = Scored.from_predictions(data)
    means = {name: metric for name, metric in METRICS.items() if metric.per_sample is not None}
    assert set(means) == {
        "accuracy",
        "nll",
        "brier",
        "binary_brier",
        "top_brier",
        "spherical",
        "confidence_gap",
        "entropy",
    }
    for metric in means.values():
        assert np.isclose(np.average(metric.per_sample(scored), weights=scored.weights), metric.value(scored))


def test_over_and_under_confidence_are_the_parts_of_ece():
    p, y = softmax(synthetic(2000, 4, scale=1.1)[0]), synthetic(2000, 4, scale=1.1)[1]
    over, under = metrics.over_confidence(p, y), metrics.under_confidence(p, y)
    assert min(over, under) > 0
    assert np.isclose(over + under, metrics.ece(p, y))
    assert np.isclose(over - under, metrics.confidence_gap(p, y))


def test_parts_of_scores_add_up():
    p, y = softmax(synthetic(2000, 4)[0]), synthetic(2000, 4)[1]
    assert np.isclose(metrics.calibration_loss(p, y) + metrics.refinement_loss(p, y), metrics.top_brier(p, y))
    assert np.isclose(metrics.nll_calibration_loss(p, y) + metrics.nll_refinement_loss(p, y), metrics.nll(p, y))
    assert np.isclose(metrics.reliability(p, y), metrics.rmsce(p, y) ** 2)


def test_core_is_the_comparison():
    assert list(CORE) == ["accuracy", "ece", "mce", "adaptive_ece", "nll", "brier", "top_brier"]
    assert list(metrics.measure_all(Predictions.from_arrays(*synthetic(50, 3)))) == list(CORE)
    assert list(metrics.measure_all(Predictions.from_arrays(*synthetic(50, 3)), ["ks", "nll"])) == ["ks", "nll"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ece", {"bins": 3}, "ece has no option 'bins'; it has n_bins, sample_weight, kind"),
        ("top_k_ece", {"k": 9}, "at most the number of classes, 3; got 9"),
        ("top_k_ece", {"k": 0}, "k must be a whole number"),
        ("classwise_ece", {"threshold": -0.1}, "threshold must be a number that is not negative; got -0.1"),
        ("classwise_ece", {"min_labels": 99}, "no class has 99 labels"),
        ("classwise_ece", {"power": 0.5}, "power must be"),
        ("coverage_at_risk", {"risk": 2}, "risk must be a number from 0 to 1; got 2"),
        ("mmce", {"bandwidth": 0}, "bandwidth must be a positive number; got 0"),
        ("kde_ce", {"power": np.inf}, "power must be finite"),
        ("ici", {"span": "wide"}, "span must be"),
    ],
)
def test_bad_options_are_said(name, options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        METRICS[name](np.full((4, 3), 1 / 3), [0, 1, 2, 0], **options)


@pytest.mark.parametrize("name", sorted(NEEDS_PAIRS))
def test_pairs_need_two_samples(name):
    with pytest.raises(InputError, match=r"needs pairs of samples|no bin holds 2 samples"):
        METRICS[name]([[0.5, 0.5]], [0])


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no 'ecee'"):
        _ = metrics.ecee
    with pytest.raises(AttributeError, match="confidence and correctness only"):
        METRICS["nll"].value(Scored(confidence=np.ones(2), correct=np.ones(2)))


@given(st.integers(1, 80), st.sampled_from([1e-4, 0.01, 0.4, 10.0]), st.integers(0, 999))
@examples(40)
def test_laplacian_in_one_pass(n, bandwidth, seed):
    rng = np.random.default_rng(seed)
    x, r = np.sort(rng.random(n)), rng.normal(size=n)
    slow = r @ np.exp(-np.abs(x[:, None] - x) / bandwidth) @ r
    assert np.isclose(kernel.laplacian_sum(x, r, bandwidth), slow, rtol=1e-10, atol=1e-12)


def test_log_gamma():
    x = np.r_[1.0, np.random.default_rng(0).random(500) * 3000 + 1]
    np.testing.assert_allclose(log_gamma(x), [math.lgamma(v) for v in x], rtol=1e-13, atol=1e-13)


def test_skce_against_all_pairs():
    p, y = softmax(synthetic(60, 3)[0]), synthetic(60, 3)[1]
    off = np.eye(3)[y] - p
    square = ((p[:, None] - p) ** 2).sum(-1)
    terms = (off @ off.T) * np.exp(-square / (2 * 0.5**2))
    assert np.isclose(metrics.skce(p, y), (terms.sum() - np.trace(terms)) / (60 * 59))


def test_skce_in_groups_is_unbiased(monkeypatch):
    """Beyond its size limit: close to all pairs where there is an error; mean 0, within 3.5 errors, where there is none."""
    p, y = softmax(synthetic(2000, 4)[0]), synthetic(2000, 4)[1]
    exact = metrics.skce(p, y)
    monkeypatch.setattr(kernel, "MAX_SAMPLES_ALL_PAIRS", 50)
    monkeypatch.setattr(kernel, "GROUP_SIZE", 50)
    assert np.isclose(metrics.skce(p, y), exact, rtol=0.15)
    calibrated = [metrics.skce(*synthetic(400, 3, scale=1, seed=seed), kind="logits") for seed in range(200)]
    assert abs(np.mean(calibrated)) < 3.5 * np.std(calibrated) / np.sqrt(200)


@pytest.mark.parametrize("name", ["skce", "kde_ce"])
def test_groups_keep_the_laws(monkeypatch, name):
    """Order, and weights as copies, also beyond the size limit; many copies of few samples are no more work."""
    for limit in ("MAX_SAMPLES_ALL_PAIRS", "GROUP_SIZE", "KDE_GROUP_SIZE"):
        monkeypatch.setattr(kernel, limit, 100)
    p, y = softmax(synthetic(450, 3)[0]), synthetic(450, 3)[1]
    times = np.random.default_rng(0).integers(1, 4, 450)
    order = np.random.default_rng(0).permutation(450)
    metric = METRICS[name]
    whole = metric(p, y)
    assert np.isclose(metric(p[order], y[order]), whole, rtol=1e-10)
    copies = metric(np.repeat(p, times, axis=0), np.repeat(y, times))
    assert np.isclose(metric(p, y, sample_weight=times), copies, rtol=1e-10)
    few = metric(np.repeat(p[:9], 200, axis=0), np.repeat(y[:9], 200))
    assert np.isclose(few, metric(p[:9], y[:9], sample_weight=np.full(9, 200)), rtol=1e-10)


def test_isotonic_of_every_small_case():
    """The pooled accuracies ascend, and no ascending step function with one jump fits better."""
    for seed in range(30):
        scored = Scored.from_predictions(Predictions.from_arrays(*synthetic(12, 2, seed=seed)))
        ranked, best = scored.ranked, isotonic_accuracy(scored.ranked)
        assert (np.diff(best) > -1e-12).all()

        def loss(q, ranked=ranked):
            return ranked.weight @ (ranked.accuracy - q) ** 2

        for jump in range(len(best)):
            for low, high in ((0.2, 0.7), (0.5, 0.5), (0.5, 1.0)):
                assert loss(best) <= loss(np.r_[np.full(jump, low), np.full(len(best) - jump, high)]) + 1e-12


def test_the_document_tells_what_the_table_tells():
    """docs/metrics.md: one line for every metric, with the direction, range and streaming of the table."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 6 and re.fullmatch(r"`\w+`", cells[0]):
            rows[cells[0].strip("`")] = cells[1:]
    assert list(rows) == list(METRICS)
    for name, (_formula, extent, better, streams, reference) in rows.items():
        metric = METRICS[name]
        low, high = (f"{end:g}".replace("inf", "∞").replace("-", "−") for end in metric.range)
        assert (extent, better, streams, reference) == (
            f"{low} to {high}",
            metric.better,
            metric.streams,
            metric.reference,
        )
    assert all(f"`{name}`" in text for name in OTHERS)


@every
def test_picked_samples_are_those_samples(name):
    """Whoever picks the same rows of every field, or changes weights, gets the metric of those samples."""
    data = Predictions.from_arrays(*synthetic(400, 4), weights=np.random.default_rng(0).integers(1, 3, 400))
    rows = np.random.default_rng(1).permutation(400)[:300]
    expected = METRICS[name].value(Scored.from_predictions(data.take(rows)))
    scored = Scored.from_predictions(data)
    by_fields = replace(scored, **{field.name: getattr(scored, field.name)[rows] for field in fields(scored)})
    assert np.isclose(METRICS[name].value(by_fields), expected, rtol=1e-12)
    assert np.isclose(METRICS[name].value(scored.take(rows)), expected, rtol=1e-12)
    weights = np.zeros(400)
    weights[rows] = data.weights[rows]
    assert np.isclose(METRICS[name].value(replace(scored, weights=weights)), expected, rtol=1e-9)
