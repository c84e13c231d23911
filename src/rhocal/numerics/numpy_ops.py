"""The operations of maps on arrays: NumPy, or any namespace with the names of the array API (``jax.numpy``)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rhocal.numerics import kernels, special
from rhocal.numerics.isotonic import isotonic_rows
from rhocal.numerics.ops import Ops, Parameters, Value
from rhocal.numerics.scaling import keep_order, scaled_softmax

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


class ArrayOps(Ops):
    """Operations of an array namespace, in one floating type."""

    def __init__(self, xp: Any = np, dtype: Any = np.float64) -> None:
        # JAX has no double precision unless it is switched on: the type is the one that the namespace gives.
        self.xp, self.dtype = xp, np.dtype(xp.asarray(np.zeros((), dtype)).dtype)
        self.tiny, self.eps = (float(value) for value in (np.finfo(self.dtype).tiny, np.finfo(self.dtype).eps))

    def constant(self, value: Any) -> Value:
        """An outside array: floats in the type of the computation, others as they are."""
        array = self.xp.asarray(value)
        # Not `np.asarray(value)`: a traced array of JAX has a type and no values.
        return array if np.dtype(array.dtype).kind in "iub" else self.xp.asarray(array, dtype=self.dtype)

    def max(self, x: Value) -> Value:
        if self.xp is np or not hasattr(self.xp, "take_along_axis"):
            return self.xp.max(x, axis=-1, keepdims=True)
        # JAX finds where the slope of a maximum goes by comparing with it: if a compiler computes the entries again, with
        # another rounding, none is equal, and the slope is 0/0.
        return self.xp.take_along_axis(x, self.xp.argmax(x, axis=-1, keepdims=True), axis=-1)

    def sum(self, x: Value) -> Value:
        return self.xp.sum(x, axis=-1, keepdims=True)

    def mean(self, x: Value) -> Value:
        return self.xp.mean(x, axis=-1, keepdims=True)

    def cumsum(self, x: Value) -> Value:
        # NumPy 2.0 has no `cumulative_sum`, and namespaces of the array API have no `cumsum`.
        return (self.xp.cumsum if hasattr(self.xp, "cumsum") else self.xp.cumulative_sum)(x, axis=-1)

    def sort(self, x: Value) -> Value:
        return self.xp.sort(x, axis=-1)

    def top(self, x: Value, k: int) -> Value:
        return -self.xp.sort(-x, axis=-1)[..., :k]

    def exp(self, x: Value) -> Value:
        return self.xp.exp(x)

    def log(self, x: Value) -> Value:
        return self.xp.log(x)

    def abs(self, x: Value) -> Value:
        return self.xp.abs(x)

    def keep_nan(self, out: Value, x: Value) -> Value:
        below = x * 0.5 - self.max(x) * 0.5  # halves do not overflow: NumPy would warn
        n_undefined = self.sum(self.where(below <= 0.0, 0.0, 1.0))
        return out * self.where(n_undefined < 1.0, 1.0, math.nan)

    def sqrt(self, x: Value) -> Value:
        return self.xp.sqrt(x)

    def tanh(self, x: Value) -> Value:
        return self.xp.tanh(x)

    def power(self, x: Value, exponent: Value) -> Value:
        return self.xp.pow(x, exponent)

    def maximum(self, x: Value, y: Value) -> Value:
        return self.xp.maximum(x, y)

    def minimum(self, x: Value, y: Value) -> Value:
        return self.xp.minimum(x, y)

    def where(self, condition: Value, x: Value, y: Value) -> Value:
        return self.xp.where(condition, self._number(x), self._number(y))

    def take(self, table: Value, index: Value) -> Value:
        return table[index]

    def take_in_rows(self, x: Value, index: Value) -> Value:
        return self.xp.take_along_axis(x, index, axis=-1)

    def matmul(self, x: Value, weight: Value) -> Value:
        return self.xp.matmul(x, weight)

    def concat(self, parts: Sequence[Value]) -> Value:
        return self.xp.concat(list(parts), axis=-1)

    def column(self, x: Value, k: int) -> Value:
        return x[..., k : k + 1]

    def _number(self, x: Value) -> Value:
        # Two plain numbers would become float64, whatever the type of the computation.
        return self.xp.asarray(x, dtype=self.dtype) if isinstance(x, float) else x


MATMUL_ENTRIES = 1 << 15
"""Entries of a matrix that all rows are multiplied with before the next: a quarter of a megabyte."""


class NumpyOps(ArrayOps):
    """The same on rows of float64, with compiled compound operations.

    A row's result does not depend on its neighbors, so batches may be cut anywhere. ``rho_norm`` and ``centered_top`` also
    take float32 and give float64.
    """

    def max(self, x: Value) -> Value:
        # NumPy's own reduction takes far longer on short rows.
        return special.row_max(x)[:, None] if x.ndim == 2 else super().max(x)

    def matmul(self, x: Value, weight: Value) -> Value:
        # Not a product of BLAS, whose result for a row depends on how many there are. Columns that fit the cache together.
        columns = np.ascontiguousarray(weight.T)
        step = max(1, MATMUL_ENTRIES // max(1, columns.shape[1]))
        parts = [np.vecdot(x[:, None, :], columns[None, k : k + step]) for k in range(0, len(columns), step)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def top(self, x: Value, k: int) -> Value:
        return special.largest(x, k)

    def centered_top(self, x: Value, k: int) -> Value:
        return self.top(x, k) - (special.scan(x).total / x.shape[1])[:, None]

    def rho_norm(self, x: Value, rho: Value, *, center: bool) -> Value:
        return special.rho_norms(x, [float(rho)], center=center)

    def softmax(self, x: Value) -> Value:
        return special.softmax(x)

    def scaled_softmax(self, x: Value, scale: Value) -> Value:
        return scaled_softmax(x, np.ravel(scale))

    def log_softmax(self, x: Value) -> Value:
        return special.log_softmax(x)

    def expit(self, x: Value) -> Value:
        return special.expit(x)

    def softplus(self, x: Value) -> Value:
        return special.softplus(x)

    def log1p(self, x: Value) -> Value:
        return np.log1p(x)

    def first_max(self, x: Value, order: Value) -> Value:
        return special.row_argmax(x)[:, None] == order

    def round_noise(self, score: Value) -> Value:
        return special.without_noise(score)

    def keep_order(self, out: Value, x: Value) -> Value:
        return keep_order(out, x)

    def locate(self, table: Value, starts: Value, width: int, score: Value, *, count_equal: bool = False) -> Value:
        rows: NDArray[np.float64] = table.reshape(len(starts), width)
        side: Literal["left", "right"] = "right" if count_equal else "left"
        if len(rows) == 1:
            return np.searchsorted(rows[0], score.ravel(), side).reshape(score.shape)
        counts = np.empty(score.shape, np.intp)
        for k, row in enumerate(rows):
            counts[:, k] = np.searchsorted(row, score[:, k], side)
        return counts

    def interpolate(self, lines: Parameters, score: Value) -> Value:
        rows = lines["edges"].reshape(-1, lines["width"])
        values = lines["line_value"].reshape(len(rows), -1)
        out = kernels.lines(score, rows, values)
        if out is None:
            out = np.zeros_like(score)
            for k, n in enumerate(np.isfinite(rows).sum(axis=1)):
                if n:
                    out[:, k] = np.interp(score[:, k], rows[k, :n], values[k, 1 : n + 1])
        return out

    def where_rows(self, needed: Value, change: Callable[..., Value], x: Value, *others: Value) -> Value:
        rows = np.flatnonzero(needed > 0)
        if not len(rows):
            return x
        out = x.copy()
        out[rows] = change(x[rows], *(other[rows] for other in others))
        return out

    def isotonic(self, p: Value, keys: Value, n_classes: int) -> Value:  # noqa: ARG002
        return isotonic_rows(p, keys)

    def cap(self, p: Value, spared: Value, limit: Value, total: Value, order: Value) -> Value:
        over = (p > limit) & ~spared
        if over.any():
            rows = np.flatnonzero(over.any(axis=1))
            p[rows] = super().cap(p[rows], spared[rows], limit[rows], total[rows], order)
        return p


NUMPY = NumpyOps()
"""What fitted maps and features are computed with in memory."""
