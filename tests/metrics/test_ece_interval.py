"""The interval of ECE: its statistic by quadrature, the shares by enumeration, coverage in small."""

import itertools

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from rhocal.metrics.inference import absolute_mean
from rhocal.metrics.inference.ece_interval import (
    BinMoments,
    ece_interval,
    invert,
    statistic,
    tail_probabilities,
)
from rhocal.metrics.inference.shares import FADE, N_STEPS, ONE_SIGN, SPARSE, NoisyBinSums, posterior_means
from rhocal.metrics.inference.sparse_bins import rate_interval
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import equal_width


def draw(n, rng, accuracy):
    c = np.minimum(0.1 + 0.9 * rng.beta(2.2, 0.7, n), 1 - 1e-6)
    correct = (rng.random(n) < accuracy(c)).astype(float)
    return Scored(c, correct, np.zeros(n), np.zeros(n), np.ones(n))


@pytest.mark.parametrize("mean", [0.0, 0.3, 0.75, 2.0, 5.0])
def test_bias_and_variance_of_a_size_by_quadrature(mean):
    def moment(power):
        def part(z):
            return absolute_mean.statistic(np.array(abs(z))) ** power * scipy.stats.norm.pdf(z - mean)

        return scipy.integrate.quad(part, mean - 9, mean + 9, points=[0.0], limit=200)[0]

    first, second = moment(1), moment(2)
    assert np.isclose(first - mean, absolute_mean.bias(np.array(mean)), atol=1e-7)
    assert np.isclose(second - first**2, absolute_mean.variance(np.array(mean)), atol=1e-4)
    assert -absolute_mean.MAX_BIAS < first - mean < 1e-7
    assert second - first**2 < absolute_mean.MAX_VARIANCE


def test_a_size_is_the_mean_over_a_noisy_sign_and_an_independent_value():
    noise = np.random.default_rng(0).standard_normal(1_000_000)
    for z in (0.0, 0.4, 2.0):
        drawn = np.sign(z + absolute_mean.TAU * noise) * (z - noise / absolute_mean.TAU)
        assert abs(drawn.mean() - absolute_mean.statistic(np.array(z))) < 5 * drawn.std() / 1000


def test_the_distribution_of_a_sum_of_sizes():
    rng = np.random.default_rng(0)
    deviations, means = np.array([1.0, 0.5, 2.0]), np.array([0.0, 1.0, 3.0])
    drawn = absolute_mean.statistic(np.abs(means + rng.standard_normal((200_000, 3)))) @ deviations
    scores = (drawn - drawn.mean()) / drawn.std()
    at = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    found = absolute_mean.probability_below(at, np.tile(means, (5, 1)), deviations)
    assert np.allclose(found, [(scores < x).mean() for x in at], atol=0.005)


def test_shares_by_enumeration():
    """All ways to deal 64 steps to three bins, by hand: any signs with a sparse prior, or one sign with a flat one."""
    z, s, total = np.array([0.7, -0.2, 1.9]), np.array([1.0, 0.5, 1.5]), 2.2
    edges = np.append(0, np.arange(N_STEPS + 1) + 0.5)
    ways = np.array(
        [(i, j, N_STEPS - i - j) for i, j in itertools.product(range(N_STEPS + 1), repeat=2) if i + j <= N_STEPS]
    )
    t = ways / N_STEPS * total / s
    plus, minus = np.exp(-((z / s - t) ** 2) / 2), np.exp(-((z / s + t) ** 2) / 2)
    weight = np.zeros(len(ways))
    for chance, alpha, likelihood in (
        (1 - ONE_SIGN, SPARSE, ((plus + minus) / 2).prod(axis=1)),
        (ONE_SIGN, 1.0, (plus.prod(axis=1) + minus.prod(axis=1)) / 2),
    ):
        prior = np.diff(edges**alpha)[ways].prod(axis=1)
        weight += chance * likelihood * prior / prior.sum()
    (mean,) = posterior_means(NoisyBinSums.from_bins(z, s), np.array([total]), [lambda x: x])
    np.testing.assert_allclose(mean[0], weight @ t / weight.sum(), rtol=1e-6)
    assert np.isclose(mean[0] @ s, total)
    assert len(FADE) == N_STEPS + 1


def test_far_from_zero_it_is_the_normal_interval():
    """All signs are known: Σ|Z| ± 1.96 standard errors."""
    found = invert(np.array([0.1, -0.2]), np.array([0.003, 0.004]), 0.95)
    assert np.isclose(found.estimate, 0.3, atol=1e-4)
    assert np.isclose(found.low, 0.3 - 1.96 * 0.005, atol=2e-4)
    assert np.isclose(found.high, 0.3 + 1.96 * 0.005, atol=2e-4)


def test_known_bins_are_joined_without_changing_the_answer():
    """A bin at 5.9 standard deviations is in doubt, at 6.1 it is known; the interval moves with it and no farther."""
    s = np.array([0.01, 0.02, 0.01])
    near, past = (invert(np.array([x * 0.01, 0.01, -0.004]), s, 0.95) for x in (5.9, 6.1))
    assert np.allclose([past.low - near.low, past.high - near.high], 0.002, atol=0.003)


