"""Fitted calibrators on hostile rows: what a row gets depends on nothing but the row.

A row alone, and rows in another order or memory layout give the same bits in double precision (in single precision the same to
1e-6: where a logit is beyond 1e8, the whole batch is computed in double precision); named columns in another order give the
same probabilities; softmax of ``transform`` is ``predict_proba``, ``predict`` its arg-max, and a policy decides by its rule,
computed here in plain NumPy.
"""

from __future__ import annotations

import warnings
from copy import copy

import numpy as np
import pandas as pd
from tests.attack import REFUSED, Counts, rounds
from tests.attack._calibrators import METHODS, fitted, hostile_logits, random_policy, some_masked

APPLIED = tuple(name for name in METHODS if name != "multi-domain")
"""``multi-domain`` needs the domain of each row."""

N_BATCHES = 60
"""Batches for a calibrator before the next one is taken."""


def run(rng_seed, seconds, methods=APPLIED):
    """Attack until the seconds are over."""
    counts = Counts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)  # of NumPy
        for rng in rounds(rng_seed, seconds):
            cal = copy(fitted(str(rng.choice(methods)), int(rng.choice([2, 3, 6, 20]))))
            cal.policy_ = random_policy(rng, len(cal.classes_))
            for _ in range(N_BATCHES):
                dtype = rng.choice([np.float64, np.float32, np.float16])
                z = hostile_logits(rng, int(rng.integers(1, 9)), len(cal.classes_), dtype, largest=20)
                z = some_masked(rng, z)
                attack_rows(counts, rng, cal, z)
    return counts


def attack_rows(counts, rng, cal, z):
    """One batch in several forms."""
    what = f"{cal.label}, {z.shape[0]} x {z.shape[1]} {z.dtype}"
    probs = counts.attempt(what, lambda: cal.predict_proba(z))
    if probs is REFUSED or not counts.check_finite(what, probs):
        return
    counts.check(f"{what}: sums", np.abs(probs.sum(1, dtype=np.float64) - 1).max() < 1e-5)
    row = int(rng.integers(len(z)))
    order = rng.permutation(len(z))
    forms = {
        "a row alone": (lambda: cal.predict_proba(z[row : row + 1]), probs[row : row + 1]),
        "another order": (lambda: cal.predict_proba(z[order]), probs[order]),
        "Fortran order": (lambda: cal.predict_proba(np.asfortranarray(z)), probs),
        "every second row": (lambda: cal.predict_proba(np.repeat(z, 2, axis=0)[::2]), probs),
        "big endian": (lambda: cal.predict_proba(z.astype(z.dtype.newbyteorder(">"))), probs),
    }
    for form, (call, want) in forms.items():
        got = counts.attempt(f"{what}, {form}", call)
        tolerance = 1e-6 if z.dtype != np.float64 else 1e-12 if form == "big endian" else 0  # not by compiled code
        counts.check(f"{what}: {form}", got is not REFUSED and np.abs(got - want).max() <= tolerance)
    predicted = counts.attempt(what, lambda: cal.predict(z))
    counts.check(f"{what}: arg-max", predicted is not REFUSED and np.array_equal(predicted, probs.argmax(1)))
    logits = counts.attempt(what, lambda: cal.transform(z))
    if logits is not REFUSED and counts.check_finite(f"{what}, logits", logits):
        rounding = 4 * np.finfo(logits.dtype).eps * max(1.0, float(np.abs(logits).max()))
        counts.check(f"{what}: softmax of the logits", np.abs(softmax(logits) - probs).max() <= 1e-6 + rounding)
    if rng.random() < 0.2:
        names = rng.permutation(z.shape[1])
        frame = pd.DataFrame(z[:, names], columns=[f"logit_{name}" for name in names])
        got = counts.attempt(f"{what}, a data frame", lambda: cal.predict_proba(frame))
        is_same = got is not REFUSED and np.abs(np.asarray(got) - probs).max() <= 1e-6
        counts.check(f"{what}: named columns {names.tolist()}", is_same)
    attack_policy(counts, what, cal, z, probs)


def softmax(logits):
    e = np.exp(np.asarray(logits, np.float64) - np.asarray(logits, np.float64).max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def attack_policy(counts, what, cal, z, probs):
    """The decisions of a policy by its definition."""
    policy, p = cal.policy_, probs.astype(np.float64)
    what = f"{what}, policy {policy.rule}"
    decided = counts.attempt(what, lambda: cal.decide(z))
    if decided is REFUSED:
        return
    sets = None if policy.sets is None else expected_sets(policy.sets, p)
    if sets is not None:
        is_clear = policy.sets.is_clear(p, 1e-9)
        counts.check(f"{what}: sets", np.array_equal(decided.sets[is_clear], sets[is_clear]))
        sets = decided.sets
    column, automated = expected_decisions(policy, p, sets)
    is_clear = policy.margin(p) > 1e-9 if policy.rule == "cost" else np.ones(len(p), bool)
    counts.check(f"{what}: columns", np.array_equal(decided.column[is_clear], column[is_clear]))
    counts.check(f"{what}: actions", np.array_equal(decided.automated[is_clear], automated[is_clear]))
    counts.check(f"{what}: labels", np.array_equal(decided.label, cal.classes_[decided.column]))


def expected_sets(rule, p):
    """Which classes are in the set of each row."""
    if rule.score == "lac":
        return -p <= rule.limits
    above = np.array([[row[row > value].sum() for value in row] for row in p])
    if rule.score == "raps":
        ranks = np.array([[(row > value).sum() for value in row] for row in p])
        above = above + rule.penalty * np.maximum(ranks + 1 - rule.n_free, 0)
    return above <= rule.limits


def expected_decisions(policy, p, sets):
    """The column of each row, and whether it is automated."""
    rows, top = np.arange(len(p)), p.argmax(1)
    if policy.rule == "cost":
        expected = p @ policy.costs
        column = expected[:, : p.shape[1]].argmin(1)
        return column, expected[rows, column] <= expected[:, p.shape[1] :].min(1, initial=np.inf)
    if policy.rule == "positive":
        is_positive = p[:, policy.positive] >= policy.thresholds[0]
        return np.where(is_positive, policy.positive, 1 - policy.positive), np.ones(len(p), bool)
    if policy.rule == "sets":
        inside = np.where(sets | ~sets.any(1, keepdims=True), p, -1)
        return inside.argmax(1), sets.sum(1) == 1
    return top, p[rows, top] >= np.broadcast_to(policy.thresholds, p.shape)[rows, top]
