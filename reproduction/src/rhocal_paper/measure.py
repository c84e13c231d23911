"""The rows of a table: every column of it on random cuts of every network, going on where an earlier run stopped."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rhocal.data.files import read
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.data.storage.content import content_key
from rhocal.errors import FileError
from rhocal.evaluation.compare import CalibrationSplit, compare, file_sources, network_name, random_split, run
from rhocal.evaluation.rows import Row, read_rows, write_rows
from rhocal.metrics.spread import divergences
from rhocal_paper import GRIDS, OPEN_CHOICES
from rhocal_paper.grid import OFFICIAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rhocal.data.files import Contents
    from rhocal.numerics.special import Floats
    from rhocal_paper.grid import Grid


SECONDS_BETWEEN_WRITES = 2.0
"""Of the rows of a table, all of which are written again each time; a crash loses what came after."""


def draws(contents: Contents, n_seeds: int) -> list[CalibrationSplit]:
    """One random cut for each seed.

    A tune and a test set are put together and cut again, at their own sizes: both were held out of training. So a network
    with such sets has a spread over splits as the others have.
    """
    first = contents.calibration_set()
    parts = [first, contents.test_set()] if contents.has_splits else [first]
    logits, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("scores", "labels"))
    whole = Predictions.from_arrays(logits, labels, spec=InputSpec(classes=contents.classes))
    n_calibration = first.n_rows if len(parts) > 1 else None
    return [random_split(whole, seed, n_calibration) for seed in range(n_seeds)]


def official(contents: Contents) -> CalibrationSplit:
    """The calibration and the test set as the data has them: fit on one, report on the other."""
    if not contents.has_splits:
        raise FileError(
            f"{contents.file.path}: one set of logits; the official split needs a calibration and a test set"
        )
    source, test = file_sources(contents)
    assert test is not None
    return CalibrationSplit(OFFICIAL, source, test)


def training_seed(path: Path) -> int:
    """The seed that a run was trained with, so that fits by mini-batches draw as the paper's five runs do."""
    card = path.parent / "run.json"
    return int(json.loads(card.read_text(encoding="utf-8")).get("seed", 0)) if card.is_file() else 0


def moved(calibrated: Floats, raw: Floats) -> dict[str, float]:
    """KL(g‖s) and KL(s‖g), means over samples and classes, which is what fits the published values."""
    m = raw.shape[1]
    return {
        "kl_to_base": float(divergences(calibrated, raw).mean()) / m,
        "kl_from_base": float(divergences(raw, calibrated).mean()) / m,
    }


@dataclass(frozen=True)
class PaperTask:
    """Some columns of a table on one cut of one file."""

    table: int
    path: Path
    seed: int | None
    """None for the official split."""
    methods: tuple[str, ...]

    def rows(self) -> Iterator[Row]:
        """Fit and measure."""
        contents = read(self.path)
        if self.seed is None:
            split, seed = official(contents), training_seed(self.path)
        else:
            split, seed = draws(contents, self.seed + 1)[self.seed], self.seed
        key = content_key(self.path, [], None) if self.seed is None else ""
        raw = split.test.predictions.logits
        entries = {**GRIDS, OPEN_CHOICES.table: OPEN_CHOICES}[self.table].entries
        for name in self.methods:
            cals = {name: entries[name].make(seed)}
            for row in compare(network_name(self.path), [(split, cals)]):
                extra = {} if row.failed else moved(cals[name].transform(raw), raw)
                yield replace(row, values=row.values | extra, data=key)


def split_names(n_seeds: int | None) -> dict[str, int | None]:
    """The names of the splits of a table, with their seeds; None is the official split."""
    return {OFFICIAL: None} if n_seeds is None else {f"seed {seed}": seed for seed in range(n_seeds)}


def tasks(grid: Grid, paths: Sequence[Path], n_seeds: int | None, done: Sequence[Row] = ()) -> list[PaperTask]:
    """What is left to do."""
    known = {(row.network, row.split, row.method) for row in done}
    missing = []
    for path in paths:
        for split, seed in split_names(n_seeds).items():
            key = network_name(path), split
            left = tuple(name for name in grid.entries if (*key, name) not in known)
            if left:
                missing.append(PaperTask(grid.table, path, seed, left))
    return missing


def current(rows: Sequence[Row], paths: Sequence[Path]) -> list[Row]:
    """Rows that were measured on the files as they are; those that do not say what they were measured on are kept."""
    keys = {network_name(path): content_key(path, [], None) for path in paths}
    return [row for row in rows if not row.data or keys.get(row.network, row.data) == row.data]


def old_rows(output: Path | None) -> list[Row]:
    """What an earlier run wrote."""
    return [Row.from_flat(row) for row in read_rows(output)] if output is not None and output.is_file() else []


def measure(
    grid: Grid, paths: Sequence[Path], *, n_seeds: int | None, n_jobs: int = 1, output: Path | None = None,
    before: Sequence[Row] = (), step: Callable[[Row], None] | None = None,
) -> list[Row]:  # fmt: skip
    """All rows of a table on these files, and those of before; with an output they are written as they come."""
    methods, splits = list(grid.entries), split_names(n_seeds)
    kept = [row for row in before if row.method in methods and row.split in splits]
    names = list(dict.fromkeys([*(network_name(path) for path in paths), *(row.network for row in kept)]))

    def ordered() -> list[Row]:
        return sorted(kept, key=lambda row: (names.index(row.network), row.split, methods.index(row.method)))

    def write() -> None:
        if output is not None:
            write_rows(output, [row.flat() for row in ordered()])

    written = time.monotonic()
    for new in run(tasks(grid, paths, n_seeds, kept), n_jobs):
        kept += new
        for row in new:
            if step is not None:
                step(row)
        if time.monotonic() > written + SECONDS_BETWEEN_WRITES:
            write()
            written = time.monotonic()
    write()
    return ordered()
