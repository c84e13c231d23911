"""Top-k data against the logits of all classes: what is known of the rest is enough, bounds hold, damage is refused."""

from __future__ import annotations

import warnings

import numpy as np
from tests.attack import REFUSED, Counts, rounds
from tests.attack._calibrators import METHODS, fitted
from tests.attack.maps import softmax

import rhocal
from rhocal.calibrators import CALIBRATORS
from rhocal.calibrators.scale.scale import ScaleCalibrator

SCALES = tuple(
    name for name in METHODS if issubclass(CALIBRATORS[name].family, ScaleCalibrator) and name != "multi-domain"
)
N_BATCHES = 20


def run(rng_seed, seconds, methods=SCALES):
    """Attack until the seconds are over."""
    counts = Counts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)  # of NumPy
        for rng in rounds(rng_seed, seconds):
            m = int(rng.choice([3, 6, 20]))
            cal = fitted(str(rng.choice(methods)), m)
            for _ in range(N_BATCHES):
                attack_samples(counts, rng, cal, m)
                attack_damage(counts, rng)
    return counts


def draw(rng, n, m):
    """Log-probabilities of all classes, and those of the k best with the total of the rest."""
    z = rng.normal(size=(n, m)) * 10.0 ** rng.uniform(-1, 1.2)
    z = np.round(z) if rng.random() < 0.3 else z
    z = z - z.max(1, keepdims=True)
    log_probs = z - np.log(np.exp(z).sum(1, keepdims=True))
    k = int(rng.integers(1, m))
    indices = np.argsort(-log_probs, axis=1, kind="stable")
    rest = np.log(np.exp(np.take_along_axis(log_probs, indices[:, k:], 1)).sum(1))
    return log_probs, np.take_along_axis(log_probs, indices[:, :k], 1), indices[:, :k], rest


def attack_samples(counts, rng, cal, m):
    """Calibrated probabilities of the k best."""
    full, best, indices, rest = draw(rng, int(rng.integers(1, 9)), m)
    k = best.shape[1]
    what = f"{cal.label}, {k} of {m} classes"
    data = counts.attempt(what, lambda: rhocal.TopK.from_arrays(best, indices, rest, n_classes=m))
    if not counts.check(f"{what}: refused", data is not REFUSED):
        return
    found = counts.attempt(what, lambda: cal.transform(data))
    shown = counts.attempt(what, lambda: cal.predict_proba(data))
    bounded = counts.attempt(what, lambda: rhocal.calibrate_top_k(cal, data))
    if found is REFUSED or shown is REFUSED or bounded is REFUSED:
        counts.check(f"{what}: refused", holds=False)
        return
    probs, low, high = bounded
    got = np.exp(found.log_probs)
    if not counts.check_finite(what, np.r_[probs.ravel(), low, high, got.ravel()]):
        return
    counts.check(f"{what}: three ways", max(np.abs(got - probs).max(), np.abs(shown - probs).max()) < 1e-9)
    total = got.sum(1) + np.exp(found.rest)
    counts.check(f"{what}: sums", np.abs(total - 1).max() < 1e-9)
    counts.check(f"{what}: bounds", ((low <= probs[:, 0] + 1e-9) & (probs[:, 0] <= high + 1e-9)).all())
    order = rng.permutation(k)
    moved = counts.attempt(what, lambda: rhocal.TopK.from_arrays(best[:, order], indices[:, order], rest, n_classes=m))
    again = REFUSED if moved is REFUSED else counts.attempt(what, lambda: cal.transform(moved))
    counts.check(f"{what}: another order", again is not REFUSED and same_probs(again, found, m))
    shifted = counts.attempt(
        what, lambda: rhocal.TopK.from_arrays(np.exp(best), indices, rest, n_classes=m, kind="probs")
    )
    if shifted is not REFUSED:
        counts.check(f"{what}: probs", np.abs(shifted.log_probs - data.log_probs).max() < 1e-9)
    if cal.name != "temperature":
        return
    dense = softmax(full / cal.temperature_)
    want = np.take_along_axis(dense, data.indices, 1)
    counts.check(f"{what}: bounds of all logits", ((low <= want[:, 0] + 1e-9) & (want[:, 0] <= high + 1e-9)).all())
    if k == m - 1:  # a rest of one class is known
        counts.check(f"{what}: not those of all logits", np.abs(got - want).max() < 1e-6)


def same_probs(one, other, m):
    """Whether every class has the same probability, however ties are ordered."""
    tables = []
    for data in (one, other):
        table = np.zeros((data.n_samples, m))
        np.put_along_axis(table, data.indices, np.exp(data.log_probs), 1)
        tables.append(table)
    return np.abs(tables[0] - tables[1]).max() < 1e-9


def attack_damage(counts, rng):
    """Values that no row of probabilities has are refused."""
    m = int(rng.integers(3, 30))
    _, best, indices, rest = draw(rng, 4, m)
    best, indices, row = best.copy(), indices.copy(), int(rng.integers(4))
    column = int(rng.integers(best.shape[1]))
    damage = str(rng.choice(["nan", "positive", "index", "negative index", "twice", "rest", "shape", "n_classes"]))
    if damage == "nan":
        best[row, column] = rng.choice([np.nan, np.inf, -np.inf])
    elif damage == "positive":
        best[row, column] = rng.uniform(0.1, 5)
    elif damage == "index":
        indices[row, column] = m + int(rng.integers(3))
    elif damage == "negative index":
        indices[row, column] = -1
    elif damage == "twice":
        if best.shape[1] < 2:
            return
        indices[row] = indices[row, 0]
    elif damage == "rest":
        rest[row] = rng.choice([np.nan, np.inf, 1.0])
    elif damage == "shape":
        indices = indices[:, :-1]
    else:
        m = best.shape[1] - int(rng.integers(2))
    what = f"TopK with wrong {damage}"
    found = counts.attempt(what, lambda: rhocal.TopK.from_arrays(best, indices, rest, n_classes=m))
    counts.check(what, found is REFUSED)
