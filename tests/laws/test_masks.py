"""Masked classes: adding classes that cannot occur, at a large negative logit, changes nothing."""

import warnings
from functools import cache

import numpy as np
import pytest
import torch

import rhocal
from helpers import fit_map, synthetic
from rhocal.calibrators import CALIBRATORS
from rhocal.errors import InputError, RhocalWarning
from rhocal.numerics.special import log_softmax

QUICK = {
    "rho-norm-paper": {"n_steps": 50},
    "auto": {"methods": ("temperature", "svs", "field"), "n_folds": 2},
    "cascade": {"min_samples": 100},
}
DEPTHS = [1e4, 1e6, 1e9, 1e30, "lowest"]
SAMPLE_MAPS = ["identity", "temperature", "temperature-avuc", "rho-norm", "field", "smart", "ets", "iop", "polynomial"]
"""Methods whose map of a sample does not depend on which class is which: they keep the law to the last digits. The KL term
of ``rho-norm-paper`` is a mean over classes, and ``pts`` reads as many of the largest logits as there are classes."""


FIXED = {"field": {"ridge": 1.0}, "smart": {"ridge": 1.0}, "iop": {"ridge": 1.0}, "polynomial": {"degree": 3}}
"""Options without which folds choose. Folds are balanced in classes, which are others where samples move to other columns."""


def fitted(name, logits, labels, *, fit=fit_map, **options):
    groups = {"groups": np.arange(len(labels)) % 2} if name == "multi-domain" else {}
    return fit(rhocal.calibrator(name, **(QUICK.get(name, {}) | options)), logits, labels, **groups), groups


def fit_and_compare(calibrator, *data, **spec):
    """As users fit: temperature scaling is fitted beside, and compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        return calibrator.fit(*data, **spec)


def nll(name, logits, labels, **options):
    """Mean NLL on half of the samples after a fit on the other half."""
    half = len(labels) // 2
    cal, groups = fitted(name, logits[:half], labels[:half], **options)
    own = {key: value[: len(labels) - half] for key, value in groups.items()}
    with np.errstate(all="raise", under="ignore"):
        probs = cal.predict_proba(logits[half:], **own).astype(np.float64)
    assert np.isfinite(probs).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-5)
    return float(-np.log(probs[np.arange(len(probs)), labels[half:]]).mean())


@cache
def nll_without_masks(name, n, m, dtype, options=()):
    """The same of synthetic logits, which every kind and depth of masks is compared with."""
    return nll(name, *synthetic(n, m, seed=5, dtype=dtype), **dict(options))


def depth(value, dtype):
    return -float(np.finfo(dtype).max) if value == "lowest" else -value


def with_columns(logits, labels, low):
    """Whole columns of masks, before and after the classes."""
    n, dtype = len(logits), logits.dtype
    masks = np.full((n, 3), low, dtype)
    return np.hstack([masks[:, :2], logits, masks[:, :1]]), labels + 2


def with_scattered(logits, labels, low, seed=0):
    """In every row the classes stand at places of their own, with masks between them."""
    n, m = logits.shape
    rng = np.random.default_rng(seed)
    places = np.sort(np.argsort(rng.random((n, m + 3)), axis=1)[:, :m], axis=1)
    wide = np.full((n, m + 3), low, logits.dtype)
    np.put_along_axis(wide, places, logits, axis=1)
    return wide, places[np.arange(n), labels]


MASKS = {"columns": with_columns, "scattered": with_scattered}


@pytest.mark.parametrize("name", [*SAMPLE_MAPS, "multi-domain"])
@pytest.mark.parametrize(
    ("low", "dtype"), [*((low, np.float32) for low in DEPTHS), (1e4, np.float64), ("lowest", np.float64)]
)
@pytest.mark.parametrize("masks", MASKS)
def test_masks_change_nothing(name, low, dtype, masks):
    logits, labels = synthetic(400, 5, seed=5, dtype=dtype)
    wide, columns = MASKS[masks](logits, labels, depth(low, dtype))
    options = FIXED.get(name, {}) if masks == "scattered" else {}
    plain = nll_without_masks(name, 400, 5, dtype, tuple(options.items()))
    assert abs(nll(name, wide, columns, **options) - plain) < 1e-6


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name not in SAMPLE_MAPS])
@pytest.mark.parametrize(("masks", "low"), [("columns", 1e4), ("scattered", 1e9), ("columns", "lowest")])
def test_maps_by_class_are_no_worse_than_temperature_scaling(name, low, masks):
    """Parameters of a class are pulled elsewhere if other classes are there; they do not break."""
    logits, labels = synthetic(800, 4, seed=5, dtype=np.float32)
    wide, columns = MASKS[masks](logits, labels, depth(low, np.float32))
    plain = max(nll_without_masks(other, 800, 4, np.float32) for other in (name, "temperature"))
    assert nll(name, wide, columns, fit=fit_and_compare) <= plain * 1.03


@pytest.mark.parametrize("name", ["temperature", "rho-norm", "field"])
@pytest.mark.parametrize("low", [1e4, 1e9, "lowest"])
@pytest.mark.parametrize("n_classes", [70, 300])
def test_many_classes(name, low, n_classes):
    logits, labels = synthetic(600, n_classes, seed=6, dtype=np.float32)
    wide, columns = with_scattered(logits, labels, depth(low, np.float32))
    assert abs(nll(name, wide, columns) - nll(name, logits, labels)) < 1e-6


@pytest.mark.parametrize("name", ["temperature", "rho-norm", "field"])
def test_no_better_than_chance(name):
    """The best scale is 0 there, and masked classes still get nothing."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(400, 5)), rng.integers(0, 5, 400)
    wide, columns = with_columns(logits, labels, -1e4)
    assert abs(nll(name, wide, columns) - nll(name, logits, labels)) < 1e-6


