"""Passes over the logits: everything that a fit of scales ever reads from them, block by block.

A profile reads these and nothing else, so logits may lie in memory or on a device. ``z`` is a row of logits and
``top`` its largest entry; curves are those of z − top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rhocal.numerics import kernels
from rhocal.numerics.caching import cached_property
from rhocal.numerics.masks import without_masks
from rhocal.numerics.special import (
    Floats,
    Vector,
    exp_normal,
    largest,
    rho_norm_slope,
    rho_norms,
    row_dot,
    row_sum,
    scan,
    widened,
)
from rhocal.numerics.threads import BLOCK_ENTRIES, in_threads, over_blocks, row_blocks, scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

FEW_CLASSES = 64
"""Up to here curves are worked out in float64, and what is saved are the logits: they are no more numbers than a table."""

FIVE = (3, 4, 6, 9, 12)
"""Scales two octaves wide, spaced as is best for a polynomial through them. Their exponentials are products of one."""

WIDENED_ENTRIES = 8 * BLOCK_ENTRIES
"""Entries in half precision that are widened at a time: 4 MB in single precision."""

SAFE_EXPONENT = 40.0
"""exp of this, times any number of classes, is far from the ends of single precision."""


@dataclass(frozen=True)
class Curve:
    """L and its first derivatives of every sample at its own scale, for logits whose largest entry is 0."""

    orders: tuple[Vector, ...]
    """L, L′, … up to the order that was computed."""

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


class Passes(Protocol):
    """What can be read from logits in one pass each."""

    def take(self, rows: NDArray[np.intp]) -> Passes:
        """The same for some of the samples."""

    def means(self) -> Vector:
        """Mean logit of every sample."""

    def largest(self, k: int) -> Vector:
        """The k largest logits of every sample, largest first; fewer if there are fewer (n_samples × k)."""

    def norms(self, rhos: Sequence[float], *, center: bool) -> Vector:
        """‖z‖_ρ of every sample for every ρ (n_samples × n_rhos)."""

    def norm_slope(self, rho: float, *, center: bool) -> tuple[Vector, Vector]:
        """‖z‖_ρ of every sample and its derivative in ρ."""

    def curve(self, top: Vector, scale: Vector, order: int) -> tuple[Vector, ...]:
        """L and its derivatives up to an order (1, 2 or 3) at every sample's scale."""

    def moments(self, top: Vector, scales: Vector) -> Vector:
        """Σe, Σe·z, Σe·z² with e = exp(σ z) for five scales, which are to each other as ``FIVE`` (3 × 5 × n_samples)."""

    def moments_at(self, top: Vector, scale: Vector) -> Vector:
        """Around every sample's own scale: Σe and Σe·z at half of it, Σe·z⁰ to Σe·z⁴ there, Σe and Σe·z at twice that.

        Shape (9, n_samples).
        """


