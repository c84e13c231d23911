"""Mutated files of every format: read block by block, in memory and by the format's own library.

A mutated file is refused with an error of ours however it is read, or every way of reading it gives the same bits. The library
of the format may accept what we refuse; what it refuses we refuse too.
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
from tests.attack import MEMORY, REFUSED, Counts, rounds

from rhocal.data.formats import base
from rhocal.data.formats.base import Names
from rhocal.data.predictions import Predictions
from rhocal.data.sources import as_source
from rhocal.data.spec import InputSpec
from rhocal.data.streams import open_split

FORMATS = ("npz", "compressed npz", "npy", "csv", "jsonl", "parquet", "safetensors")
READ_WHOLE = {"csv", "jsonl"}
"""Formats without a known place of rows: reading them block by block is refused."""

BLOCK_ENTRIES = 64
"""Small blocks, so that small files have several."""

N_MUTATIONS = 20
"""Mutations of each file."""


def run(rng_seed, seconds, formats=FORMATS):
    """Attack until the seconds are over."""
    counts = Counts()
    entries, base.BLOCK_ENTRIES = base.BLOCK_ENTRIES, BLOCK_ENTRIES
    try:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for rng in rounds(rng_seed, seconds):
                for form in formats:
                    attack_file(counts, rng, Path(folder), form)
    finally:
        base.BLOCK_ENTRIES = entries
    return counts


def attack_file(counts, rng, folder, form, n_mutations=N_MUTATIONS):
    """Write a file, and read mutations of it in every way."""
    path = folder / f"x.{form.split()[-1]}"
    content = write_file(rng, path, form)
    for k in range(n_mutations):
        changed, what = (content, "unchanged") if k == 0 else mutate(rng, content, form)
        path.write_bytes(changed)
        counts.cases[f"mutated {form}"] += k > 0
        compare(counts, path, form, f"{form}, {what}", is_unchanged=k == 0)


def compare(counts, path, form, what, *, is_unchanged=False):
    """Read a file in every way and count what differs."""
    in_memory = counts.attempt(f"{what}, in memory", lambda: read(path, resident=True))
    streamed = counts.attempt(f"{what}, block by block", lambda: read(path, resident=False))
    if is_unchanged:
        counts.check(f"{what}: refused", in_memory is not REFUSED)
    want = REFUSED if form in READ_WHOLE else in_memory
    counts.check(f"{what}: in memory and block by block differ", is_same(want, streamed))
    if in_memory is not REFUSED:
        other = reference(path, form)
        how = "refused by" if other is REFUSED else "differs from"
        counts.check(f"{what}: {how} the format's own library", is_same(in_memory, other))


def read(path, *, resident):
    """Validated scores and labels as columns, with the names of the columns."""
    labels = path.with_name("labels.npy") if path.suffix == ".npy" else None
    source = as_source(open_split(path, Names(), "test", labels=labels, resident=resident))
    return numbers(list(source.map(lambda data: data)))


def numbers(parts):
    """Scores, labels and classes of validated blocks."""
    scores = np.concatenate([part.scores for part in parts])
    return scores.tobytes(), scores.shape, np.concatenate([p.labels for p in parts]).tolist(), parts[0].classes.tolist()


def reference(path, form):
    """The same from the format's own library, or REFUSED."""
    try:
        logits, labels, classes, columns = LIBRARIES[form.split()[-1]](path)
        spec = InputSpec(classes=classes, columns=columns)
        return numbers([Predictions.from_arrays(logits, labels, spec=spec)])
    except Exception:  # noqa: BLE001 - whatever it is, the library does not read this file
        return REFUSED


def is_same(one, other):
    """Whether both are refused, or both have the same bits."""
    return one is other if one is REFUSED or other is REFUSED else one == other


# --- files

NAMES = np.array(["zebra", "cat", "dog", "ox", "bee"])


