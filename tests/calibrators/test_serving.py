"""A compiled calibrator gives what ``predict_proba`` gives, on the short way and on the long one."""

import pickle

import numpy as np
import pandas as pd
import pytest

import rhocal
from helpers import synthetic
from rhocal.calibrators import serving
from rhocal.errors import InputError
from rhocal.numerics import kernels

SCALE_METHODS = ["temperature", "rho-norm", "field", "smart"]


def rows(m, dtype):
    rng = np.random.default_rng(7)
    kinds = [rng.normal(size=(12, m)) * 3, np.round(rng.normal(size=(6, m))), rng.normal(size=(6, m)) * 300]
    kinds += [np.zeros((1, m)), np.full((1, m), 1e-30), np.eye(m)[:1] * 1e7, rng.normal(size=(4, m)) + 500]
    return np.concatenate(kinds).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [2, 5, 300])
@pytest.mark.parametrize("method", SCALE_METHODS)
def test_the_short_way_gives_what_predict_proba_gives(method, m, dtype):
    cal = rhocal.calibrator(method).fit(*synthetic(500, m, dtype=dtype))
    compiled, z = cal.compiled(), rows(m, dtype)
    assert compiled.is_short == kernels.is_enabled
    want = cal.predict_proba(z)
    single = np.concatenate([compiled(z[k : k + 1]) for k in range(len(z))])
    for probs in (single, compiled(z), compiled(np.concatenate([z] * 3))[: len(z)]):
        assert probs.dtype == want.dtype
        np.testing.assert_allclose(probs, want, rtol=0, atol=1e-12 if dtype is np.float64 else 1e-6)
        np.testing.assert_array_equal(probs.argmax(axis=1), z.argmax(axis=1))


@pytest.mark.skipif(not kernels.is_enabled, reason="needs compiled kernels")
def test_requests_of_scale_methods_take_the_short_way(monkeypatch):
    z, y = synthetic(400, 5)
    compiled = rhocal.FieldScaling().fit(z, y).compiled()
    assert compiled.rows.formula is not None
    monkeypatch.setattr(compiled.calibrator, "predict_proba", None)
    monkeypatch.setattr(serving, "LogitFeatures", None)
    assert compiled(z[:1]).sum() == pytest.approx(1)


def test_everything_else_goes_the_long_way():
    z, y = synthetic(400, 4)
    masked = z.copy()
    masked[::4, 3] = -np.inf
    for cal in (rhocal.TemperatureScaling(), rhocal.RhoNormScaling(rho="learn"), rhocal.calibrator("isotonic")):
        compiled = cal.fit(masked, np.where(y == 3, 0, y), classes=range(4)).compiled()
        for scores in (masked[:8], masked[0:1], z[:5].astype(np.float16), pd.DataFrame(z[:3]), z[:9][::2], z[:100]):
            np.testing.assert_array_equal(compiled(scores), cal.predict_proba(scores))
        for bad in (np.full((1, 4), np.nan), np.array([[np.inf, 0, 0, 0.0]]), z[:, :3], z[:0]):
            with pytest.raises(InputError):
                compiled(bad)
    probs = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    cal = rhocal.TemperatureScaling().fit(probs, y, kind="probs")
    np.testing.assert_array_equal(cal.compiled()(probs[:2]), cal.predict_proba(probs[:2]))


def test_another_fit_changes_nothing_and_copies_work():
    z, y = synthetic(400, 4)
    cal = rhocal.RhoNormScaling().fit(z, y)
    compiled, want = cal.compiled(), cal.predict_proba(z[:3])
    cal.fit(z * 5, y)
    for function in (compiled, pickle.loads(pickle.dumps(compiled))):  # noqa: S301
        np.testing.assert_allclose(function(z[:3]), want, atol=1e-12)
        np.testing.assert_allclose(function(z[:3].astype(np.float16)), want, atol=0.01)
    assert np.abs(cal.predict_proba(z[:3]) - want).max() > 0.01
