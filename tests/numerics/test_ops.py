"""Operations on arrays need no more than the oldest NumPy and the array API have in common."""

from types import SimpleNamespace

import numpy as np
import pytest

from rhocal.numerics.numpy_ops import ArrayOps


@pytest.mark.parametrize(
    "name", ["cumsum", "cumulative_sum"]
)  # NumPy 2.0 has only the first, the array API only the second
def test_running_sums(name):
    ops = ArrayOps(SimpleNamespace(asarray=np.asarray, **{name: np.cumsum}))
    np.testing.assert_array_equal(ops.cumsum(np.array([[1.0, 2.0], [3.0, -1.0]])), [[1.0, 3.0], [3.0, 2.0]])
