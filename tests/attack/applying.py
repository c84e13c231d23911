"""Calibrators applied to files of hostile logits, block by block and in memory: the file holds what ``predict_proba`` gives.

Types, masks (−∞ among them) and predicted classes are compared too; a block may be of any size.
"""

from __future__ import annotations

import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from tests.attack import MEMORY, REFUSED, Counts, rounds
from tests.attack._calibrators import METHODS, fitted, hostile_logits, some_masked

import rhocal
from rhocal.calibrators.applying import apply
from rhocal.data.formats import base

APPLIED = tuple(name for name in METHODS if name != "multi-domain")
LARGE = ("temperature", "rho-norm", "svs", "matrix", "isotonic", "polynomial", "ets")
SIZES = (1e-6, 100.0, 1e9, 1e12, 1e30)
"""Sizes of logits that some calibrators are fitted on."""

N_FILES = 8
"""Files for a calibrator before the next one is taken."""


def run(rng_seed, seconds, methods=APPLIED):
    """Attack until the seconds are over."""
    counts = Counts()
    entries = base.BLOCK_ENTRIES
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)  # of NumPy
        try:
            for rng in rounds(rng_seed, seconds):
                size = float(rng.choice(SIZES)) if rng.random() < 0.3 else 1.0
                names = methods if size == 1 else LARGE
                cal = fitted_on(str(rng.choice(names)), int(rng.choice([2, 3, 6])), size)
                for _ in range(N_FILES):
                    base.BLOCK_ENTRIES = int(rng.choice([8, 64, 1 << 20]))
                    attack_file(counts, rng, cal, size, Path(folder))
        finally:
            base.BLOCK_ENTRIES = entries
    return counts


@cache
def fitted_on(method, n_classes, size):
    """A calibrator of logits of another size."""
    if size == 1:
        return fitted(method, n_classes)
    rng = np.random.default_rng(n_classes)
    z = 3 * rng.normal(size=(120, n_classes))
    return rhocal.calibrator(method).fit(size * z, (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1))


def attack_file(counts, rng, cal, size, folder):
    """One file, applied to in both ways."""
    dtype = rng.choice([np.float64, np.float32, np.float16])
    z = hostile_logits(rng, int(rng.integers(1, 40)), len(cal.classes_), largest=float(rng.choice([2, 9, 37])))
    z = np.clip(size * z, *(float(np.finfo(dtype).max) / np.array([-4, 4]))).astype(dtype)
    z = some_masked(rng, z)
    what = f"{cal.label}, {z.shape[0]} x {z.shape[1]} {z.dtype}, blocks of {base.BLOCK_ENTRIES}"
    want = counts.attempt(what, lambda: cal.predict_proba(z))
    source = folder / f"z{rng.choice(['.npz', '.npy', '.safetensors'])}"
    if source.suffix == ".npz":
        np.savez(source, logits=z)
    elif source.suffix == ".npy":
        np.save(source, z)
    else:
        save_file({"logits": z}, source)
    output = folder / "out.safetensors"
    ways = {"block by block": lambda: rhocal.stream(source), "in memory": lambda: z}
    for way, scores in ways.items():
        done = counts.attempt(f"{what}, {way}", lambda scores=scores: apply(cal, scores(), output, restart=True))
        if done is REFUSED or want is REFUSED:
            counts.check(f"{what}, {way}: one of the two is refused", done is want)
            continue
        found = load_file(output)
        tolerance = 1e-12 if z.dtype == np.float64 else 1e-6
        counts.check(f"{what}, {way}: type", found["probs"].dtype == want.dtype)
        counts.check(f"{what}, {way}: probabilities", np.abs(found["probs"] - want).max() <= tolerance)
        counts.check(f"{what}, {way}: predicted", np.array_equal(found["predicted"], cal.predict(z)))
