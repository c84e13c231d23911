"""Mutated artifacts: refused, or applied with the same bits.

Damage (bytes that changed) is refused, or what is loaded gives the same bits as the original. Parameters and descriptions that
somebody else wrote, with a checksum that fits, are refused, or they are a calibrator: its probabilities are finite, sum to 1,
keep the decision where the method promises it, and survive being saved and loaded again.
"""

from __future__ import annotations

import json
import struct
import tempfile
import warnings
from copy import copy
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from tests.attack import MEMORY, REFUSED, Counts, rounds
from tests.attack._calibrators import METHODS, SPECIAL, fitted, hostile_logits, random_policy

import rhocal
from rhocal.data.storage.container import checksum

N_MUTATIONS = 60
"""Mutations of an artifact before the next one is taken."""


def run(rng_seed, seconds, methods=METHODS):
    """Attack until the seconds are over."""
    counts = Counts()
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rng in rounds(rng_seed, seconds):
            cal = copy(fitted(str(rng.choice(methods)), int(rng.choice([2, 3, 6]))))
            cal.policy_ = random_policy(rng, len(cal.classes_)) if rng.random() < 0.5 else None
            path = Path(folder) / "original.safetensors"
            cal.save(path)
            for _ in range(N_MUTATIONS):
                attack_artifact(counts, rng, cal, path)
    return counts


def attack_artifact(counts, rng, cal, original):
    """Load one mutation of an artifact."""
    path = original.with_name("mutated.safetensors")
    is_damage = rng.random() < 0.5
    what = damage(rng, original, path) if is_damage else rewrite(rng, original, path)
    what = f"{cal.label}: {what}"
    counts.cases["damaged artifacts" if is_damage else "rewritten artifacts"] += 1
    z = hostile_logits(rng, 8, len(cal.classes_), largest=8)
    loaded = counts.attempt(what, lambda: rhocal.load(path))
    if loaded is REFUSED:
        return
    if is_damage:
        same = counts.attempt(what, lambda: loaded.predict_proba(z))
        counts.check(what, same is not REFUSED and np.array_equal(same, cal.predict_proba(z)))
        counts.check(f"{what}: classes", np.array_equal(loaded.classes_, cal.classes_) and loaded.kind_ == cal.kind_)
        counts.check(f"{what}: the rest", rest(loaded, z) == rest(cal, z))
        return
    z = z[:, : len(loaded.classes_)] if len(loaded.classes_) <= z.shape[1] else np.resize(z, (8, len(loaded.classes_)))
    scores = np.exp(z - z.max(1, keepdims=True))
    scores = z if loaded.kind_ == "logits" else scores / scores.sum(1, keepdims=True)
    scores = np.log(np.maximum(scores, 1e-30)) if loaded.kind_ == "log_probs" else scores
    probs = counts.attempt(what, lambda: loaded.predict_proba(scores))
    if probs is REFUSED or not counts.check_finite(what, probs):
        return
    counts.check(f"{what}: probabilities", (probs >= 0).all() and np.allclose(probs.sum(1), 1, atol=1e-9))
    if loaded.keeps_decision:
        counts.check(f"{what}: decision", np.array_equal(probs.argmax(1), scores.argmax(1)))
    counts.check(f"{what}: mix and size", sensible_rest(loaded))
    decided = None if loaded.policy_ is None else counts.attempt(what, lambda: loaded.decide(scores))
    if decided is REFUSED:
        return
    if decided is not None:
        counts.check(f"{what}: decisions", set(decided.action) <= {"automate", "review", "abstain"})
        counts.check(f"{what}: labels", bool(np.isin(decided.label, loaded.classes_).all()))
    loaded.save(path)
    again = counts.attempt(f"{what}: saved again", lambda: rhocal.load(path).predict_proba(scores))
    counts.check(f"{what}: saved again", again is not REFUSED and np.array_equal(again, probs))


def rest(cal, z):
    """What an artifact says beside its map, in a form that can be compared."""
    decided = None if cal.policy_ is None else cal.decide(z)
    about = None
    if decided is not None:
        sets = None if decided.sets is None else decided.sets.tolist()
        about = decided.column.tolist(), decided.action.tolist(), sets, cal.policy_.sentence
    return str(cal.label_shares_), cal.n_samples_, cal.columns_, cal.positive_, about


def sensible_rest(cal):
    """Whether the mix of classes and the size of the calibration set can be those of a calibration set."""
    shares = cal.label_shares_
    is_mix = shares is None or ((shares >= 0).all() and abs(shares.sum() - 1) < 1e-6)
    return bool(is_mix) and (cal.n_samples_ is None or cal.n_samples_ >= 1)


