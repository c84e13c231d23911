"""Piecewise functions as flat tables, which ``Ops.locate`` and ``Ops.interpolate`` read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


STEEPEST = 2.0**28
"""How far a line rises at most while its score, 0 to 1, grows by its own size. Where the rounding of backends differs by 4e-16
of a score, they differ by 1e-7 in its value."""

SMALLEST_SCORE = 1e-290
"""Smaller scores are distinguished as this one is: some backends have no subnormal numbers."""


def padded(rows: NDArray[np.float64], fill: float, width: int | None = None) -> NDArray[np.float64]:
    """Rows with NaN at their ends as one flat table: each filled up to one less than a power of 2, or to a width."""
    rows = np.atleast_2d(rows)
    if width is None:
        width = 2 ** max(1, int(rows.shape[1]).bit_length()) - 1
    table = np.full((len(rows), width), fill)
    table[:, : rows.shape[1]] = np.where(np.isnan(rows), fill, rows)
    return table.ravel()


def row_starts(n_rows: int, width: int) -> NDArray[np.int64]:
    """Where each row of a flat table begins."""
    return np.arange(n_rows, dtype=np.int64) * width


def without_steep(values: NDArray[np.float64], rise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values of which no two neighbors are farther apart than ``rise``.

    They are halfway between the largest such values that are nowhere above, and the smallest that are nowhere below. So their
    order stays, and so do values far from a steep line.
    """
    low, high = values.copy(), values.copy()
    pairs = [(k, k - 1) for k in range(1, values.shape[1])]
    for k, neighbor in pairs + [(before, k) for k, before in reversed(pairs)]:
        limit = rise[:, min(k, neighbor)]
        low[:, k] = np.minimum(low[:, k], low[:, neighbor] + limit)
        high[:, k] = np.maximum(high[:, k], high[:, neighbor] - limit)
    return (low + high) / 2


def steep_lines(
    low: NDArray[np.float64], high: NDArray[np.float64], rise: NDArray[np.float64], limit: float
) -> NDArray[np.intp]:
    """Which lines between two scores rise by more than a limit while the score grows by its own size."""
    return np.flatnonzero((np.abs(rise) > limit * (high - low) / high) & (low > SMALLEST_SCORE))


def with_jumps(
    knots: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lines of which those that ``line_tables`` would bound are jumps between two neighboring numbers in their middle."""
    steep = steep_lines(knots[:-1], knots[1:], np.diff(values), STEEPEST)
    middle = knots[steep] + (knots[steep + 1] - knots[steep]) / 2
    jumps = np.column_stack([middle, np.nextafter(middle, np.inf)]).ravel()
    ends = np.column_stack([values[steep], values[steep + 1]]).ravel()
    at = np.repeat(steep + 1, 2)
    return np.insert(knots, at, jumps), np.insert(values, at, ends)


def line_tables(knots: NDArray[np.float64], values: NDArray[np.float64]) -> dict[str, Any]:
    """Straight lines between knots, constant beyond them: for each row, what ``Ops.interpolate`` needs.

    Where a line would be so steep that rounding of a score decided, the values around it move toward each other. Between
    neighboring numbers, where no score is expected, there is a jump.
    """
    knots, values = np.atleast_2d(knots), np.atleast_2d(values)
    edges = padded(knots, np.inf)
    width = len(edges) // len(knots)
    shape = (len(knots), width + 1)
    low, high, begin, slope = (np.zeros(shape) for _ in range(4))
    is_knot, n_columns = ~np.isnan(knots), knots.shape[1]  # NaN is at the ends of rows
    x, y = np.where(is_knot, knots, 0.0), np.where(is_knot, values, 0.0)
    is_line = is_knot[:, 1:] & (x[:, 1:] > np.nextafter(x[:, :-1], np.inf))
    rise = np.where(is_line, STEEPEST * np.diff(x) / np.maximum(x[:, 1:], SMALLEST_SCORE), np.inf)
    if (np.abs(np.diff(y)) > rise).any():
        y = without_steep(y, rise)
    last = np.take_along_axis(y, np.maximum(is_knot.sum(axis=1) - 1, 0)[:, None], axis=1)
    low[:, 0], begin[:, 0] = y[:, 0], x[:, 0]
    low[:, 1 : n_columns + 1], begin[:, 1 : n_columns + 1] = y, x
    high[:, :n_columns] = np.where(is_knot, y, 0.0)
    after = np.arange(n_columns + 1) == is_knot.sum(axis=1)[:, None]  # the constant beyond the last knot
    high[:, : n_columns + 1][after] = last[:, 0]
    with np.errstate(all="ignore"):  # beyond the last knot
        slopes = np.diff(y, axis=1) / np.diff(x, axis=1)
    slope[:, 1:n_columns] = np.where(is_knot[:, 1:], slopes, 0.0)
    return {
        "width": width,
        "edges": edges,
        "edge_starts": row_starts(len(knots), width),
        "line_starts": row_starts(len(knots), width + 1),
        "line_low": np.minimum(low, high).ravel(),
        "line_high": np.maximum(low, high).ravel(),
        "line_value": low.ravel(),
        "line_begin": begin.ravel(),
        "line_slope": slope.ravel(),
    }
