"""Metrics: by hand, against other implementations, and as sums."""

import numpy as np
import pytest
import sklearn.metrics
import torch
import torchmetrics.functional.classification as tm
from hypothesis import given
from hypothesis import strategies as st

from helpers import examples, real, synthetic
from rhocal import metrics
from rhocal.data.predictions import Predictions
from rhocal.errors import InputError
from rhocal.metrics import METRICS, Scored
from rhocal.numerics.bins import TIE, equal_mass, equal_width, tie_blocks
from rhocal.numerics.special import softmax

# By hand: two samples, ten bins. Both confidences lie in the last bin, (.9, 1].
P = [[0.05, 0.95], [0.0, 1.0]]
Y = [1, 0]


def test_by_hand():
    assert np.isclose(metrics.ece(P, Y), 0.475)  # |.5 − .975|
    assert np.isclose(metrics.mce(P, Y), 0.475)
    assert metrics.accuracy(P, Y) == 0.5
    assert np.isclose(metrics.top_brier(P, Y), (0.05**2 + 1) / 2)
    assert np.isclose(metrics.brier(P, Y), (2 * 0.05**2 + 2) / 2)
    assert np.isclose(metrics.adaptive_ece(P, Y), (0.05 + 1) / 2)  # one sample a bin
    assert np.isclose(metrics.adaptive_ece(P, Y, n_bins=1), 0.475)


def test_nll_by_hand():
    assert np.isclose(metrics.nll([[0.2, 0.8], [0.6, 0.4]], [1, 1]), -(np.log(0.8) + np.log(0.4)) / 2)


