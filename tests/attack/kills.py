"""Kills at random moments: ``fit``, ``apply``, ``compare`` and ``monitor`` are killed and started again until they finish.

What a command that was killed leaves is nothing, or what a later run continues; the result is the one of a run that nobody
disturbed, byte for byte (without the times of a comparison).
"""

from __future__ import annotations

import csv
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from tests.attack import Counts, rounds
from tests.attack._processes import MEMORY, kill, start, wait
from tests.attack._processes import run as run_command

import rhocal

COMMANDS = ("fit", "apply", "compare", "monitor")
MAX_KILLS = 5
"""Kills of one run before it may finish."""

N_BLOCKS = 8


def run(rng_seed, seconds, commands=COMMANDS):
    """Attack until the seconds are over."""
    counts = Counts()
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        attacks = {name: ATTACKS[name](Path(folder)) for name in commands}
        for rng in rounds(rng_seed, seconds):
            for attack in attacks.values():
                attack.attempt(counts, rng)
    return counts


class Attack:
    """A command, what it wrote undisturbed, and how long that took."""

    name = ""

    def __init__(self, folder):
        self.folder = folder / self.name
        self.folder.mkdir()
        self.prepare()
        begun = time.monotonic()
        assert run_command(self.command()) in {0, 1}
        self.seconds = time.monotonic() - begun
        self.expected = self.result()
        self.clean()

    def attempt(self, counts, rng):
        """Kill the command a few times, let it finish, and compare."""
        for _ in range(int(rng.integers(1, MAX_KILLS))):
            process = start(self.command())
            time.sleep(float(rng.random() * 1.2 * self.seconds))
            kill(process)
            counts.calls += 1
            counts.check(f"{self.name}: a torn file after a kill", self.is_whole())
        code = wait(start(self.command()))
        counts.calls += 1
        if code is None:
            counts.crashes += 1
            counts.check(f"{self.name}: does not end", holds=False)
        else:
            counts.check(f"{self.name}: exit code {code} after a kill", code in {0, 1})
            counts.check(f"{self.name}: another result after a kill", self.result() == self.expected)
        self.clean()

    def is_whole(self):
        """Whether the output, if it is there, is that of a run that nobody disturbed; what grows row by row is not asked."""
        return True

    def clean(self):
        """Remove what was written."""
        for path in self.folder.glob("*out*"):
            path.unlink()
        for path in self.folder.glob(".*"):
            path.unlink()


class Apply(Attack):
    name = "apply"

    def prepare(self):
        logits, labels = scores(N_BLOCKS * 500, 40)
        parts = np.array_split(np.arange(len(labels)), N_BLOCKS)
        for k, rows in enumerate(parts):
            write_parquet(self.folder / f"in-{k:02d}.parquet", logits[rows], labels[rows])
        rhocal.TemperatureScaling().fit(logits, labels).save(self.folder / "c.safetensors")

    def command(self):
        return ["apply", self.folder / "c.safetensors", self.folder, "-o", self.folder / "out.safetensors"]

    def result(self):
        left = sorted(path.name for path in self.folder.glob(".*"))
        path = self.folder / "out.safetensors"
        return left, path.read_bytes() if path.exists() else None

    def is_whole(self):
        return self.result()[1] in {None, self.expected[1]}


class Fit(Attack):
    name = "fit"

    def prepare(self):
        logits, labels = scores(2000, 10)
        np.savez(self.folder / "in.npz", logits=logits, labels=labels)

    def command(self):
        return ["fit", self.folder / "in.npz", "-m", "svs:field", "-o", self.folder / "out.safetensors"]

    def result(self):
        path = self.folder / "out.safetensors"
        return path.read_bytes() if path.exists() else None

    def is_whole(self):
        return self.result() in {None, self.expected}


class Compare(Attack):
    name = "compare"

    def prepare(self):
        for k in range(2):
            logits, labels = scores(200, 3, seed=k)
            np.savez(self.folder / f"in{k}.npz", logits=logits, labels=labels)

    def command(self):
        paths = sorted(self.folder.glob("in*.npz"))
        options = ["--methods", "identity,temperature,histogram-binning", "--seeds", "2"]
        return ["compare", *paths, *options, "-o", self.folder / "out.csv", "--resume"]

    def result(self):
        path = self.folder / "out.csv"
        if not path.exists():
            return None
        with path.open(newline="", encoding="utf-8") as file:
            return [
                {name: value for name, value in row.items() if "seconds" not in name} for row in csv.DictReader(file)
            ]


class Monitor(Attack):
    name = "monitor"

    def prepare(self):
        for k in range(N_BLOCKS):
            logits, labels = scores(200, 4, seed=k)
            write_parquet(self.folder / f"in-{k:02d}.parquet", logits, labels, rows=100)

    def command(self):
        return ["monitor", self.folder, "-s", self.folder / "out.json"]

    def result(self):
        path = self.folder / "out.json"
        return json.loads(path.read_text()) if path.exists() else None


ATTACKS = {"fit": Fit, "apply": Apply, "compare": Compare, "monitor": Monitor}


def scores(n, m, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, m)).astype(np.float32) * 2
    return logits, (logits + rng.gumbel(size=(n, m))).argmax(axis=1)


def write_parquet(path, logits, labels, rows=1000):
    import pyarrow as pa
    from pyarrow import parquet

    lists = pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), logits.shape[1])
    parquet.write_table(pa.table({"logits": lists, "labels": labels}), path, row_group_size=rows)
