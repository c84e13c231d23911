"""Bets on calibration: wealth that a calibrated stream does not increase, whenever one looks.

A bet is a direction f(confidence) between −1 and 1, a sign and a stake λ: it multiplies its wealth at every sample by
1 + λ·(±f·(correct − confidence) − |f|·margin). If no gap exceeds the margin, the expected factor is at most 1. Directions are
all samples, every bin of confidence, and the tilt (opposite signs below and above the mean confidence).

Other bets are on a gap of a size that is the same at every confidence. Their factor is a ratio of likelihoods: of an accuracy
that is so much lower (or higher) than the margin allows, and of the one that it just allows. It learns most where
confidence is high, where errors are hardly expected; a constant stake learns most where gaps are in proportion to variance.

A drift may begin at any sample. So wealth is also shared out over starts: a share w_j enters every bet at sample j, and wealth
follows W_j = (W_{j−1} + w_j)·factor, the recursion of Shiryaev and Roberts with a sum of shares of 1 (Shin, Ramdas &
Rinaldo 2024: e-detectors). All wealth together, with the shares that wait, has mean at most 1, and by Ville's inequality it
ever exceeds 1/α with a chance of at most α. Nothing is restarted, and the state does not grow.

Samples of a cluster may depend on each other. Their mean is one bet: it lies between −1 and 1, and its expectation is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics.bins import N_BINS, equal_width

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector

STAKES = (0.06, 0.2, 0.5, 0.9)
"""All smaller than 1: no single sample can ruin a bet."""
GAPS = (0.01, 0.03, 0.08, 0.2)
"""Sizes of gaps that are bet on."""
DIRECTION_SHARES = (0.25, 0.15, *(0.3 / N_BINS,) * N_BINS, 0.3)
"""Shares of wealth: all samples, the tilt, each bin, gaps of a size."""
N_DIRECTIONS = len(DIRECTION_SHARES) - 1
"""Directions with constant stakes."""
N_BETS = (N_DIRECTIONS + 1) * 2 * len(STAKES)
MAX_LOSS = 0.9
"""Of a bet on a gap, at one sample."""
MIN_ERROR = 1e-3
"""The least error rate that bets on gaps take for expected: one error at a confidence of 1 is no proof."""
TILT_WIDTH = 0.1
"""Distance of the confidence from its mean at which the tilt counts fully."""
FIRST_CENTER = 0.75
"""Of the tilt, until a mean confidence is known."""
UNITS_AT_ONCE = 256
"""Samples, or clusters, whose bets are computed together. 256 losses of the largest stake are exp(−590), still a number. The
center of the tilt changes after as many, so that it does not depend on how the stream is cut."""
FIRST_SHARE = 0.5
"""Wealth that bets from the first sample on; the rest waits for a drift that begins later."""
WAITING_SCALE = 100_000
"""Samples over which the shares of later starts are nearly equal; beyond, they fall a little faster than 1/n."""


@dataclass(frozen=True)
class Margin:
    """The gap between accuracy and confidence that is no alarm."""

    tolerance: float = 0.0
    n_calibration: int | None = None
    """Samples that the calibrator was fitted on."""
    deviations: float = 2.0
    """Standard errors of a calibration set that are tolerated, if its size is known."""

    def __call__(self, confidence: Vector) -> Vector:
        """At every confidence: the tolerance, and what a calibration set of this size leaves uncertain."""
        margin = np.full(np.shape(confidence), self.tolerance)
        if self.n_calibration:
            margin += self.deviations * np.sqrt(confidence * (1 - confidence) / self.n_calibration)
        return np.minimum(margin, 1.0)


def directions(confidence: Vector, center: float) -> Vector:
    """F of every direction and sample, shape (n_directions, n_samples)."""
    values = np.zeros((N_DIRECTIONS, len(confidence)))
    values[0] = 1.0
    values[1] = np.clip((confidence - center) / TILT_WIDTH, -1, 1)
    values[2 + equal_width(confidence, N_BINS), np.arange(len(confidence))] = 1.0
    return values


def unit_gains(
    confidence: Vector, correct: Vector, margin: Vector, center: float, starts: NDArray[np.intp]
) -> tuple[Vector, Vector]:
    """Of every direction and unit, the mean of f·(correct − confidence) and of |f|·margin; units begin at ``starts``."""
    f = directions(confidence, center)
    gain, price = f * (correct - confidence), np.abs(f) * margin
    if len(starts) == len(confidence):
        return gain, price
    sizes = np.diff(np.append(starts, len(confidence)))
    return np.add.reduceat(gain, starts, axis=1) / sizes, np.add.reduceat(price, starts, axis=1) / sizes


def gap_gains(confidence: Vector, correct: Vector, margin: Vector, starts: NDArray[np.intp]) -> Vector:
    """Stake times gain of the bets on gaps, as means over units: shape (signs, sizes, units)."""
    gains = np.empty((2, len(GAPS), len(confidence)))
    sizes = np.array(GAPS)[:, None]
    for k, (sign, right) in enumerate(((1.0, correct), (-1.0, 1 - correct))):
        # The chance of what the bet is on, at most: a right decision for the first sign, an error for the second.
        chance = confidence if sign > 0 else 1 - confidence
        chance = np.minimum(chance + margin, 1.0)
        stake = np.minimum(sizes / np.maximum(1 - chance, MIN_ERROR), MAX_LOSS) / np.maximum(chance, MIN_ERROR)
        gains[k] = stake * (right - chance)
    if len(starts) == len(confidence):
        return gains
    return np.add.reduceat(gains, starts, axis=2) / np.diff(np.append(starts, len(confidence)))


def log_factors(gain: Vector, price: Vector, gaps: Vector) -> Vector:
    """Log of the factor of every bet at every unit, shape (n_bets, n_units)."""
    n_units = gain.shape[1]
    signed = np.stack([gain - price, -gain - price], axis=1)  # (directions, signs, units)
    staked = np.array(STAKES)[:, None] * signed[:, :, None]
    factors = 1 + np.concatenate([staked.reshape(-1, n_units), gaps.reshape(-1, n_units)])
    return np.log(np.maximum(factors, 1e-12))


def waiting(n: NDArray[np.int64]) -> Vector:
    """The share of wealth that waits after n units: 1 at 0, then a half, then falling to 0 like 1/log n."""
    later = (1 - FIRST_SHARE) / (1 + np.log1p(np.maximum(n - 1, 0) / WAITING_SCALE))
    return np.where(n == 0, 1.0, later)


def advance(
    log_wealth: Vector, factors: Vector, n_units: int, log_shares: Vector | None = None
) -> tuple[Vector, Vector]:
    """The log of the wealth of every bet after the units, and of all wealth together after each.

    ``log_shares`` are the logs of the bets' shares of wealth, unless they are those on calibration.

    W_n = P_n·(W_0 + Σ_j w_j/P_{j−1}) with P the running product of the factors.
    """
    n = np.arange(n_units, n_units + factors.shape[1] + 1)
    shares = -np.diff(waiting(n))
    paths = np.cumsum(factors, axis=1)
    before = np.concatenate([np.zeros((len(paths), 1)), paths[:, :-1]], axis=1)
    entered = np.log(np.cumsum(shares * np.exp(-before), axis=1))
    wealth = paths + np.logaddexp(log_wealth[:, None], entered)
    terms = wealth + (_log_shares() if log_shares is None else log_shares)[:, None]
    high = np.maximum(terms.max(axis=0), 0.0)
    total = high + np.log(np.exp(terms - high).sum(axis=0) + waiting(n[1:]) * np.exp(-high))
    return wealth[:, -1], total


def total_log_wealth(log_wealth: Vector, n_units: int) -> float:
    """The log of all wealth together, with the shares that wait."""
    left = math.log(float(waiting(np.array(n_units))))
    return float(np.logaddexp(np.logaddexp.reduce(log_wealth + _log_shares()), left))


@cache
def _log_shares() -> Vector:
    """Log of the share of wealth of every bet."""
    return np.repeat(np.log(np.array(DIRECTION_SHARES) / (2 * len(STAKES))), 2 * len(STAKES))