@pytest.mark.parametrize("name", ["temperature", "rho-norm", "svs:field"])
def test_minus_infinity_is_a_mask(name):
    logits, labels = synthetic(400, 5, seed=5)
    for masks in MASKS.values():
        wide, columns = masks(logits, labels, -np.inf)
        lowest, _ = masks(logits, labels, -1e9)
        assert abs(nll(name, wide, columns) - nll(name, lowest, columns)) < 1e-6


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("low", ["infinite", "lowest"])
def test_samples_that_are_left_with_one_class_say_nothing(dtype, low):
    """However many there are: at every temperature their only class has the probability 1."""
    logits, labels = synthetic(n=400, m=4)
    logits = logits.astype(dtype)
    alone = fit_map(rhocal.TemperatureScaling(), logits[300:], labels[300:])
    kept = logits[np.arange(300), labels[:300]]
    logits[:300] = -np.inf if low == "infinite" else np.finfo(dtype).min
    logits[np.arange(300), labels[:300]] = kept
    assert fit_map(rhocal.TemperatureScaling(), logits, labels).temperature_ == pytest.approx(
        alone.temperature_, rel=1e-5
    )


@pytest.mark.parametrize(("size", "dtype"), [(200, np.float16), (1e37, np.float32)])
def test_minus_infinity_is_deeper_than_every_logit_of_its_type(size, dtype):
    logits, labels = synthetic(400, 5, seed=5)
    large = (logits * (size / np.abs(logits).max())).astype(dtype)
    wide, columns = with_scattered(large, labels, -np.inf)
    masked = wide == -np.inf
    for given in (wide, torch.from_numpy(wide)):
        probs = np.asarray(fitted("temperature", given, columns)[0].predict_proba(given))
        assert probs[masked].max() < 1e-30
        assert (probs.argmax(axis=1) == wide.argmax(axis=1)).all()
        assert probs.dtype == np.float32
    lowest = np.full((1, 5), -np.finfo(dtype).max, dtype)  # beside the lowest number a mask is no tie
    lowest[0, 0] = -np.inf
    assert fitted("temperature", large, labels)[0].predict_proba(lowest)[0].argmax() == 1


@pytest.mark.parametrize(("size", "dtype"), [(1e3, np.float16), (1e38, np.float32)])
@pytest.mark.parametrize("name", ["temperature", "svs"])
def test_minus_infinity_is_a_mask_beside_logits_of_any_size(name, size, dtype):
    """Half precision has no number that lies far enough below the logits of this fit."""
    logits, labels = synthetic(400, 5, seed=5)
    cal, _ = fitted(name, size * logits, labels)
    assert cal.mask_gap_ > float(np.finfo(dtype).max)
    row = np.array([[3.0, 1.0, -np.inf, 2.0, 0.0]], dtype)
    for given in (row, torch.from_numpy(row)):
        assert np.asarray(cal.predict_proba(given))[0, 2] == pytest.approx(0, abs=1e-30)
    assert cal.predict_proba(row.astype(">f8")).dtype == np.float64


