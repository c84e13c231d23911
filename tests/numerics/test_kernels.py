"""The compiled passes give what the same passes in NumPy give: on long and short rows, both types, extreme numbers, any cut."""

import os
import subprocess
import sys

import numpy as np
import pytest

import rhocal
from helpers import ROOT
from rhocal import metrics
from rhocal.calibrators.scale.rho_search import GapObjective, fixed_norms
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.errors import InputError
from rhocal.numerics import kernels, special
from rhocal.numerics.bins import BinSums
from rhocal.objectives import objective
from rhocal.profile import curve_table
from rhocal.profile.passes import FIVE, ArrayPasses
from rhocal.profile.top_k import TopKPasses

pytestmark = pytest.mark.skipif(
    not kernels.is_enabled, reason="the compiled passes were not built: no C compiler was there"
)

SHAPES = [(1, 2), (7, 3), (50, 10), (33, 16), (33, 17), (40, 64), (40, 65), (31, 100), (9, 2048), (5, 5000)]


def logits(shape, dtype, size=4.0, seed=0):
    return (np.random.default_rng(seed).normal(size=shape) * size).astype(dtype)


def tolerance(dtype):
    return {"rtol": 3e-6, "atol": 3e-6} if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-12}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_pass_is_that_of_numpy(shape, dtype, in_numpy):
    z = logits(shape, dtype)
    passes, near = ArrayPasses(z), tolerance(dtype)
    top = z.max(axis=1).astype(np.float64)
    scale = np.random.default_rng(1).uniform(0.05, 3, len(z))
    exact = ArrayPasses(z.astype(np.float64))  # sums in single precision are what NumPy itself is less sure of
    for order in (1, 2, 3):
        found = zip(passes.curve(top, scale, order), in_numpy(exact.curve, top, scale, order), strict=True)
        for k, (ours, other) in enumerate(found):
            # The third derivative is a difference of large numbers; all it does is shorten a Newton step.
            slack = 1000 if k == 3 else 10
            np.testing.assert_allclose(ours, other, rtol=10 * near["rtol"], atol=slack * near["atol"])
    five = 0.05 * np.array(FIVE)
    np.testing.assert_allclose(passes.moments(top, five), in_numpy(passes.moments, top, five), **near)
    np.testing.assert_allclose(passes.moments_at(top, scale), in_numpy(passes.moments_at, top, scale), **near)
    np.testing.assert_array_equal(passes.largest(10), in_numpy(passes.largest, 10))
    for center in (False, True):
        rhos = [1.0, 1.75, 2.0, 3.0]
        np.testing.assert_allclose(
            passes.norms(rhos, center=center), in_numpy(passes.norms, rhos, center=center), **near
        )
    np.testing.assert_allclose(special.softmax(z), in_numpy(special.softmax, z), **near)