@dataclass(frozen=True)
class ArrayPasses:
    """Passes over an array in memory: compiled where they can be (``kernels.py``), else in cache-sized blocks of rows."""

    source: Floats
    """Float32 or float64."""
    scanned: kernels.Scan | None = None
    """The scan of the logits, if there was one."""
    rows: NDArray[np.intp] | None = None
    """Which rows of the source; None for all of them."""

    @cached_property
    def logits(self) -> Floats:
        """The rows themselves, copied when first read: a search on a table never reads those of a mini-batch."""
        return self.source if self.rows is None else self.source[self.rows]

    def take(self, rows: NDArray[np.intp]) -> ArrayPasses:
        scanned = None if self.scanned is None else self.scanned.take(rows)
        return ArrayPasses(self.source, scanned, rows if self.rows is None else self.rows[rows])

    def means(self) -> Vector:
        return (self.scanned or scan(self.logits)).total / self.logits.shape[1]

    def largest(self, k: int) -> Vector:
        return largest(self.logits, k)

    def norms(self, rhos: Sequence[float], *, center: bool) -> Vector:
        if (compiled := kernels.norms(self.logits, rhos, center=center, rows=self.scanned)) is not None:
            return compiled
        return rho_norms(self.logits, rhos, center=center)

    def norm_slope(self, rho: float, *, center: bool) -> tuple[Vector, Vector]:
        return rho_norm_slope(self.logits, rho, center=center)

    def curve(self, top: Vector, scale: Vector, order: int) -> tuple[Vector, ...]:
        """With few classes in float64. With many in the type of the logits: the rounding of single entries (6e−8 in
        float32) is random and averages out over classes and samples.
        """  # noqa: D205
        if (compiled := kernels.curve(self.logits, top, scale, order)) is not None:
            return compiled
        out = tuple(np.empty(len(scale)) for _ in range(order + 1))
        dtype = np.dtype(np.float64) if self.logits.shape[1] <= FEW_CLASSES else self.logits.dtype
        same = bool((scale == scale[0]).all())

        def work(rows: slice) -> None:
            z = self.logits[rows].astype(dtype, copy=False)
            high, factor = top[rows], scale[rows].astype(dtype)
            # Taking the maximum away keeps exp in range; where it is in range anyway, a third of the work is saved.
            shift = np.abs(high * factor).max() > SAFE_EXPONENT
            if shift:
                z = z - high[:, None].astype(dtype)
            e = exp_normal(z * (factor[0] if same else factor[:, None]))
            total = row_sum(e).astype(np.float64)
            moments = [np.vecdot(e, z) / total]
            for _ in range(order - 1):
                np.multiply(e, z, out=e)
                moments.append(np.vecdot(e, z) / total)
            mean = moments[0]
            out[1][rows] = first = mean if shift else mean - high
            # L at the scale itself, not at the scale rounded to the type of the logits
            rounded = factor.astype(np.float64)
            out[0][rows] = np.log(total) - (0 if shift else rounded * high) + (scale[rows] - rounded) * first
            if order > 1:
                out[2][rows] = np.maximum(moments[1] - mean**2, 0)
            if order > 2:
                out[3][rows] = moments[2] - 3 * mean * moments[1] + 2 * mean**3

        over_blocks(self.logits.shape, work)
        return out

    def moments(self, top: Vector, scales: Vector) -> Vector:
        if (compiled := kernels.moments(self.logits, top, scales)) is not None:
            return compiled
        out = np.empty((3, 5, len(top)))
        high = top.astype(self.logits.dtype)
        tiny = np.finfo(high.dtype).tiny * high.dtype.type(1.1)

        def add(k: int, rows: slice, e: Floats, z: Floats, squares: Floats) -> None:
            out[0, k, rows], out[1, k, rows], out[2, k, rows] = row_sum(e), row_dot(e, z), row_dot(e, squares)

        def work(rows: slice) -> None:
            z = self.logits[rows] - high[rows, None]
            squares = z * z
            e = exp_normal(z * z.dtype.type(scales[0] / FIVE[0]))
            np.maximum(e, tiny ** (1 / 3), out=e)  # no power is subnormal: steps on such numbers are ten times slower
            second = e * e
            third = second * e
            add(0, rows, third, z, squares)
            np.maximum(second, tiny**0.5, out=second)
            add(1, rows, np.multiply(second, second, out=second), z, squares)
            np.maximum(third, tiny**0.5, out=third)
            sixth = np.multiply(third, third, out=e)
            add(2, rows, sixth, z, squares)
            np.maximum(sixth, tiny**0.5, out=sixth)
            add(3, rows, np.multiply(sixth, third, out=third), z, squares)
            add(4, rows, np.multiply(sixth, sixth, out=sixth), z, squares)

        over_blocks(self.logits.shape, work)
        return out

    def moments_at(self, top: Vector, scale: Vector) -> Vector:
        if (compiled := kernels.moments_at(self.logits, top, scale)) is not None:
            return compiled
        out = np.empty((9, len(top)))
        high, half = top.astype(self.logits.dtype), (scale / 2).astype(self.logits.dtype)
        smallest = np.sqrt(np.finfo(self.logits.dtype).tiny) * self.logits.dtype.type(1.01)

        def squared(e: Floats, lowest: float) -> None:
            if lowest < np.log(smallest):  # its square would be subnormal
                np.maximum(e, smallest, out=e)
            np.multiply(e, e, out=e)

        def work(rows: slice) -> None:
            block = self.logits[rows]
            z = np.subtract(block, high[rows, None], out=scratch(0, block))
            exponents = np.multiply(z, half[rows, None], out=scratch(1, block))
            lowest = float(exponents.min())
            e = exp_normal(exponents)
            out[0, rows], out[1, rows] = row_sum(e), row_dot(e, z)
            squared(e, lowest)
            out[2, rows], out[3, rows] = row_sum(e), row_dot(e, z)
            power = np.multiply(e, z, out=scratch(2, block))
            out[4, rows] = row_dot(power, z)
            for k in (5, 6):
                np.multiply(power, z, out=power)
                out[k, rows] = row_dot(power, z)
            squared(e, 2 * lowest)
            out[7, rows], out[8, rows] = row_sum(e), row_dot(e, z)

        over_blocks(self.logits.shape, work)
        return out


