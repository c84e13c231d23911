"""One pass over the logits: all that a scale calibrator ever needs of them.

For a scale σ > 0 a sample matters only through one convex function of one variable. With z shifted so that its largest
entry is 0, L(σ) = log Σ_j exp(σ z_j) lies in [0, log m], and confidence, label probability, entropy, Σp² and the
divergence to the base follow from L, L′ = E_p[z] and L″ = Var_p[z] (see ``statistics.py``).

With few classes L is evaluated directly. With many it is tabulated once at geometric nodes and interpolated, so that
every further evaluation costs O(n_samples), whatever the number of classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rhocal.special import Floats, Vector, over_blocks, rho_norms, row_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.predictions import Predictions


FEW_CLASSES = 64
"""Up to here direct evaluation is as fast as the table."""

SAFE_EXPONENT = 40.0
"""exp of this, times any number of classes, is far from the ends of single precision."""

HALF_OCTAVE = np.log(2) / 2
"""Distance of two nodes in log σ."""

NODES_EACH_SIDE = 5
"""The table covers 2^±2.5 around its centre."""


@dataclass(frozen=True)
class Curve:
    """L, L′ and L″ of every sample at its own scale, for logits whose largest entry is 0."""

    value: Vector
    first: Vector
    second: Vector


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
        predicted = data.logits.argmax(axis=1)
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
        return float(self.weights @ (self.top - self.logits.mean(axis=1)))

    @cached_property
    def runner_up_gap(self) -> Vector:
        """Second largest logit minus the largest."""
        second = np.empty(self.n_samples)
        for rows in row_blocks(*self.logits.shape):
            second[rows] = np.partition(self.logits[rows], -2, axis=1)[:, -2]
        return second - self.top

    @cached_property
    def mean_gap(self) -> Vector:
        """Mean logit of a sample minus the largest."""
        return self.logits.mean(axis=1, dtype=np.float64) - self.top

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

    def curve(self, scale: Vector) -> Curve:
        """L, L′, L″ from the logits themselves.

        With few classes in float64. With many in the type of the logits: the rounding of single entries (6e−8 in float32)
        is random and averages out over classes and samples.
        """
        value, first, second = (np.empty(self.n_samples) for _ in range(3))
        dtype = np.dtype(np.float64) if self.n_classes <= FEW_CLASSES else self.logits.dtype
        ones = np.ones(self.n_classes, dtype)

        def work(rows: slice) -> None:
            z = self.logits[rows].astype(dtype, copy=False)
            top, factor = self.top[rows], scale[rows].astype(dtype)
            # Taking the maximum away keeps exp in range; where it is in range anyway, a third of the work is saved.
            shift = np.abs(top * factor).max() > SAFE_EXPONENT
            if shift:
                z = z - top[:, None].astype(dtype)
            e = z * (factor[0] if (factor == factor[0]).all() else factor[:, None])
            np.exp(e, out=e)
            total = np.vecdot(e, ones).astype(np.float64)
            mean = np.vecdot(e, z) / total
            square = np.vecdot(e, z * z) / total
            first[rows] = mean if shift else mean - top
            # L at the scale itself, not at the scale rounded to the type of the logits
            rounded = factor.astype(np.float64)
            value[rows] = np.log(total) - (0 if shift else rounded * top) + (scale[rows] - rounded) * first[rows]
            second[rows] = np.maximum(square - mean**2, 0)

        over_blocks(self.logits.shape, work)
        return Curve(value, first, second)


def centred(logits: Floats, *, center: bool) -> Floats:
    """The logits as they are, or with the mean of each row taken away."""
    return logits - logits.mean(axis=1, keepdims=True) if center else logits


@dataclass(frozen=True)
class Table:
    """L and its derivatives in log σ at the nodes, for every sample; quintic Hermite in between."""

    profile: Profile
    log_first: float
    """log σ of the first node."""
    nodes: NDArray[np.float64]
    """Shape (3, n_nodes, n_samples): L, dL/dlogσ and d²L/dlogσ² × the node distance to their order."""

    @classmethod
    def around(cls, profile: Profile, log_scale: float) -> Table:
        """Tabulate with one exponential for every second node: doubling σ squares exp(σ z)."""
        n_nodes = 2 * NODES_EACH_SIDE + 1
        log_first = log_scale - NODES_EACH_SIDE * HALF_OCTAVE
        nodes = np.empty((3, n_nodes, profile.n_samples))
        top = profile.top.astype(profile.logits.dtype)

        def work(rows: slice) -> None:
            z = profile.logits[rows] - top[rows, None]
            squares, ones = z * z, np.ones(z.shape[1], z.dtype)
            for start in (0, 1):
                e = np.exp(z * z.dtype.type(np.exp(log_first + start * HALF_OCTAVE)))
                for k in range(start, n_nodes, 2):
                    if k > start:
                        np.square(e, out=e)
                    scale = np.exp(log_first + k * HALF_OCTAVE)
                    total = np.vecdot(e, ones).astype(np.float64)
                    mean = np.vecdot(e, z) / total
                    second = np.maximum(np.vecdot(e, squares) / total - mean**2, 0)
                    nodes[0, k, rows] = np.log(total)
                    nodes[1, k, rows] = scale * mean
                    nodes[2, k, rows] = scale * (scale * second) + scale * mean

        for block in row_blocks(*profile.logits.shape):  # many short steps: threads would only wait for the lock
            work(block)
        nodes[1] *= HALF_OCTAVE
        nodes[2] *= HALF_OCTAVE**2
        return cls(profile, log_first, nodes)

    def take(self, rows: NDArray[np.intp], profile: Profile) -> Table:
        """The table of some of the samples, whose profile is given."""
        return Table(profile, self.log_first, self.nodes[:, :, rows])

    def curve(self, scale: Vector) -> Curve:
        """L, L′, L″ of every sample; samples beyond the table's range are evaluated directly."""
        at = (np.log(scale) - self.log_first) / HALF_OCTAVE
        last = self.nodes.shape[1] - 1
        cell = np.clip(at.astype(np.intp), 0, last - 1)
        samples = np.arange(len(cell))
        left, right = self.nodes[:, cell, samples], self.nodes[:, cell + 1, samples]
        value, d1, d2 = _quintic(at - cell, left, right)
        d1, d2 = d1 / HALF_OCTAVE, d2 / HALF_OCTAVE**2
        first, second = d1 / scale, (d2 - d1) / scale / scale
        outside = np.flatnonzero(~((at >= 0) & (at <= last)))
        if len(outside):
            exact = self.profile.take(outside).curve(scale[outside])
            value[outside], first[outside], second[outside] = exact.value, exact.first, exact.second
        return Curve(value, first, second)


def _quintic(t: Vector, left: NDArray[np.float64], right: NDArray[np.float64]) -> tuple[Vector, Vector, Vector]:
    """Value, first and second derivative at t ∈ [0, 1] of the quintic that meets both ends to second order."""
    f0, g0, h0 = left
    f1, g1, h1 = right
    # p(t) = f0 + g0 t + h0/2 t² + t³ (a + b t + c t²), with p, p′, p″ given at t = 1
    r0 = f1 - f0 - g0 - h0 / 2
    r1 = g1 - g0 - h0
    r2 = h1 - h0
    a = 10 * r0 - 4 * r1 + r2 / 2
    b = -15 * r0 + 7 * r1 - r2
    c = 6 * r0 - 3 * r1 + r2 / 2
    value = f0 + t * (g0 + t * (h0 / 2 + t * (a + t * (b + t * c))))
    first = g0 + t * (h0 + t * (3 * a + t * (4 * b + t * 5 * c)))
    second = h0 + t * (6 * a + t * (12 * b + t * 20 * c))
    return value, first, second
