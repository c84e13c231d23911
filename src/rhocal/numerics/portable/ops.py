"""The operations that a portable map may use. The classes are the last axis, and reductions keep it with length 1.

Values also take Python's own ``+ - * /``, ``<``, ``<=``, and ``value[k]`` for the k-th number of a constant vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Value = Any
"""An array, a tensor or a node of a graph."""


class Ops(ABC):
    """What a backend must be able to do, and what follows from it."""

    tiny: float
    """The smallest normal number of the type it computes in."""
    eps: float
    """The distance from 1 to the next number of that type."""

    @abstractmethod
    def max(self, x: Value) -> Value:
        """Largest entry of every row."""

    @abstractmethod
    def sum(self, x: Value) -> Value:
        """Sum of every row."""

    @abstractmethod
    def mean(self, x: Value) -> Value:
        """Mean of every row."""

    @abstractmethod
    def cumsum(self, x: Value) -> Value:
        """Running sums along every row."""

    @abstractmethod
    def sort(self, x: Value) -> Value:
        """Every row in ascending order."""

    @abstractmethod
    def top(self, x: Value, k: int) -> Value:
        """The k largest entries of every row, largest first."""

    @abstractmethod
    def exp(self, x: Value) -> Value:
        """e^x."""

    @abstractmethod
    def log(self, x: Value) -> Value:
        """Natural logarithm."""

    @abstractmethod
    def abs(self, x: Value) -> Value:
        """|x|."""

    @abstractmethod
    def sqrt(self, x: Value) -> Value:
        """Square root."""

    @abstractmethod
    def tanh(self, x: Value) -> Value:
        """Hyperbolic tangent."""

    @abstractmethod
    def power(self, x: Value, exponent: Value) -> Value:
        """x^exponent, x not negative."""

    @abstractmethod
    def maximum(self, x: Value, y: Value) -> Value:
        """The larger of two; y may be a number."""

    @abstractmethod
    def minimum(self, x: Value, y: Value) -> Value:
        """The smaller of two; y may be a number."""

    @abstractmethod
    def where(self, condition: Value, x: Value, y: Value) -> Value:
        """X where the condition holds, else y; both may be numbers."""

    @abstractmethod
    def take(self, table: Value, index: Value) -> Value:
        """The entries of a flat table at whole-number places."""

    @abstractmethod
    def matmul(self, x: Value, weight: Value) -> Value:
        """X · weight."""

    @abstractmethod
    def concat(self, parts: Sequence[Value]) -> Value:
        """Side by side along the last axis."""

    @abstractmethod
    def column(self, x: Value, k: int) -> Value:
        """One column, as a table of one."""

    # What follows -----------------------------------------------------------------------------------------------------

    def clip(self, x: Value, low: Value, high: Value) -> Value:
        """X kept between two bounds."""
        return self.minimum(self.maximum(x, low), high)

    def softmax(self, x: Value) -> Value:
        """Probabilities."""
        e = self.exp(x - self.max(x))
        return e / self.sum(e)

    def log_softmax(self, x: Value) -> Value:
        """Log-probabilities."""
        shifted = x - self.max(x)
        return shifted - self.log(self.sum(self.exp(shifted)))

    def expit(self, x: Value) -> Value:
        """1 / (1 + e^−x), without overflow at either end."""
        e = self.exp(-self.abs(x))
        return self.where(x < 0.0, e, 1.0) / (e + 1.0)

    def softplus(self, x: Value) -> Value:
        """log(1 + e^x)."""
        return self.maximum(x, 0.0) + self.log(self.exp(-self.abs(x)) + 1.0)

    def safe_log(self, x: Value) -> Value:
        """Logarithm of what is not negative, finite."""
        return self.log(self.maximum(x, self.tiny))


Constants = Mapping[str, Any]
"""The fitted numbers, as the backend holds them."""

Formula = Callable[[Ops, Constants, Value], Value]
"""Logits → calibrated logits."""