@pytest.mark.parametrize("m", [2, 7, 44, 65, 255, 256])
@pytest.mark.parametrize("size", [1.0, 30.0, 1e4])
def test_columns_that_count_several_times(m, size, in_numpy):
    """As in top-k data; from 256 columns on NumPy does it. The same as with the columns repeated."""
    z = logits((41, m), np.float64, size)
    times = np.random.default_rng(2).integers(1, 6, m).astype(np.float64)
    passes, repeated = TopKPasses(z, times), ArrayPasses(np.repeat(z, times.astype(int), axis=1))
    top, scale = z.max(axis=1), np.random.default_rng(1).uniform(0.05, 3, len(z))
    five = 0.05 * np.array(FIVE)
    for other in (lambda f, *args: in_numpy(getattr(passes, f), *args), lambda f, *args: getattr(repeated, f)(*args)):
        for order in (1, 2, 3):
            found = zip(passes.curve(top, scale, order), other("curve", top, scale, order), strict=True)
            for k, (ours, theirs) in enumerate(found):
                np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12 * max(size, 1) ** k * 100)
        for name, at in (("moments", five), ("moments_at", scale)):
            ours, theirs = (np.asarray(part) for part in (getattr(passes, name)(top, at), other(name, top, at)))
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-200)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_scan_finds_the_first_of_the_largest(shape, dtype, in_numpy):
    z = np.round(logits(shape, dtype, 1.0))  # many ties
    ours, other = special.scan(z), in_numpy(special.scan, z)
    np.testing.assert_array_equal(ours.column, z.argmax(axis=1))
    np.testing.assert_array_equal(ours.top, z.max(axis=1))
    assert ours.least == other.least == z.min()
    for a, b in zip(ours[:3], other[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("m", [3, 10, 100, 1000])
def test_sums_of_rows_far_from_zero_are_exact(m, in_numpy):
    z = (logits((50, m), np.float64, 3.0) + np.repeat([100, 300, -1e4, 1e5, 1e6], 10)[:, None]).astype(np.float32)
    exact = z.sum(axis=1, dtype=np.float64)
    for total in (special.scan(z).total, in_numpy(special.scan, z).total):
        np.testing.assert_allclose(total, exact, rtol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("m", [3, 16, 17, 100, 5000])
def test_an_entry_that_is_not_finite_shows_in_the_sum(bad, m):
    for column in (0, m // 2, m - 1):
        z = logits((4, m), np.float32)
        z[2, column] = bad
        assert np.isfinite(special.scan(z).total).tolist() == [True, True, False, True]
        with pytest.raises(InputError, match="row 2"):
            rhocal.TemperatureScaling().fit(z, np.full(4, column))  # a masked class cannot be the label


@pytest.mark.parametrize("size", [1e-30, 1e-4, 1e4, 1e30])
@pytest.mark.parametrize("m", [5, 100])
def test_extreme_logits(size, m, in_numpy):
    z = logits((40, m), np.float32, size)
    passes, top = ArrayPasses(z), z.max(axis=1).astype(np.float64)
    scale = np.full(40, 1 / size)
    np.testing.assert_allclose(passes.curve(top, scale, 1)[0], in_numpy(passes.curve, top, scale, 1)[0], rtol=1e-5)
    np.testing.assert_allclose(passes.norms([2.0], center=True), in_numpy(passes.norms, [2.0], center=True), rtol=1e-5)
    p = special.softmax(z)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("offset", [571.0, -1e3, 1e6])
@pytest.mark.parametrize("m", [3, 20, 70, 300])
def test_a_mean_far_above_the_range_costs_no_digits(m, offset, in_numpy):
    """The norm of centered rows, whatever is added to a row: alone, among others, compiled or not."""
    z = np.float32(offset) + logits((40, m), np.float32, 1e-2)
    z[7] = offset
    wide = z.astype(np.float64)
    size = np.abs(wide - wide.mean(axis=1, keepdims=True))
    expected = np.stack([size.sum(axis=1), np.sqrt((size**2).sum(axis=1))], axis=1)
    norms = kernels.norms(z, [1.0, 2.0], center=True)
    np.testing.assert_allclose(norms, expected, rtol=1e-5, atol=0)
    np.testing.assert_allclose(in_numpy(ArrayPasses(z).norms, [1.0, 2.0], center=True), expected, rtol=1e-5, atol=1e-9)
    for row in range(40):
        np.testing.assert_array_equal(kernels.norms(z[row : row + 1], [1.0, 2.0], center=True)[0], norms[row])


def test_rows_of_zeros_and_subnormal_logits():
    assert kernels.norms(np.zeros((3, 70)), [1.0, 2.0], center=False).tolist() == [[0, 0]] * 3
    tiny = np.full((2, 70), 1e-42, np.float32)
    assert np.isfinite(kernels.norms(tiny, [1.0, 3.0], center=False)).all()


def test_exp_and_log_are_right_to_the_last_digits():
    x = np.linspace(-80, 0, 200_001)
    z = np.stack([np.zeros_like(x), x], axis=1)
    for dtype, most in ((np.float32, 3e-7), (np.float64, 1e-15)):
        got = kernels.softmax(np.ascontiguousarray(z, dtype), np.ones(len(z)))[:, 1].astype(np.float64)
        exact = np.exp(z[:, 1].astype(dtype).astype(np.float64))
        assert np.abs(got / (exact / (1 + exact)) - 1).max() < most
    scale = np.exp(np.linspace(-300, 300, 100_003))
    line = np.zeros((2, len(scale)))
    line[1] = 1  # the polynomial t itself
    value = kernels.ring(line, scale, -400.0, 1)[0]
    np.testing.assert_allclose(value, (np.log(scale) + 400) / np.log(2), rtol=4e-16, atol=0)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 1000])
@pytest.mark.parametrize("own", [False, True])
def test_polynomials_of_a_ring(n, own, in_numpy):
    rng = np.random.default_rng(n)
    c, scale = rng.normal(size=(15, n)), np.exp(rng.uniform(-1, 1, n))
    middle = rng.normal(size=n) if own else 0.3
    for order in (1, 2, 3):
        found = curve_table.derivatives(c, scale, middle, order)
        for ours, other in zip(found, in_numpy(curve_table.derivatives, c, scale, middle, order), strict=True):
            np.testing.assert_allclose(ours, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_in_bins(weighted, in_numpy):
    rng = np.random.default_rng(0)
    confidence = np.concatenate([rng.random(10_000), [0.0, 0.1, 0.3, 1.0, 1.0 + 1e-12]])
    correct = (rng.random(len(confidence)) < confidence).astype(np.float64)
    weights = rng.random(len(confidence)) if weighted else None
    for n_bins in (1, 10, 15, 32, 33, 100):
        ours = BinSums.of(confidence, correct, n_bins=n_bins, weights=weights)
        other = in_numpy(BinSums.of, confidence, correct, n_bins=n_bins, weights=weights)
        for name in ("weight", "confidence", "correct"):
            np.testing.assert_allclose(getattr(ours, name), getattr(other, name), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 3, 10, 16, 17, 100, 255, 256, 300])
def test_calibration_errors_straight_from_probabilities(n_classes, dtype, in_numpy):
    probs = special.softmax(logits((3001, n_classes), dtype))
    probs[:40] = 1 / n_classes  # every class is as likely: the first is predicted
    labels = np.random.default_rng(1).integers(0, n_classes, len(probs))
    labels[:20] = 0
    for metric in (metrics.ece, metrics.mce, metrics.rmsce):
        for n_bins in (10, 15, 50):
            one_pass = metric.one_pass(probs, labels, n_bins=n_bins)
            assert one_pass is not None
            by_border = metric.of(probs, labels, n_bins=n_bins).value
            np.testing.assert_allclose(one_pass, by_border, rtol=1e-9)
            np.testing.assert_allclose(
                metric(probs, labels, n_bins=n_bins), in_numpy(metric, probs, labels, n_bins=n_bins), rtol=1e-5
            )


@pytest.mark.parametrize("n_classes", [10, 100])
@pytest.mark.parametrize("row", [0, 16, 1000, 2999])
def test_what_is_wrong_is_left_to_the_border(n_classes, row):
    probs = special.softmax(logits((3000, n_classes), np.float32))
    labels = np.zeros(len(probs), np.int64)
    for column, value, said in ((0, np.nan, "finite"), (1, -0.1, "is no probability"), (1, 0.9, "sum to 1")):
        wrong = probs.copy()
        wrong[row, column] = value + (wrong[row, column] if value == 0.9 else 0)
        assert metrics.ece.one_pass(wrong, labels) is None
        with pytest.raises(InputError, match=said):
            metrics.ece(wrong, labels)
    for label in (-1, n_classes):
        other = labels.copy()
        other[row] = label
        assert metrics.ece.one_pass(probs, other) is None
        with pytest.raises(InputError, match="column numbers"):
            metrics.ece(probs, other)


def test_softmax_keeps_the_decision_where_rounding_would_not():
    rng = np.random.default_rng(0)
    for n_classes in (3, 10, 100, 1000):
        z = np.zeros((500, n_classes), np.float32)
        first = rng.integers(1, n_classes, len(z))
        z[np.arange(len(z)), first] = 1e-7  # e^1e-7 and 1 are the same number, and so are their shares
        p = kernels.softmax(z, np.ones(1))
        np.testing.assert_array_equal(p.argmax(axis=1), first)
        np.testing.assert_allclose(p, 1 / n_classes, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ends_if_all_are_finite(dtype, in_numpy):
    z = logits((37, 41), dtype)
    assert special.ends(z) == in_numpy(special.ends, z) == (z.min(), z.max())
    for odd in (np.nan, np.inf, -np.inf):
        for at in (0, 8, z.size - 1):
            other = z.copy()
            other.flat[at] = odd
            assert special.ends(other) is None
            assert in_numpy(special.ends, other) is None


@pytest.mark.parametrize("n_classes", [10, 100])
@pytest.mark.parametrize("text", ["sce + 0.03*nll", "top-brier", "nll", "sce(batch_size=7) + 2*top-brier"])
def test_objectives_of_the_gap(n_classes, text, in_numpy):
    """Compiled and in NumPy, from curves and from a ring; value as the objective itself has it; slopes by differences."""
    z, labels = logits((501, n_classes), np.float64), np.random.default_rng(1).integers(0, n_classes, 501)
    labels[:300] = z[:300].argmax(axis=1)
    profile = rhocal.profile_logits(z, labels)
    fit, target = ScaleSearch.from_profile(profile), objective(text)
    (norm,) = fixed_norms(fit, [2.0], center=True)

    def gap_objective():
        return GapObjective(target.gap_weights, profile, fit.fast)

    gaps = gap_objective().function(norm.relative)
    without_compiled = in_numpy(gap_objective)
    assert not without_compiled.is_compiled
    v, w = fit.log_scale + 0.1, 0.6
    value, gradient, (vv, vw, ww) = found = gaps(v, w)
    expected, _ = fit.evaluate(target, norm.scales(np.array([v, w]))[0])
    assert value == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(
        np.hstack(in_numpy(without_compiled.function(norm.relative), v, w)), np.hstack(found), rtol=1e-9, atol=1e-12
    )
    h = 1e-5
    for k, at in enumerate(((h, 0.0), (0.0, h))):
        up, down = gaps(v + at[0], w + at[1]), gaps(v - at[0], w - at[1])
        assert gradient[k] == pytest.approx((up[0] - down[0]) / (2 * h), rel=1e-5, abs=1e-8)
        second = (np.array(up[1]) - np.array(down[1])) / (2 * h)
        np.testing.assert_allclose(((vv, vw), (vw, ww))[k], second, rtol=1e-5, atol=1e-8)
    x = np.array([v, w])
    np.testing.assert_allclose(
        gap_objective().confidence(norm.relative, x), fit.confidence(norm.scales(x)[0]), rtol=1e-9
    )


@pytest.mark.parametrize("n", [1, 15, 16, 17, 200])
def test_rings_from_sums(n, in_numpy):
    """The compiled way from sums at five nodes to polynomials is that of NumPy."""
    profile = rhocal.profile_logits(logits((n, 90), np.float64), np.arange(n) % 90)
    ours, other = (curve_table.Table(profile, -1.0) for _ in range(2))
    ours.build(0)
    in_numpy(other.build, 0)
    np.testing.assert_allclose(ours.rings[0], other.rings[0], rtol=1e-8, atol=1e-8)


def test_threads_change_nothing(monkeypatch):
    z = logits((5000, 300), np.float32)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    one = kernels.scan(z), kernels.softmax(z, np.ones(len(z)))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    three = kernels.scan(z), kernels.softmax(z, np.ones(len(z)))
    for a, b in zip((*one[0], one[1]), (*three[0], three[1]), strict=True):
        np.testing.assert_array_equal(a, b)


def unaligned(array):
    """The same numbers, one byte off the address that their type needs."""
    place = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    place[...] = array
    return place


def test_arrays_that_are_not_rows_in_memory_take_numpy():
    z = logits((30, 40), np.float32)
    for other in (z.T, z[:, ::2], z.astype(">f4"), z.astype(np.float16), z[0], z[:0]):
        assert not kernels.supports_matrix(other)
    assert kernels.supports_matrix(z)
    assert kernels.supports_matrix(z[3:9])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_numbers_at_odd_addresses_and_of_a_named_byte_order(dtype):
    """As they come from files and other processes."""
    z, labels = logits((300, 40), dtype), np.arange(300) % 40
    expected = rhocal.RhoNormScaling().fit(z, labels)
    for other in (unaligned(z), z.astype(z.dtype.newbyteorder("<" if sys.byteorder == "little" else ">"))):
        found = rhocal.RhoNormScaling().fit(other, labels)
        assert (found.gamma_, found.beta_) == (expected.gamma_, expected.beta_)
        np.testing.assert_array_equal(found.predict_proba(other), expected.predict_proba(z))


@pytest.mark.parametrize("run", ["cifar10-vgg16-w8-wd0", "flowers102_64px-resnet18-w16-wd1e-4"])
def test_fits_are_the_same_without_the_compiled_passes(run):
    """In a process of its own, as a user without a compiler has it: evaluated directly, and through a table with γ > 0."""
    path = ROOT / "reproduction" / "pages" / "runs" / run / "logits.npz"
    program = (
        f"import numpy, rhocal; file = numpy.load({str(path)!r}); "
        "z, y = file['logits_val'].astype('f4'), file['labels_val'].astype('i8'); "
        "t = rhocal.TemperatureScaling().fit(z, y); r = rhocal.RhoNormScaling().fit(z, y); "
        "print(rhocal.numerics.kernels.is_enabled, t.temperature_, r.rho_, r.gamma_, r.beta_)"
    )
    found = []
    for enabled in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"RHOCAL_KERNELS": enabled},
            capture_output=True,
            text=True,
            check=True,
        )
        is_enabled, *numbers = done.stdout.split()
        assert is_enabled == str(enabled == "1")
        found.append([float(number) for number in numbers])
    # Sums in single precision differ in their seventh digit, and a flat optimum makes that the sixth of γ.
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


@pytest.mark.parametrize("interface", ["None", "0"])
def test_a_library_of_other_sources_is_not_called(interface):
    """A library without an interface number, or with another one, gives a warning with the remedy; fits go on in NumPy."""
    program = (
        "import sys, types, warnings; old = sys.modules['rhocal.numerics._kernels'] = types.ModuleType('_kernels')\n"
        f"if {interface} is not None: old.INTERFACE = {interface}\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    import rhocal\n"
        "    z, y = rhocal.demo_logits('cal', 'cifar10')\n"
        "    rhocal.RhoNormScaling().fit(z, y).predict_proba(z)\n"
        "print([str(w.message) for w in caught if issubclass(w.category, rhocal.errors.RhocalWarning)])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.count("interface") == 1
    assert "pip install" in done.stdout


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [*SHAPES, (100, 700)], ids=str)
def test_class_sums_are_those_of_numpy(shape, dtype):
    x, near = logits(shape, dtype), tolerance(dtype)
    rng = np.random.default_rng(1)
    weights, slope, bias = rng.uniform(0, 1, shape[0]), rng.uniform(0.5, 1.5, shape[1]), rng.normal(size=shape[1])
    weights[-1] = 0
    wide = x.astype(np.float64)
    u = wide * slope + bias
    top = u.max(axis=1, keepdims=True)
    total = np.exp(u - top).sum(axis=1, keepdims=True)
    p = np.exp(u - top) / total
    q = p * (1 - p)
    expected = [weights @ p, weights @ (p * wide), weights @ q, weights @ (q * wide), weights @ (q * wide**2)]
    for is_curvature in (False, True):
        value, sums = kernels.class_sums(x, weights, slope, bias, is_curvature=is_curvature)
        assert value == pytest.approx(float(weights @ (top + np.log(total))[:, 0]), rel=near["rtol"])
        for ours, other in zip(sums, expected[: 5 if is_curvature else 2], strict=True):
            np.testing.assert_allclose(ours, other, rtol=near["rtol"], atol=near["atol"] * np.abs(other).max())
