"""Small fitted calibrators of every method, and hostile logits, for several attacks."""

from __future__ import annotations

from functools import cache

import numpy as np

import rhocal
from rhocal.calibrators import CALIBRATORS
from rhocal.calibrators.policies.policy import Certificate, Policy
from rhocal.calibrators.policies.prediction_sets import SetRule

METHODS = tuple(CALIBRATORS)
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-320, 1e-300, 1e300, -1e300, 1e16, 2.0**-1074, 0.5, 3.0)


@cache
def fitted(method, n_classes, seed=0, size=1.0):
    """A calibrator of a method, fitted on a few hundred samples; one class never occurs among many, logits are times a size."""
    rng = np.random.default_rng(seed)
    n = 600 if method == "cascade" and seed else 120
    truth = rng.normal(size=(n, n_classes)) * 1.5
    p = np.exp(truth) / np.exp(truth).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    if n_classes > 4:
        labels[labels == n_classes - 1] = 0
    scale = np.exp(0.4 * rng.normal(size=(n, 1)))
    groups = {"groups": np.array(["a", "b", "c"])[rng.integers(3, size=n)]} if method == "multi-domain" else {}
    return rhocal.calibrator(method).fit(truth * 2 * scale * size, labels, **groups)


def random_policy(rng, n_classes):
    """A policy of any rule, with or without prediction sets and certificate."""
    rules = ["confidence", "per-class", "cost", "sets"] + ["positive"] * (n_classes == 2)
    rule = str(rng.choice(rules))
    sets = None
    if rule == "sets" or rng.random() < 0.3:
        score = str(rng.choice(["lac", "aps", "raps"]))
        limits = rng.uniform(-0.7, 1, n_classes)
        sets = SetRule(score, 0.9, limits, per_class=bool(rng.random() < 0.5), penalty=0.1, n_free=2)
    certificate = None
    if rng.random() < 0.5 and rule != "cost":
        certificate = Certificate("error", 0.05, 0.95, 100, 60, 0.02, 0.048, 0.6, 0.5, 0.7)
    return Policy(
        rule,
        rng.uniform(0, 1, {"per-class": n_classes, "cost": 0, "sets": 0}.get(rule, 1)),
        positive=int(rng.integers(2)) if rule == "positive" else None,
        costs=rng.normal(size=(n_classes, n_classes + int(rng.integers(2)))) if rule == "cost" else None,
        otherwise=str(rng.choice(["review", "abstain"])),
        certificate=certificate,
        sets=sets,
    )


def hostile_logits(rng, n_rows, n_classes, dtype=np.float64, largest=30.0):
    """Logits of any size up to a power of 10, with ties, rows of one number, masks, and shifts of a row."""
    size = 10.0 ** rng.uniform(-6, largest, size=(n_rows, 1)) if rng.random() < 0.5 else 10.0 ** rng.uniform(-2, 2)
    z = rng.normal(size=(n_rows, n_classes)) * size
    for row in z:
        draw = rng.random()
        if draw < 0.1:
            row[:] = row[0]
        elif draw < 0.25:
            row[rng.integers(n_classes, size=2)] = row.max()
        elif draw < 0.35:
            row[rng.random(n_classes) < 0.5] = -rng.choice([1e4, 1e9, 1e30])
        elif draw < 0.45:
            row[:] = row + rng.choice([-1e3, 1e3, 1e6])
        elif draw < 0.5:
            row[:] = np.round(row)
    limit = float(np.finfo(dtype).max) / 4
    return np.clip(z, -limit, limit).astype(dtype)


def some_masked(rng, z):
    """Logits, and once in a while −∞ in place of some of them; the largest of each row stays."""
    if rng.random() < 0.8:
        return z
    masked = rng.random(z.shape) < 0.3
    masked[np.arange(len(z)), z.argmax(axis=1)] = False
    return np.where(masked, z.dtype.type(-np.inf), z)
