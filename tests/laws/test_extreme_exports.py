"""Exported maps of fits on logits of any size, on rows of any size with masks: as NumPy, and without a warning of it."""

import warnings
from itertools import product

import numpy as np
import onnxruntime
import pytest
import torch

import rhocal
from helpers import fit_map
from rhocal.calibrators import CALIBRATORS
from rhocal.errors import RhocalWarning

QUICK = {
    "rho-norm-paper": {"n_steps": 20},
    "auto": {"methods": ("temperature", "svs", "field"), "n_folds": 2},
    "cascade": {"min_samples": 100},
}
EXPORTABLE = [name for name, method in CALIBRATORS.items() if method.family.is_portable]
RNG = np.random.default_rng(3)
NORMAL = RNG.normal(size=(60, 3))
LABELS = np.where(RNG.random(60) < 0.6, NORMAL.argmax(axis=1), RNG.integers(0, 3, 60))
LATER = RNG.normal(size=(8, 3))
SIZES = (1e-38, 1.0, 1e38)
LOWEST = float(np.finfo(np.float32).min)


def backends(cal, folder):
    """Name → function of float32 rows."""
    apply, parameters = cal.apply_fn()
    module = cal.to_torch(output="probs")
    cal.to_onnx(folder / "map.onnx")
    session = onnxruntime.InferenceSession(folder / "map.onnx", providers=["CPUExecutionProvider"])
    return {
        "function": lambda z: apply(parameters, z),
        "torch": lambda z: module(torch.from_numpy(z)).detach().numpy(),
        "onnx": lambda z: session.run(None, {session.get_inputs()[0].name: z})[0],
    }


def in_single(z):
    return np.where(np.isneginf(z), z, np.clip(z, LOWEST, -LOWEST)).astype(np.float32)


@pytest.mark.parametrize("name", EXPORTABLE)
@pytest.mark.parametrize("size", [1e-18, 1e38])
def test_fits_on_logits_of_any_size(name, size, tmp_path):
    """Temperatures of 1e38, and gaps of masks beyond, are infinite in single precision: NaN, or masks that were none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        cal = rhocal.calibrator(name, **QUICK.get(name, {})).fit(in_single(size * NORMAL), LABELS)
    exported = backends(cal, tmp_path)
    with np.errstate(all="raise", under="ignore"):
        for later, shift, low in product((size, *SIZES), (-6, 0), (None, -np.inf, -1e9)):
            z = (LATER + shift) * later
            if low is not None:
                z[np.arange(len(z)), z.argmin(axis=1)] = low * max(1, 1e3 * later)
            z = in_single(z)
            want = cal.predict_proba(z)
            for backend, apply in exported.items():
                message = f"{backend}, rows of {later:g} {shift:+}, masks at {low}"
                np.testing.assert_allclose(apply(z), want, atol=1e-6, err_msg=message)


@pytest.mark.parametrize("name", ["field", "smart", "pts"])
def test_single_precision_loses_no_more_where_logits_are_small(name):
    """A log scale of 41 has an error of 4e-6 in single precision, and so had probabilities."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(400, 4)) * np.exp(0.4 * rng.normal(size=(400, 1)))
    labels = np.where(rng.random(400) < 0.6, logits.argmax(axis=1), rng.integers(0, 4, 400))
    cal = fit_map(rhocal.calibrator(name, ridge=1.0), (2.0**-60 * logits).astype(np.float32), labels)
    apply, parameters = cal.apply_fn()
    rows = (2.0**-60 * logits).astype(np.float32)
    np.testing.assert_allclose(apply(parameters, rows), cal.predict_proba(rows), atol=3e-7)
