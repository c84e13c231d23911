"""The batches of a monitor: rows of files that are not counted yet, and lines of standard input."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from rhocal.cli.execution import ExecutionOptions, labels_not_found
from rhocal.cli.options import Arrays
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from rhocal.calibrators import Calibrator
    from rhocal.data.blocks import Block
    from rhocal.data.labels.late import LateLabels
    from rhocal.data.spec import InputSpec
    from rhocal.evaluation.monitor import Monitor

STANDARD_INPUT = "-"

LINES = 1000
"""Lines of standard input that are taken in together at most; fewer, if no more are there yet."""


@dataclass(frozen=True)
class Batch:
    """Samples that arrived together."""

    source: str
    """The name of the file, or standard input."""
    position: Any
    """What is counted of the source after this batch: a number of lines, or what ``Position`` keeps of a file."""
    block: Block | None
    """None: nothing to count, but the position changed."""
    spec: InputSpec


def files(
    watched: Monitor, folder: Path, arrays: Arrays, spec: InputSpec, cal: Calibrator | None, every: float | None,
    clusters: str | None = None, late: LateLabels | None = None, on_look: Callable[[], None] | None = None,
    own: Collection[Path | None] = (),
) -> Iterator[Batch]:  # fmt: skip
    """Rows that are new, in the order of the files' names; with ``every``, again and again.

    A file that is written under its final name cannot be read before it is whole; who follows waits for it. Hidden files
    are not complete. ``own`` are files of the monitor itself, which may lie in the folder.
    """
    from rhocal.data.storage.followed import follow_renames, forget_absent
    from rhocal.data.streams import parquet_files

    if not folder.is_dir():
        raise InputError(
            f"{folder}: not a folder; a monitor follows a folder of .parquet files, or - for standard input"
        )
    notes = Notes(is_following=every is not None)
    while True:
        if on_look is not None:
            on_look()
        with notes.waiting("labels"):
            if late is not None:
                late.refresh()
        there = parquet_files(folder)
        with notes.waiting(folder.name):
            notes.ignored_files(folder, watched, own, is_empty=not there)
        present = {path.name for path in there}
        watched.positions = follow_renames(forget_absent(watched.positions, present), folder, present)
        for path in there:
            with notes.waiting(path.name):
                mine = arrays.of_calibrator(cal, path)
                yield from (
                    new_batches(watched, path, present, mine, spec, clusters)
                    if late is None
                    else late_batches(watched, path, present, mine, spec, late)
                )
        if late is not None:
            notes.labels_without_samples(watched, late)
        if every is None:
            return
        time.sleep(every)


class Notes:
    """What is printed about files beside the results, each once."""

    def __init__(self, *, is_following: bool) -> None:
        self.is_following = is_following
        self.printed: set[str] = set()

    def print(self, text: str, key: str | None = None) -> None:
        """Print a line, unless one with its key was printed."""
        if (key or text) not in self.printed:
            typer.echo(text, err=True)
            self.printed.add(key or text)

    @contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """What cannot be read is an error; who follows waits for it."""
        try:
            yield
        except (FileError, FileNotFoundError) as error:
            if not self.is_following:
                raise error if isinstance(error, FileError) else FileError(str(error)) from error
            self.print(f"waiting: {_in_options(error)}", name)

    def ignored_files(self, folder: Path, watched: Monitor, own: Collection[Path | None], *, is_empty: bool) -> None:
        """Files of other formats are not read: an error if there is nothing else, and nothing was counted before."""
        from rhocal.data.formats import READERS
        from rhocal.data.streams import other_files

        was_read = any(isinstance(value, dict) for value in watched.positions.values())
        others = other_files(folder, own, READERS if was_read or not is_empty else None)
        if is_empty and not was_read and others:
            raise FileError(f"{folder} holds no .parquet file ({others} ignored)")
        if is_empty and not was_read:
            self.print(f"{folder}: no file yet")
        elif others:
            self.print(f"{folder}: {others} ignored; a monitor reads .parquet files")

    def labels_without_samples(self, watched: Monitor, late: LateLabels) -> None:
        """Labels came, samples wait, and no label was ever joined."""
        from rhocal.data.labels.late import n_counted, n_waiting

        n = n_waiting(watched.positions)
        if late.labels and n and not n_counted(watched.positions):
            self.print(f"warning: {late.sentence_without_match(n)}", f"version {late.version}")


def _in_options(error: Exception) -> str:
    """The text of an error in the words of the command line."""
    from rhocal.cli import app
    from rhocal.cli.boundary import message

    return message(error, app)


def new_batches(
    watched: Monitor, path: Path, present: set[str], arrays: Arrays, spec: InputSpec, clusters: str | None = None
) -> Iterator[Batch]:
    """Rows of a file that are not counted yet."""
    from rhocal.data.storage.followed import Position, file_status, find_position, new_rows

    positions, status = watched.positions, file_status(path)
    _check_mode(path, positions.get(path.name), is_late=False)
    if Position.from_state(positions.get(path.name)).status == status:
        return
    opened = ExecutionOptions(stream=True).open(path, arrays, spec, "test", clusters=clusters, needs_labels=False)
    blocks = list(opened.blocks)
    find_position(positions, path, present, blocks)
    for block, position in new_rows(path, Position.from_state(positions.get(path.name)), blocks, status):
        if block is None:
            positions[path.name] = position.as_state()
        else:
            if clusters is not None and block.groups is None:
                raise InputError(f"{block.location}: --clusters: there is no column {clusters!r}")
            if block.labels is None:
                raise labels_not_found(block.location, opened.log.unused_columns, InputError)
            yield Batch(path.name, position.as_state(), block, opened.spec)


def late_batches(
    watched: Monitor, path: Path, present: set[str], arrays: Arrays, spec: InputSpec, late: LateLabels
) -> Iterator[Batch]:
    """Rows of a file whose labels have come; the others wait."""
    from rhocal.data.labels.late import labeled_rows
    from rhocal.data.storage.followed import Position, file_status, find_position

    positions, status = watched.positions, file_status(path)
    stored = positions.get(path.name)
    _check_mode(path, stored, is_late=True)
    is_read = Position.from_state(stored).status == status
    if is_read and (not (stored or {}).get("waiting") or late.seen.get(path.name) == late.version):
        return
    opened = ExecutionOptions(stream=True).open(path, arrays, spec, "test", clusters=late.id_name, needs_labels=False)
    blocks = list(opened.blocks)
    find_position(positions, path, present, blocks, with_ids=True)
    for block, position in labeled_rows(path, positions.get(path.name), blocks, late, status):
        yield Batch(path.name, position, block, opened.spec)
    late.seen[path.name] = late.version


def _check_mode(path: Path, stored: Any, *, is_late: bool) -> None:
    """Raise an error where the rows of a file were counted with their own labels, and now with late ones, or vice versa."""
    if stored is not None and is_late != (isinstance(stored, dict) and "waiting" in stored):
        raise InputError(
            f"{path}: its rows were counted {'without' if is_late else 'with'} --labels-from; use one state (-s) for each"
        )


def lines(
    watched: Monitor, arrays: Arrays, spec: InputSpec, clusters: str | None = None, *, resume: bool
) -> Iterator[Batch]:
    """Yield batches of lines of standard input. A line that cannot be used raises after the lines before it were counted."""
    from rhocal.data.blocks import Block
    from rhocal.data.spec import InputSpec

    names = arrays.names()
    spec = arrays.stated(spec, InputSpec(columns=names.columns))
    keys = [name for name in (arrays.labels_name, arrays.weights, clusters) if name is not None]
    done = watched.positions.get(STANDARD_INPUT, 0)
    number = done if resume else 0
    for some in _arriving():
        logits, beside, first = [], [], number + 1
        trouble: InputError | None = None
        for line in some:
            number += 1
            if number <= done or not line.strip():
                continue
            try:
                row = json.loads(line)
                scores = row[arrays.logits_name] if names.columns is None else [row[name] for name in names.columns]
                beside.append([row[key] for key in keys])
                logits.append(scores)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                example = json.dumps({arrays.logits_name: [0.5, 2, -1], arrays.labels_name: 1})
                trouble = InputError(f"line {number}: need JSON such as {example}; {type(error).__name__}: {error}")
                number -= 1
                break
        if logits:
            location = f"lines {first} to {number}"
            values = dict(zip(keys, (list(column) for column in zip(*beside, strict=True)), strict=True))
            labels = values[arrays.labels_name]
            weights, groups = (None if name is None else values.get(name) for name in (arrays.weights, clusters))
            block = Block(_rows(logits, location), labels, location, weights, groups)
            yield Batch(STANDARD_INPUT, number, block, spec)
        if trouble is not None:
            raise trouble


def _rows(logits: list[Any], location: str) -> Any:
    import numpy as np

    try:
        return np.array(logits, np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(f"{location}: logits must be as many numbers in every line: {error}") from error


def _arriving() -> Iterator[list[bytes]]:
    """Whole lines of standard input, as many as are there: nobody waits for the thousandth."""
    begun = b""
    while more := os.read(sys.stdin.fileno(), 1 << 20):
        *whole, begun = (begun + more).split(b"\n")
        for k in range(0, len(whole), LINES):
            yield whole[k : k + LINES]
    if begun:
        yield [begun]
