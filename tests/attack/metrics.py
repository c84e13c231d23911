"""Metrics against plain NumPy: ties, saturated scores, edges of bins, extreme logits and weights; and what must be refused."""

from __future__ import annotations

import warnings

import numpy as np
from tests.attack import REFUSED, Counts, rounds
from tests.attack._calibrators import hostile_logits, some_masked

from rhocal.metrics import METRICS
from rhocal.numerics.bins import ON_THE_EDGE

SMALLEST_PROB = 1e-30
N_BINS = 10


def is_undefined(name, probs, labels, weights):
    """Whether a metric has no finite value: AUROC without right or wrong samples, Z where nothing is left to chance."""
    counts = slice(None) if weights is None else weights > 0
    right, confidence = (probs.argmax(1) == labels)[counts], probs.max(1)[counts]
    if name == "auroc":
        return right.all() or not right.any()
    return name == "spiegelhalter_z" and ((confidence > 1 - 1e-12) | (confidence == 0.5)).all()


def run(rng_seed, seconds):
    """Attack until the seconds are over."""
    counts = Counts()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for rng in rounds(rng_seed, seconds):
            attack_values(counts, rng)
            attack_refusals(counts, rng)
    return counts


def attack_values(counts, rng):
    """One drawn input in every metric: the reference where there is one, the range, and three invariances."""
    n, m = int(rng.integers(1, 40)), int(rng.choice([2, 3, 5, 12]))
    kind, scores, probs = draw_scores(rng, n, m)
    labels = rng.integers(m, size=n) if rng.random() < 0.7 else probs.argmax(1)
    weights = draw_weights(rng, n)
    for name in rng.permutation(list(METRICS))[:8]:
        metric = METRICS[name]
        what = f"{name}, {kind}, {n} x {m} {scores.dtype}, weights {None if weights is None else weights.max()}"
        value = counts.attempt(what, lambda m=metric: m(scores, labels, kind=kind, sample_weight=weights))
        if value is REFUSED:
            continue
        if not np.isfinite(value) and is_undefined(name, probs, labels, weights):
            continue
        if not counts.check_finite(what, value):
            continue
        low, high = metric.range
        counts.check(f"{what}: {value} outside {metric.range}", low - 1e-6 <= value <= high + 1e-6)
        if name in REFERENCES:
            w = np.ones(n) if weights is None else weights
            want = REFERENCES[name](probs, labels, w / w.max(), scores if kind == "logits" else None)
            tolerance = 1e-9 if scores.dtype == np.float64 else 2e-6
            counts.check(f"{what}: {value} is not {want}", abs(value - want) <= tolerance * max(1, abs(want)))
        if name in ORDERED:
            continue
        order = rng.permutation(n)
        moved = counts.attempt(
            what,
            lambda m=metric, o=order: m(
                scores[o], labels[o], kind=kind, sample_weight=None if weights is None else weights[o]
            ),
        )
        counts.check(f"{what}: {value} in another order {moved}", moved is not REFUSED and near(moved, value))


ORDERED = {"skce", "top_skce"}
"""Metrics that are estimated from blocks of samples in their order."""


def near(one, other):
    """Equal up to the order of sums."""
    return abs(one - other) <= 1e-7 * max(1.0, abs(other))


def draw_scores(rng, n, m):
    """Scores, and the probabilities that they stand for in double precision."""
    dtype = rng.choice([np.float64, np.float32])
    kind = "logits" if rng.random() < 0.4 else "probs"
    if kind == "logits":
        z = some_masked(rng, hostile_logits(rng, n, m, dtype))
        e = np.exp(z.astype(np.float64) - z.max(1, keepdims=True).astype(np.float64))
        return kind, z, e / e.sum(1, keepdims=True)
    z = rng.normal(size=(n, m)) * 10.0 ** rng.uniform(-2, 2)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    draw = rng.random()
    if draw < 0.25:  # edges of bins
        p = np.full((n, m), 0.0)
        p[:, 0] = rng.integers(5, 11, size=n) / 10
        p[:, 1] = 1 - p[:, 0]
        p = rng.permuted(p, axis=1)
    elif draw < 0.4:  # saturated
        p = np.eye(m)[rng.integers(m, size=n)]
    elif draw < 0.5:
        p = np.full((n, m), 1 / m)
    p = p.astype(dtype)
    return kind, p, p.astype(np.float64)


