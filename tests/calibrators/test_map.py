"""One formula, several backends: what is shipped gives what `predict_proba` gives."""

import importlib.util
import warnings

import numpy as np
import pytest

import rhocal
from helpers import ROOT, fit_map, quick, synthetic
from rhocal.calibrators import CALIBRATORS
from rhocal.calibrators.map import Map, calibrate, chain_map, mean_map
from rhocal.calibrators.scale.features import FEATURES
from rhocal.data.predictions import Predictions
from rhocal.errors import InputError, NotFittedError, RhocalWarning
from rhocal.numerics.numpy_ops import ArrayOps
from rhocal.numerics.special import softmax

SPEC = importlib.util.spec_from_file_location("parity", ROOT / "benchmarks" / "parity" / "parity.py")
parity = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(parity)

EXPORTED = [name for name, method in CALIBRATORS.items() if method.family.is_portable]
WITH_EXPORT = {
    *{CALIBRATORS[name].family: name for name in reversed(EXPORTED)}.values(),
    "cascade-top",
    "cascade-scale",
}
"""The first method of each family: ``torch.export`` takes longer than all other backends. Families share their formula, but for
the projections of the cascades that keep decisions."""
BINARY = [name for name in EXPORTED if hasattr(rhocal.calibrator(name), "scope")]


def fitted(name, logits, labels, **options):
    return fit_map(quick(name, **options), logits, labels)


@pytest.mark.parametrize("name", EXPORTED)
def test_every_backend_gives_the_same_probabilities_and_decisions(name):
    logits, labels = synthetic(400, 5, seed=3)
    has_export = name in WITH_EXPORT
    rows = parity.measured(name, fitted(name, logits, labels), logits[:100].astype(np.float32), has_export=has_export)
    assert {row["backend"] for row in rows} == set(parity.BACKENDS) - (set() if has_export else {"torch.export"})
    assert max(row["difference"] for row in rows) < 5e-6
    assert sum(row["decisions"] for row in rows) == 0


@pytest.mark.parametrize("name", EXPORTED)
@pytest.mark.parametrize("m", [2, 6])
def test_double_precision_agrees_to_rounding(name, m):
    logits, labels = synthetic(300, m, seed=5)
    for keep in (labels >= 0, labels != 1):  # also with a class that never occurred
        cal = fitted(name, logits[keep], labels[keep])
        apply, parameters = cal.apply_fn()
        for hard in parity.extremes(logits.astype(np.float32)).values():
            z = hard.astype(np.float64)
            np.testing.assert_allclose(apply(parameters, z), cal.predict_proba(z), atol=1e-9)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("scope", ["one-vs-rest", "top", "top-capped"])
def test_every_scope(name, scope):
    logits, labels = synthetic(300, 6, seed=6)
    cal = fitted(name, logits, labels, scope=scope)
    apply, parameters = cal.apply_fn()
    np.testing.assert_allclose(apply(parameters, logits), cal.predict_proba(logits), atol=1e-9)


