"""The batches of a monitor: rows of files that are not counted yet, and lines of standard input."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from rhocal.cli.options import ExecutionOptions
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rhocal.calibrators import Calibrator
    from rhocal.cli.options import Arrays
    from rhocal.data.blocks import Block
    from rhocal.data.late_labels import LateLabels
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
) -> Iterator[Batch]:  # fmt: skip
    """Rows that are new, in the order of the files' names; with ``every``, again and again.

    A file that is written under its final name cannot be read before it is whole; who follows waits for it. Hidden files
    are not complete.
    """
    from rhocal.data.followed import forget_absent
    from rhocal.data.streams import parquet_files

    if not folder.is_dir():
        raise InputError(
            f"{folder}: not a folder; a monitor follows a folder of .parquet files, or - for standard input"
        )
    waiting: set[str] = set()
    while True:
        if on_look is not None:
            on_look()
        there = parquet_files(folder)
        present = {path.name for path in there}
        watched.positions = forget_absent(watched.positions, present)
        for path in there:
            try:
                mine = arrays.of_calibrator(cal, path)
                yield from (
                    new_batches(watched, path, present, mine, spec, clusters)
                    if late is None
                    else late_batches(watched, path, mine, spec, late)
                )
            except (FileError, FileNotFoundError) as error:
                if every is None and isinstance(error, FileError):
                    raise
                if every is None:
                    raise FileError(str(error)) from error
                if path.name not in waiting:
                    typer.echo(f"waiting: {_in_options(error)}", err=True)
                    waiting.add(path.name)
        if every is None:
            return
        time.sleep(every)


def _in_options(error: Exception) -> str:
    """The text of an error in the words of the command line."""
    from rhocal.cli import app
    from rhocal.cli.boundary import message

    return message(error, app)


def new_batches(
    watched: Monitor, path: Path, present: set[str], arrays: Arrays, spec: InputSpec, clusters: str | None = None
) -> Iterator[Batch]:
    """Rows of a file that are not counted yet."""
    from rhocal.data.followed import Position, adopt_moved, file_status, new_rows

    positions, status = watched.positions, file_status(path)
    if Position.from_state(positions.get(path.name)).status == status:
        return
    opened = ExecutionOptions(stream=True).open(path, arrays, spec, "test", clusters=clusters, needs_labels=False)
    blocks = list(opened.blocks)
    if path.name not in positions:
        adopt_moved(positions, path, present, blocks)
    for block, position in new_rows(path, Position.from_state(positions.get(path.name)), blocks, status):
        if block is None:
            positions[path.name] = position.as_state()
        else:
            if clusters is not None and block.groups is None:
                raise InputError(f"{block.location}: --clusters: there is no column {clusters!r}")
            yield Batch(path.name, position.as_state(), block, opened.spec)


def late_batches(watched: Monitor, path: Path, arrays: Arrays, spec: InputSpec, late: LateLabels) -> Iterator[Batch]:
    """Rows of a file whose labels have come; the others wait."""
    from rhocal.data.followed import Position, file_status
    from rhocal.data.late_labels import labeled_rows

    late.refresh()
    stored = watched.positions.get(path.name)
    is_read = Position.from_state(stored).status == file_status(path)
    if is_read and (not (stored or {}).get("waiting") or late.seen.get(path.name) == late.version):
        return
    opened = ExecutionOptions(stream=True).open(path, arrays, spec, "test", clusters=late.id_name, needs_labels=False)
    for block, position in labeled_rows(path, stored, list(opened.blocks), late.labels):
        yield Batch(path.name, position, block, opened.spec)
    late.seen[path.name] = late.version


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
