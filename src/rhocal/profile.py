"""One pass over the logits: all that a scale calibrator ever needs of them.

For a scale σ > 0 a sample matters only through one convex function of one variable. With z shifted so that its largest
entry is 0, L(σ) = log Σ_j exp(σ z_j) lies in [0, log m], and confidence, label probability, entropy, Σp² and the
divergence to the base follow from L, L′ = E_p[z] and L″ = Var_p[z] (see ``statistics.py``).

With few classes L is evaluated directly. With many it is tabulated (``curve_table.py``), so that every further evaluation
costs O(n_samples), whatever the number of classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rhocal.special import (
    Floats,
    Vector,
    exp_normal,
    over_blocks,
    rho_norms,
    row_argmax,
    row_blocks,
    row_means,
    row_sum,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.predictions import Predictions


FEW_CLASSES = 64
"""Up to here direct evaluation is as fast as the table."""

SAFE_EXPONENT = 40.0
"""exp of this, times any number of classes, is far from the ends of single precision."""


@dataclass(frozen=True)
class Curve:
    """L and its first derivatives of every sample at its own scale, for logits whose largest entry is 0."""

    orders: tuple[Vector, ...]
    """L, L′, … as far as was asked for."""

    @property
    def value(self) -> Vector:
        """L."""
        return self.orders[0]

    @property
    def first(self) -> Vector:
        """L′ = E_p[z]."""
        return self.orders[1]

    @property
    def second(self) -> Vector:
        """L″ = Var_p[z]."""
        return self.orders[2]

    @property
    def third(self) -> Vector:
        """L‴, the third central moment of z."""
        return self.orders[3]


@dataclass(frozen=True)
class Profile:
    """A tune set as scale calibrators see it. ``weights`` sum to 1."""

    logits: Floats
    top: Vector
    predicted: NDArray[np.intp]
    label_gap: Vector
    """Logit of the label minus the largest logit: 0 where the prediction is right (or tied), else negative."""
    correct: Vector
    weights: Vector
    total_weight: float
    _norms: dict[tuple[float, bool], Vector] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, data: Predictions) -> Profile:
        """Read the cheap features of every sample."""
        assert data.labels is not None
        rows = np.arange(data.n_samples)
        predicted = row_argmax(data.logits)
        top = data.logits[rows, predicted].astype(np.float64)
        weights = np.ones(data.n_samples) if data.weights is None else data.weights
        total = float(weights.sum())
        return cls(
            logits=data.logits,
            top=top,
            predicted=predicted,
            label_gap=data.logits[rows, data.labels].astype(np.float64) - top,
            correct=(predicted == data.labels).astype(np.float64),
            weights=weights / total,
            total_weight=total,
        )

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return len(self.logits)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.logits.shape[1]

    def take(self, rows: NDArray[np.intp]) -> Profile:
        """Some of the samples, with equal weights: a mini-batch whose draw already followed the weights."""
        return Profile(
            self.logits[rows],
            self.top[rows],
            self.predicted[rows],
            self.label_gap[rows],
            self.correct[rows],
            np.full(len(rows), 1 / len(rows)),
            float(len(rows)),
            {key: norm[rows] for key, norm in self._norms.items()},
        )

    @cached_property
    def spread(self) -> float:
        """Typical distance of the largest logit from the mean of its row: the unit in which scales are searched."""
        return float(self.weights @ (self.top - self.mean))

    @cached_property
    def mean(self) -> Vector:
        """Mean logit of every sample."""
        return row_means(self.logits)

    @cached_property
    def runner_up_gap(self) -> Vector:
        """Second largest logit minus the largest."""
        second = np.empty(self.n_samples)
        for rows in row_blocks(*self.logits.shape):
            second[rows] = np.partition(self.logits[rows], -2, axis=1)[:, -2]
        return second - self.top

    @cached_property
    def base(self) -> Curve:
        """The curve at scale 1: the uncalibrated distribution."""
        return self.curve(np.ones(self.n_samples))

    def norms(self, rhos: Sequence[float], *, center: bool) -> list[Vector]:
        """‖z‖_ρ of every sample for several ρ, of the logits as they are or with their row mean taken away."""
        missing = [rho for rho in rhos if (rho, center) not in self._norms]
        if missing:
            for rho, column in zip(missing, rho_norms(self.logits, missing, center=center).T, strict=True):
                self._norms[rho, center] = np.ascontiguousarray(column)
        return [self._norms[rho, center] for rho in rhos]

    def curve(self, scale: Vector, order: int = 2) -> Curve:
        """L and its derivatives up to an order (1, 2 or 3) from the logits themselves.

        With few classes in float64. With many in the type of the logits: the rounding of single entries (6e−8 in float32)
        is random and averages out over classes and samples.
        """
        found = tuple(np.empty(self.n_samples) for _ in range(order + 1))
        dtype = np.dtype(np.float64) if self.n_classes <= FEW_CLASSES else self.logits.dtype
        same = bool((scale == scale[0]).all())

        def work(rows: slice) -> None:
            z = self.logits[rows].astype(dtype, copy=False)
            top, factor = self.top[rows], scale[rows].astype(dtype)
            # Taking the maximum away keeps exp in range; where it is in range anyway, a third of the work is saved.
            shift = np.abs(top * factor).max() > SAFE_EXPONENT
            if shift:
                z = z - top[:, None].astype(dtype)
            e = exp_normal(z * (factor[0] if same else factor[:, None]))
            total = row_sum(e).astype(np.float64)
            moments = [np.vecdot(e, z) / total]
            for _ in range(order - 1):
                np.multiply(e, z, out=e)
                moments.append(np.vecdot(e, z) / total)
            mean = moments[0]
            found[1][rows] = first = mean if shift else mean - top
            # L at the scale itself, not at the scale rounded to the type of the logits
            rounded = factor.astype(np.float64)
            found[0][rows] = np.log(total) - (0 if shift else rounded * top) + (scale[rows] - rounded) * first
            if order > 1:
                found[2][rows] = np.maximum(moments[1] - mean**2, 0)
            if order > 2:
                found[3][rows] = moments[2] - 3 * mean * moments[1] + 2 * mean**3

        over_blocks(self.logits.shape, work)
        return Curve(found)


def centred(logits: Floats, *, center: bool) -> Floats:
    """The logits as they are, or with the mean of each row taken away."""
    return logits - logits.mean(axis=1, keepdims=True) if center else logits
