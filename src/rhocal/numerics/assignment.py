"""The assignment of largest sum, by SciPy, which is imported when it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def best_columns(table: NDArray[Any]) -> NDArray[np.intp]:
    """The column of each row of a square table, every column once, for which the sum of the entries is largest."""
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - it takes a while, and is rarely needed

    return np.asarray(linear_sum_assignment(table, maximize=True)[1], np.intp)
