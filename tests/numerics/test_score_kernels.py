"""The compiled passes over scores of one class give what NumPy gives: intervals, lines, rounded digits, isotonic maps."""

import numpy as np
import pytest

import rhocal
from rhocal.numerics import kernels, special, tables
from rhocal.numerics.numpy_ops import NUMPY

pytestmark = pytest.mark.skipif(
    not kernels.is_enabled, reason="the compiled passes were not built: no C compiler was there"
)


@pytest.mark.parametrize("n_edges", [1, 2, 3, 16, 17, 100])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 1000])
def test_intervals_are_those_of_numpy(n, n_edges):
    rng = np.random.default_rng(n)
    values = rng.integers(0, 60, n) / 30.0
    edges = np.unique(rng.choice(np.append(values, rng.uniform(-1, 3, n_edges)), n_edges))
    counts, largest = kernels.intervals(values, edges)
    place = np.searchsorted(edges, values, "right")
    assert counts.tolist() == np.bincount(place, minlength=len(edges) + 1).tolist()
    assert largest.tolist() == [values[place == k].max(initial=-np.inf) for k in range(len(edges) + 1)]


@pytest.mark.parametrize("n", [1, 15, 16, 17, 1000])
@pytest.mark.parametrize("n_knots", [(1, 2, 3), (0, 7, 200), (63, 64, 65)], ids=str)
def test_lines_are_those_of_numpy(n, n_knots, in_numpy):
    """To the last bit: on knots, between them, beyond them, between subnormal knots, and of what is no number."""
    rng = np.random.default_rng(n)
    knots, values = np.full((2, len(n_knots), max(n_knots)), np.nan)
    for k, count in enumerate(n_knots):
        knots[k, :count] = np.unique(rng.random(2 * count + 1))[:count]
        values[k, :count] = rng.choice([0.0, 0.25, 0.5, 0.75, rng.random()], count)
    if n_knots[-1] > 3:
        knots[-1, :2] = 0.0, 5e-324
    table = tables.line_tables(knots, values)
    scores = rng.uniform(-0.2, 1.2, (n, len(n_knots)))
    hit = rng.random(scores.shape) < 0.3
    scores[hit] = rng.choice(knots[~np.isnan(knots)], int(hit.sum()))
    scores[:1, -1] = np.nan if n == 17 else -np.inf if n == 16 else np.inf
    ours, other = NUMPY.interpolate(table, scores), in_numpy(lambda: NUMPY.interpolate(table, scores))
    np.testing.assert_array_equal(ours, other)
    strided = NUMPY.interpolate(table, np.asfortranarray(scores))
    np.testing.assert_array_equal(strided, ours)


def test_rounded_digits_are_those_of_numpy(in_numpy):
    rng = np.random.default_rng(0)
    digits = rng.integers(0, 2**53, 4000)
    digits[::2] = digits[::2] // 1024 * 1024 + 512  # halfway
    values = digits * 2.0 ** rng.integers(-1126, 900, 4000)  # subnormal numbers as well
    ends = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        5e-324,
        2.0**-1022,
        np.nextafter(2.0**-1022, 0),
        np.finfo(float).tiny,
        -1.0,
    ]
    values = np.concatenate([values, -values, ends, [1 - 2.0**-53, np.nextafter(1, 2)]])
    ours, other = special.without_noise(values), in_numpy(special.without_noise, values)
    np.testing.assert_array_equal(ours.view(np.int64), other.view(np.int64))
    assert np.array_equal(special.without_noise(values.reshape(2, -1)), ours.reshape(2, -1), equal_nan=True)


@pytest.mark.parametrize("shape", [(60, 2), (300, 3), (900, 40)], ids=str)
@pytest.mark.parametrize("ties", ["none", "some", "many", "saturated"])
def test_isotonic_maps_are_those_of_sorted_scores(shape, ties, in_numpy):
    """Misses between two hits are counted instead of sorted; the map is the same to the last bit."""
    rng = np.random.default_rng(shape[1])
    labels = rng.integers(shape[1], size=shape[0])
    z = rng.normal(0, 2, shape).astype(np.float32)
    z[np.arange(shape[0]), labels] += 1
    z = {"none": z, "some": np.round(z), "many": np.round(z / 3), "saturated": 400 * z}[ties]
    options = {"smoothing": 0.0} if ties == "some" else {}
    fits = [run(lambda: rhocal.IsotonicRegression(**options).fit(z, labels)) for run in (lambda f: f(), in_numpy)]
    ours, other = (fit.map_.parameters for fit in fits)
    for name, value in other.items():
        np.testing.assert_array_equal(ours[name], value)
    assert fits[0].solution_.value == pytest.approx(fits[1].solution_.value, rel=1e-12)
