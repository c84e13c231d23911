"""Draws of the true sums of bins, given noisy ones: what a sample allows, for one or two predictions.

The gap of a bin (its sum divided by its share of the samples) has a hierarchical prior, whose parameters the bins tell:

* no gap in any bin;
* gaps of any sign, normal with a deviation t, in all bins or in half or a fifth of them;
* the same gap m in all bins: over-confident everywhere, or under-confident.

With two predictions, the sums of one are drawn first and those of the other given the noise that this implies. Where
the noise is shared entirely (two temperatures of the same network), the second follows from the first. Each goes
first in half of the draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rhocal.numerics.special import Vector

SPREADS = np.array([0.5, 1, 2, 4, 8])
"""Deviations t of the gaps, in standard deviations of the sum of all bins."""
ZERO_SHARES = (0.0, 0.5, 0.8)
"""Shares of bins without a gap."""
OFFSETS = np.linspace(-3, 3, 13)
"""Common gaps m, in standard deviations from the observed one."""
PERFECT, ANY_SIGN, ONE_GAP = 1.0, 1.0, 0.5
"""Prior weights of the three parts."""
TINY = 1e-300
MIN_NOISE = 1e-6
"""Of a sum given the other prediction, relative to its own noise."""


def draw_sums(
    sums: Vector,
    deviations: Vector,
    shares: Vector,
    correlation: Vector,
    n_first: int,
    n: int,
    rng: np.random.Generator,
) -> Vector:
    """True sums of the bins of two predictions, shape (n, n_bins)."""
    drawn = np.empty((n, len(sums)))
    parts = slice(0, n_first), slice(n_first, len(sums))
    for rows, (one, other) in ((slice(0, n // 2), parts), (slice(n // 2, n), parts[::-1])):
        some = rows.stop - rows.start
        shape = (some, sums[one].size)
        drawn[rows, one] = draw_side(
            np.broadcast_to(sums[one], shape), deviations[one], deviations[one], shares[one], rng
        )
        regression = correlation[other, one] @ np.linalg.pinv(correlation[one, one], rcond=1e-8)
        unshared = np.maximum(1 - np.einsum("ij,ij->i", regression, correlation[other, one]), MIN_NOISE**2)
        implied = (sums[one] - drawn[rows, one]) / deviations[one]
        rest = sums[other] - implied @ regression.T * deviations[other]
        noise = deviations[other] * np.sqrt(unshared)
        drawn[rows, other] = draw_side(rest, noise, deviations[other], shares[other], rng)
    return drawn


def draw_side(sums: Vector, noise: Vector, deviations: Vector, shares: Vector, rng: np.random.Generator) -> Vector:
    """One set of true sums for each row of observed ones; ``deviations`` give the unit of the prior."""
    unit = float(np.sqrt((deviations**2).sum()))
    n_spreads, n_offsets = len(ZERO_SHARES) * len(SPREADS), len(OFFSETS)
    zero = np.concatenate([[1.0], np.repeat(ZERO_SHARES, len(SPREADS)), np.zeros(n_offsets)])
    spread = unit * np.concatenate([[0.0], np.tile(SPREADS, len(ZERO_SHARES)), np.zeros(n_offsets)])
    weight = np.concatenate(
        [[PERFECT], np.full(n_spreads, ANY_SIGN / n_spreads), np.full(n_offsets, ONE_GAP / n_offsets)]
    )
    common = np.zeros((len(sums), len(zero)))
    common[:, 1 + n_spreads :] = sums.sum(axis=1)[:, None] + unit * OFFSETS
    variance = noise**2
    prior_variance = (spread[:, None] * shares) ** 2
    total = variance + prior_variance
    off_zero = np.exp(-((sums[:, None] - common[..., None] * shares) ** 2) / (2 * total)) / np.sqrt(total)
    at_zero = np.exp(-(sums**2) / (2 * variance)) / noise
    likelihood = zero[:, None] * at_zero[:, None] + (1 - zero[:, None]) * off_zero
    evidence = np.log(likelihood + TINY).sum(axis=2) + np.log(weight)
    chosen = _categorical(evidence, rng)
    rows = np.arange(len(sums))
    zero_mass = zero[chosen][:, None] * at_zero
    zero_mass = zero_mass / (zero_mass + (1 - zero[chosen])[:, None] * off_zero[rows, chosen] + TINY)
    zero_mass = np.where(zero[chosen][:, None] == 1, 1.0, zero_mass)
    own = prior_variance[chosen]
    mean = (common[rows, chosen][:, None] * shares * variance + sums * own) / total[chosen]
    drawn = mean + np.sqrt(own * variance / total[chosen]) * rng.standard_normal(sums.shape)
    return np.where(rng.random(sums.shape) < zero_mass, 0.0, drawn)


def _categorical(logs: Vector, rng: np.random.Generator) -> Vector:
    """The index of one entry of every row, drawn in proportion to exp(logs)."""
    mass = np.exp(logs - logs.max(axis=1, keepdims=True))
    levels = np.cumsum(mass, axis=1)
    return np.minimum((levels < rng.random(len(logs))[:, None] * levels[:, -1:]).sum(axis=1), logs.shape[1] - 1)
