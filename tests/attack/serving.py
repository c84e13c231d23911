"""Requests of one row and of a few, with a compiled calibrator: the probabilities of ``predict_proba``, whatever the row.

Every request is compared: in double precision to 1e-12, in single precision to 1e-6. A method that keeps the decision keeps it.
A row with NaN or infinity is refused.
"""

from __future__ import annotations

import warnings

import numpy as np
from tests.attack import REFUSED, Counts, rounds
from tests.attack._calibrators import METHODS, fitted, hostile_logits, some_masked
from tests.attack.top_k import SCALES

SERVED = tuple(name for name in METHODS if name != "multi-domain")
N_ROWS = 50
N_BATCHES = 20


def run(rng_seed, seconds, methods=SERVED):
    """Attack until the seconds are over."""
    counts = Counts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)  # of NumPy
        for rng in rounds(rng_seed, seconds):
            names = SCALES if rng.random() < 0.8 else methods  # those that have a short way
            cal = fitted(str(rng.choice(names)), int(rng.choice([2, 3, 6, 20])))
            compiled = cal.compiled()
            for _ in range(N_BATCHES):
                dtype = rng.choice([np.float64, np.float32])
                z = hostile_logits(rng, N_ROWS, len(cal.classes_), dtype, largest=float(rng.choice([1, 7, 20])))
                attack_requests(counts, rng, cal, compiled, some_masked(rng, z))
    return counts


def attack_requests(counts, rng, cal, compiled, z):
    """Each row as a request, some of them together, and a row that cannot be used."""
    what = f"{cal.label}, {z.shape[1]} classes, {z.dtype}"
    want = counts.attempt(what, lambda: cal.predict_proba(z))
    if want is REFUSED:
        return
    tolerance = 1e-12 if z.dtype == np.float64 else 1e-6
    alone = [counts.attempt(f"{what}, a request", lambda k=k: compiled(z[k : k + 1])) for k in range(len(z))]
    few = counts.attempt(f"{what}, a few", lambda: compiled(z[:7]))
    if any(one is REFUSED for one in (*alone, few)):
        counts.check(f"{what}: a row is refused alone", holds=False)
        return
    got = np.concatenate(alone)
    if not counts.check_finite(what, got):
        return
    apart = np.abs(got - want).max(1)
    counts.check(f"{what}: {apart.max():.1e} apart at {z[apart.argmax()].tolist()}", apart.max() <= tolerance)
    counts.check(f"{what}: a few", np.abs(few - want[:7]).max() <= tolerance)
    counts.check(f"{what}: type", got.dtype == want.dtype)
    if cal.keeps_decision:
        counts.check(f"{what}: decision", np.array_equal(got.argmax(1), z.argmax(1)))
    broken = z[:1].copy()
    broken[0, rng.integers(z.shape[1])] = rng.choice([np.nan, np.inf])
    counts.check(f"{what}: NaN", counts.attempt(f"{what}, broken", lambda: compiled(broken)) is REFUSED)
