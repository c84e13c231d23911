"""Logs of language models with changed lines: every reader of a log, strict and with ``skip_bad``.

What is read strictly is read with ``skip_bad`` too, with the same bits. Of a log with bad lines ``skip_bad`` gives what the
file without these lines gives. Compressed, with carriage returns, or in another order a log is the same log. A damaged archive
is refused, or read with the same bits.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from tests.attack import MEMORY, REFUSED, Counts, rounds
from tests.attack.artifacts import change_card
from tests.attack.files import MUTATIONS

import rhocal

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
LINES = ("samples_lists.jsonl", "chat_completions.jsonl", "completions.jsonl", "responses.jsonl", "answers", "options")
ARCHIVES = ("inspect_letters.eval", "inspect_sums.eval")
N_MUTATIONS = 10


def run(rng_seed, seconds):
    """Attack until the seconds are over."""
    counts = Counts()
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rng in rounds(rng_seed, seconds):
            for name in LINES:
                for _ in range(N_MUTATIONS):
                    attack_lines(counts, rng, Path(folder) / "x.jsonl", name)
            for name in ARCHIVES:
                for _ in range(N_MUTATIONS):
                    attack_archive(counts, rng, Path(folder) / "x.eval", name)
    return counts


@cache
def lines_of(name):
    """The objects of a log: a shipped sample, or drawn answers and questions."""
    rng = np.random.default_rng(0)
    if name == "answers":
        confidences = rng.random(12).round(3).tolist()
        return [
            {"question_id": f"q{k % 7}", "confidence": p, "correct": bool(k % 3)} for k, p in enumerate(confidences)
        ]
    if name == "options":
        scores = rng.normal(size=(12, 3)).round(3)
        rows = [
            {"options": list("xyz"), "logprobs": row, "answer": "xyz"[k % 3]} for k, row in enumerate(scores.tolist())
        ]
        return [{"question_id": k} | row for k, row in enumerate(rows)]
    return [json.loads(line) for line in (SAMPLES / name).read_text(encoding="utf-8").splitlines()[:12]]


def read(path, *, skip_bad=False):
    """What a log holds, as values that can be compared, and the lines that were left out."""
    log = rhocal.read_log(path, skip_bad=skip_bad)
    labels = None if log.labels is None else log.labels.tolist()
    ids = None if log.question_id is None else log.question_id.tolist()
    ids = None if ids is None else [ids.index(name) for name in ids]  # a line without one gets a name of its own
    skipped = [int(re.search(r"(?:line|sample) (\d+):", text)[1]) for text in log.skipped]
    return (log.scores.tolist(), labels, ids, log.kind, log.holds_options, log.source), skipped


def text_of(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def attack_lines(counts, rng, path, name):
    """Change a few lines, and read the file in several ways."""
    rows = [json.loads(json.dumps(row)) for row in lines_of(name)]
    places = rng.permutation(len(rows))[: int(rng.integers(0, 3))]
    changes = [change_card(rng, rows[k]) for k in places]
    lines = text_of(rows).splitlines()
    if rng.random() < 0.3:
        lines[int(rng.integers(len(lines)))] = str(
            rng.choice(["{", "[]", "null", "3", '{"a": 1}', '{"a": 1, "a": 2}', "x"])
        )
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(content)
    what = f"{name}, {', '.join(changes) or 'unchanged'}"
    strict = counts.attempt(what, lambda: read(path))
    lenient = counts.attempt(f"{what}, skip_bad", lambda: read(path, skip_bad=True))
    if strict is not REFUSED:
        counts.check(f"{what}: skip_bad differs", lenient == strict and not lenient[1])
        check_values(counts, what, strict[0])
    elif lenient is not REFUSED:
        check_values(counts, what, lenient[0])
        counts.check(f"{what}: nothing is left out", bool(lenient[1]))
        path.write_text("\n".join(line for k, line in enumerate(lines, 1) if k not in lenient[1]) + "\n")
        again = counts.attempt(f"{what}, without lines {lenient[1]}", lambda: read(path))
        counts.check(f"{what}: without lines {lenient[1]}", again is not REFUSED and again[0] == lenient[0])
    if not changes and len(set(lines)) == len(lines) and lines == text_of(rows).splitlines():
        counts.check(f"{what}: refused", strict is not REFUSED)
    attack_forms(counts, rng, path, what, content, strict)


def attack_forms(counts, rng, path, what, content, strict):
    """The same lines compressed, with carriage returns, and in another order."""
    form = str(rng.choice(["gzip", "carriage returns", "byte order mark", "order"]))
    other, order = path, None
    if form == "gzip":
        other = path.with_suffix(".jsonl.gz")
        other.write_bytes(gzip.compress(content, 1))
    elif form == "carriage returns":
        path.write_bytes(content.replace(b"\n", b"\r\n"))
    elif form == "byte order mark":
        path.write_bytes(b"\xef\xbb\xbf" + content)
    else:
        lines = content.split(b"\n")[:-1]
        order = rng.permutation(len(lines))
        path.write_bytes(b"\n".join(lines[k] for k in order) + b"\n")
    found = counts.attempt(f"{what}, {form}", lambda: read(other))
    if strict is REFUSED or found is REFUSED:
        counts.check(f"{what}: {form}", strict is found)
        return
    want = strict[0]
    if order is not None:
        scores, labels, ids = (None if part is None else [part[k] for k in order] for part in want[:3])
        want = (scores, labels, None if ids is None else [ids.index(name) for name in ids], *want[3:])
    counts.check(f"{what}: {form}", found[0] == want)


def check_values(counts, what, values):
    """Scores are finite, labels are options."""
    scores, labels = np.array(values[0]), values[1]
    if counts.check_finite(what, scores) and labels is not None:
        highest = scores.shape[1] if values[4] else 2
        counts.check(f"{what}: labels", all(label in range(highest) for label in labels))


@cache
def archive(name):
    """The bytes of an archive and what it holds."""
    return (SAMPLES / name).read_bytes(), read(SAMPLES / name)[0]


def attack_archive(counts, rng, path, name):
    """Change bytes of an archive."""
    content, want = archive(name)
    kind = str(rng.choice(list(MUTATIONS)))
    path.write_bytes(bytes(MUTATIONS[kind](rng, bytearray(content))))
    found = counts.attempt(f"{name}, {kind}", lambda: read(path))
    counts.check(f"{name}, {kind}: differs", found is REFUSED or found[0] == want)
