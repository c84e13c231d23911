"""The files that `rhocal compare` reads, the work on them, and the rows that are done."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rhocal.cli.execution import ExecutionOptions, skipped
from rhocal.cli.fit import for_options
from rhocal.cli.options import Arrays, input_spec
from rhocal.numerics.caching import cached_property

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rhocal.cli.compare_top_k import TopKNetwork
    from rhocal.data.formats.base import StoredFile
    from rhocal.data.sources import Source
    from rhocal.evaluation.models import ModelAnswers
    from rhocal.evaluation.rows import Row


BETWEEN_WRITES = 5.0
"""Seconds between two writes of all rows."""


MAX_SAMPLE_BYTES = 1 << 29
"""Memory for numbers of test samples, from which differences between methods are computed."""


@dataclass(frozen=True)
class LogitsFile:
    """A file of logits and labels, and how it is read."""

    path: Path
    network: str
    """How rows call it."""
    arrays: Arrays
    kind: str | None
    execution: ExecutionOptions
    positive: str | None = None
    clusters: str | None = None
    ignore_index: int | None = None

    @property
    def streams(self) -> bool:
        """Whether it is read block by block."""
        return self.execution.streams(self.path, skip_bad=self.arrays.skip_bad)

    @property
    def n_bytes(self) -> int:
        """Its size; 0 for the standard input."""
        return self.path.stat().st_size if self.path.exists() else 0

    @cached_property
    def key(self) -> str:
        """Changes with its bytes, and with what is stated about them."""
        from rhocal.data.storage.content import content_key

        options = [self.kind, self.positive, *(getattr(self.arrays, field.name) for field in fields(self.arrays))]
        options += [] if self.clusters is None else [self.clusters]
        options += [] if self.ignore_index is None else ["ignore_index", self.ignore_index]
        return content_key(self.path, [] if self.arrays.labels is None else [self.arrays.labels], options)

    @property
    def stored(self) -> StoredFile:
        """Its arrays; of a folder or pattern those of the first file."""
        return _stored(self)

    @property
    def holds_options(self) -> bool:
        """Whether its columns are options of questions."""
        return self.stored.holds_options

    @property
    def holds_answers(self) -> bool:
        """Whether its samples are answers that are right or wrong."""
        log = self.stored.log
        return log is not None and not log.holds_options

    @property
    def answers(self) -> ModelAnswers | None:
        """The samples of a file in memory, to be compared with those of another model."""
        from rhocal.evaluation.models import ModelAnswers

        if self.streams:
            return None
        first, test = self.open()
        log, ids = self.stored.log, self.stored.arrays.get("question_id")
        data = (test or first).predictions
        ids = None if log is None or ids is None else ids[:]
        if ids is not None and data.n_ignored:
            ids = None if data.rows is None else ids[data.rows]
        return ModelAnswers(data, ids, log is not None and not log.holds_options)

    @property
    def n_classes(self) -> int:
        """Number of classes; of a file that is read block by block, in its first block."""
        import numpy as np

        first = self.open()[0]
        if first.resident:
            return first.predictions.n_classes
        shape = np.shape(next(iter(first.blocks)).read().scores)
        return max(shape[-1], 2) if len(shape) > 1 else 2

    def open(self) -> tuple[Source, Source | None]:
        """Its calibration and test set, or its single set."""
        return _open(self)

    def tasks(
        self, names: list[str], seeds: int, done: Collection[tuple[str, str, str]], *, has_keys: bool
    ) -> list[Task]:
        """What is left to do: one task per split, or one for all splits of a file that is read block by block."""
        from rhocal.data.streams import has_splits
        from rhocal.evaluation.compare import split_names

        has_test = has_splits(self.path, self.arrays.names())
        missing = {
            seed: tuple(name for name in names if (self.network, split, name) not in done)
            for seed, split in enumerate(split_names(seeds, has_test=has_test))
        }
        todo = [(seed, left) for seed, left in missing.items() if left]
        parts = [todo] if self.streams and todo else [[part] for part in todo]
        return [Task(self, tuple(part), self.key if has_keys else "") for part in parts]


@lru_cache(maxsize=1)  # the splits of a file are compared one after the other
def _open(file: LogitsFile) -> tuple[Source, Source | None]:
    spec = input_spec(file.kind, ignore_index=file.ignore_index, positive=file.positive)
    return file.execution.open_splits(file.path, file.arrays, spec, file.clusters)


@lru_cache(maxsize=1)
def _stored(file: LogitsFile) -> StoredFile:
    from rhocal.data.streams import source_files

    return file.arrays.contents(source_files(file.path)[0]).file


def forget_files() -> None:
    """Close what was open: a file of the same name may have changed."""
    _open.cache_clear()
    _stored.cache_clear()


@dataclass(frozen=True)
class Task:
    """Methods on splits of one file; each split by its seed."""

    file: LogitsFile
    todo: tuple[tuple[int, tuple[str, ...]], ...]
    key: str = ""
    """What rows state about the bytes that they were computed from, where they are kept."""

    @property
    def n_fits(self) -> int:
        """Number of rows."""
        return sum(len(names) for _, names in self.todo)

    def rows(self) -> Iterator[Row]:
        """Fit and measure."""
        from rhocal.calibrators import calibrator
        from rhocal.evaluation.compare import compare, split_by_seed

        execution, sources = self.file.execution, self.file.open()
        stored = self.file.stored
        work = (
            (split_by_seed(*sources, seed), {name: for_options(calibrator(name), stored, ()) for name in names})
            for seed, names in self.todo
        )
        with execution.cluster():
            for row in compare(self.file.network, work, progress=execution.progress):
                yield replace(row, data=self.key)
        for source in sources:
            if source is not None:
                skipped(source)


class Ledger:
    """The rows so far, and the file that holds them, if there is one."""

    def __init__(
        self, output: Path | None, names: list[str], files: Sequence[LogitsFile | TopKNetwork], *, resume: bool
    ) -> None:
        from rhocal.evaluation.rows import Row, read_rows

        before = read_rows(output) if resume and output is not None and output.is_file() else []
        self.output, self.names = output, names
        self.rows = of_same_data([Row.from_flat(row) for row in before], files)
        self.done = {(row.network, row.split, row.method) for row in self.rows}
        self.written = time.monotonic()
        self.sample_bytes = 0

    @property
    def ordered(self) -> list[Row]:
        """By network and split, methods in the order in which they were named."""
        return in_order(self.rows, self.names)

    def keep(self, new: list[Row]) -> None:
        """Add rows; they are written if the last time was a while ago."""
        for row in new:
            self.sample_bytes += 0 if row.samples is None else row.samples.n_bytes
            self.rows.append(row if self.sample_bytes <= MAX_SAMPLE_BYTES else replace(row, samples=None))
        if time.monotonic() > self.written + BETWEEN_WRITES:
            self.write()

    def write(self) -> None:
        """Write all rows."""
        from rhocal.evaluation.rows import write_rows

        if self.output is not None:
            write_rows(self.output, [row.flat() for row in self.ordered])
        self.written = time.monotonic()


def of_same_data(rows: list[Row], files: Sequence[LogitsFile | TopKNetwork]) -> list[Row]:
    """The rows of an earlier run that still hold: those of the same bytes, by the name that they have now, and those of others.

    Rows that have the name of one of the files and not its bytes are left out, and computed again.
    """
    if not rows:
        return []
    names: dict[str, list[str]] = {}
    for file in files:
        names.setdefault(file.key, []).append(file.network)
    taken = {file.network for file in files}
    kept: list[Row] = []
    left_out: dict[str, int] = {}
    for row in rows:
        if row.data in names:
            name = row.network if row.network in names[row.data] else names[row.data][0]
            kept.append(replace(row, network=name))
        elif row.network in taken:
            left_out[row.network] = left_out.get(row.network, 0) + 1
        else:
            kept.append(row)
    for network, n in left_out.items():
        typer.echo(f"{network}: {n:,} rows of other data or other options are computed again", err=True)
    return kept


def in_order(rows: list[Row], methods: list[str]) -> list[Row]:
    """By network, split and method, however they came."""
    place = {name: k for k, name in enumerate(methods)}
    return sorted(rows, key=lambda row: (row.network, row.split, place.get(row.method, len(place)), row.method))
