"""Shares of classes under label shift."""

import numpy as np
import pytest

from rhocal.errors import InputError
from rhocal.metrics.inference.label_shift import (
    adapted,
    em_shares,
    estimated_shares,
    expected_shares,
    shares_with_labels,
    shrunk,
)


def draw(rng, n, shares, *, distance=1.5, stretch=1.0, spread=1.0):
    """Probabilities that are right for balanced classes if ``stretch`` is 1, and labels."""
    labels = rng.choice(len(shares), n, p=shares)
    place = np.eye(len(shares))[labels] * distance + spread * rng.normal(size=(n, len(shares)))
    p = np.exp(stretch * distance * place)
    return p / p.sum(axis=1, keepdims=True), labels


def test_em_by_hand():
    # Two kinds of samples: ratios p/s of (1.8, .2) and (.2, 1.8). With counts 3 and 1 the likelihood is largest where
    # 3·1.6/(1.6 π + .2) = 1.6/(1.8 − 1.6 π), π the share of the first class: π = 0.8125.
    probs = np.array([[0.9, 0.1]] * 3 + [[0.1, 0.9]])
    assert em_shares(probs, np.array([0.5, 0.5])) == pytest.approx([0.8125, 0.1875], abs=1e-6)


def test_em_finds_the_edge():
    probs = np.array([[0.9, 0.1]] * 50)
    assert em_shares(probs, np.array([0.5, 0.5])) == pytest.approx([1, 0], abs=1e-4)


def test_em_keeps_the_mix_of_calibrated_probabilities():
    probs, _ = draw(np.random.default_rng(0), 40_000, [0.25] * 4)
    assert em_shares(probs, np.full(4, 0.25)) == pytest.approx([0.25] * 4, abs=0.015)


@pytest.mark.parametrize("shares", [(0.98, 0.02), (0.6, 0.25, 0.1, 0.05)])
@pytest.mark.parametrize("stretch", [1.0, 1.6])
def test_labeled_samples_repair_the_estimate(shares, stretch):
    rng = np.random.default_rng(1)
    m, inside, errors, em_errors, p_values = len(shares), 0, [], [], []
    for _ in range(30):
        known, labels = draw(rng, 1000, [1 / m] * m, stretch=stretch)
        probs, _ = draw(rng, 1000, shares, stretch=stretch)
        source = np.bincount(labels, minlength=m) / len(labels)
        found = shares_with_labels(probs, known, labels, source)
        assert found.value.sum() == pytest.approx(1)
        assert (found.low <= found.value).all()
        assert (found.value <= found.high).all()
        inside += ((found.low <= shares) & (shares <= found.high)).mean()
        errors.append(found.value - shares)
        em_errors.append(em_shares(probs, source) - shares)
        p_values.append(found.p_value)
    assert 0.83 <= inside / 30 <= 1  # 95 %; the standard error is 4 %
    assert np.mean(np.square(errors)) < np.mean(np.square(em_errors)) * (1.4 if stretch == 1 else 0.9)
    assert np.mean(np.less(p_values, 0.01)) < 0.1


def test_the_mean_of_what_a_share_may_be_by_hand():
    # Half of a normal distribution has its mean at sqrt(2/pi) standard deviations; five from the edge nothing is cut.
    expected = np.array([0.01 * np.sqrt(2 / np.pi), 0.4, 0.6])
    assert expected_shares(np.array([0.0, 0.4, 0.6]), np.full(3, 0.01)) == pytest.approx(
        expected / expected.sum(), rel=1e-9
    )
    assert expected_shares(np.array([0.05, 0.95]), np.full(2, 0.01)) == pytest.approx([0.05, 0.95], rel=1e-5)
    assert expected_shares(np.array([0.1, 0.9]), np.full(2, 1e9)) == pytest.approx([0.1, 0.9])  # nothing is known


@pytest.mark.parametrize("shares", [(0.98, 0.02), (0.5, 0.3, 0.1, 0.07, 0.03)])
def test_a_rare_class_keeps_a_share_that_it_may_have(shares):
    rng = np.random.default_rng(5)
    m, excess, em_excess = len(shares), [], []
    for _ in range(20):
        probs, _ = draw(rng, 400, shares)
        new, labels = draw(rng, 20_000, shares)
        source, rows = np.full(m, 1 / m), np.arange(20_000)

        def nll(estimate, new=new, labels=labels, rows=rows, source=source):
            return -np.log(adapted(new, estimate / source)[rows, labels]).mean()

        excess.append(nll(estimated_shares(probs, source)) - nll(np.array(shares)))
        em_excess.append(nll(np.maximum(em_shares(probs, source), 0.5 / 401)) - nll(np.array(shares)))
    assert max(excess) < 0.5 * max(em_excess)
    assert np.mean(excess) < np.mean(em_excess)


