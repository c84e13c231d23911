"""Portable maps on arrays: NumPy, or any namespace with the names of the array API (``jax.numpy``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.numerics.portable.ops import Ops, Value

if TYPE_CHECKING:
    from collections.abc import Sequence


class ArrayOps(Ops):
    """Operations of an array namespace, in one floating type."""

    def __init__(self, xp: Any = np, dtype: Any = np.float64) -> None:
        self.xp, self.dtype = xp, dtype
        self.tiny, self.eps = (float(value) for value in (np.finfo(dtype).tiny, np.finfo(dtype).eps))

    def constant(self, value: Any) -> Value:
        """An outside array: floats in the type of the computation, others as they are."""
        array = self.xp.asarray(value)
        return self.xp.asarray(array, dtype=self.dtype) if np.asarray(value).dtype.kind == "f" else array

    def max(self, x: Value) -> Value:
        return self.xp.max(x, axis=-1, keepdims=True)

    def sum(self, x: Value) -> Value:
        return self.xp.sum(x, axis=-1, keepdims=True)

    def mean(self, x: Value) -> Value:
        return self.xp.mean(x, axis=-1, keepdims=True)

    def cumsum(self, x: Value) -> Value:
        return self.xp.cumulative_sum(x, axis=-1)

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

    def matmul(self, x: Value, weight: Value) -> Value:
        return self.xp.matmul(x, weight)

    def concat(self, parts: Sequence[Value]) -> Value:
        return self.xp.concat(list(parts), axis=-1)

    def column(self, x: Value, k: int) -> Value:
        return x[..., k : k + 1]

    def _number(self, x: Value) -> Value:
        # Two plain numbers would become float64, whatever the type of the computation.
        return self.xp.asarray(x, dtype=self.dtype) if isinstance(x, float) else x
