"""Lines between knots are nowhere so steep that rounding of a score decides."""

import numpy as np
import pytest

from rhocal.numerics.numpy_ops import NUMPY
from rhocal.numerics.tables import STEEPEST, line_tables


def at(knots, values, scores):
    return NUMPY.interpolate(line_tables(np.array(knots), np.array(values)), np.array(scores)[:, None])[:, 0]


def test_a_steep_line_by_hand():
    """The two ends move toward each other until the line rises by ``STEEPEST``, and neighbors that are near go with them."""
    width = 2.0**-30  # a rise of 1/4
    near, end = 1 - 2.0**-52, 1 - width
    knots, values = [0.25, end - 2.0**-52, end, near, 1.0], [0.1, 0.2, 0.2, 0.8, 0.8]
    got = at(knots, values, [0.1, *knots])
    np.testing.assert_allclose(got, [0.1, 0.1, 0.375, 0.375, 0.625, 0.625], atol=1e-6)
    np.testing.assert_array_equal(at(knots, values[::-1], knots)[:1], [0.8])


def test_a_jump_between_neighboring_numbers_stays():
    middle = 1 - 2.0**-40
    knots = [0.25, middle, np.nextafter(middle, 1), 1.0]
    scores = [0.1, 0.5, middle, knots[2], 1.0]
    np.testing.assert_allclose(at(knots, [0.2, 0.2, 0.8, 0.8], scores), [0.2, 0.2, 0.2, 0.8, 0.8], atol=1e-15)


@pytest.mark.parametrize("near", [0.0, 1e-300, 1e-20, 0.5, 1.0])
@pytest.mark.parametrize("is_increasing", [True, False])
def test_no_line_is_steep(near, is_increasing):
    rng = np.random.default_rng(0)
    knots, values = np.full((2, 3, 40), np.nan)
    for row, n in enumerate((40, 7, 1)):
        places = near + rng.choice([-1.0, 1.0], n) * max(near, 1e-310) * 10 ** rng.uniform(-16, -1, n)
        places = np.unique(np.clip(places, 0, 1))
        knots[row, : len(places)] = places
        drawn = rng.random(len(places))
        values[row, : len(places)] = np.sort(drawn) if is_increasing else drawn
    table = line_tables(knots, values)
    y = table["line_value"].reshape(3, -1)[:, 1:41]
    assert np.isfinite(table["line_slope"]).all()
    for row, kept in enumerate(~np.isnan(knots)):
        x, bounded, given = knots[row, kept], y[row, : kept.sum()], values[row, kept]
        rise = STEEPEST * np.diff(x) / np.maximum(x[1:], 1e-290)
        assert (np.abs(np.diff(bounded)) <= rise + 1e-15).all()
        assert bounded.min() >= given.min()
        assert bounded.max() <= given.max()
        assert not is_increasing or (np.diff(bounded) >= 0).all()
        is_far = np.full(len(x), True)
        is_far[1:] &= rise > 1
        is_far[:-1] &= rise > 1
        np.testing.assert_array_equal(bounded[is_far], given[is_far])