@pytest.mark.parametrize("kind", ["probs", "log_probs"])
@pytest.mark.parametrize("name", ["rho-norm", "vector", "isotonic"])
def test_other_kinds_of_scores(name, kind):
    logits, labels = synthetic(300, 4, seed=7)
    p = softmax(logits)
    scores = p if kind == "probs" else np.log(p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        cal = rhocal.calibrator(name).fit(scores, labels, kind=kind)
    apply, parameters = cal.apply_fn()
    np.testing.assert_allclose(apply(parameters, scores), cal.predict_proba(scores), atol=1e-12)


def test_the_function_is_pure_and_its_parameters_are_plain_arrays():
    logits, labels = synthetic(300, 4)
    cal = fitted("temperature", logits, labels)
    apply, parameters = cal.apply_fn(output="logits")
    assert list(parameters) == ["temperature"]
    np.testing.assert_allclose(
        softmax(apply({"temperature": np.array(2.0)}, logits)), softmax(logits / 2), atol=1e-12
    )  # what it does is in its parameters
    assert apply(parameters, logits.astype(np.float32)).dtype == np.float32
    with pytest.raises(InputError, match="output is probs or logits"):
        cal.apply_fn(output="odds")


def test_what_cannot_be_exported_says_so():
    logits, labels = synthetic(200, 3)
    with pytest.raises(
        InputError, match=r"multi-domain cannot be exported .* these can: identity, temperature, .*field"
    ):
        fitted("multi-domain", logits, labels).to_torch()
    with pytest.raises(NotFittedError):
        rhocal.FieldScaling().apply_fn()


def test_every_feature_is_the_same_in_every_backend():
    logits, labels = synthetic(400, 5)
    cal = fitted("field", logits, labels, features=tuple(FEATURES), ridge=1.0)
    assert np.abs(cal.weights_).min() > 0
    apply, parameters = cal.apply_fn()
    np.testing.assert_allclose(apply(parameters, logits), cal.predict_proba(logits), atol=1e-12)


def run(map_, z):
    return calibrate(ArrayOps(np, np.float64), map_, map_.parameters, z, probs=True)


def test_chains_and_means_of_maps():
    logits, labels = synthetic(400, 4)
    logits = logits + 7  # vector scaling sees the mean of a row, so the first map must not move it
    first, second = fitted("temperature", logits, labels), fitted("vector", logits, labels)
    by_hand = second.predict_proba(first.transform(logits))
    np.testing.assert_allclose(run(chain_map(first.map_, second.map_), logits), by_hand, atol=1e-12)
    assert not chain_map(first.map_, second.map_).keeps_decision
    mean = (first.predict_proba(logits) + second.predict_proba(logits)) / 2
    np.testing.assert_allclose(run(mean_map([first.map_, second.map_]), logits), mean, atol=1e-12)
    deep = chain_map(mean_map([first.map_, second.map_]), first.map_)
    assert "first.0.temperature" in deep.arrays


def test_a_decision_cannot_be_lost_to_rounding():
    z = np.array([[1.9, np.nextafter(np.float32(1.9), np.float32(2)), 0]], np.float32)
    map_ = Map(lambda _ops, _parameters, z: z / 1.8, {}, keeps_decision=True)
    ops = ArrayOps(np, np.float32)
    assert (z / np.float32(1.8)).argmax() == 0  # the division made them equal
    for probs in (True, False):
        out = calibrate(ops, map_, {}, z, probs=probs)
        assert out.argmax() == 1
        assert out[0, 1] > out[0, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_loses_no_decision_to_rounding(dtype):
    low = dtype(1.9)
    z = np.array([[low, np.nextafter(low, dtype(2)), 0]], dtype)
    assert (z / dtype(1.8)).argmax() == 0  # the division made them equal
    map_ = Map(lambda _ops, _parameters, z: (z / 1.8).astype(dtype), {}, keeps_decision=True, n_classes=3)
    data = Predictions.from_arrays(z)
    for out in (map_.probs(data), map_.logits(data)):
        assert out[0, 1] > out[0, 0] > out[0, 2]


@pytest.mark.parametrize("method", ["temperature", "rho-norm"])
@pytest.mark.parametrize("m", [2, 10, 300])  # 2 columns, rows side by side, rows one by one
@pytest.mark.parametrize("gap", [np.float32(1e-45), np.float32(1.4e-40), np.float64(5e-324), np.float64(1e-310)])
def test_a_subnormal_lead_is_a_lead(method, m, gap):
    """Flushing inputs to zero would make a tie of it; a scale beyond the type would make it NaN."""
    cal = rhocal.calibrator(method).fit(*synthetic(900, m))
    logits = np.zeros((3, m), gap.dtype)
    logits[:, -1] = gap
    for out in (cal.predict_proba(logits), cal.transform(logits)):
        assert (out.argmax(axis=1) == m - 1).all()
    assert (cal.predict(logits) == m - 1).all()
