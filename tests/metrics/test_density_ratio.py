"""Folds of two populations, and the test whether they are one."""

import numpy as np
import pytest

from rhocal.metrics.inference.density_ratio import RIDGES, SampleFolds, _fold_test, _out_of_fold, _ridge, density_folds


def p_value(source, target):
    """Of the test alone; the estimate of the weights takes more time."""
    folds = density_folds(source, target)
    return _fold_test(*_out_of_fold(source, target, (folds[0].number, folds[1].number), _ridge(RIDGES[0])), *folds)[1]


@pytest.mark.parametrize(("high", "columns", "n"), [(400, 1, 2000), (15, 2, 1000), (4000, 1, 2000)])
def test_level_with_integers(high, columns, n):
    """Up to 8 copies of a value were in one fold, and counted as independent samples: .05 of p-values were below .01."""
    rng = np.random.default_rng(0)
    p = np.array([p_value(*(rng.integers(0, high, (2, n, columns)) / high - 0.5)) for _ in range(120)])
    assert np.mean(p < 0.01) <= 0.042  # 1.2 of 120 expected; 6 or more have a chance of 0.2 %


def test_equal_rows_are_values_or_copies():
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 60, (2, 300, 1)).astype(float)
    folds = density_folds(source, target)
    assert all((one.copies == 1).all() for one in folds)
    assert len(np.unique(folds[0].number[source[:, 0] == source[0, 0]])) > 1
    source, target = (np.repeat(rng.normal(size=(300, 2)), 3, axis=0) for _ in range(2))
    for one in density_folds(source, target):
        assert (one.copies == 3).all()
        assert (one.number.reshape(-1, 3) == one.number[::3, None]).all()


def test_copies_in_a_fold_are_one_sample():
    rng = np.random.default_rng(1)
    own, other = rng.normal(size=(2, 500))
    number = rng.integers(5, size=500)
    once, copied = (SampleFolds(np.repeat(number, k), np.full(500 * k, k)) for k in (1, 4))
    area, p = _fold_test(own, other, once, once)
    assert _fold_test(np.repeat(own, 4), np.repeat(other, 4), copied, copied) == pytest.approx((area, p), rel=0.02)
