"""Files that come, grow, move, rotate, vanish and return, late labels and kills: a monitor counts every row once.

A kill is an exception before or after the state is written. A file is not both moved and rewritten between two looks: its rows
are then other samples, as the documentation states.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from tests.attack import MEMORY, REFUSED, Counts, rounds
from typer.testing import CliRunner

from rhocal.cli import app
from rhocal.evaluation.monitor import Monitor

EVENTS = ("new", "grow", "rename", "rotate", "remove", "restore", "label", "look", "kill", "kill")


class KilledError(BaseException):
    """Ends a look as a kill does: nobody catches it."""


def run(rng_seed, seconds):
    """Attack until the seconds are over."""
    counts = Counts()
    for rng in rounds(rng_seed, seconds):
        for is_late in (False, True):
            with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
                walk = Walk(Path(folder), rng, is_late=is_late)
                what = "late labels" if is_late else "labels"
                values = counts.attempt(f"monitor, {what}", walk.run)
                if values is not REFUSED:
                    counts.check(f"monitor, {what}: {walk.events}", walk.is_right(values))
    return counts


class Walk:
    """A folder of predictions, and what happened to its files."""

    def __init__(self, folder, rng, *, is_late):
        self.folder, self.rng, self.is_late = folder, rng, is_late
        for name in ("in", "labels", "removed"):
            (folder / name).mkdir()
        self.scores, self.labels = [], []
        self.files, self.removed = {}, {}
        self.moved, self.rewritten = set(), set()
        self.waiting = []
        self.events = []
        self.n_names = 0

    def run(self):
        """Let some events happen, then look undisturbed at everything; the values of the monitor."""
        self.new()
        for _ in range(int(self.rng.integers(4, 16))):
            event = str(self.rng.choice(EVENTS))
            self.events.append(event)
            getattr(self, event)()
        for name in list(self.removed):
            self.restore(name)
        self.label(everything=True)
        return self.look()

    def is_right(self, values):
        """Whether every row is counted once, with its own label."""
        scores, labels = np.array(self.scores), np.array(self.labels)
        probs = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        means = (scores.argmax(axis=1) == labels).mean(), probs.max(axis=1).mean()
        return values["n_samples"] == len(labels) and np.allclose(
            [values["all"]["accuracy"], values["all"]["confidence"]], means, atol=1e-9
        )

    def rows(self):
        """Numbers of new rows."""
        first = len(self.scores)
        for scores in self.rng.normal(size=(int(self.rng.integers(1, 30)), 3)) * 2:
            self.scores.append(scores)
            self.labels.append(int((scores + self.rng.gumbel(size=3)).argmax()))
        rows = list(range(first, len(self.scores)))
        self.waiting += rows
        return rows

    def write(self, name):
        columns = {"id": self.files[name], "logits": [self.scores[row].tolist() for row in self.files[name]]}
        if not self.is_late:
            columns["labels"] = [self.labels[row] for row in self.files[name]]
        hidden = self.folder / "in" / f".{name}"
        parquet.write_table(pa.table(columns), hidden, row_group_size=int(self.rng.integers(3, 12)))
        hidden.rename(self.folder / "in" / name)

    def name(self):
        self.n_names += 1
        return f"{self.rng.integers(100)}-{self.n_names}.parquet"

    def any_of(self, names):
        return str(self.rng.choice(sorted(names))) if names else None

    def new(self, name=None):
        name = name or self.name()
        self.files[name] = self.rows()
        self.write(name)

    def grow(self):
        if name := self.any_of(set(self.files) - self.moved):
            self.files[name] += self.rows()
            self.write(name)
            self.rewritten.add(name)

    def rename(self):
        if name := self.any_of(set(self.files) - self.rewritten):
            target = self.name()
            (self.folder / "in" / name).rename(self.folder / "in" / target)
            self.files[target] = self.files.pop(name)
            self.moved |= {name, target}
            return name
        return None

    def rotate(self):
        if name := self.rename():
            self.new(name)

    def remove(self):
        if name := self.any_of(set(self.files) - self.rewritten):
            (self.folder / "in" / name).rename(self.folder / "removed" / name)
            self.removed[name] = self.files.pop(name)

    def restore(self, name=None):
        if name := name or self.any_of(self.removed):
            target = self.name() if name in self.files else name
            (self.folder / "removed" / name).rename(self.folder / "in" / target)
            self.files[target] = self.removed.pop(name)
            self.moved |= {name, target}

    def label(self, *, everything=False):
        if self.is_late and self.waiting:
            n = len(self.waiting) if everything else int(self.rng.integers(1, len(self.waiting) + 1))
            rows = self.rng.permutation(self.waiting)[:n].tolist()
            if self.rng.random() < 0.5:  # or they come again
                self.waiting = sorted(set(self.waiting) - set(rows))
            ids = [str(row) for row in rows] if self.rng.random() < 0.3 else rows
            table = pa.table({"id": ids, "labels": [self.labels[row] for row in rows]})
            parquet.write_table(table, self.folder / "labels" / self.name())

    def look(self):
        late = ["--labels-from", self.folder / "labels"] if self.is_late else []
        arguments = ["monitor", self.folder / "in", "-s", self.folder / "state.json", "--json", *late]
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.moved, self.rewritten = set(), set()
        return json.loads(result.stdout)

    def kill(self):
        """Look, and end before or after some batch is written."""
        left, is_written, save = int(self.rng.integers(0, 8)), bool(self.rng.random() < 0.5), Monitor.save

        def killed(watched, path):
            nonlocal left
            left -= 1
            if left >= 0 or is_written:
                save(watched, path)
            if left < 0:
                raise KilledError

        moved, rewritten = self.moved, self.rewritten
        with mock.patch.object(Monitor, "save", killed):
            try:
                self.look()
            except KilledError:
                self.moved, self.rewritten = moved, rewritten