def test_more_bins_by_hand():
    p = np.array([[0.55, 0.45], [0.65, 0.35], [0.95, 0.05], [0.97, 0.03]])
    y = [0, 1, 0, 0]  # right, wrong, right, right
    assert np.isclose(metrics.ece(p, y), (0.45 + 0.65 + abs(2 - 1.92)) / 4)
    assert np.isclose(metrics.mce(p, y), 0.65)
    assert np.isclose(metrics.ece(p, y, sample_weight=[1, 0, 1, 1]), (0.45 + 0.08) / 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("confidence", [0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
def test_a_confidence_on_an_edge_belongs_to_the_bin_below(confidence, dtype):
    """.9 and .85 share the bin (.8, .9]; .9 and .95 do not share one."""
    below = confidence - 0.05
    p = np.array([[confidence, 1 - confidence], [below, 1 - below]], dtype)
    if below > 0.5:
        together = abs(1 - confidence - below) / 2  # one right, one wrong, in one bin
        assert np.isclose(metrics.ece(p, [0, 1]), together, atol=1e-6)
    assert equal_width(np.array([confidence], dtype), 10)[0] == round(confidence * 10) - 1


def test_zero_belongs_to_the_first_bin():
    assert equal_width(np.array([0.0]), 10)[0] == 0


def test_kl_by_hand():
    g, s = np.array([[0.5, 0.5]]), np.array([[0.75, 0.25]])
    kl = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
    assert np.isclose(metrics.kl_to_uncalibrated(g, s), kl)
    assert np.isclose(metrics.kl_to_uncalibrated(g, s, reduction="mean"), kl / 2)
    assert metrics.kl_to_uncalibrated(g, g) == 0
    with pytest.raises(InputError, match="differ in shape"):
        metrics.kl_to_uncalibrated(g, [[0.2, 0.3, 0.5]])


@pytest.fixture(scope="module")
def sample():
    logits, labels = synthetic(2000, 7)
    return softmax(logits), labels


def test_agrees_with_scikit_learn(sample):
    """scikit-learn 1.9.1: log loss, Brier score (multiclass, unscaled), accuracy."""
    p, y = sample
    w = np.random.default_rng(0).random(len(y))
    assert np.isclose(metrics.nll(p, y, sample_weight=w), sklearn.metrics.log_loss(y, p, sample_weight=w))
    assert np.isclose(
        metrics.brier(p, y, sample_weight=w),
        sklearn.metrics.brier_score_loss(y, p, sample_weight=w, labels=range(7), scale_by_half=False),
    )
    assert np.isclose(
        metrics.accuracy(p, y, sample_weight=w), sklearn.metrics.accuracy_score(y, p.argmax(1), sample_weight=w)
    )


@pytest.mark.parametrize(("ours", "norm"), [(metrics.ece, "l1"), (metrics.mce, "max")])
def test_agrees_with_torchmetrics(sample, ours, norm):
    """torchmetrics 1.9.0, wherever no confidence is exactly 1.0."""
    p, y = sample
    peer = tm.multiclass_calibration_error(torch.tensor(p), torch.tensor(y), num_classes=7, n_bins=10, norm=norm)
    assert np.isclose(ours(p, y), float(peer), rtol=1e-5)


def test_known_disagreement_with_torchmetrics_at_confidence_one():
    """torchmetrics 1.9.0 puts a confidence of exactly 1.0 into an eleventh bin of its own: .525 instead of .475."""
    peer = tm.multiclass_calibration_error(torch.tensor(P), torch.tensor(Y), num_classes=2, n_bins=10, norm="l1")
    assert np.isclose(float(peer), 0.525)
    assert np.isclose(metrics.ece(P, Y), 0.475)


@pytest.mark.parametrize("name", METRICS)
def test_weights_are_repetition(name, sample):
    p, y = sample
    times = np.random.default_rng(0).integers(0, 4, len(y))
    ours = getattr(metrics, name)
    assert np.isclose(
        ours(p, y, sample_weight=times), ours(np.repeat(p, times, axis=0), np.repeat(y, times)), rtol=1e-12
    )


@pytest.mark.parametrize("name", METRICS)
def test_order_of_samples(name, sample):
    p, y = sample
    order = np.random.default_rng(0).permutation(len(y))
    assert np.isclose(getattr(metrics, name)(p, y), getattr(metrics, name)(p[order], y[order]), rtol=1e-12)


@given(cuts=st.lists(st.integers(1, 1999), min_size=1, max_size=5, unique=True))
@examples(20)
def test_batches_add_up(cuts):
    data = Predictions.from_arrays(*synthetic(2000, 7))
    for metric in METRICS.values():
        if metric.sums is None:
            continue
        parts = [
            metric.sums(Scored.from_predictions(data.take(rows))) for rows in np.split(np.arange(2000), sorted(cuts))
        ]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        assert np.isclose(total.value, metric.value(Scored.from_predictions(data)), rtol=1e-12)


def test_logits_and_probabilities_agree(sample):
    p, y = sample
    for name in METRICS:
        ours = getattr(metrics, name)
        assert np.isclose(ours(np.log(p), y, kind="logits"), ours(p, y), rtol=1e-9)


def test_nll_of_extreme_logits_is_finite():
    assert np.isclose(metrics.nll([[0.0, 5000.0]], [0], kind="logits"), 5000)


def test_logits_handed_over_as_probabilities_are_an_error():
    with pytest.raises(InputError, match="Pass kind='logits' to"):
        metrics.ece([[3.0, -2.0]], [0])


def test_missing_labels_and_bad_bins_are_said():
    with pytest.raises(InputError, match="labels are missing"):
        metrics.ece(P, None)
    for bad in (0, 2.5, "ten"):
        with pytest.raises(InputError, match="n_bins"):
            metrics.ece(P, Y, n_bins=bad)


def test_nan_is_not_scored():
    with pytest.raises(InputError, match="NaN"):
        metrics.ece([[np.nan, 0.5]], [0])


def test_equal_mass_bins_hold_equal_mass():
    values = np.random.default_rng(0).random(1000)
    assert np.bincount(equal_mass(values, 10)).tolist() == [100] * 10
    tied = np.r_[np.full(500, 1.0), values[:500]]
    bins = equal_mass(tied, 10)
    assert len(set(bins[:500])) == 1  # equal values share a bin


def test_a_real_network():
    """cifar100_resnet56: the manifest says accuracy .7263 and mean confidence .868, so ECE is their difference, about."""
    logits, labels, test_logits, test_labels = real("cifar100_resnet56")
    z, y = np.r_[logits, test_logits], np.r_[labels, test_labels]
    assert np.isclose(metrics.accuracy(z, y, kind="logits"), 0.7263, atol=1e-4)
    assert np.isclose(metrics.ece(z, y, kind="logits"), 0.868 - 0.7263, atol=2e-3)


def test_single_precision_does_not_part_ties():
    """Ten levels of confidence, as histogram binning leaves them: in double, in single, as logits and back, summed again."""
    rng = np.random.default_rng(0)
    level = rng.choice(np.linspace(0.31, 0.97, 10), 3000)
    probs = np.column_stack([level, rng.dirichlet(np.full(9, 20.0), 3000) * (1 - level)[:, None]])
    labels = np.where(rng.random(3000) < level, 0, 3)
    single = probs.astype(np.float32)
    noisy = single / single.sum(axis=1, keepdims=True)
    exact = metrics.adaptive_ece(probs, labels)
    assert np.isclose(metrics.adaptive_ece(single, labels), exact, atol=1e-6)
    assert np.isclose(metrics.adaptive_ece(noisy, labels), exact, atol=1e-6)
    assert np.isclose(metrics.adaptive_ece(np.log(single), labels, kind="logits"), exact, atol=1e-6)


def test_ties_are_isolated_clusters():
    step = TIE / 4
    assert tie_blocks(np.array([0.2, 0.2 + step, 0.2 + 2 * step, 0.5])).tolist() == [0, 0, 0, 1]
    chain = 0.2 + step * np.arange(12)  # longer than a tie: values that happen to be dense stay apart
    assert tie_blocks(chain).tolist() == list(range(12))
