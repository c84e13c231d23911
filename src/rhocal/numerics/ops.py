"""The operations that a fitted map may use: NumPy, torch and ONNX implement them, and a map is written once.

The classes are the last axis, and reductions keep it with length 1. Values also take Python's own ``+ - * /``, ``<``,
``<=``, and ``value[k]`` for the k-th number of a parameter. Compound operations are defined in terms of the basic ones;
``NumpyOps`` compiles those in which a map spends its time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

Value = Any
"""An array, a tensor or a node of a graph."""


MAX_HULL_CLASSES = 64
"""``isotonic`` adds some 15 operations for each class to a graph, and its cost grows with the square of their number."""

SMALLEST_SUM = 1e-30
"""What a sum of probabilities is divided by at least."""

DOUBLE_EPS = 1e-12
"""Types with a smaller ``eps`` are as precise as double precision."""


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
    def take_in_rows(self, x: Value, index: Value) -> Value:
        """The entries of every row at whole-number places of that row; ``index`` has the shape of x."""

    @abstractmethod
    def matmul(self, x: Value, weight: Value) -> Value:
        """X · weight."""

    @abstractmethod
    def concat(self, parts: Sequence[Value]) -> Value:
        """Side by side along the last axis."""

    @abstractmethod
    def column(self, x: Value, k: int) -> Value:
        """One column, as a table of one."""

    # Compound operations ----------------------------------------------------------------------------------------------

    def clip(self, x: Value, low: Value, high: Value) -> Value:
        """X kept between two bounds."""
        return self.minimum(self.maximum(x, low), high)

    def keep_nan(self, out: Value, x: Value) -> Value:
        """``out`` with NaN in rows of x that no softmax is defined for: with a NaN or +∞, or with −∞ alone.

        Conditions on NaN are false, so that a formula with ``where`` gives such rows numbers.
        """
        below = self.sum(x - self.max(x))  # −∞ where some entries are, which are masks, or where it overflows
        return out * self.where(below <= 0.0, 1.0, math.nan)

    def softmax(self, x: Value) -> Value:
        """Probabilities."""
        e = self.exp(x - self.max(x))
        return e / self.sum(e)

    def scaled_softmax(self, x: Value, scale: Value) -> Value:
        """softmax(scale · x); the largest entry is taken away first, so that no digits are lost."""
        return self.softmax(scale * (x - self.max(x)))

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

    def log1p(self, x: Value) -> Value:
        """log(1 + x)."""
        return self.log(x + 1.0)

    def safe_log(self, x: Value) -> Value:
        """Logarithm of what is not negative, finite."""
        return self.log(self.maximum(x, self.tiny))

    def rho_norm(self, x: Value, rho: Value, *, center: bool) -> Value:
        """(Σ|x_j|^ρ)^(1/ρ) of every row, of rows minus their mean with ``center``.

        The largest size is taken out, or powers would overflow in single precision.
        """
        if center:  # relative to the largest entry: a mean of 500 would cost digits
            x = x - self.max(x)
            x = x - self.mean(x)
        size = self.abs(x)
        largest = self.max(size)
        size = size / self.where(largest > 0.0, largest, 1.0)
        # A row of zeros has the sum 0, whose root has no slope; any other sum is at least 1.
        if isinstance(rho, float) and rho == 2:
            return largest * self.sqrt(self.maximum(self.sum(size * size), 1.0))
        return largest * self.power(self.maximum(self.sum(self.power(size, rho)), 1.0), 1.0 / rho)

    def centered_top(self, x: Value, k: int) -> Value:
        """The k largest entries of every row, largest first, minus the mean of the row."""
        x = x - self.max(x)
        return self.top(x, k) - self.mean(x)

    def mean_where_not(self, condition: Value, x: Value) -> Value:
        """Mean of the entries of every row for which the condition does not hold."""
        count = self.sum(self.where(condition, 0.0, 1.0))
        top = self.max(x)  # relative to the largest entry: a mean of 500 would cost digits
        return top + self.sum(self.where(condition, 0.0, x - top)) / count

    def first_max(self, x: Value, order: Value) -> Value:
        """Whether an entry is the first of the largest of its row; ``order`` numbers the columns."""
        rank = self.where(x < self.max(x), float("inf"), order)
        return rank <= -self.max(-rank)

    def sum_above(self, x: Value, n_classes: int) -> tuple[Value, Value]:
        """The sum of the larger entries of its row for each entry, and how many there are; tied entries get the same.

        Entries are not negative. The sums are those of the row in descending order, and a place in it is found by halving.
        """
        ordered = -self.sort(-x)
        step = 1 << (n_classes.bit_length() - 1)
        count = self.where(self.column(ordered, step - 1) > x, step, 0)
        step //= 2
        while step:  # beyond the end stands the smallest entry, which is above none
            entry = self.take_in_rows(ordered, self.minimum(count + (step - 1), n_classes - 1))
            count = count + self.where(entry > x, step, 0)
            step //= 2
        sums = self.take_in_rows(self.cumsum(ordered), self.maximum(count + -1, 0))
        return self.where(count > 0, sums, 0.0), count

    def round_noise(self, score: Value) -> Value:
        """Scores without digits that are rounding noise, where the backend can round."""
        return score

    def keep_order(self, out: Value, x: Value) -> Value:  # noqa: ARG002
        """``out`` with the order of x, where rounding may have changed it and the backend promises it to the last bit."""
        return out

    def locate(self, table: Value, starts: Value, width: int, score: Value, *, count_equal: bool = False) -> Value:
        """How many entries of its row (sorted, filled up with +∞) are below each score, or not above it.

        ``table`` holds rows of ``width`` entries, one less than a power of 2, one after the other, and ``starts`` where each
        begins. A place is found by halving.
        """
        step, count = (width + 1) // 2, None
        while step:
            place = starts + (step - 1) if count is None else starts + count + (step - 1)
            entry = self.take(table, place)
            passed = self.where(entry <= score if count_equal else entry < score, step, 0)
            count = passed if count is None else count + passed
            step //= 2
        return count

    def interpolate(self, lines: Parameters, score: Value) -> Value:
        """The straight lines of ``tables.line_tables`` at every score."""
        at = self.locate(lines["edges"], lines["edge_starts"], lines["width"], score) + lines["line_starts"]
        slope = self.take(lines["line_slope"], at)
        value = self.take(lines["line_value"], at) + slope * (score - self.take(lines["line_begin"], at))
        # A steep line must not carry the rounding of a score beyond its ends.
        return self.clip(value, self.take(lines["line_low"], at), self.take(lines["line_high"], at))

    def where_rows(self, needed: Value, change: Callable[..., Value], x: Value, *others: Value) -> Value:
        """``change(x, *others)`` in the rows where ``needed``, a column, is above 0; x in the others."""
        return self.where(needed > 0.0, change(x, *others), x)

    def isotonic(self, p: Value, keys: Value, n_classes: int) -> Value:
        """The row nearest to p of those that do not decrease with the keys; equal keys get one value.

        The upper hull of the sums of p over the entries with the largest keys, from vertex to vertex: after each comes the
        set of largest keys whose additional entries have the largest mean. There are at most as many as classes, and each
        takes a pass over all of them.
        """
        if n_classes > MAX_HULL_CLASSES:
            raise InputError(
                f"the order of more than {MAX_HULL_CLASSES} classes is kept by NumPy alone, and there are {n_classes:,}; for "
                "torch, ONNX and apply_fn use cascade-top or cascade-scale"
            )
        total, count = p * 0.0, p * 0.0  # of the entries whose key is not below
        for k in range(n_classes):
            is_ahead = keys <= self.column(keys, k)
            total = total + self.where(is_ahead, 1.0, 0.0) * self.column(p, k)
            count = count + self.where(is_ahead, 1.0, 0.0)
        out, vertex_total, vertex_count = p * 0.0, self.column(p, 0) * 0.0, self.column(p, 0) * 0.0
        for _ in range(n_classes):
            is_beyond = count > vertex_count
            mean = (total - vertex_total) / self.where(is_beyond, count - vertex_count, 1.0)
            level = self.max(self.where(is_beyond, mean, -1.0))
            is_next = self.where(is_beyond, self.where(mean >= level, 1.0, 0.0), 0.0) > 0.0
            next_count = self.maximum(self.max(self.where(is_next, count, 0.0)), vertex_count)
            out = self.where(is_beyond, self.where(count <= next_count, level, out), out)
            # Entries with this count have one total; at the last vertex it stays.
            vertex_total = self.max(self.where(count <= next_count, total, 0.0))
            vertex_count = next_count
        return out

    def cap(self, p: Value, spared: Value, limit: Value, total: Value, order: Value) -> Value:
        """min(λp, limit) with λ such that the entries that are not spared sum to ``total``, where one is above the limit.

        Rows in which that cannot be stay as they are. One entry of a row is spared; ``order`` numbers the columns. With the
        k largest at the limit λ would be (total − k·limit) / (sum of the others). The solution is the largest of these:
        Σ min(λp, limit) is the smallest over k of k·limit + λ·(sum of the others), and increases with λ.
        """
        n_others = self.max(order)
        raised = self.where(spared, 0.0, self.maximum(p, SMALLEST_SUM))
        below = self.cumsum(self.sort(raised))
        factor = self.max((total - (n_others - order) * limit) / self.maximum(below, SMALLEST_SUM))
        possible = self.where(limit * n_others >= total, 1.0, 0.0)
        needed = self.where(self.max(self.where(spared, 0.0, p)) > limit, possible, 0.0)
        return self.where(needed > 0.0, self.minimum(factor * raised, limit), p)


Parameters = Mapping[str, Any]
"""The numbers of a fitted map as the backend holds them, and plain values such as names and flags."""

Formula = Callable[[Ops, Parameters, Value], Value]
"""Logits → calibrated logits."""