def test_scores_that_tell_nothing_change_nothing():
    source = np.array([0.9, 0.1])
    assert estimated_shares(np.tile(source, (50, 1)), source) == pytest.approx(source)
    assert estimated_shares(np.full((50, 3), 1 / 3), np.full(3, 1 / 3), 100) == pytest.approx([1 / 3] * 3)


def test_samples_that_look_different_are_no_label_shift():
    rng = np.random.default_rng(2)
    known, labels = draw(rng, 4000, [0.5, 0.5])
    probs, _ = draw(rng, 4000, [0.8, 0.2], spread=1.4)
    assert shares_with_labels(probs, known, labels, np.array([0.5, 0.5])).p_value < 1e-3


@pytest.mark.parametrize(("n_labeled", "n", "share"), [(100, 1000, 0.5), (60, 2000, 0.3)])
def test_few_labels_do_not_reject_label_shift(n_labeled, n, share):
    # 150 trials of the 1 % test: below 0.04 with a chance of 99.7 %; chi-squared in ten cells rejected 0.061 and 0.106.
    rng, p_values = np.random.default_rng(7), []
    while len(p_values) < 150:
        known, labels = draw(rng, n_labeled, [0.5, 0.5])
        probs, _ = draw(rng, n, [1 - share, share])
        p_values.append(shares_with_labels(probs, known, labels, np.array([0.5, 0.5])).p_value)
    assert np.mean(np.less(p_values, 0.01)) < 0.04


@pytest.mark.parametrize("share", [0.0, 0.002])
def test_intervals_of_rare_classes_that_are_told_apart(share):
    # Nearly all that is unknown is how many there are: Wilson's interval holds 0.92 to 0.97, Wald's 0.63 of shares of 0.002.
    rng, inside = np.random.default_rng(8), []
    for _ in range(60):
        known, labels = draw(rng, 400, [0.5, 0.5], distance=6)
        probs, _ = draw(rng, 500, [1 - share, share], distance=6)
        estimate = shares_with_labels(probs, known, labels, np.array([0.5, 0.5]))
        inside.append(estimate.low[1] <= share <= estimate.high[1])
        assert estimate.high[1] > 0.005
    assert np.mean(inside) > 0.8  # 0.92 less three standard errors


def test_order_does_not_matter():
    rng = np.random.default_rng(3)
    known, labels = draw(rng, 500, [0.5, 0.3, 0.2])
    probs, _ = draw(rng, 400, [0.2, 0.3, 0.5])
    source = np.bincount(labels) / 500
    one = shares_with_labels(probs, known, labels, source)
    order = rng.permutation(500)
    two = shares_with_labels(probs[::-1], known[order], labels[order], source)
    assert two.value == pytest.approx(one.value, abs=1e-8)
    assert two.high == pytest.approx(one.high, abs=1e-6)


def test_what_cannot_be_told_is_an_error():
    rng = np.random.default_rng(4)
    known, labels = draw(rng, 300, [0.5, 0.5])
    with pytest.raises(InputError, match="the rarest class has 0 labeled samples"):
        shares_with_labels(known, known, np.zeros(300, int), np.array([0.5, 0.5]))
    flat = np.full((300, 2), 0.5)
    with pytest.raises(InputError, match="do not tell the classes apart"):
        shares_with_labels(flat, flat, labels, np.array([0.5, 0.5]))


def test_many_classes_that_did_not_change_nearly_keep_their_shares():
    rng, source = np.random.default_rng(9), np.full(20, 0.05)
    probs, _ = draw(rng, 1000, source)
    distance, em_distance = (
        np.abs(shares - source).sum() for shares in (estimated_shares(probs, source, 1000), em_shares(probs, source))
    )
    assert distance < 0.7 * em_distance


@pytest.mark.parametrize("n_classes", [2, 5])
def test_rare_shares_that_are_well_known_stay(n_classes):
    rng, source = np.random.default_rng(10), np.full(n_classes, 1 / n_classes)
    shares = np.full(n_classes, 0.002)
    shares[0] = 1 - shares[1:].sum()
    probs, labels = draw(rng, 100_000, shares, distance=6)
    truth = np.bincount(labels, minlength=n_classes) / len(labels)
    assert estimated_shares(probs, source, 1000) == pytest.approx(truth, abs=2e-4)


def test_a_small_correction_is_noise():
    noise = np.array([[1.0, -1.0], [-1.0, 1.0]]) * 1e-4
    assert shrunk(np.array([0.005, -0.005]), noise) == pytest.approx([0, 0])
    assert shrunk(np.array([0.5, -0.5]), noise) == pytest.approx([0.5, -0.5], rel=1e-2)