@dataclass(frozen=True)
class MaskedPasses(ArrayPasses):
    """Passes over rows of ``rhocal.numerics.masks.deepen``. Masked entries are in no mean, norm or list of largest entries.

    Their exponentials are 0, so that curves need no care.
    """

    gap: float = np.inf
    """How far below the largest entry of its row an entry is a mask."""

    def take(self, rows: NDArray[np.intp]) -> MaskedPasses:
        scanned = None if self.scanned is None else self.scanned.take(rows)
        return MaskedPasses(self.source, scanned, rows if self.rows is None else self.rows[rows], self.gap)

    def means(self) -> Vector:
        return self._read(lambda passes, _: passes.means(), center=True)

    def largest(self, k: int) -> Vector:
        """Of rows with fewer classes the last are as deep as the least deep mask."""
        top = (self.scanned or scan(self.logits)).top
        return np.maximum(super().largest(k), (top - self.gap)[:, None])

    def norms(self, rhos: Sequence[float], *, center: bool) -> Vector:
        return self._read(lambda passes, _: passes.norms(rhos, center=center), center=center)

    def norm_slope(self, rho: float, *, center: bool) -> tuple[Vector, Vector]:
        norm, slope = self._read(
            lambda passes, _: np.stack(passes.norm_slope(rho, center=center), axis=1), center=center
        ).T
        return norm, slope

    def _read(self, read: Callable[[ArrayPasses, slice], Vector], *, center: bool) -> Vector:
        """What is read from rows whose masks are filled with what does not change it."""
        logits, top = self.logits, (self.scanned or scan(self.logits)).top

        def part(rows: slice) -> Vector:
            return read(ArrayPasses(without_masks(logits[rows], top[rows], self.gap, center=center)), rows)

        return np.concatenate(in_threads(part, list(row_blocks(len(logits), logits.shape[1], WIDENED_ENTRIES))))


@dataclass(frozen=True)
class HalfPasses:
    """Passes over an array in half precision, which is widened row block by row block: twice its size is never in memory."""

    source: NDArray[np.float16]
    scanned: kernels.Scan | None = None
    """The scan of the logits, if there was one."""
    rows: NDArray[np.intp] | None = None
    """Which rows of the source; None for all of them."""

    @property
    def logits(self) -> Floats:
        """The rows in single precision."""
        return widened(np.ascontiguousarray(self.source if self.rows is None else self.source[self.rows]))

    def take(self, rows: NDArray[np.intp]) -> HalfPasses:
        scanned = None if self.scanned is None else self.scanned.take(rows)
        return HalfPasses(self.source, scanned, rows if self.rows is None else self.rows[rows])

    def means(self) -> Vector:
        return self._join(lambda passes, _: passes.means())

    def largest(self, k: int) -> Vector:
        return self._join(lambda passes, _: passes.largest(k), axis=0)

    def norms(self, rhos: Sequence[float], *, center: bool) -> Vector:
        return self._join(lambda passes, _: passes.norms(rhos, center=center), axis=0)

    def norm_slope(self, rho: float, *, center: bool) -> tuple[Vector, Vector]:
        norm, slope = self._join(lambda passes, _: np.stack(passes.norm_slope(rho, center=center)))
        return norm, slope

    def curve(self, top: Vector, scale: Vector, order: int) -> tuple[Vector, ...]:
        return tuple(self._join(lambda passes, rows: np.stack(passes.curve(top[rows], scale[rows], order))))

    def moments(self, top: Vector, scales: Vector) -> Vector:
        return self._join(lambda passes, rows: passes.moments(top[rows], scales))

    def moments_at(self, top: Vector, scale: Vector) -> Vector:
        return self._join(lambda passes, rows: passes.moments_at(top[rows], scale[rows]))

    def _join(self, read: Callable[[ArrayPasses, slice], Vector], axis: int = -1) -> Vector:
        """What is read from each row block, along the axis of the samples."""
        n_rows = len(self.source) if self.rows is None else len(self.rows)
        first, *others = row_blocks(n_rows, self.source.shape[1], WIDENED_ENTRIES)

        def part(rows: slice) -> Vector:
            chosen = self.source[rows] if self.rows is None else self.source[self.rows[rows]]
            scanned = None if self.scanned is None else self.scanned.take(rows)
            return read(ArrayPasses(widened(np.ascontiguousarray(chosen)), scanned), rows)

        def put(rows: slice) -> None:
            out[rows if axis == 0 else (..., rows)] = part(rows)

        beginning = part(first)
        shape = list(beginning.shape)
        shape[axis] = n_rows
        out = np.empty(shape)
        out[first if axis == 0 else (..., first)] = beginning
        in_threads(put, others)
        return out
