"""Certified thresholds, prediction sets and costs against their definitions: ties, saturated scores, weights, clusters.

What a decision says of its samples is what its policy does with them; limits of sets are order statistics; a bound lies on its
side of the observed risk; neither the order of samples, nor copies instead of weights, nor clusters of one sample each change
anything.
"""

from __future__ import annotations

import warnings
from math import ceil

import numpy as np
from tests.attack import REFUSED, Counts, rounds
from tests.attack.maps import expected_sets, softmax

import rhocal
from rhocal.numerics.special import softmax as single_softmax

N_QUESTIONS = 6
"""Questions about the same samples."""


def run(rng_seed, seconds):
    """Attack until the seconds are over."""
    counts = Counts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)  # of NumPy
        for rng in rounds(rng_seed, seconds):
            z, y, w = draw(rng)
            for _ in range(N_QUESTIONS):
                (attack_risk, attack_sets, attack_costs)[int(rng.integers(3))](counts, rng, z, y, w)
    return counts


def draw(rng):
    """Logits that are informative, useless, tied or saturated; labels; weights that are whole numbers, or None."""
    n, m = int(rng.choice([1, 5, 40, 200])), int(rng.choice([2, 2, 3, 8]))
    z = rng.normal(size=(n, m)) * 10.0 ** rng.uniform(-1, 3)
    z = np.round(z) if rng.random() < 0.4 else z
    if rng.random() < 0.2:
        z[rng.random(n) < 0.3] = 0.0
    y = (z / max(1.0, float(np.abs(z).mean()) / 2) + rng.gumbel(size=z.shape)).argmax(1)
    if rng.random() < 0.2:
        y = rng.integers(0, m, n)
    w = rng.integers(0, 4, n).astype(float) if rng.random() < 0.5 else None
    return z.astype(rng.choice(["f4", "f8"])), y, w if w is None or w.sum() else None


def ask(counts, rng, what, question, z, y, w):
    """The answer, after comparing it with those for other forms of the same samples."""
    found = counts.attempt(what, lambda: question(z, y, sample_weight=w))
    order = rng.permutation(len(y))
    forms = {"another order": (z[order], y[order], None if w is None else w[order])}
    if w is not None:
        rows = np.repeat(np.arange(len(y)), w.astype(int))
        forms["copies"] = z[rows], y[rows], None
    form = str(rng.choice(sorted(forms)))
    other_z, other_y, other_w = forms[form]
    other = counts.attempt(f"{what}, {form}", lambda: question(other_z, other_y, sample_weight=other_w))
    is_same = found is other if REFUSED in (found, other) else is_near(told(found), told(other))
    counts.check(f"{what}: {form}", is_same)
    if w is None and rng.random() < 0.5:
        alone = counts.attempt(f"{what}, clusters", lambda: question(z, y, clusters=np.arange(len(y))))
        is_same = found is alone if REFUSED in (found, alone) else is_near(told(found), told(alone))
        counts.check(f"{what}: clusters of one sample", is_same)
    return found


def told(found):
    """The numbers of an answer."""
    if isinstance(found, rhocal.SetDecision):
        return np.r_[found.policy.sets.limits, found.evidence.observed, found.evidence.mean_size]
    if isinstance(found, rhocal.Decision):
        certificate = found.policy.certificate if found.policy else None
        numbers = () if certificate is None else (certificate.n_automated, certificate.observed, certificate.bound)
        return np.r_[found.n_samples, numbers, () if found.policy is None else found.policy.thresholds]
    return np.r_[found.cost.value, found.today.value, found.saving.value, found.coverage]


def is_near(one, other):
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-6, atol=1e-9)


def attack_risk(counts, rng, z, y, w):
    """A certified threshold."""
    two = z.shape[1] == 2
    risk = str(rng.choice(["error", "fpr", "fnr", "precision", "recall"] if two else ["error"]))
    score = "per-class" if risk == "error" and rng.random() < 0.3 else None
    target, confidence = float(rng.uniform(0.01, 0.6)), float(rng.choice([0.8, 0.95, 0.999]))
    if risk in {"precision", "recall"}:
        target = 1 - target

    def question(z, y, **about):
        return rhocal.decide(None, z, y, target=target, risk=risk, score=score, confidence=confidence, **about)

    what = f"decide {risk} {score} {target:.3g} at {confidence}, {z.shape} {z.dtype}"
    found = ask(counts, rng, what, question, z, y, w)
    if found is REFUSED or found.policy is None:
        return
    policy, weights = found.policy, np.ones(len(y)) if w is None else w
    decided = counts.attempt(what, lambda: policy.decide(softmax(z), np.arange(z.shape[1])))
    certificate = policy.certificate
    sign = -1 if risk in {"precision", "recall"} else 1
    counts.check(f"{what}: bound", sign * certificate.bound >= sign * certificate.observed - 1e-9)
    counts.check(f"{what}: target", score is not None or sign * certificate.bound <= sign * target + 1e-9)
    if decided is REFUSED or (policy.margin(softmax(z)) < 1e-5).any():  # rounding may change what is counted
        return
    wrong = (decided.column != y) & (weights > 0)
    acted = decided.automated if risk == "error" else decided.column == 1
    n_acted = float(weights[acted].sum())
    counts.check(f"{what}: {certificate.n_automated} automated, not {n_acted}", certificate.n_automated == n_acted)
    among = {"error": acted, "precision": acted, "fpr": y == 0}.get(risk, y == 1)
    among = among & (weights > 0)
    if among.any():
        observed = float(weights[among & wrong].sum() / weights[among].sum())
        observed = 1 - observed if sign < 0 else observed
        counts.check(
            f"{what}: observed {certificate.observed}, not {observed}", abs(certificate.observed - observed) < 1e-9
        )