def test_logits_far_below_zero_are_refused():
    """A row may lie anywhere, but its squares must not overflow."""
    logits, labels = synthetic(50, 5)
    with pytest.raises(InputError, match="logits must lie between"):
        rhocal.calibrator("matrix").fit(logits - 1e300, labels)


def test_a_row_of_masks_alone_is_an_error():
    logits, labels = synthetic(50, 5)
    logits[7] = -np.inf
    with pytest.raises(InputError, match=r"row 7.*no class"):
        rhocal.calibrator("temperature").fit(logits, labels)


def test_masked_arrays_of_numpy_keep_their_mask():
    logits, labels = synthetic(400, 5, seed=5)
    wide, columns = with_scattered(logits, labels, 0.0)
    covered = with_scattered(logits, labels, -1e9)[0] < -1e8
    masked = np.ma.masked_array(wide, covered)
    assert abs(nll("rho-norm", masked, columns) - nll("rho-norm", logits, labels)) < 1e-6
    with pytest.raises(InputError, match="masked"):
        rhocal.calibrator("temperature").fit(
            np.ma.masked_array(np.full((50, 2), 0.5), covered[:50, :2]), columns[:50] % 2, kind="probs"
        )


@pytest.mark.parametrize("factor", [1e-6, 1e5])
def test_large_and_small_logits_are_not_masks(factor):
    """What is far away is known by comparison with the rest, not by its size."""
    logits, labels = synthetic(600, 5, seed=5)
    assert abs(nll("rho-norm", factor * logits, labels) - nll("rho-norm", logits, labels)) < 1e-6


@pytest.mark.parametrize("name", ["temperature", "rho-norm", "field", "svs", "isotonic", "ets"])
@pytest.mark.parametrize("low", [-1e4, -1e9, -3e38])
def test_every_backend_knows_masks(name, low, tmp_path):
    logits, labels = synthetic(400, 5, seed=5, dtype=np.float32)
    wide, columns = with_scattered(logits, labels, low)
    cal, _ = fitted(name, wide, columns)
    expected = cal.predict_proba(wide)
    apply, parameters = cal.apply_fn()
    np.testing.assert_allclose(apply(parameters, wide), expected, atol=2e-6)
    module = cal.to_torch(output="probs")
    np.testing.assert_allclose(module(torch.from_numpy(wide)).numpy(), expected, atol=2e-6)
    path = tmp_path / "map.onnx"
    cal.to_onnx(path)
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"logits": wide})[0], expected, atol=2e-6)
    cal.save(tmp_path / "map.safetensors")
    np.testing.assert_array_equal(rhocal.load(tmp_path / "map.safetensors").predict_proba(wide), expected)


