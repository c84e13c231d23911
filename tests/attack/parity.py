"""The same calibrator in NumPy, as a plain function, in torch and in onnxruntime, at extreme logits.

Probabilities agree to 1e-6, and no backend decides otherwise: of a method that keeps decisions the class is the one of the
logits, of others it is NumPy's unless two probabilities are equal to 1e-6.
"""

from __future__ import annotations

import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from tests.attack import REFUSED, Counts, rounds
from tests.attack._calibrators import METHODS, fitted, hostile_logits

from rhocal.calibrators import CALIBRATORS

TOLERANCE = 1e-6
N_BATCHES = 20
"""Batches of logits for a calibrator before the next one is taken."""

SIZES = (1e-18, 1e-15, 1e-12, 1e-8, 1e10, 1e38)
"""Of the logits of other fits. Maps of single classes have steps, beside which the scores of such logits lie."""

LEAST_SIZES = {"dirichlet": 1e-7}
"""Fits on log-probabilities refuse smaller logits."""

EXPORTABLE = tuple(name for name in METHODS if CALIBRATORS[name].family.is_portable)


def run(rng_seed, seconds, methods=EXPORTABLE):
    """Attack until the seconds are over."""
    counts = Counts()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for rng in rounds(rng_seed, seconds):
            method, n_classes = str(rng.choice(methods)), int(rng.choice([2, 5]))
            reads_classes = "calibrators.binary" in CALIBRATORS[method].family.__module__
            size = 1.0 if reads_classes or rng.random() < 0.7 else float(rng.choice(SIZES))
            size = max(size, LEAST_SIZES.get(method, 0.0))
            cal, backends = prepared(method, n_classes, size)
            for _ in range(N_BATCHES):
                dtype = np.float32 if rng.random() < 0.6 else np.float64
                z = hostile_logits(rng, 8, n_classes, np.float64, largest=30)
                limit = float(np.finfo(dtype).max) / 4
                z = np.clip(z * (size if rng.random() < 0.7 else 1.0), -limit, limit).astype(dtype)
                z = with_masks(rng, z, cal.mask_gap_) if rng.random() < 0.3 else z
                attack_batch(counts, cal, backends, with_lowest(rng, z) if size >= 1e38 and rng.random() < 0.3 else z)
    return counts


def with_masks(rng, z, gap):
    """The same with −∞ in one column, or what is just a mask there, or just none."""
    z, k = z.copy(), int(rng.integers(z.shape[1]))
    top = np.delete(z, k, axis=1).max(axis=1).astype(np.float64)
    is_ordinary = np.abs(top) < 1e4
    z[is_ordinary, k] = -np.inf if rng.random() < 0.5 or not np.isfinite(gap) else (top - gap)[is_ordinary]
    for _ in range(int(rng.integers(4))):
        z[:, k] = np.nextafter(z[:, k], z.dtype.type(rng.choice([-np.inf, np.inf])))
    return z


def with_lowest(rng, z):
    """The same with the lowest number of single precision and −∞ in place of some entries; the largest of each row stays."""
    low = rng.choice([float(np.finfo(np.float32).min), -np.inf], size=z.shape)
    is_kept = (rng.random(z.shape) < 0.7) | (np.arange(z.shape[1]) == z.argmax(axis=1)[:, None])
    return np.where(is_kept, z, low).astype(z.dtype)


@cache
def prepared(method, n_classes, size=1.0):
    """A calibrator, fitted on logits of a size, and its backends."""
    import onnxruntime
    import torch

    cal = fitted(method, n_classes, size=size)
    function, parameters = cal.apply_fn()
    module = cal.to_torch(output="probs")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cal.onnx"
        cal.to_onnx(path)
        session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])

    def in_torch(z):
        with torch.no_grad():
            return module(torch.from_numpy(z)).numpy()

    def in_onnx(z):
        return session.run(None, {session.get_inputs()[0].name: z})[0]

    return cal, {"function": lambda z: np.asarray(function(parameters, z)), "torch": in_torch, "onnx": in_onnx}


def attack_batch(counts, cal, backends, z):
    """Compare every backend with NumPy."""
    what = f"{cal.label}, {z.shape[1]} classes, {z.dtype}"
    want = counts.attempt(f"{what}, numpy", lambda: cal.predict_proba(z))
    if want is REFUSED or not counts.check_finite(f"{what}, numpy", want):
        return
    decided = cal.predict(z)
    if cal.keeps_decision:
        counts.check(f"{what}, numpy: decision", np.array_equal(decided, z.argmax(1)))
    counts.check(f"{what}, numpy: decision is not the largest", np.array_equal(decided, want.argmax(1)))
    top = np.sort(want, axis=1)
    is_clear = top[:, -1] - top[:, -2] > TOLERANCE
    for name, apply in backends.items():
        if name == "onnx" and z.dtype != np.float32:
            continue
        got = counts.attempt(f"{what}, {name}", lambda apply=apply: apply(z))
        if got is REFUSED or not counts.check_finite(f"{what}, {name}", got):
            continue
        difference = float(np.abs(got.astype(np.float64) - want).max())
        row = z[np.abs(got.astype(np.float64) - want).max(1).argmax()]
        counts.check(f"{what}, {name}: {difference:.1e} apart at {row.tolist()}", difference <= TOLERANCE)
        is_same = got.argmax(1) == (z.argmax(1) if cal.keeps_decision else want.argmax(1))
        counts.check(f"{what}, {name}: decision", (is_same | ~(is_clear | cal.keeps_decision)).all())