def write_file(rng, path, form):
    """The bytes of a small file of random content."""
    n, m = int(rng.integers(8, 60)), int(rng.integers(2, 6))
    logits = rng.normal(size=(n, m)).astype(rng.choice(["f2", "f4", "f8"])) * 3
    codes = np.r_[np.arange(m), rng.integers(0, m, n - m)] if n >= m else rng.integers(0, m, n)
    has_names = bool(rng.integers(2))
    classes = NAMES[:m]
    labels = classes[codes] if has_names else codes.astype(rng.choice(["i8", "i4", "f8"]))
    WRITERS[form](rng, path, logits, labels, classes if has_names else None)
    return path.read_bytes()


def _write_npz(rng, path, logits, labels, classes, save=np.savez):
    named = {} if classes is None else {"classes": classes}
    save(path, logits=np.asfortranarray(logits) if rng.integers(4) == 0 else logits, labels=labels, **named)


def _write_compressed(_rng, path, logits, labels, classes):
    named = {} if classes is None else {"classes": classes}
    np.savez_compressed(path, logits=logits, labels=labels, **named)


def _write_npy(_rng, path, logits, labels, classes):
    np.save(path, logits)
    np.save(path.with_name("labels.npy"), labels if classes is None else np.arange(len(labels)) % len(classes))


def _write_csv(rng, path, logits, labels, classes):
    names = [f"logit_{k}" for k in range(logits.shape[1])] if classes is None else classes.tolist()
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=str(rng.choice([",", ";"])))
        writer.writerow([*names, "labels"])
        writer.writerows([*row, label] for row, label in zip(logits.tolist(), labels.tolist(), strict=True))


def _write_jsonl(rng, path, logits, labels, classes):
    if classes is None or rng.integers(2):
        rows = [{"logits": row} for row in logits.tolist()] if classes is None else _named_rows(logits, classes)
    else:
        rows = _named_rows(logits, classes)
    rows = [row | {"labels": label} for row, label in zip(rows, labels.tolist(), strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _named_rows(logits, classes):
    return [dict(zip(classes.tolist(), row, strict=True)) for row in logits.tolist()]


def _write_parquet(rng, path, logits, labels, classes):
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"logits": list(logits)}
    if classes is not None:
        columns = {str(name): logits[:, k] for k, name in enumerate(classes)}
    compression = str(rng.choice(["none", "snappy", "zstd"]))
    checksums = bool(rng.integers(2))
    table = pa.table({**columns, "labels": labels})
    parquet.write_table(table, path, row_group_size=16, compression=compression, write_page_checksum=checksums)


def _write_safetensors(_rng, path, logits, labels, classes):
    from safetensors.numpy import save_file

    codes = labels if classes is None else np.argsort(np.argsort(classes))[np.arange(len(labels)) % len(classes)]
    metadata = None if classes is None else {"classes": json.dumps(classes.tolist())}
    save_file({"logits": logits, "labels": np.ascontiguousarray(codes)}, path, metadata=metadata)


WRITERS = {
    "npz": _write_npz,
    "compressed npz": _write_compressed,
    "npy": _write_npy,
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
    "safetensors": _write_safetensors,
}


# --- mutations


def mutate(rng, content, form):
    """Changed bytes, and what was changed."""
    kind = str(rng.choice([*MUTATIONS, *(TEXT_MUTATIONS if form in {"csv", "jsonl", "safetensors", "npy"} else ())]))
    changed = (MUTATIONS | TEXT_MUTATIONS)[kind](rng, bytearray(content))
    return bytes(changed), kind


def _place(rng, content):
    """A place anywhere, or near an end, where headers are."""
    near = min(len(content), 600)
    places = (rng.integers(len(content)), rng.integers(near), len(content) - 1 - rng.integers(near))
    return int(places[rng.integers(3)])


def _flip(rng, content):
    content[_place(rng, content)] ^= 1 << int(rng.integers(8))
    return content


def _set(rng, content):
    for _ in range(int(rng.integers(1, 6))):
        content[_place(rng, content)] = int(rng.choice([0, 255, 1, 127, 128, int(rng.integers(256))]))
    return content


def _cut(rng, content):
    return content[: _place(rng, content)]


def _remove(rng, content):
    start = _place(rng, content)
    del content[start : start + int(rng.integers(1, 20))]
    return content


def _insert(rng, content):
    start = _place(rng, content)
    content[start:start] = rng.bytes(int(rng.integers(1, 20)))
    return content


def _append(rng, content):
    return content + rng.bytes(int(rng.integers(1, 64)))


def _swap(rng, content):
    size = int(rng.integers(1, 33))
    a, b = _place(rng, content), _place(rng, content)
    one, other = content[a : a + size], content[b : b + size]
    if len(one) == len(other):
        content[a : a + size], content[b : b + size] = other, one
    return content


def _digit(rng, content):
    """Another digit in the place of one: shapes, offsets, labels."""
    places = [k for k, byte in enumerate(content[:4000]) if 48 <= byte < 58]
    if places:
        content[int(rng.choice(places))] = 48 + int(rng.integers(10))
    return content


def _sign(rng, content):
    places = [k for k, byte in enumerate(content[:4000]) if 48 <= byte < 58]
    if places:
        content[int(rng.choice(places))] = int(rng.choice(list(b"-_. eE,;\"'")))
    return content


def _lines(rng, content):
    """Two lines in each other's place, or one twice."""
    lines = bytes(content).split(b"\n")
    a, b = rng.integers(len(lines), size=2)
    lines[a], lines[b] = (lines[b], lines[a]) if rng.integers(2) else (lines[b], lines[b])
    return bytearray(b"\n".join(lines))


MUTATIONS = {
    "a bit": _flip,
    "bytes": _set,
    "cut": _cut,
    "removed": _remove,
    "inserted": _insert,
    "appended": _append,
    "swapped": _swap,
}
TEXT_MUTATIONS = {"a digit": _digit, "a sign": _sign, "lines": _lines}


# --- the libraries of the formats: logits, labels, classes, columns


def _by_numpy(path):
    with np.load(path, allow_pickle=False) as file:
        return file["logits"], file["labels"], file.get("classes"), None


def _by_numpy_npy(path):
    return np.load(path, allow_pickle=False), np.load(path.with_name("labels.npy")), None, None


def _by_csv(path):
    text = path.read_bytes().decode("utf-8-sig")
    separator = max(",;\t", key=text.partition("\n")[0].count)
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row]
    return _table([dict(zip(map(str.strip, header), row, strict=True)) for row in rows], text=True)