def attack_sets(counts, rng, z, y, w):
    """Prediction sets: their limit is an order statistic."""
    score, coverage = str(rng.choice(["lac", "aps", "raps"])), float(rng.choice([0.5, 0.8, 0.9, 0.95]))
    per_class = bool(rng.random() < 0.3)

    def question(z, y, **about):
        return rhocal.decide_sets(None, z, y, coverage=coverage, score=score, per_class=per_class, **about)

    what = f"sets {score} {coverage}, {z.shape} {z.dtype}"
    found = ask(counts, rng, what, question, z, y, w)
    if found is REFUSED:
        return
    weights = np.ones(len(y)) if w is None else w
    # In single precision other probabilities are tied, and have other ranks, than in double precision.
    rule, p = found.policy.sets, softmax(floored(z)) if z.dtype == np.float64 else single_softmax(z)
    scores = rule.scores(p)[np.arange(len(y)), y]
    for c in range(z.shape[1]) if per_class else [None]:
        mine = np.repeat(scores, weights.astype(int))[
            np.repeat(y, weights.astype(int)) == c if per_class else slice(None)
        ]
        k = ceil(round((len(mine) + 1) * coverage, 9))
        limit = rule.limits[c or 0]
        want = np.sort(mine)[k - 1] if k <= len(mine) else 1e12
        counts.check(f"{what}: limit {limit}, not {want}", abs(limit - want) <= 1.0001e-5 * max(1, abs(want)))
    included = expected_sets(rule, p)
    is_clear = rule.is_clear(p, 1e-6)
    if is_clear.all():
        size = float(weights @ included.sum(1) / weights.sum())
        counts.check(f"{what}: mean size", abs(found.evidence.mean_size - size) < 1e-9)
        held = float(weights @ included[np.arange(len(y)), y] / weights.sum())
        counts.check(f"{what}: coverage", abs(found.evidence.observed - held) < 1e-9)
    counts.check(f"{what}: observed", per_class or found.evidence.observed >= coverage - 1e-9)


def floored(z):
    """Logits at most 700 below the largest of their row: smaller probabilities, below 1e-304, are all equal."""
    return np.maximum(z, z.max(axis=1, keepdims=True) - 700.0)


def attack_costs(counts, rng, z, y, w):
    """Least expected cost: the mean cost is that of the decisions."""
    m = z.shape[1]
    costs = np.round(rng.normal(size=(m, m)) * 10.0 ** rng.uniform(-2, 3), 3)
    np.fill_diagonal(costs, 0.0)
    review = float(rng.uniform(0, 1)) * float(np.abs(costs).max()) if rng.random() < 0.5 else None

    def question(z, y, **about):
        return rhocal.minimize_cost(None, z, y, costs=costs, review=review, **about)

    what = f"costs, review {review}, {z.shape} {z.dtype}"
    found = ask(counts, rng, what, question, z, y, w)
    if found is REFUSED:
        return
    weights, p = np.ones(len(y)) if w is None else w, softmax(z)
    margins = found.policy.margin(p)
    if (margins < 1e-5).any():
        return
    expected = p @ costs
    column = expected.argmin(1)
    paid = costs[y, column]
    if review is not None:
        paid = np.where(expected.min(1) <= review, paid, review)
    unit = max(float(np.abs(costs).max()), 1e-300)
    mean = float(weights @ paid / weights.sum())
    counts.check(f"{what}: cost {found.cost.value}, not {mean}", abs(found.cost.value - mean) <= 1e-6 * unit)
    today = float(weights @ costs[y, z.argmax(1)] / weights.sum())
    counts.check(f"{what}: today {found.today.value}, not {today}", abs(found.today.value - today) <= 1e-6 * unit)
    for name in ("cost", "today", "saving", "value_of_calibrating"):
        one = getattr(found, name)
        counts.check(f"{what}: interval of {name}", one.low - 1e-9 * unit <= one.value <= one.high + 1e-9 * unit)
