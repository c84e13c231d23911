"""The bets of a monitor: fair if the model is calibrated, and never ruined."""

import numpy as np
import pytest

from helpers import confidence_streams
from rhocal.evaluation.bets import (
    DIRECTION_SHARES,
    GAPS,
    MIN_ERROR,
    N_BETS,
    STAKES,
    advance,
    directions,
    gap_gains,
    log_factors,
    unit_gains,
    waiting,
)
from rhocal.evaluation.monitor import Monitor


def test_the_wealth_of_a_fair_game_has_mean_one():
    """Of every bet, and of all together; with a margin it is below 1."""
    confidence, correct = (part.ravel() for part in confidence_streams(40_000, 1, seed=1))
    each = np.arange(len(confidence))

    def factors(margin):
        price = np.full(len(confidence), margin)
        gains = unit_gains(confidence, correct, price, 0.7, each)
        return np.exp(log_factors(*gains, gap_gains(confidence, correct, price, each)))

    fair = factors(0.0)
    assert fair.shape == (N_BETS, len(confidence))
    assert (np.abs(fair.mean(axis=1) - 1) < 4.5 * fair.std(axis=1) / np.sqrt(len(confidence))).all()
    assert (factors(0.05).mean(axis=1) < 1).all()
    assert fair.min() >= 0.1 - 1e-12  # no sample ruins a bet


def test_the_bet_on_a_gap_is_a_ratio_of_likelihoods():
    """An accuracy of .9 − .02 − .08 against .9 − .02, and an error or none."""
    for correct, ratio in ((0.0, (0.12 + 0.08) / 0.12), (1.0, 0.80 / 0.88)):
        gains = gap_gains(np.array([0.9]), np.array([correct]), np.array([0.02]), np.array([0]))
        assert 1 + gains[1, GAPS.index(0.08), 0] == pytest.approx(ratio)
    sure = gap_gains(np.array([1.0]), np.array([0.0]), np.array([0.0]), np.array([0]))
    assert 1 + sure[1, GAPS.index(0.08), 0] == pytest.approx(1 + 0.08 / MIN_ERROR)  # no more than of an error in 1,000


def test_by_hand():
    """Two wrong samples at .8, by the recursion of the docstring, one sample after the other."""
    monitor = Monitor()
    wealth, shares = np.zeros(N_BETS), np.repeat(DIRECTION_SHARES, 2 * len(STAKES))
    f = directions(np.array([0.8]), 0.75)[:, 0]
    assert f[:2] == pytest.approx([1, 0.5])
    signs = np.tile(np.repeat([1, -1], len(STAKES)), len(f))
    factors = 1 + np.tile(STAKES, 2 * len(f)) * signs * np.repeat(f, 2 * len(STAKES)) * -0.8
    up, down = [1 - min(gap / 0.2, 0.9) for gap in GAPS], [1 + gap / 0.2 for gap in GAPS]
    factors = np.concatenate([factors, up, down])
    highest = 1.0
    for n in (1, 2):
        entering = float(waiting(np.array([n - 1]))[0] - waiting(np.array([n]))[0])
        wealth = (wealth + entering) * factors
        highest = max(highest, float(wealth @ shares) / (2 * len(STAKES)) + float(waiting(np.array([n]))[0]))
        monitor.add(np.array([0.8]), np.array([0.0]))
        assert monitor.p_value == pytest.approx(1 / highest)
    assert waiting(np.array([0, 1])).tolist() == [1.0, 0.5]


def test_losing_streaks_stay_finite():
    """The largest stake loses 256 times in a row, and again."""
    factors = np.full((N_BETS, 256), np.log(0.1))
    wealth = np.full(N_BETS, -np.inf)
    for k in range(20):
        wealth, total = advance(wealth, factors, 256 * k)
        assert np.isfinite(wealth).all()
        assert np.isfinite(total).all()
