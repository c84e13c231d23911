"""Thresholds with a guarantee: exact p-values, a fixed sequence, and what both promise."""

import numpy as np
import pytest
from scipy.stats import binom

from rhocal.metrics.inference.risk_control import (
    Candidates,
    certify,
    count_candidates,
    mean_bound,
    min_trials,
    more_samples,
    rank_thresholds,
    start_levels,
    together,
)
from rhocal.numerics.special import binomial_cdf, binomial_upper


def candidates(scores, errors, risk="error", **options):
    scores, errors = np.asarray(scores, float), np.asarray(errors, float)
    return count_candidates(scores, errors, np.ones(len(scores)), risk, rank_thresholds(scores), **options)


def test_bounds_of_shares_by_hand():
    """No error in 149 trials shows 2 %: .98^149 = .0493; the bound of k = 0 is 1 − δ^(1/n)."""
    assert binomial_cdf(np.array([0, 3]), np.array([149, 0]), 0.02).tolist() == pytest.approx([0.98**149, 1.0])
    assert float(binomial_upper(np.array(0), np.array(149), 0.95)) == pytest.approx(1 - 0.05 ** (1 / 149))
    assert binomial_upper(np.array([5, 0]), np.array([5, 0]), 0.95).tolist() == [1.0, 1.0]
    assert [min_trials(k, 0.02, 0.05) for k in (0, 3)] == [149, 386]
    assert binom.cdf(3, 386, 0.02) <= 0.05 < binom.cdf(3, 385, 0.02)


def test_tied_scores_are_accepted_together():
    scores = np.array([0.9, 0.9, 0.8, 0.8, 0.8, 0.6])
    found = candidates(scores, [0, 1, 0, 0, 1, 1])
    assert found.accepted.tolist() == [2, 5, 6]
    assert found.losses.tolist() == [1, 2, 3]
    assert all(scores.max() >= t and t not in scores for t in found.thresholds[:-1])
    assert found.thresholds[-1] == 0


def test_scores_that_differ_by_rounding_are_accepted_together():
    one = np.float32(0.75)
    tied = [one, np.nextafter(one, np.float32(0)), np.nextafter(np.float64(one), 0), np.nextafter(np.float64(one), 1)]
    scores = np.array([0.9, *tied, 0.6, 1.7e-7, 1.6e-7])
    thresholds = rank_thresholds(scores)
    assert [int((scores >= t).sum()) for t in thresholds] == [1, 5, 6, 7, 8]
    assert np.array_equal(thresholds.astype(np.float32), thresholds)


def test_thresholds_separate_scores_that_are_apart():
    """Among a million scores there is one near every rank; those of a saturated model are one."""
    dense = np.random.default_rng(0).random(1_000_000)
    thresholds = rank_thresholds(dense)
    shares = np.arange(1, 251) / 250
    assert all(np.abs(thresholds - (1 - share)).min() < 0.003 for share in shares)
    saturated = rank_thresholds(np.append(1 - np.random.default_rng(1).random(1000) * 1e-6, [0.5]))
    assert len(saturated) == 2


def test_rates_of_a_class():
    scores, positive = np.array([0.9, 0.7, 0.5, 0.3]), np.array([1, 0, 1, 0])
    fpr = candidates(scores, 1 - positive, "fpr", subjects=positive == 0)
    assert fpr.risk.tolist() == [0, 0.5, 0.5, 1]
    fnr = candidates(scores, 1 - positive, "fnr", subjects=positive == 1)
    assert fnr.thresholds[0] == 0
    assert fnr.risk.tolist() == [0, 0, 0.5, 0.5]