def test_the_interval_is_the_set_of_totals_that_are_not_rejected():
    rng = np.random.default_rng(0)
    s = np.array([0.002, 0.004, 0.003, 0.001])
    for scale in (0.0, 1.0, 3.0, 8.0):
        z = s * (scale * np.array([1, -1, 0, 1]) + rng.standard_normal(4))
        found = invert(z, s, 0.95)
        inside, outside = found.low + (found.high - found.low) * np.array([[0.05, 0.95], [-0.05, 1.05]])
        chance, upper, lower = tail_probabilities(z, s, np.maximum(np.r_[inside, outside], 0), 0.95)
        kept = (chance <= 1 - upper) & (chance >= lower)
        assert kept[:2].all()
        assert not kept[3]
        assert found.low == 0 or not kept[2]
        assert statistic(z, s) < found.high


def test_a_higher_level_is_wider():
    z, s = np.array([0.01, -0.004, 0.0]), np.array([0.003, 0.004, 0.002])
    widths = [invert(z, s, level) for level in (0.5, 0.8, 0.95, 0.99)]
    assert all(a.low >= b.low and a.high < b.high for a, b in itertools.pairwise(widths))


def test_no_errors_seen_is_not_no_errors():
    """20 of 20 right at confidence 1 allow 1 − .05^(1/20) = .139."""
    n = 20
    sure = Scored(np.ones(n), np.ones(n), np.zeros(n), np.zeros(n), np.ones(n))
    assert np.isclose(ece_interval(sure, equal_width(sure.confidence, 10), 10, 0.95).high, 1 - 0.05 ** (1 / 20))


@pytest.mark.parametrize(
    ("confidence", "accuracy", "n"), [(0.99, 0.98, 100), (0.99, 0.99, 300), (0.999, 0.997, 1000), (0.02, 0.03, 200)]
)
def test_few_errors_have_exact_intervals(confidence, accuracy, n):
    """Over all numbers of errors: the true ECE is in the interval with .92 at least, and above it with .05 at most."""
    truth, covered, above = abs(confidence - accuracy), 0.0, 0.0
    for errors in range(n + 1):
        chance = scipy.stats.binom.pmf(errors, n, 1 - accuracy)
        if chance > 1e-5:
            correct = (np.arange(n) >= errors).astype(float)
            sample = Scored(np.full(n, confidence), correct, np.zeros(n), np.zeros(n), np.ones(n))
            found = ece_interval(sample, equal_width(sample.confidence, 10), 10, 0.95)
            covered += chance * (found.low <= truth + 1e-12 and truth <= found.high + 1e-12)
            above += chance * (truth > found.high + 1e-12)
    assert covered >= 0.92
    assert above <= 0.0505


def test_opposite_errors_of_bins_with_few_do_not_cancel():
    """Over-confident in one bin, as much under-confident in the next: the limit is below the true .06 in few samples."""
    rng, n = np.random.default_rng(0), 60
    confidence, accuracy = np.repeat([0.92, 0.98], n), np.repeat([0.98, 0.92], n)
    bins, below = np.repeat([0, 1], n), 0
    for _ in range(100):
        correct = (rng.random(2 * n) < accuracy).astype(float)
        sample = Scored(confidence, correct, np.zeros(2 * n), np.zeros(2 * n), np.ones(2 * n))
        below += ece_interval(sample, bins, 2, 0.95).high < 0.06
    assert below <= 8


@pytest.mark.parametrize(("k", "n"), [(0, 20), (3, 50), (2.5, 40.7), (0.3, 9.0), (12, 12)])
def test_mid_p_interval_of_a_rate(k, n):
    """Half of the probability of the observed number counts, in either tail; fractions are between whole numbers."""
    low, high = rate_interval(k, n, 0.95)

    def below(rate):
        at_most = scipy.special.betainc(n - k + 1e-300, k + 1, 1 - rate)
        less = scipy.special.betainc(n - k + 1, max(k, 1e-300), 1 - rate)
        return (at_most + (less if k else 0)) / 2

    assert low == 0 if k == 0 else np.isclose(below(low), 0.975)
    assert high == 1 if k == n else np.isclose(below(high), 0.025)
    assert low <= k / n <= high


@pytest.mark.parametrize(
    ("accuracy", "truth"),
    [
        (lambda c: c, 0.0),
        (lambda c: c - 0.03 * (c > 0.9), 0.01111),
        (lambda c: c - 0.0235 * np.tanh(8 * (c - 0.75)), 0.0169),
    ],
    ids=["perfect", "one bin", "tilted"],
)
def test_coverage_in_small(accuracy, truth):
    """400 trials of 2,000 samples: a coverage of .95 comes out below .92 or above .977 in 1 of 100 draws; the seed is fixed."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        sample = draw(2000, rng, accuracy)
        moments = BinMoments.of(sample, equal_width(sample.confidence, 10), 10).normal_sums
        chance, upper, lower = tail_probabilities(*moments, np.array([truth]), 0.95)
        held += int(lower[0] <= chance[0] <= 1 - upper[0])
    assert 0.92 < held / 400 < 0.977