def draw_weights(rng, n):
    """None, counts, or numbers of any size; at least one is positive."""
    draw = rng.random()
    if draw < 0.5:
        return None
    if draw < 0.7:
        weights = rng.integers(0, 4, size=n).astype(float)
    else:
        weights = rng.random(n) * 10.0 ** rng.choice([-300.0, -90, -3, 0, 3, 90, 300])
    weights[0] = weights.max() or 1.0
    return weights


def attack_refusals(counts, rng):
    """Input with NaN, infinity, wrong sums, wrong labels or wrong weights is refused by every metric."""
    n, m = int(rng.integers(2, 20)), int(rng.choice([2, 4]))
    probs = rng.dirichlet(np.ones(m), size=n)
    labels, weights = rng.integers(m, size=n), rng.random(n) + 0.1
    name = str(rng.choice(list(METRICS)))
    broken = rng.choice(["probs", "sum", "labels", "weights", "length", "logits"])
    kind = "probs"
    if broken == "probs":
        probs[rng.integers(n), rng.integers(m)] = rng.choice([np.nan, np.inf, -0.5, 1.5])
    elif broken == "sum":
        probs[rng.integers(n)] *= rng.choice([0.5, 2.0, 0.0])
    elif broken == "labels":
        labels[rng.integers(n)] = rng.choice([-1, m, 2**40])
    elif broken == "weights":
        weights[rng.integers(n)] = rng.choice([np.nan, np.inf, -1.0])
    elif broken == "length":
        labels = labels[:-1]
    else:
        probs, kind = rng.normal(size=(n, m)), "logits"
        probs[rng.integers(n), rng.integers(m)] = rng.choice([np.nan, np.inf])
    what = f"{name} with broken {broken}"
    value = counts.attempt(what, lambda: METRICS[name](probs, labels, sample_weight=weights, kind=kind))
    counts.check(f"{what}: {value}", value is REFUSED)


# Plain NumPy --------------------------------------------------------------------------------------------------------


def mean(values, weights):
    return float((values * weights).sum() / weights.sum())


def log_probs(probs, logits):
    if logits is None:
        return np.log(np.maximum(probs, SMALLEST_PROB))
    z = logits.astype(np.float64)
    z = z - z.max(1, keepdims=True)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def one_hot(probs, labels):
    return np.eye(probs.shape[1])[labels]


def correct(probs, labels):
    return (probs.argmax(1) == labels).astype(float)


def gaps(probs, labels, weights):
    """Weight and |confidence − accuracy| of every bin (lo, hi]; the first also holds 0."""
    confidence, right = probs.max(1), correct(probs, labels)
    place = np.searchsorted(np.arange(1, N_BINS) / N_BINS + ON_THE_EDGE, confidence, side="left")
    shares, differences = [], []
    for k in range(N_BINS):
        inside = place == k
        total = weights[inside].sum()
        if total > 0:
            shares.append(total / weights.sum())
            differences.append(abs(mean(confidence[inside] - right[inside], weights[inside])))
    return np.array(shares), np.array(differences)


def ece(probs, labels, weights, _):
    shares, differences = gaps(probs, labels, weights)
    return float(shares @ differences)


def rmsce(probs, labels, weights, _):
    shares, differences = gaps(probs, labels, weights)
    return float(np.sqrt(shares @ differences**2))


REFERENCES = {
    "accuracy": lambda p, y, w, _: mean(correct(p, y), w),
    "brier": lambda p, y, w, _: mean(((p - one_hot(p, y)) ** 2).sum(1), w),
    "top_brier": lambda p, y, w, _: mean((p.max(1) - correct(p, y)) ** 2, w),
    "nll": lambda p, y, w, z: mean(-log_probs(p, z)[np.arange(len(y)), y], w),
    "confidence_gap": lambda p, y, w, _: mean(p.max(1) - correct(p, y), w),
    "ece": ece,
    "rmsce": rmsce,
    "mce": lambda p, y, w, _: float(gaps(p, y, w)[1].max()),
}
