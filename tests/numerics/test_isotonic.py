"""Isotonic regression of rows: by hand, against SciPy, and without the compiled pass."""

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from rhocal.errors import InputError
from rhocal.numerics import kernels
from rhocal.numerics.isotonic import isotonic_rows
from rhocal.numerics.numpy_ops import ArrayOps
from rhocal.numerics.ops import MAX_HULL_CLASSES


def rows(n, m, *, digits=None, seed=0):
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(n, m))
    values = rng.dirichlet(np.full(m, 0.5), n)
    return values, keys if digits is None else keys.round(digits)


def by_scipy(values, keys):
    """Equal keys are one entry with their number as weight."""
    out = np.empty_like(values)
    for i, (v, key) in enumerate(zip(values, keys, strict=True)):
        _, group, size = np.unique(key, return_inverse=True, return_counts=True)
        out[i] = isotonic_regression(np.bincount(group, v) / size, weights=size).x[group]
    return out


@pytest.fixture(params=["compiled", "numpy"])
def passes(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(kernels, "is_enabled", False)


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("m", [2, 3, 10, 200])
@pytest.mark.parametrize("digits", [None, 1])
def test_rows_are_those_of_scipy(m, digits):
    values, keys = rows(100, m, digits=digits)
    before = values.copy()
    got = isotonic_rows(values, keys)
    np.testing.assert_allclose(got, by_scipy(values, keys), atol=1e-15)
    np.testing.assert_array_equal(values, before)
    ascending = np.take_along_axis(got, np.argsort(keys, axis=1, kind="stable"), axis=1)
    assert (np.diff(ascending, axis=1) >= 0).all()


@pytest.mark.usefixtures("passes")
def test_by_hand():
    got = isotonic_rows(np.array([[0.1, 0.2, 0.7], [0.7, 0.2, 0.1]]), np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]))
    np.testing.assert_allclose(got, [[1 / 3, 1 / 3, 1 / 3], [0.7, 0.2, 0.1]])
    equal = isotonic_rows(np.array([[0.5, 0.1, 0.4]]), np.zeros((1, 3)))
    np.testing.assert_allclose(equal, [[1 / 3] * 3])


@pytest.mark.parametrize("m", [2, 5, MAX_HULL_CLASSES])
@pytest.mark.parametrize("digits", [None, 1])
def test_the_hull_is_the_same(m, digits):
    values, keys = rows(50, m, digits=digits)
    np.testing.assert_allclose(ArrayOps().isotonic(values, keys, m), by_scipy(values, keys), atol=1e-14)


def test_the_hull_of_many_classes_is_refused():
    values, keys = rows(1, MAX_HULL_CLASSES + 1)
    with pytest.raises(InputError, match="cascade-top"):
        ArrayOps().isotonic(values, keys, MAX_HULL_CLASSES + 1)