def damage(rng, original, path):
    """Change bytes."""
    content = bytearray(original.read_bytes())
    at = int(rng.integers(len(content)))
    kind = rng.choice(["bit", "byte", "bytes", "cut", "insert", "repeat", "zeros", "header length", "digit"])
    if kind == "bit":
        content[at] ^= 1 << int(rng.integers(8))
    elif kind == "byte":
        content[at] = int(rng.integers(256))
    elif kind == "bytes":
        for k in rng.integers(len(content), size=5):
            content[k] = int(rng.integers(256))
    elif kind == "cut":
        del content[at:]
    elif kind == "insert":
        content[at:at] = rng.bytes(int(rng.integers(1, 9)))
    elif kind == "repeat":
        content[at:at] = content[at : at + 16]
    elif kind == "zeros":
        content[at : at + 8] = bytes(len(content[at : at + 8]))
    elif kind == "header length":
        content[:8] = struct.pack("<Q", int(rng.choice([0, 1, len(content), 2**40, 2**63])))
    else:
        digits = [k for k, byte in enumerate(content) if 48 <= byte < 58]
        content[rng.choice(digits)] = int(rng.integers(48, 58))
    path.write_bytes(content)
    return f"{kind} at {at} of {len(content)}"


def rewrite(rng, original, path):
    """Change parameters or the description, and compute the checksum again."""
    with safe_open(original, framework="numpy") as file:
        card = json.loads(file.metadata()["rhocal"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    what = change_tensor(rng, tensors) if rng.random() < 0.7 else change_card(rng, card)
    card["checksum"] = checksum(card, tensors)
    save_file(tensors, path, metadata={"rhocal": json.dumps(card)})
    return what


def change_tensor(rng, tensors):  # noqa: C901 - a list of changes
    """Change one tensor in place."""
    name = str(rng.choice(list(tensors)))
    value = tensors[name]
    kind = rng.choice(["entry", "all", "scaled", "noise", "shape", "type", "gone", "new", "swap", "sorted"])
    if kind == "entry" and value.size:
        value = value.copy()
        value.flat[rng.integers(value.size)] = draw(rng, value.dtype)
    elif kind == "all":
        value = np.full_like(value, draw(rng, value.dtype))
    elif kind == "scaled" and value.dtype.kind == "f":
        value = value * 10.0 ** rng.uniform(-160, 160)
    elif kind == "noise" and value.dtype.kind == "f":
        value = value + rng.normal(size=value.shape) * 10.0 ** rng.uniform(-6, 6)
    elif kind == "shape":
        value = np.resize(value, rng.integers(0, 5, size=rng.integers(4)))
    elif kind == "type":
        value = value.astype(rng.choice(["f2", "f4", "i8", "u1", "?"])) if np.isfinite(value).all() else value
    elif kind == "gone":
        del tensors[name]
        return f"{name} gone"
    elif kind == "new":
        tensors[f"new_{name}"] = value
    elif kind == "swap":
        other = str(rng.choice(list(tensors)))
        tensors[name], tensors[other] = tensors[other], tensors[name]
        return f"{name} and {other} swapped"
    elif kind == "sorted":
        value = np.sort(value, axis=None).reshape(value.shape)[..., ::-1] if value.ndim else value
    tensors[name] = np.array(value, order="C")
    return f"{kind} of {name}"


def draw(rng, dtype):
    """A number that the type can hold."""
    if dtype.kind == "f":
        return rng.choice(SPECIAL)
    return bool(rng.integers(2)) if dtype.kind == "b" else int(rng.choice([-(2**40), -1, 0, 1, 2, 3, 2**40]))


def change_card(rng, card):
    """Replace, remove or repeat one value somewhere in the description."""
    node, path = card, []
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            break
        key = keys[rng.integers(len(keys))]
        path.append(str(key))
        child = node[key]
        if not (isinstance(child, dict | list) and child and rng.random() < 0.7):
            if rng.random() < 0.2:
                del node[key]
            else:
                node[key] = random_json(rng)
            break
        node = child
    return f"card {'.'.join(path)}"


def random_json(rng):
    """Any value that JSON has."""
    values = [None, True, 0, 1, -1, 2, 10**30, 1.5, float("nan"), float("inf"), "", "x", "logits", "temperature"]
    values += [[], {}, [0, 1], ["a", "b"]]
    values += [{"method": "temperature", "options": {}}, [[1]], "sms:field", "a:b:c", ":", "__class__"]
    return values[rng.integers(len(values))]