def test_a_sequence_stops_at_the_first_failure_and_starts_again():
    trials = np.array([100.0, 200, 300, 1000, 2000, 3000])
    clean = Candidates(trials, trials, trials, np.zeros(6))
    assert certify(clean, 0.05, 0.95, "error").index == 5
    levels = start_levels(trials, 0.05, 0.05)
    assert levels == pytest.approx({0: 0.01, 1: 0.01, 3: 0.02, 5: 0.01})  # 90, 198, 398, 901 and 2,504 or more
    failing = Candidates(trials, trials, trials, np.array([0, 50.0, 50, 60, 70, 200]))
    assert failing.p_values(0.05)[4] < 0.01  # but it follows a failure, and no start
    assert certify(failing, 0.05, 0.95, "error").index == 0
    late = Candidates(trials, trials, trials, np.array([9.0, 50, 50, 60, 70, 100]))
    assert certify(late, 0.05, 0.95, "error").index == 5
    assert certify(late, 0.05, 0.95, "error").level == pytest.approx(0.01)


@pytest.mark.parametrize("risk", ["error", "cost"])
def test_false_certificates_are_rare_where_every_threshold_is_bad(risk):
    """300 trials of a flat risk just above the target: at most 5 % in truth, 27 of 300 would refute that (p < .001)."""
    n_false = 0
    for trial in range(300):
        rng = np.random.default_rng(trial)
        scores, losses = rng.random(400), (rng.random(400) < 0.0501).astype(float)
        found = candidates(scores, losses, risk, target=0.05)
        n_false += certify(found, 0.05, 0.95, risk).index is not None
    assert n_false < 27


def test_the_order_of_samples_and_copies_do_not_matter():
    rng = np.random.default_rng(3)
    scores, errors = rng.random(500).round(2), (rng.random(500) < 0.02).astype(float)
    order, weights = rng.permutation(500), rng.integers(0, 3, 500).astype(float)
    repeated = np.repeat(np.arange(500), weights.astype(int))
    for risk in ("error", "cost"):
        options = {"target": 0.1}
        thresholds = rank_thresholds(scores, weights)
        one = count_candidates(scores, errors, weights, risk, thresholds, **options)
        two = candidates(scores[repeated], errors[repeated], risk, **options)
        three = count_candidates(scores[order], errors[order], weights[order], risk, thresholds, **options)
        for other in (two, three):
            assert np.array_equal(one.thresholds, other.thresholds)
            np.testing.assert_allclose(one.p_values(0.1), other.p_values(0.1), rtol=1e-9)


def test_bounds_of_means_hold_and_shrink():
    rng = np.random.default_rng(5)
    bounds = {n: [mean_bound(rng.beta(0.5, 9.5, n), np.ones(n), 0.95) for _ in range(60)] for n in (100, 2000)}
    assert all(np.mean(np.array(found) < 0.05) <= 0.1 for found in bounds.values())
    assert np.mean(bounds[2000]) < 0.06 < np.mean(bounds[100]) < 0.2


def test_labels_that_would_do():
    trials = np.array([100.0])
    clean, at = more_samples(Candidates(trials, trials, trials, np.array([0.0])), 0.02, 0.05, 1000)
    assert at == 0
    assert 490 < clean < 3000  # .98^149 < .05 with no error; half an error is assumed
    assert more_samples(Candidates(trials, trials, trials, np.array([5.0])), 0.02, 0.05, 1000) == (None, None)
    few = np.array([3.0])
    assert more_samples(Candidates(few, few, few, np.array([0.0])), 0.02, 0.05, 1000) == (None, None)


def test_a_certificate_of_every_part_is_false_in_few_trials():
    """The risk is just above the target in one of two parts: whatever is certified is false, in at most 5 % of trials."""
    n_false = n_whole = 0
    for trial in range(400):
        rng = np.random.default_rng(trial)
        scores, is_first = rng.uniform(0.6, 0.99, 600), np.arange(600) % 2 == 0
        losses = (rng.random(600) < np.where(is_first, 0.101, 0.0)).astype(float)
        thresholds = rank_thresholds(scores)
        whole, *parts = (
            count_candidates(scores[rows], losses[rows], np.ones(rows.sum()), "error", thresholds)
            for rows in (is_first | True, is_first, ~is_first)
        )
        n_whole += certify(whole, 0.1, 0.95, "error").index is not None  # 5 % of all are wrong
        n_false += certify(together(parts, whole), 0.1, 0.95, "error").index is not None
    assert n_whole > 300
    assert 0 < n_false <= 34  # 20 are expected at most; more than 34 have a probability of 0.001
