"""Whole files with odd contents: labels of every type, weights, names, masks; read in memory and block by block.

Both are refused with an error of ours, or give the same samples (those of weight 0 count nowhere).
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from tests.attack import MEMORY, REFUSED, Counts, rounds

from rhocal.data.formats import base, write_arrays
from rhocal.data.formats.base import Names
from rhocal.data.sources import as_source
from rhocal.data.spec import InputSpec
from rhocal.data.streams import open_split

NAMES = np.array(["zebra", "cat", "dog", "ox", "bee"])
BLOCK_ENTRIES = 40
FORMATS = ("npz", "compressed", "safetensors", "lists", "columns")

LABELS = (
    lambda y, _: y,
    lambda y, _: y.astype(float),
    lambda y, _: y + 0.5,
    lambda y, _: y.astype(str),
    lambda y, _: y.astype("S"),
    lambda y, _: NAMES[y],
    lambda y, _: y.astype(np.uint64),
    lambda y, _: y.astype(np.float16),
    lambda y, _: y.astype(bool),
    lambda y, _: y[:, None],
    lambda y, _: y + 1,
    lambda y, _: y[: max(1, len(y) - 1)],
    lambda y, _: NAMES[np.minimum(y, 1)],
    lambda y, rng: np.where(rng.random(len(y)) < 0.1, -100, y),
    lambda y, rng: np.where(rng.random(len(y)) < 0.1, np.nan, y),
)
WEIGHTS = (
    lambda n, rng: rng.random(n),
    lambda n, _: np.zeros(n),
    lambda n, rng: rng.integers(0, 2, n),
    lambda n, rng: -rng.random(n),
    lambda n, rng: np.where(rng.random(n) < 0.1, np.nan, 1),
)


def run(rng_seed, seconds):
    """Attack until the seconds are over."""
    counts = Counts()
    entries, base.BLOCK_ENTRIES = base.BLOCK_ENTRIES, BLOCK_ENTRIES
    try:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for rng in rounds(rng_seed, seconds):
                attack_content(counts, rng, Path(folder))
    finally:
        base.BLOCK_ENTRIES = entries
    return counts


def attack_content(counts, rng, folder):
    """Write a file and read it in both ways."""
    arrays, names, spec = contents(rng)
    form = str(rng.choice(FORMATS))
    try:
        path = write(rng, folder, form, arrays)
    except (ValueError, TypeError, pa.ArrowException):
        return  # the format has no place for this
    what = f"{form}, labels {arrays['labels'].dtype} {arrays['labels'].shape}, classes {spec.classes}"
    one, other = (
        counts.attempt(f"{what}, {how}", lambda resident=resident: read(path, names, spec, resident=resident))
        for how, resident in (("in memory", True), ("block by block", False))
    )
    is_same = one is other if REFUSED in (one, other) else one == other
    counts.check(f"{what}: in memory and block by block differ", is_same)


def contents(rng):
    """Arrays, their names, and what is stated about them."""
    n, m = int(rng.integers(1, 60)), int(rng.integers(1, 6))
    logits = rng.normal(size=(n, m)).astype(rng.choice(["f2", "f4", "f8"]))
    if rng.random() < 0.1:
        logits[rng.integers(n), rng.integers(m)] = rng.choice([np.nan, np.inf, -np.inf])
    arrays = {"logits": logits, "labels": LABELS[rng.integers(len(LABELS))](rng.integers(0, m, n), rng)}
    if rng.random() < 0.3:
        choices = (NAMES[:m], np.arange(m)[::-1], NAMES[:m].astype("S"), NAMES[: max(m - 1, 1)])
        arrays["classes"] = choices[rng.integers(4)]
    names = Names()
    if rng.random() < 0.3:
        arrays["w"], names = WEIGHTS[rng.integers(len(WEIGHTS))](n, rng), Names(weights="w")
    classes = (None, None, NAMES[:m], np.arange(m), NAMES[:m][::-1])[rng.integers(5)]
    ignored, positive = (None, -100)[rng.integers(2)], (None, None, None, 0, "cat")[rng.integers(5)]
    return arrays, names, InputSpec(ignore_index=ignored, classes=classes, positive=positive)


def write(rng, folder, form, arrays):
    """Write arrays in a format."""
    if form in {"npz", "compressed"}:
        (np.savez if form == "npz" else np.savez_compressed)(folder / "x.npz", **arrays)
        return folder / "x.npz"
    if form == "safetensors":
        write_arrays(folder / "x.safetensors", arrays)
        return folder / "x.safetensors"
    logits = arrays["logits"]
    beside = {name: values for name, values in arrays.items() if name not in {"logits", "classes"}}
    columns = {"logits": list(logits)} if form == "lists" else dict(zip(NAMES.tolist(), logits.T, strict=False))
    parquet.write_table(pa.table({**columns, **beside}), folder / "x.parquet", row_group_size=int(rng.integers(1, 30)))
    return folder / "x.parquet"


def read(path, names, spec, *, resident):
    """The samples that count: scores, labels, weights; and the names of the columns."""
    parts = list(as_source(open_split(path, names, "test", resident=resident), spec=spec).map(lambda data: data))
    scores, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("scores", "labels"))
    if parts[0].weights is None:
        return scores.tobytes(), labels.tolist(), parts[0].classes.tolist()
    weights = np.concatenate([part.weights for part in parts])
    kept = weights > 0
    return scores[kept].tobytes(), labels[kept].tolist(), parts[0].classes.tolist(), weights[kept].tolist()
