"""Fits and maps on nasty predictions: ties, masks, saturation, extreme sizes and shifts, uneven weights, few samples.

Whatever came is refused with an error of ours, or probabilities are finite and sum to one, the prediction is their arg-max, a
method that keeps the decision keeps it, masks change nothing, and NumPy warns of nothing.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from tests.attack import REFUSED, Counts, rounds

import rhocal
from rhocal.calibrators import CALIBRATORS
from rhocal.errors import RhocalWarning
from rhocal.torch.device import on_device

QUICK = {
    "rho-norm-paper": {"n_steps": 20},
    "auto": {"methods": ("temperature", "svs", "field"), "n_folds": 2},
    "cross-fitted": {"n_folds": 2},
}
SIZES = (
    0.0,
    5e-324,
    1e-310,
    1e-45,
    1e-38,
    1e-20,
    1e-18,
    1e-15,
    1e-12,
    1e-8,
    1e-4,
    1.0,
    1.0,
    1.0,
    30.0,
    1e4,
    1e8,
    1e20,
    1e38,
    1e150,
    1e300,
)
SHIFTS = (0.0, 0.0, 0.0, 0.0, 3.0, -500.0, 1e8, 1e30, -1e30, -1e300)
EQUIVARIANT = {"temperature": {}, "rho-norm": {"rho": 2.0}, "vector": {}, "svs": {}}
"""Methods, without what cross-validation or bins choose, of which a factor of all logits changes no probability."""

MASKS = (1e4, 1e6, 1e9, 1e30, 3e38, np.inf)


def run(rng_seed: int, seconds: float) -> Counts:
    """Attack until the time is over."""
    counts, names = Counts(), list(CALIBRATORS)
    for rng in rounds(rng_seed, seconds):
        name = names[int(rng.integers(len(names)))]
        attack_once(counts, rng, name)
        if rng.random() < 0.3 and name != "multi-domain":
            attack_kinds(counts, rng, name)
        if rng.random() < 0.1:
            attack_factor(counts, rng, str(rng.choice(list(EQUIVARIANT))))
    return counts


def attack_once(counts: Counts, rng: np.random.Generator, name: str) -> None:
    """Fit a method on drawn predictions, apply it to them and to others, and check what comes out."""
    drawn, z, y, weights = draw(rng)
    what = f"{name} on {drawn}"
    groups = {"groups": np.arange(len(y)) % 2} if name == "multi-domain" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        warnings.simplefilter("error", RuntimeWarning)
        method = rhocal.calibrator(name, **QUICK.get(name, {}))
        cal = counts.attempt(f"fit {what}", lambda: method.fit(z, y, weights, **groups))
        if cal is REFUSED:
            return
        check_outputs(counts, what, cal, z, groups)
        other = in_type(nasty(rng, *z.shape)[1], z.dtype)
        check_outputs(counts, f"{what}, applied to others", cal, other, groups)


def attack_kinds(counts: Counts, rng: np.random.Generator, name: str) -> None:
    """Fit on probabilities, and apply the map to logits with masks: a masked class has no probability."""
    n, m = int(rng.choice([40, 120])), int(rng.choice([2, 3, 5, 17]))
    dtype, kind = rng.choice(["f4", "f8"]), str(rng.choice(["probs", "log_probs"]))
    z = rng.normal(size=(n, m)) * 10 ** rng.uniform(-1, 1.5)
    z -= z.max(axis=1, keepdims=True)
    log_probs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    scores = (np.exp(log_probs) if kind == "probs" else log_probs).astype(dtype)
    labels = np.where(rng.random(n) < 0.6, z.argmax(axis=1), rng.integers(0, m, n))
    later, low = (rng.normal(size=(12, m)) * 10 ** rng.uniform(-2, 2)).astype(dtype), float(rng.choice(MASKS))
    masked = (rng.random(later.shape) < 0.3) & (np.arange(m) != later.argmax(axis=1)[:, None])
    later = np.where(masked, -low, later).astype(dtype)
    what = f"{name} on {n} x {m} {dtype} {kind}, applied to logits with masks at {-low:g}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        warnings.simplefilter("error", RuntimeWarning)
        method = rhocal.calibrator(name, **QUICK.get(name, {}))
        cal = counts.attempt(f"fit {what}", lambda: method.fit(scores, labels, kind=kind))
        if cal is REFUSED:
            return
        probs = counts.attempt(what, lambda: cal.predict_proba(later, kind="logits"))
    if probs is not REFUSED and counts.check_finite(what, probs):
        counts.check(f"sums of {what}", np.abs(probs.sum(axis=1, dtype=np.float64) - 1).max() < 1e-5)
        counts.check(f"masks of {what}", probs[masked].max(initial=0) < 1e-30)
        if cal.is_portable:
            there = counts.attempt(
                f"{what}, torch", lambda: on_device(cal, torch.from_numpy(later), "probs", "logits", -1)
            )
            if there is not REFUSED:
                counts.check(f"{what}, torch", np.abs(there.numpy() - probs).max() <= 1e-6)


def attack_factor(counts: Counts, rng: np.random.Generator, name: str) -> None:
    """Fit on logits, and on the same times a power of two: probabilities are the same."""
    n, m, power = int(rng.choice([40, 120])), int(rng.choice([2, 3, 5])), int(rng.integers(-64, 150))
    z = rng.normal(size=(n, m)) * 3
    labels = np.where(rng.random(n) < 0.6, z.argmax(axis=1), rng.integers(0, m, n))
    what, results = f"{name} on {n} x {m} logits and on 2**{power} times as large ones", []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        warnings.simplefilter("error", RuntimeWarning)
        for factor in (1.0, 2.0**power):
            method = rhocal.calibrator(name, **EQUIVARIANT[name])
            cal = counts.attempt(f"fit {what}", lambda method=method, factor=factor: method.fit(factor * z, labels))
            if cal is REFUSED:
                return
            results.append(cal.predict_proba(factor * z))
    counts.check(what, np.abs(results[1] - results[0]).max() <= 1e-6)


def check_outputs(counts, what, cal, z, groups):
    """What is promised of every map on every row that is not refused."""
    probs = counts.attempt(f"predict_proba {what}", lambda: cal.predict_proba(z, **groups))
    logits = counts.attempt(f"transform {what}", lambda: cal.transform(z, **groups))
    predicted = counts.attempt(f"predict {what}", lambda: cal.predict(z, **groups))
    if probs is REFUSED or logits is REFUSED or predicted is REFUSED:
        return
    if counts.check_finite(f"probs of {what}", probs) and counts.check_finite(f"logits of {what}", logits):
        counts.check(f"sums of {what}", np.abs(probs.sum(axis=1, dtype=np.float64) - 1).max() < 1e-5)
        counts.check(f"range of {what}", probs.min() >= 0 and probs.max() <= 1)
        counts.check(f"masks of {what}", probs[np.isneginf(z)].max(initial=0) < 1e-30)
        columns = np.searchsorted(cal.classes_, predicted)
        counts.check(f"arg-max of {what}", (probs.argmax(axis=1) == columns).all())
        if cal.map_.keeps_decision:
            counts.check(f"decision of {what}", (columns == z.argmax(axis=1)).all())


def draw(rng):
    """A description, logits, labels and weights (or None)."""
    n, m = int(rng.choice([12, 40, 120])), int(rng.choice([2, 3, 3, 5, 17, 70]))
    drawn, z = nasty(rng, n, m)
    dtype = rng.choice(["f4", "f8"])
    z = in_type(z, dtype)
    kind = rng.choice(["chance", "right", "wrong", "mixed", "single"])
    top = z.argmax(axis=1)
    y = {
        "chance": rng.integers(0, m, n),
        "right": top,
        "wrong": (top + 1) % m,
        "mixed": np.where(rng.random(n) < 0.7, top, rng.integers(0, m, n)),
        "single": np.zeros(n, int),
    }[kind]
    rows = np.arange(n)
    z[rows, y] = np.maximum(z[rows, y], -1e3 if np.abs(z).max() < 1e3 else z[rows, y])  # a label is not masked
    if np.isneginf(z[rows, y]).any():
        z[rows, y] = np.where(np.isneginf(z[rows, y]), 0, z[rows, y])
    weight_kind = rng.choice(["none", "none", "uneven", "huge", "tiny", "mixed", "one", "zeros"])
    weights = {
        "none": None,
        "uneven": np.exp(8 * rng.normal(size=n)),
        "huge": np.full(n, 1e300),
        "tiny": np.full(n, 1e-300),
        "mixed": np.where(rows % 2, 1e-30, 1.0),
        "one": (rows == 3).astype(float),
        "zeros": (rng.random(n) < 0.5).astype(float) + (rows == 0),
    }.get(weight_kind)
    return f"{n} x {m} {dtype}, {drawn}, labels {kind}, weights {weight_kind}", z, y, weights


def in_type(z, dtype):
    """In a type, no number beyond its ends except −∞."""
    high = float(np.finfo(dtype).max)
    with np.errstate(all="ignore"):
        return np.where(np.isneginf(z), z, np.clip(np.nan_to_num(z, nan=0.0), -high, high)).astype(dtype)


def nasty(rng, n, m):
    """A description and logits with ties, masks, saturation, extreme sizes or shifts."""
    form = rng.choice(["normal", "ties", "equal rows", "constant", "few rows", "saturated", "one hot", "heavy tails"])
    z = {
        "normal": lambda: rng.normal(size=(n, m)) * 2,
        "ties": lambda: rng.integers(0, 3, size=(n, m)).astype(float),
        "equal rows": lambda: np.repeat(rng.normal(size=(n, 1)), m, axis=1),
        "constant": lambda: np.full((n, m), float(rng.normal())),
        "few rows": lambda: rng.normal(size=(4, m))[rng.integers(0, 4, n)],
        "saturated": lambda: rng.normal(size=(n, m)) * 200,
        "one hot": lambda: np.eye(m)[rng.integers(0, m, n)] * 40,
        "heavy tails": lambda: rng.standard_cauchy(size=(n, m)) * 5,
    }[form]()
    size, shift = float(rng.choice(SIZES)), float(rng.choice(SHIFTS))
    with np.errstate(over="ignore", under="ignore"):
        z = z * size + shift
    text = f"{form} * {size:g} + {shift:g}"
    if rng.random() < 0.3 and m > 2:
        low = float(rng.choice(MASKS))
        masked = rng.random((n, m)) < 0.3 if rng.random() < 0.5 else np.broadcast_to(rng.random(m) < 0.3, (n, m))
        masked = masked & (np.arange(m) != z.argmax(axis=1)[:, None])
        z = np.where(masked, -low, z)
        text += f", masks at {-low:g}"
    return text, z
