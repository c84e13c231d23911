"""A comparison over many files: on several processes, and going on where an earlier run was interrupted."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING

from rhocal.calibrators import calibrator
from rhocal.data.files import Names, read
from rhocal.evaluation.compare import Row, compare, splits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from rhocal.data.predictions import Kind

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
        """Do it."""
        pair = splits(read(self.path, self.names, self.labels), self.n_seeds, self.kind)[self.split]
        yield from compare(network_name(self.path), pair, {name: calibrator(name) for name in self.methods})

    def all_rows(self) -> list[Row]:
        """Do it all: what another process runs."""
        return list(self.rows())


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
    found = []
    for path in sorted(paths, key=lambda path: -path.stat().st_size):
        for k, pair in enumerate(splits(read(path, names, labels), n_seeds, kind)):
            left = tuple(name for name in methods if (network_name(path), pair.name, name) not in done)
            if left:
                found.append(Task(path, k, left, n_seeds, names, kind, labels))
    return found


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
