"""Kills at random moments: five commands are killed and started again until they finish.

What a command that was killed leaves is nothing, or what a later run continues; the result is the one of a run that nobody
disturbed, byte for byte (without the times of a comparison or of an epoch). ``rhocal-paper train`` needs torch.
"""

from __future__ import annotations

import csv
import json
import shutil
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import typer
from tests.attack import MEMORY, Counts, rounds
from tests.attack._processes import COMMAND, kill, start, wait
from tests.attack._processes import run as run_command

import rhocal

HAS_TRAINING = find_spec("torch") is not None and find_spec("rhocal_paper") is not None
COMMANDS = ("fit", "apply", "compare", "monitor")
SLOW_COMMANDS = ("late-monitor", *(["train"] if HAS_TRAINING else []))
MIN_SECONDS = 10.0
"""From which on slow commands are attacked too."""
MAX_KILLS = 5
"""Kills of one run before it may finish."""

N_BLOCKS = 8


def run(rng_seed, seconds, commands=None):
    """Attack until the seconds are over."""
    counts = Counts()
    commands = commands or (*COMMANDS, *(SLOW_COMMANDS if seconds >= MIN_SECONDS else ()))
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        attacks = {name: ATTACKS[name](Path(folder)) for name in commands}
        for rng in rounds(rng_seed, seconds):
            for attack in attacks.values():
                attack.attempt(counts, rng)
    return counts


class Attack:
    """A command, what it wrote undisturbed, and how long that took."""

    name = ""
    program = COMMAND

    def __init__(self, folder):
        self.folder = folder / self.name
        self.folder.mkdir()
        self.prepare()
        begun = time.monotonic()
        assert run_command(self.command(), command=self.program) in {0, 1}
        self.seconds = time.monotonic() - begun
        self.expected = self.result()
        self.clean()

    def attempt(self, counts, rng):
        """Kill the command a few times, let it finish, and compare."""
        for _ in range(int(rng.integers(1, MAX_KILLS))):
            process = start(self.command(), command=self.program)
            time.sleep(float(rng.random() * 1.2 * self.seconds))
            kill(process)
            counts.calls += 1
            counts.cases[f"kills of {self.name}"] += 1
            counts.check(f"{self.name}: a torn file after a kill", self.is_whole())
        code = wait(start(self.command(), command=self.program))
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
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in self.folder.glob(".*"):
            path.unlink()


class Apply(Attack):
    name = "apply"

    def prepare(self):
        logits, labels = scores(N_BLOCKS * 500, 40)
        parts = np.array_split(np.arange(len(labels)), N_BLOCKS)
        (self.folder / "parts").mkdir()
        for k, rows in enumerate(parts):
            write_parquet(self.folder / "parts" / f"in-{k:02d}.parquet", logits[rows], labels[rows])
        rhocal.TemperatureScaling().fit(logits, labels).save(self.folder / "c.safetensors")

    def command(self):
        return ["apply", self.folder / "c.safetensors", self.folder / "parts", "-o", self.folder / "out.safetensors"]

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
        return rows_without_times(self.folder / "out.csv")


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


class LateMonitor(Attack):
    """A monitor whose labels come in files of their own."""

    name = "late-monitor"

    def prepare(self):
        for k in range(N_BLOCKS):
            logits, labels = scores(200, 4, seed=k)
            ids = [f"{k}-{row}" for row in range(200)]
            write_parquet(self.folder / f"in-{k:02d}.parquet", logits, labels, rows=100, id=ids)
            write_parquet(self.folder / "labels" / f"{k:02d}.parquet", logits[::2], labels[::2], id=ids[::2])

    def command(self):
        late = ["--labels-from", self.folder / "labels"]
        return ["monitor", self.folder, "-s", self.folder / "out.json", *late]

    def result(self):
        path = self.folder / "out.json"
        return json.loads(path.read_text()) if path.exists() else None


class Train(Attack):
    """A network of 4 channels on 24 pictures: what counts is what lies between an epoch, its checkpoint and its files."""

    name = "train"

    def prepare(self):
        from PIL import Image

        from rhocal_paper.cli import app
        from rhocal_paper.train import run

        self.program = typer.main.get_command(app)
        run.torch.set_num_threads(1)  # a forked process has no threads of its parent
        rng = np.random.default_rng(0)
        for split, n in (("train", 8), ("val", 2), ("test", 2)):
            for label in ("low", "high"):
                folder = self.folder / "pictures" / split / label
                folder.mkdir(parents=True)
                for k in range(n):
                    pixels = rng.integers(0, 255, (8, 8, 3), np.uint8)
                    Image.fromarray(pixels).save(folder / f"{k}.png")

    def command(self):
        options = ["--width", 2, "--epochs", 6, "--batch-size", 8, "--device", "cpu", "--keep", "nll", "--resume"]
        data = ["--data", self.folder / "pictures", "--model", "resnet18"]
        return ["train", *data, *options, "-o", self.folder / "out"]

    def result(self):
        out = self.folder / "out"
        logits, card = out / "logits.npz", out / "run.json"
        return (
            logits.read_bytes() if logits.exists() else None,
            json.loads(card.read_text()) if card.exists() else None,
            rows_without_times(out / "log.csv"),
        )

    def is_whole(self):
        return self.result()[0] in {None, self.expected[0]}


ATTACKS = {attack.name: attack for attack in (Fit, Apply, Compare, Monitor, LateMonitor, Train)}


def rows_without_times(path):
    if not path.exists():
        return None
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: value for name, value in row.items() if "seconds" not in name} for row in csv.DictReader(file)]


def scores(n, m, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, m)).astype(np.float32) * 2
    return logits, (logits + rng.gumbel(size=(n, m))).argmax(axis=1)


def write_parquet(path, logits, labels, rows=1000, **columns):
    import pyarrow as pa
    from pyarrow import parquet

    path.parent.mkdir(exist_ok=True)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), logits.shape[1])
    parquet.write_table(pa.table({"logits": lists, "labels": labels, **columns}), path, row_group_size=rows)
