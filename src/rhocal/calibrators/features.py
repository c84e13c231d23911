"""Features of a sample's logits that a scale may depend on: bounded, and blind to what softmax does not see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import InputError
from rhocal.special import Floats, Vector, row_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEEN = 0.005
"""Features are clamped between this quantile of the tune set and its mirror: beyond, nothing was learned."""

SOFT_ZERO = 0.1
"""Added before a logarithm, in units of the NLL-optimal temperature: differences below it say nothing."""


@dataclass(frozen=True)
class Shape:
    """Row statistics of logits with mean zero, in units of the NLL-optimal temperature.

    Taking the mean away makes them blind to a shift of all logits, the unit makes them blind to their scale.
    """

    norm: Vector
    top: Vector
    margin: Vector
    """Largest minus second largest."""

    @classmethod
    def of(cls, logits: Floats, unit: float) -> Shape:
        """Read off the logits, block by block."""
        n, m = logits.shape
        norm, top, second = np.empty(n), np.empty(n), np.empty(n)
        for rows in row_blocks(n, m):
            z = logits[rows].astype(np.float64)
            z -= z.mean(axis=1, keepdims=True)
            norm[rows] = np.sqrt(np.einsum("ij,ij->i", z, z))
            second[rows], top[rows] = np.partition(z, m - 2, axis=1)[:, m - 2 :].T
        return cls(unit * norm, unit * top, unit * (top - second))


FEATURES: dict[str, Callable[[Shape], Vector]] = {
    "log-norm": lambda shape: np.log(shape.norm + SOFT_ZERO),
    "log-top": lambda shape: np.log(shape.top + SOFT_ZERO),
    "margin": lambda shape: shape.margin,
    "log-margin": lambda shape: np.log(shape.margin + SOFT_ZERO),
}


def raw_features(logits: Floats, unit: float, names: Sequence[str]) -> Vector:
    """The named features of every sample, shape (n_samples, n_features)."""
    unknown = [name for name in names if name not in FEATURES]
    if unknown or not names:
        raise InputError(f"features are some of {', '.join(FEATURES)}; got {', '.join(unknown) or 'none'}")
    shape = Shape.of(logits, unit)
    return np.stack([FEATURES[name](shape) for name in names], axis=1)


def top_logits(logits: Floats, unit: float, k: int) -> Vector:
    """The k largest logits of every sample, largest first, with the row mean taken away; fewer if there are fewer."""
    n, m = logits.shape
    k = min(k, m)
    out = np.empty((n, k))
    for rows in row_blocks(n, m):
        z = logits[rows].astype(np.float64)
        z -= z.mean(axis=1, keepdims=True)
        out[rows] = -np.sort(-np.partition(z, m - k, axis=1)[:, m - k :], axis=1)
    return unit * out


@dataclass(frozen=True)
class Standard:
    """How a feature becomes a number around 0: clamped to the range seen in tuning, mean 0, standard deviation 1."""

    low: Vector
    high: Vector
    mean: Vector
    sd: Vector

    @classmethod
    def of(cls, raw: Vector, weights: Vector) -> Standard:
        """Ranges, means and deviations under weights that sum to 1."""
        low, high = (_quantiles(raw, weights, q) for q in (SEEN, 1 - SEEN))
        clamped = np.clip(raw, low, high)
        mean = weights @ clamped
        sd = np.sqrt(weights @ (clamped - mean) ** 2)
        return cls(low, high, mean, np.where(sd > 1e-9, sd, 1.0))

    def __call__(self, raw: Vector) -> Vector:
        return np.asarray((np.clip(raw, self.low, self.high) - self.mean) / self.sd)


def _quantiles(raw: Vector, weights: Vector, q: float) -> Vector:
    """Of each column the smallest value at which the weight up to it reaches q."""
    found = []
    for column in raw.T:
        order = np.argsort(column, kind="stable")
        # a rounding error of the sum must not move the quantile by a sample
        reached = np.searchsorted(np.cumsum(weights[order]), q * (1 - 1e-9))
        found.append(column[order[min(int(reached), len(order) - 1)]])
    return np.array(found)
