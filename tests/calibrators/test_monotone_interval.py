"""Intervals of non-decreasing probabilities: likelihood ratios, ties, classes, and what they cover."""

import numpy as np
import pytest
from scipy.optimize import isotonic_regression
from scipy.stats import chi2

import rhocal
from helpers import synthetic
from rhocal.calibrators.binary.binary_map import Outcomes
from rhocal.calibrators.binary.monotone_bounds import normalized_bounds
from rhocal.calibrators.binary.monotone_interval import POOLED_FACTOR, MonotoneInterval

pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")
MONOTONE = ("isotonic", "centered-isotonic", "venn-abers")


def outcomes(score, hit, weights=None):
    return Outcomes.from_samples(score, hit, np.ones(len(score)) if weights is None else weights, 2)


def log_likelihood(p, weight, hits):
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(hits > 0, hits * np.log(p), 0) + np.where(weight > hits, (weight - hits) * np.log(1 - p), 0)
    return terms.sum()


def test_bounds_are_where_the_likelihood_ratio_is_critical():
    """By definition: isotonic regressions below and above a score, cut at the value that is tested."""
    rng = np.random.default_rng(3)
    score = np.round(rng.random(80), 1)
    data = outcomes(score, rng.random(80) < score)
    low, high = MonotoneInterval.from_outcomes(data).bounds(data.score, 0.95)
    fit = isotonic_regression(data.rate, weights=data.weight)
    best = log_likelihood(fit.x, data.weight, data.hits)
    for k in (2, 5, 8):
        block = fit.x == fit.x[k]
        limit = chi2.ppf(0.95, 1) * (POOLED_FACTOR + (1 - POOLED_FACTOR) * data.weight[k] / data.weight[block].sum())
        for theta in (low[k], high[k]):
            below, above = (
                isotonic_regression(data.rate[part], weights=data.weight[part]).x
                for part in (slice(k), slice(k + 1, None))
            )
            cut = np.concatenate([np.minimum(below, theta), [theta], np.maximum(above, theta)])
            assert 2 * (best - log_likelihood(cut, data.weight, data.hits)) == pytest.approx(limit, abs=1e-6)


@pytest.mark.parametrize("n_levels", [None, 3])
def test_coverage(n_levels):
    """Without ties a bootstrap of isotonic regression covers 0.90. The error of 60 trials is 0.01."""
    rng = np.random.default_rng(0)
    points = np.linspace(0.1, 0.9, 15) if n_levels is None else np.arange(1, 3) / 3
    covered = []
    for _ in range(60):
        score = rng.random(60)
        score = score if n_levels is None else np.round(score * n_levels) / n_levels
        low, high = MonotoneInterval.from_outcomes(outcomes(score, rng.random(60) < score)).bounds(points, 0.95)
        covered.append(((low <= points) & (points <= high)).mean())
    assert 0.92 < np.mean(covered) < 0.985


def test_bounds_of_normalized_rows():
    """One of three probabilities is uncertain: the odds of all follow it alone."""
    probs, away = np.array([[0.2, 0.3, 0.5]]), np.array([[0.1, 0.0, 0.0]])
    low, high = normalized_bounds(probs, probs - away, probs + away)
    assert (low[0, 0], high[0, 0]) == pytest.approx((0.1 / 0.9, 0.3 / 1.1))
    np.testing.assert_allclose((low[0, 1], high[0, 1]), (0.3 / 1.1, 0.3 / 0.9))
    low, high = normalized_bounds(probs, np.zeros((1, 3)), np.ones((1, 3)))
    assert (low == 0).all()
    assert ((high > 0.65) & (high <= 1)).all()


@pytest.mark.parametrize("name", MONOTONE)
@pytest.mark.parametrize("scope", ["one-vs-rest", "top", "top-capped"])
def test_bounds_hold_probabilities_and_follow_order_weights_and_level(name, scope):
    z, y = synthetic(200, 3, seed=2)
    z = z.round(1)
    cal = rhocal.calibrator(name, scope=scope).fit(z, y)
    replicates = rhocal.bootstrap(cal, z, y)
    low, high = replicates.predict_interval(z)
    probs = cal.predict_proba(z)
    assert ((low >= 0) & (low <= probs) & (probs <= high) & (high <= 1)).all()
    wide = replicates.predict_interval(z, level=0.99)
    assert (wide.low <= low + 1e-12).all()
    assert (wide.high >= high - 1e-12).all()
    order = np.random.default_rng(0).permutation(200)
    np.testing.assert_allclose(rhocal.bootstrap(cal, z[order], y[order]).predict_interval(z), (low, high), atol=1e-12)
    twice = rhocal.calibrator(name, scope=scope).fit(z, y, np.full(200, 2.0))
    one = rhocal.bootstrap(twice, z, y, np.full(200, 2.0)).predict_interval(z)
    other = rhocal.bootstrap(twice, np.vstack([z, z]), np.append(y, y)).predict_interval(z)
    np.testing.assert_allclose(one, other, atol=1e-12)
    assert (one.high - one.low).mean() < (high - low).mean()


def test_two_classes_a_rare_one_an_absent_one_and_an_adapted_mix():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(400, 2)) * 2
    y = (rng.random(400) < 1 / (1 + np.exp(z[:, 0] - z[:, 1] + 3))).astype(int)
    cal = rhocal.calibrator("isotonic").fit(z, y)
    low, high = rhocal.bootstrap(cal, z, y).predict_interval(z)
    np.testing.assert_allclose(low[:, 0], 1 - high[:, 1])
    moved = rhocal.adapt(cal, priors=[0.5, 0.5]).calibrator
    low_moved, high_moved = rhocal.bootstrap(moved, z, y).predict_interval(z)
    factor = (0.5 / (y == 1).mean()) / (0.5 / (y == 0).mean())
    for before, after in ((low, low_moved), (high, high_moved)):
        p = before[:, 1]
        np.testing.assert_allclose(after[:, 1], p * factor / (1 - p + p * factor), rtol=1e-6, atol=1e-9)
    scores = rng.normal(size=(300, 3))
    absent = rhocal.calibrator("venn-abers").fit(scores, np.arange(300) % 2, classes=[0, 1, 2])
    low, high = rhocal.bootstrap(absent, scores, np.arange(300) % 2, classes=[0, 1, 2]).predict_interval(scores)
    assert low[:, 2].max() == 0
    assert 0 < np.median(high[:, 2]) < 0.02
    assert high[:, 2].max() > 0.2  # one sample has the largest score


def test_masked_classes_have_no_interval():
    z, y = synthetic(200, 3, seed=4)
    z = np.where((np.arange(3) == 2) & (np.arange(200)[:, None] % 2 == 0), -np.inf, z)
    y = np.where((y == 2) & np.isneginf(z[:, 2]), 0, y)
    cal = rhocal.calibrator("isotonic").fit(z, y)
    low, high = rhocal.bootstrap(cal, z, y).predict_interval(z)
    masked = np.isneginf(z[:, 2])
    np.testing.assert_allclose(low[masked, 2], high[masked, 2], atol=1e-100)
    assert (high - low)[masked, :2].min() > 0
