"""Features of a sample's logits that a scale may depend on: bounded, and blind to what softmax does not see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import InputError
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.profile.sample_features import ProfileFeatures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rhocal.calibrators.fitted_values import Constraint
    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.numerics.special import Vector
    from rhocal.profile.profile import Profile
    from rhocal.profile.sample_features import SampleFeatures

SEEN = 0.005
"""Features are clamped between this quantile of the calibration set and its mirror: beyond, nothing was learned."""

SOFT_ZERO = 0.1
"""Added before a logarithm, in units of the NLL-optimal temperature: differences below it say nothing."""


KNOTS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Of the spline on the margin, in units of the NLL-optimal temperature: odds of 1.6, 2.7, 7, 55 and 3,000 to 1."""


FEATURES: dict[str, Callable[[Ops, SampleFeatures, Value], Value]] = {
    "log-norm": lambda ops, sample, unit: ops.log(unit * sample.norm(2.0, center=True) + SOFT_ZERO),
    "log-top": lambda ops, sample, unit: ops.log(unit * sample.centered_top(1) + SOFT_ZERO),
    "margin": lambda _ops, sample, unit: unit * sample.margin(),
    "log-margin": lambda ops, sample, unit: ops.log(unit * sample.margin() + SOFT_ZERO),
    "margin-spline": lambda ops, sample, unit: margin_spline(ops, unit * sample.margin()),
}
"""Name → one column, or several, from a sample and the NLL-optimal scale, the unit in which logits are measured."""


def margin_spline(ops: Ops, margin: Value) -> Value:
    """The margin up to each of the knots."""
    return ops.concat([ops.minimum(margin, knot) for knot in KNOTS])


def n_columns(names: Sequence[str]) -> int:
    """How many columns the named features have; 0 if one of them is unknown."""
    known = all(name in FEATURES for name in names)
    return sum(len(KNOTS) if name == "margin-spline" else 1 for name in names) if known else 0


def raw_features(ops: Ops, sample: SampleFeatures, unit: Value, names: Sequence[str]) -> Value:
    """The named features of every sample, side by side; the spline gives one for each of its knots."""
    unknown = [name for name in names if name not in FEATURES]
    if unknown or not names:
        raise InputError(f"features are some of {', '.join(FEATURES)}; got {', '.join(unknown) or 'none'}")
    return ops.concat([FEATURES[name](ops, sample, unit) for name in names])


def profile_features(profile: Profile, unit: float, names: Sequence[str]) -> Vector:
    """The named features of the samples of a profile."""
    return np.asarray(raw_features(NUMPY, ProfileFeatures(profile), unit, names))


STANDARD = ("low", "high", "mean", "sd")
"""The numbers of ``Standardization``, as parameters of a map."""

ORDERED_RANGE: Constraint = (
    "no low_ is above its high_",
    lambda fitted: bool((fitted["low"] <= fitted["high"]).all()),
)


def standardize(ops: Ops, raw: Value, parameters: Parameters) -> Value:
    """Features clamped to the range seen in tuning, minus their mean, in units of their standard deviation."""
    clamped = ops.clip(raw, parameters["low"], parameters["high"])
    return (clamped - parameters["mean"]) / parameters["sd"]


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
        low, high = _quantiles(raw, weights, (SEEN, 1 - SEEN))
        clamped = np.clip(raw, low, high)
        mean = weights @ clamped
        sd = np.sqrt(weights @ (clamped - mean) ** 2)
        return cls(low, high, mean, np.where(sd > 1e-9, sd, 1.0))

    def __call__(self, raw: Vector) -> Vector:
        return np.asarray(standardize(NUMPY, raw, vars(self)))


def _quantiles(raw: Vector, weights: Vector, shares: Sequence[float]) -> Vector:
    """For each share, of each column the smallest value at which the weight up to it reaches the share."""
    counted = weights > 0
    raw, weights = raw[counted], weights[counted]
    wanted = np.array(shares) * (1 - 1e-9)  # a rounding error of the sum must not move the quantile by a sample
    last = len(weights) - 1
    if (weights == weights[0]).all():  # the ranks are the same in every column: nothing needs to be sorted
        ranks = np.minimum(np.searchsorted(np.cumsum(weights), wanted), last)
        return np.stack([np.partition(column, ranks)[ranks] for column in raw.T], axis=1)
    quantiles = []
    for column in raw.T:
        order = np.argsort(column, kind="stable")
        ranks = np.minimum(np.searchsorted(np.cumsum(weights[order]), wanted), last)
        quantiles.append(column[order[ranks]])
    return np.stack(quantiles, axis=1)