@pytest.mark.parametrize("name", ["rho-norm", "polynomial"])
def test_every_backend_agrees_on_the_least_deep_mask(name, tmp_path):
    """Just before the limit an entry is none, in single precision too."""
    logits, labels = synthetic(400, 5, seed=5, dtype=np.float32)
    cal, _ = fitted(name, logits, labels)
    wide = logits.copy()
    wide[:, 0] = (wide[:, 1:].max(axis=1).astype(np.float64) - cal.mask_gap_).astype(np.float32)
    for k in range(len(wide)):
        for _ in range(k % 5):
            wide[k, 0] = np.nextafter(wide[k, 0], np.float32(np.inf if k % 2 else -np.inf))
    expected = cal.predict_proba(wide)
    cal.to_onnx(tmp_path / "map.onnx")
    import onnxruntime

    session = onnxruntime.InferenceSession(tmp_path / "map.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"logits": wide})[0], expected, atol=1e-6)
    np.testing.assert_allclose(cal.to_torch(output="probs")(torch.from_numpy(wide)).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("top", [-1e-30, -1.7e-17, -2.7e-14, -2.9e-14, -1e-12, -1e-6, 1e-17, 3.0])
def test_every_backend_rounds_a_difference_near_the_gap_alike(top, tmp_path):
    """Double precision rounds −1,024 plus 1e-17 to −1,024; single precision knew what the rounding loses, and saw no mask."""
    logits, labels = synthetic(400, 5, seed=5)
    labels[::2] = np.arange(200) % 5
    cal, _ = fitted("ets", 1e-18 * logits, labels)
    assert cal.mask_gap_ == 1024
    assert cal.weights_[2] > 0.1  # the share of a class that is none goes to the others
    wide = np.full((3, 5), top, np.float32)
    wide[:, 2] = np.nextafter(np.float32(-1024), np.array([-np.inf, 0, np.inf], np.float32))
    wide[1, 2] = -1024
    wide[:, 4] = np.nextafter(wide[:, 4], np.float32(-np.inf))
    expected = cal.predict_proba(wide)
    np.testing.assert_array_equal(cal.predict_proba(wide.astype(np.float64)).astype(np.float32), expected)
    apply, parameters = cal.apply_fn()
    np.testing.assert_allclose(apply(parameters, wide), expected, atol=1e-6)
    np.testing.assert_allclose(cal.to_torch(output="probs")(torch.from_numpy(wide)).numpy(), expected, atol=1e-6)
    cal.to_onnx(tmp_path / "map.onnx")
    import onnxruntime

    session = onnxruntime.InferenceSession(tmp_path / "map.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"logits": wide})[0], expected, atol=1e-6)


@pytest.mark.parametrize("name", ["rho-norm", "field", "pts"])
def test_backends_agree_where_what_is_left_differs_by_rounding_units(name, tmp_path):
    """The mean of three logits of 5e8 was off by as much as they differ, in single precision."""
    logits, labels = synthetic(400, 5, seed=5, dtype=np.float32)
    cal, _ = fitted(name, logits, labels)
    rows = [
        [179585744.0, 474170080.0, 474170048.0, 73115544.0, 474170048.0],
        [9060640.0, 9060641.0, 1482586.0, -1425016.25, 9060641.0],
        [449185.9375, 342913.84375, 449185.90625, -135769.296875, 373483.65625],
    ]
    wide = np.array(rows, np.float32)
    expected = cal.predict_proba(wide.astype(np.float64))
    np.testing.assert_allclose(cal.predict_proba(wide), expected, atol=1e-6)
    np.testing.assert_allclose(cal.to_torch(output="probs")(torch.from_numpy(wide)).numpy(), expected, atol=1e-6)
    cal.to_onnx(tmp_path / "map.onnx")
    import onnxruntime

    session = onnxruntime.InferenceSession(tmp_path / "map.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"logits": wide})[0], expected, atol=1e-6)


def test_a_row_has_the_same_bits_alone_as_beside_masks():
    logits, labels = synthetic(400, 20, seed=5)
    cal, _ = fitted("rho-norm", logits, labels)
    batch = logits[:51].copy()
    batch[50, 3:] = -1e9
    alone = np.concatenate([cal.predict_proba(batch[k : k + 1]) for k in range(50)])
    np.testing.assert_array_equal(cal.predict_proba(batch)[:50], alone)


def test_a_class_far_behind_is_no_mask():
    """It has its part of the uniform distribution in an ensemble; it was counted as a mask there, and nowhere else."""
    rng = np.random.default_rng(0)
    logits = 4 * rng.normal(size=(400, 5))
    cal, _ = fitted("ets", logits, np.where(rng.random(400) < 0.3, rng.integers(5, size=400), logits.argmax(axis=1)))
    assert cal.weights_[2] > 0.1
    far = np.array([[3.0, 1.0, 0.0, 0.0, 3.0 - 0.6 * cal.mask_gap_]])
    assert cal.predict_proba(far)[0, 4] == pytest.approx(cal.weights_[2] / 5)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("name", ["temperature", "rho-norm", "field"])
@pytest.mark.parametrize("n_classes", [5, 80])
def test_streamed_and_in_memory(name, n_classes):
    logits, labels = synthetic(3000, n_classes, seed=5, dtype=np.float32)
    wide, columns = with_scattered(logits, labels, -1e9)
    blocks = [(wide[k : k + 500], columns[k : k + 500]) for k in range(0, 3000, 500)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        streamed = rhocal.calibrator(name, **FIXED.get(name, {})).fit(rhocal.stream(blocks))
        whole = rhocal.calibrator(name, **FIXED.get(name, {})).fit(wide, columns)
    np.testing.assert_allclose(streamed.predict_proba(wide), whole.predict_proba(wide), atol=1e-4)
    plain, _ = fitted(name, logits, labels, **FIXED.get(name, {}))
    assert abs(float(np.mean(plain.scale(logits)) - np.mean(streamed.scale(wide)))) < 1e-3


@pytest.mark.parametrize("low", [-1e9, -np.inf])
def test_masks_that_came_later(low):
    """A calibrator that was fitted without masks is applied to rows with some."""
    logits, labels = synthetic(400, 5, seed=5)
    cal, _ = fitted("rho-norm", logits, labels)
    later = logits.copy()
    later[:, 4] = low
    scale = cal.scale(later)
    expected, _ = fitted("rho-norm", logits[:, :4], np.minimum(labels, 3))
    expected.gamma_, expected.beta_, expected.rho_ = cal.gamma_, cal.beta_, cal.rho_
    np.testing.assert_allclose(scale, expected.scale(logits[:, :4]))
    assert (cal.predict_proba(later)[:, 4] < 1e-30).all()


@cache
def fitted_to_log_probs(name):
    """A fit on log-probabilities as logits, which those on both kinds of probabilities are compared with."""
    logits, labels = synthetic(400, 5, seed=5)
    return fit_map(rhocal.calibrator(name, **QUICK.get(name, {})), log_softmax(logits), labels)


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name != "multi-domain"])
@pytest.mark.parametrize("kind", ["probs", "log_probs"])
def test_masks_of_logits_after_a_fit_on_probabilities(name, kind, tmp_path):
    """They were read as classes far behind: a norm of 1e9 made every row of some methods even."""
    logits, labels = synthetic(400, 5, seed=5)
    scores = log_softmax(logits)
    method = rhocal.calibrator(name, **QUICK.get(name, {}))
    cal = fit_map(method, np.exp(scores) if kind == "probs" else scores, labels, kind=kind)
    same = fitted_to_log_probs(name)
    later = scores[:100].copy()
    later[::2, 4] = -1e9
    got = cal.predict_proba(later, kind="logits")
    assert (got[::2, 4] < 1e-30).all()
    np.testing.assert_allclose(got, same.predict_proba(later), atol=1e-6)
    np.testing.assert_array_equal(got[1::2], cal.predict_proba(later[1::2], kind="logits"))
    cal.save(tmp_path / "map.safetensors")
    np.testing.assert_array_equal(rhocal.load(tmp_path / "map.safetensors").predict_proba(later, kind="logits"), got)


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name != "multi-domain"])
@pytest.mark.parametrize("shift", [-6.0, 6.0])
def test_masks_of_rows_of_any_size(name, shift):
    """A weight of .3 put a masked class ahead of others whose calibrated logits were below -1e31."""
    logits, labels = synthetic(400, 5, seed=5)
    cal, _ = fitted(name, logits * np.array([1, 4, 0.5, 1, 4]), labels)
    later = (logits[:50] / 20 + shift) * 10.0 ** np.arange(0, 50)[:, None]
    masked = np.arange(5) == np.arange(50)[:, None] % 5
    masked &= later < later.max(axis=1, keepdims=True)
    later = np.where(masked, -np.inf, later)
    backends = {
        "NumPy": cal.predict_proba(later),
        "in batches of one": np.vstack([cal.predict_proba(row[None]) for row in later]),
    }
    if cal.is_portable:
        apply, parameters = cal.apply_fn()
        backends["function"] = apply(parameters, later)
        backends["torch"] = cal.to_torch(output="probs")(torch.from_numpy(later)).numpy()
    for backend, probs in backends.items():
        assert probs[masked].max() < 1e-30, backend
        np.testing.assert_allclose(probs, backends["NumPy"], atol=1e-6, err_msg=backend)


def test_half_precision():
    logits, labels = synthetic(400, 5, seed=5)
    logits = logits.astype(np.float16)
    wide, columns = with_scattered(logits, labels, float(np.finfo(np.float16).min))
    assert abs(nll("rho-norm", wide, columns) - nll("rho-norm", logits, labels)) < 1e-6