def _by_json(path):
    text = path.read_bytes().decode("utf-8-sig")
    rows = [json.loads(line) for line in text.split("\n") if line.strip()]
    if "logits" in rows[0]:
        return np.array([row["logits"] for row in rows]), np.array([row["labels"] for row in rows]), None, None
    return _table(rows)


def _table(rows, *, text=False):
    names = [name for name in rows[0] if name != "labels"]
    point = (lambda value: value.replace(",", ".")) if text else (lambda value: value)
    logits = np.array([[float(point(row[name])) for name in names] for row in rows])
    labels = [row["labels"] for row in rows]
    if text:
        with suppress(ValueError):
            labels = [float(point(label)) for label in labels]
    return logits, np.array(labels), None, tuple(names)


def _by_pyarrow(path):
    from pyarrow import parquet

    table = parquet.read_table(path, page_checksum_verification=True)
    labels = table.column("labels").to_numpy()
    if "logits" in table.column_names:
        return np.array(table.column("logits").to_pylist(), _list_type(table)), labels, None, None
    names = tuple(name for name in table.column_names if name != "labels")
    return np.column_stack([table.column(name).to_numpy() for name in names]), labels, None, names


def _list_type(table):
    return table.schema.field("logits").type.value_type.to_pandas_dtype()


def _by_safetensors(path):
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        classes = (file.metadata() or {}).get("classes")
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    return arrays["logits"], arrays["labels"], None if classes is None else np.array(json.loads(classes)), None


LIBRARIES = {
    "npz": _by_numpy,
    "npy": _by_numpy_npy,
    "csv": _by_csv,
    "jsonl": _by_json,
    "parquet": _by_pyarrow,
    "safetensors": _by_safetensors,
}
