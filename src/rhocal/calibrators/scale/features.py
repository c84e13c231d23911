"""Features of a sample's logits that a scale may depend on: bounded, and blind to what softmax does not see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import InputError
from rhocal.profile.passes import ArrayPasses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rhocal.numerics.portable import Constants, Ops
    from rhocal.numerics.portable.ops import Value
    from rhocal.numerics.special import Floats, Vector
    from rhocal.profile.profile import Profile

SEEN = 0.005
"""Features are clamped between this quantile of the tune set and its mirror: beyond, nothing was learned."""

SOFT_ZERO = 0.1
"""Added before a logarithm, in units of the NLL-optimal temperature: differences below it say nothing."""


KNOTS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Of the spline on the margin, in units of the NLL-optimal temperature: odds of 1.6, 2.7, 7, 55 and 3,000 to 1."""


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
    def of_profile(cls, profile: Profile, unit: float) -> Shape:
        """What the profile knows already."""
        (norm,) = profile.norms([2.0], center=True)
        return cls(unit * norm, unit * (profile.top - profile.mean), -unit * profile.runner_up_gap)

    @classmethod
    def of(cls, logits: Floats, unit: float) -> Shape:
        """Read off the logits, block by block."""
        passes = ArrayPasses(logits)
        top, second = passes.largest(2).T
        return cls(unit * passes.norms([2.0], center=True)[:, 0], unit * (top - passes.means()), unit * (top - second))


FEATURES: dict[str, Callable[[Shape], Vector]] = {
    "log-norm": lambda shape: np.log(shape.norm + SOFT_ZERO),
    "log-top": lambda shape: np.log(shape.top + SOFT_ZERO),
    "margin": lambda shape: shape.margin,
    "log-margin": lambda shape: np.log(shape.margin + SOFT_ZERO),
    "margin-spline": lambda shape: np.minimum(shape.margin[:, None], KNOTS),
}
"""Name → one number a sample, or several."""


def raw_features(shape: Shape, names: Sequence[str]) -> Vector:
    """The named features of every sample, shape (n_samples, n_features); the spline gives one for each of its knots."""
    unknown = [name for name in names if name not in FEATURES]
    if unknown or not names:
        raise InputError(f"features are some of {', '.join(FEATURES)}; got {', '.join(unknown) or 'none'}")
    return np.column_stack([FEATURES[name](shape) for name in names])


def top_logits(logits: Floats, unit: float, k: int) -> Vector:
    """The k largest logits of every sample, largest first, with the row mean taken away; fewer if there are fewer."""
    passes = ArrayPasses(logits)
    return unit * (passes.largest(k) - passes.means()[:, None])


PORTABLE: dict[str, Callable[[Ops, PortableShape], Value]] = {
    "log-norm": lambda ops, shape: ops.log(shape.norm() + SOFT_ZERO),
    "log-top": lambda ops, shape: ops.log(shape.top - shape.mean + SOFT_ZERO),
    "margin": lambda _ops, shape: shape.top - shape.second,
    "log-margin": lambda ops, shape: ops.log(shape.top - shape.second + SOFT_ZERO),
    "margin-spline": lambda ops, shape: ops.concat([ops.minimum(shape.top - shape.second, k) for k in KNOTS]),
}
"""The same over portable operations; a test holds the two together."""


class PortableShape:
    """``Shape`` over portable operations: columns."""

    def __init__(self, ops: Ops, z: Value, unit: Value) -> None:
        self.ops, self.z = ops, unit * (z - ops.max(z))
        two = ops.top(self.z, 2)
        self.top: Value = ops.column(two, 0)
        self.second: Value = ops.column(two, 1)
        self.mean: Value = ops.mean(self.z)

    def norm(self) -> Value:
        """√Σ(z − mean)²; the largest entry is taken out, or squares would overflow in single precision."""
        size = self.ops.abs(self.z - self.mean)
        largest = self.ops.max(size)
        size = size / self.ops.where(largest > 0.0, largest, 1.0)
        return largest * self.ops.sqrt(self.ops.maximum(self.ops.sum(size * size), 1.0))


def portable_features(ops: Ops, z: Value, unit: Value, names: Sequence[str]) -> Value:
    """``raw_features`` over portable operations."""
    shape = PortableShape(ops, z, unit)
    return ops.concat([PORTABLE[name](ops, shape) for name in names])


STANDARD = ("low", "high", "mean", "sd")
"""The numbers of ``Standardization``."""


def portable_standard(ops: Ops, raw: Value, c: Constants) -> Value:
    """``Standardization`` over portable operations."""
    return (ops.clip(raw, c["low"], c["high"]) - c["mean"]) / c["sd"]


@dataclass(frozen=True)
class Standardization:
    """How a feature becomes a number around 0: clamped to the range seen in tuning, mean 0, standard deviation 1."""

    low: Vector
    high: Vector
    mean: Vector
    sd: Vector

    @classmethod
    def from_features(cls, raw: Vector, weights: Vector) -> Standardization:
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
    quantiles = []
    for column in raw.T:
        order = np.argsort(column, kind="stable")
        # a rounding error of the sum must not move the quantile by a sample
        reached = np.searchsorted(np.cumsum(weights[order]), q * (1 - 1e-9))
        quantiles.append(column[order[min(int(reached), len(order) - 1)]])
    return np.array(quantiles)
