"""The rows of a table: every column of it on random cuts of every network, going on where an earlier run stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rhocal.data.files import read
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.evaluation.compare import compare, network_name, random_split, run
from rhocal.evaluation.rows import Row, read_rows, write_rows
from rhocal.metrics.spread import divergences
from rhocal_paper import GRIDS, OPEN_CHOICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rhocal.data.files import Contents
    from rhocal.evaluation.compare import CalibrationSplit
    from rhocal.numerics.special import Floats
    from rhocal_paper.grid import Grid


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
    seed: int
    methods: tuple[str, ...]

    def rows(self) -> Iterator[Row]:
        """Fit and measure."""
        split = draws(read(self.path), self.seed + 1)[self.seed]
        raw = split.test.predictions.logits
        entries = {**GRIDS, OPEN_CHOICES.table: OPEN_CHOICES}[self.table].entries
        for name in self.methods:
            cals = {name: entries[name].make(self.seed)}
            for row in compare(network_name(self.path), [(split, cals)]):
                if row.failed:
                    yield row
                    continue
                extra = moved(cals[name].transform(raw), raw)
                yield replace(row, values=row.values | extra)


def tasks(grid: Grid, paths: Sequence[Path], n_seeds: int, done: Sequence[Row] = ()) -> list[PaperTask]:
    """What is left to do."""
    known = {(row.network, row.split, row.method) for row in done}
    missing = []
    for path in paths:
        for seed in range(n_seeds):
            key = network_name(path), f"seed {seed}"
            left = tuple(name for name in grid.entries if (*key, name) not in known)
            if left:
                missing.append(PaperTask(grid.table, path, seed, left))
    return missing


def old_rows(output: Path | None) -> list[Row]:
    """What an earlier run wrote."""
    return [Row.from_flat(row) for row in read_rows(output)] if output is not None and output.is_file() else []


def measure(
    grid: Grid, paths: Sequence[Path], *, n_seeds: int, n_jobs: int = 1, output: Path | None = None,
    before: Sequence[Row] = (), step: Callable[[Row], None] | None = None,
) -> list[Row]:  # fmt: skip
    """All rows of a table on these files, and those of before; with an output they are written as they come."""
    methods, splits = list(grid.entries), {f"seed {seed}" for seed in range(n_seeds)}
    kept = [row for row in before if row.method in methods and row.split in splits]
    names = list(dict.fromkeys([*(network_name(path) for path in paths), *(row.network for row in kept)]))

    def ordered() -> list[Row]:
        return sorted(kept, key=lambda row: (names.index(row.network), row.split, methods.index(row.method)))

    for new in run(tasks(grid, paths, n_seeds, kept), n_jobs):
        kept += new
        for row in new:
            if step is not None:
                step(row)
        if output is not None:
            write_rows(output, [row.flat() for row in ordered()])
    return ordered()
