"""Comparisons over many files: on several processes, and without the rows that an earlier run has."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from typing import TYPE_CHECKING

from rhocal.calibrators import calibrator
from rhocal.data.files import read
from rhocal.evaluation.compare import Row, compare, split_names, split_of, validated_sets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from rhocal.data.formats.base import Names
    from rhocal.data.predictions import Kind, Predictions

Key = tuple[str, str, str]
"""Network, split and method: what has a row once."""


def network_name(path: Path) -> str:
    """How rows call a file: by its name, and the ``logits.npz`` of a run by the name of the run's folder."""
    return path.parent.name if path.stem == "logits" and path.parent.name else path.stem


@dataclass(frozen=True)
class Task:
    """Some methods on one split of one file."""

    path: Path
    split: int
    methods: tuple[str, ...]
    n_seeds: int
    names: Names
    kind: Kind
    labels: Path | None = None
    """A file of its own for them."""

    def rows(self) -> Iterator[Row]:
        """Fit and measure the methods."""
        pair = split_of(*validated_file(self.path, self.names, self.labels, self.kind), self.split)
        yield from compare(network_name(self.path), pair, {name: calibrator(name) for name in self.methods})

    def all_rows(self) -> list[Row]:
        """The same as a list, which another process returns."""
        return list(self.rows())


@lru_cache(maxsize=1)  # the splits of a file are compared one after the other
def validated_file(path: Path, names: Names, labels: Path | None, kind: Kind) -> tuple[Predictions, Predictions | None]:
    """Read and validate a file: its calibration and test set, or its single set."""
    return validated_sets(read(path, names, labels), kind)


def tasks(
    paths: Sequence[Path],
    methods: Sequence[str],
    n_seeds: int,
    names: Names,
    kind: Kind,
    done: Collection[Key] = (),
    labels: Path | None = None,
) -> list[Task]:
    """What is left to do, the largest files first."""
    remaining = []
    for path in sorted(paths, key=lambda path: -path.stat().st_size):
        contents = read(path, names, labels)
        for k, split in enumerate(split_names(n_seeds, has_test=contents.has_splits)):
            missing = tuple(name for name in methods if (network_name(path), split, name) not in done)
            if missing:
                remaining.append(Task(path, k, missing, n_seeds, names, kind, labels))
    return remaining


def run(todo: Sequence[Task], n_jobs: int) -> Iterator[list[Row]]:
    """Rows as they come: one by one in this process, a task at a time from others."""
    if n_jobs == 1:
        for task in todo:
            for row in task.rows():
                yield [row]
        return
    with _single_threaded(), ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn")) as pool:
        for finished in as_completed([pool.submit(task.all_rows) for task in todo]):
            yield finished.result()


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Processes started here compute on one thread each: two of many threads would only wait for each other."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
