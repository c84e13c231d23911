"""Calibrators for another mix of the classes, models of correctness, and scores of answers, against their formulas.

Probabilities of an adapted calibrator are p·(new / old), normalized; there and back again is the calibrator itself; its bits
survive a file. A correctness model gives the logistic function of the numbers that it states, in any order of the answers, and
weights count as copies; its damaged file is refused, or gives the same bits.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
from tests.attack import MEMORY, REFUSED, Counts, rounds
from tests.attack._calibrators import METHODS, fitted, hostile_logits
from tests.attack.artifacts import damage

import rhocal

ADAPTED = tuple(name for name in METHODS if name != "multi-domain")
N_MIXES = 10
N_MUTATIONS = 8


def run(rng_seed, seconds, methods=ADAPTED):
    """Attack until the seconds are over."""
    counts = Counts()
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)  # of NumPy
        for rng in rounds(rng_seed, seconds):
            cal = fitted(str(rng.choice(methods)), int(rng.choice([2, 3, 4])))
            for _ in range(N_MIXES):
                attack_mix(counts, rng, cal, Path(folder))
                attack_tokens(counts, rng)
            attack_correctness(counts, rng, Path(folder))
    return counts


def attack_mix(counts, rng, cal, folder):
    """Known shares, or known rates of sampling; some are impossible."""
    m, old = len(cal.classes_), cal.label_shares_
    new = rng.dirichlet(np.full(m, 10.0 ** rng.uniform(-1, 2)))
    broken = str(rng.choice(["no", "no", "no", "nan", "negative", "sum", "length", "zero"]))
    if broken != "no":
        k = int(rng.integers(m))
        value = {"nan": np.nan, "negative": -0.1, "zero": 0.0, "sum": new[k] + 0.1}.get(broken, new[k])
        new = np.append(new, 0.1) if broken == "length" else np.where(np.arange(m) == k, value, new)
    what = f"adapt {cal.label} to {new.tolist()}"
    names = [str(name) for name in cal.classes_]
    given = new if broken == "length" or rng.random() < 0.5 else dict(zip(names, new.tolist(), strict=True))
    found = counts.attempt(what, lambda: rhocal.adapt(cal, priors=given))
    if broken != "no" or not (new > 0).all():
        counts.check(f"{what}: accepted", found is REFUSED)
        return
    if not counts.check(f"{what}: refused", found is not REFUSED):
        return
    z = hostile_logits(rng, 6, m, largest=4)
    before = cal.predict_proba(z)
    got = counts.attempt(what, lambda: found.calibrator.predict_proba(z))
    if got is REFUSED or not counts.check_finite(what, got):
        return
    want = before * (new / old)
    want /= want.sum(1, keepdims=True)
    counts.check(f"{what}: not the formula", np.abs(got - want).max() < 1e-9)
    back = counts.attempt(what, lambda: rhocal.adapt(found.calibrator, priors=old))
    again = REFUSED if back is REFUSED else counts.attempt(what, lambda: back.calibrator.predict_proba(z))
    counts.check(f"{what}: there and back", again is not REFUSED and np.abs(again - before).max() < 1e-9)
    rates = rng.uniform(0.01, 1, m)
    kept = counts.attempt(what, lambda: rhocal.adapt(cal, sampling_rates=rates))
    if counts.check(f"{what}: rates refused", kept is not REFUSED):
        want = before / rates
        want /= want.sum(1, keepdims=True)
        got_rates = counts.attempt(what, lambda: kept.calibrator.predict_proba(z))
        is_same = got_rates is not REFUSED and np.abs(got_rates - want).max() < 1e-9
        counts.check(f"{what}: rates", is_same)
    if rng.random() < 0.2:
        path = folder / "adapted.safetensors"
        found.calibrator.save(path)
        loaded = counts.attempt(what, lambda: rhocal.load(path).predict_proba(z))
        counts.check(f"{what}: saved and loaded", loaded is not REFUSED and np.array_equal(loaded, got))


def attack_tokens(counts, rng):
    """Scores of answers from those of tokens, in a loop."""
    n = int(rng.integers(1, 40))
    values, owners = -rng.exponential(size=n) * 10.0 ** rng.uniform(-3, 3), rng.integers(0, 9, n)
    how = str(rng.choice(["mean", "sum", "min"]))
    if rng.random() < 0.2:
        values[rng.integers(n)] = rng.choice([np.nan, 0.5, 1e300])
        broken = counts.attempt("tokens", lambda: rhocal.aggregate_tokens(values, owners, how))
        counts.check("tokens above 0 accepted", broken is REFUSED)
        return
    found = counts.attempt("tokens", lambda: rhocal.aggregate_tokens(values, owners, how))
    names = list(dict.fromkeys(owners.tolist()))
    one = {"mean": np.mean, "sum": np.sum, "min": np.min}[how]
    want = np.array([one(values[owners == name]) for name in names])
    is_same = found is not REFUSED and found[1].tolist() == names and np.allclose(found[0], want, rtol=1e-12)
    counts.check(f"tokens, {how}", is_same)


def attack_correctness(counts, rng, folder):
    """A model of correctness with features and subjects."""
    n = int(rng.choice([5, 60, 200]))
    score = rng.normal(size=n) * 10.0 ** rng.uniform(-1, 1.5)
    x = rng.normal(size=n) * 10.0 ** rng.uniform(-3, 3)
    right = (rng.random(n) < 1 / (1 + np.exp(-score))).astype(int) if rng.random() < 0.8 else np.ones(n, int)
    subjects = np.array(["a", "b", "c"])[rng.integers(3, size=n)] if rng.random() < 0.5 else None
    weights = rng.integers(1, 4, n)
    about = {"features": {"x": x}, "subjects": subjects}
    what = f"correctness of {n} answers"
    model = counts.attempt(what, lambda: rhocal.CorrectnessModel().fit(score, right, sample_weight=weights, **about))
    if model is REFUSED:
        return
    probs = counts.attempt(what, lambda: model.predict_proba(score, **about))
    if probs is REFUSED or not counts.check_finite(what, probs):
        return
    counts.check(f"{what}: range", (probs >= 0).all() and np.abs(probs.sum(1) - 1).max() < 1e-12)
    mean = np.average(x, weights=weights)
    deviation = np.sqrt(np.average((x - mean) ** 2, weights=weights))
    offsets = 0.0 if subjects is None else np.array([model.offsets_[name] for name in subjects])
    plain = model.intercept_ + model.slope_ * score + model.weights_["x"] * (x - mean) / deviation + offsets
    counts.check(f"{what}: not the formula", np.abs(1 / (1 + np.exp(-plain)) - probs[:, 1]).max() < 1e-7)
    rows = rng.permutation(n) if rng.random() < 0.5 else np.repeat(np.arange(n), weights)
    again_weights = weights[rows] if len(rows) == n else None
    moved = counts.attempt(
        what,
        lambda: rhocal.CorrectnessModel().fit(
            score[rows],
            right[rows],
            features={"x": x[rows]},
            subjects=None if subjects is None else subjects[rows],
            sample_weight=again_weights,
        ),
    )
    again = REFUSED if moved is REFUSED else counts.attempt(what, lambda: moved.predict_proba(score, **about))
    form = "copies" if again_weights is None else "another order"
    counts.check(f"{what}: {form}", again is not REFUSED and np.abs(again - probs).max() < 1e-5)
    path = folder / "answers.safetensors"
    model.save(path)
    attack_model_file(counts, rng, path, lambda loaded: loaded.predict_proba(score, **about), probs)


def attack_model_file(counts, rng, path, predict, want):
    """The file of a model of correctness, as it is and with changed bytes."""
    mutated = path.with_name("mutated.safetensors")
    for k in range(N_MUTATIONS):
        what = damage(rng, path, mutated) if k else "the same bytes"
        found = counts.attempt(what, lambda: rhocal.CorrectnessModel.load(mutated if k else path))  # noqa: B023 - at once
        counts.cases["damaged models of correctness"] += k > 0
        if found is REFUSED:
            counts.check("a model of correctness: refused", k > 0)
            continue
        got = counts.attempt(what, lambda: predict(found))  # noqa: B023 - at once
        counts.check(f"a model of correctness: {what}", got is not REFUSED and np.array_equal(got, want))
