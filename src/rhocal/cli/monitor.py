"""`rhocal monitor`: watch a stream of predictions with labels."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.options import (
    Arrays,
    ExecutionOptions,
    Json,
    KindOption,
    LabelsName,
    LogitsName,
    input_spec,
    print_json,
)
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rhocal.calibrators import Calibrator
    from rhocal.data.blocks import Block
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
    n_done: int
    """Row groups or lines of the source that are counted after this batch."""
    block: Block


def monitor(
    source: Annotated[
        str, typer.Argument(help="A folder of Parquet files that grows, or `-`: lines of JSON on standard input.")
    ],
    *,
    state: Annotated[
        Path, typer.Option("-s", "--state", help="The JSON file that keeps the state; it is created if absent.")
    ],
    artifact: Annotated[Path | None, typer.Option("-c", "--calibrator", help="Calibrate the logits first.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Chance of a false alarm over the whole stream; 0.05 unless given.")
    ] = None,
    half_life: Annotated[
        float | None,
        typer.Option(help="Samples after which one counts half in the recent figures; 10,000 unless given."),
    ] = None,
    window: Annotated[
        int | None, typer.Option(help="Samples that the rolling figures look back on; 10,000 unless given.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Keep looking for new files until interrupted.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks at the folder.")] = 5.0,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Standard input continues where the last run stopped. Without this, lines counted before are skipped.",
        ),
    ] = False,
    kind: KindOption = "logits",
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    as_json: Json = False,
) -> None:
    """Raise an alarm when calibration is off, at any time, with at most 5 % false alarms over the whole stream.

    A line of standard input is `{"logits": [...], "labels": 3}`. The state is written after every row group of a file, or
    whenever lines have come, so that a stopped monitor goes on where it was. Exit code 1: the alarm is raised.
    """
    from rhocal.calibrators.artifact import load

    watched = _begun(state, {"alpha": alpha, "half_life": half_life, "window": window})
    cal = None if artifact is None else load(artifact)
    before = watched.alarm
    arrays, spec = Arrays(None, logits_name, labels_name), input_spec(kind, None if cal is None else cal.classes_)
    batches = (
        lines(watched, arrays, resume=resume)
        if source == STANDARD_INPUT
        else files(watched, Path(source), arrays, spec, every if follow else None)
    )
    try:
        for batch in batches:
            count_batch(watched, cal, batch, spec)
            watched.save(state)
            if watched.alarm and not before:
                typer.echo(f"alarm: calibration is off, seen at sample {watched.alarm_at:,}", err=True)
                before = True
    except KeyboardInterrupt:
        typer.echo("stopped; the same command continues", err=True)
    watched.save(state)
    _show(watched, as_json=as_json)
    if watched.alarm:
        raise typer.Exit(1)


def _begun(state: Path, options: dict[str, Any]) -> Monitor:
    """Return the monitor of a state, or a new one; options must equal those it was started with."""
    from rhocal.evaluation.monitor import Monitor

    given = {name: value for name, value in options.items() if value is not None}
    if not state.exists():
        return Monitor(**given)
    watched = Monitor.load(state)
    for name, value in given.items():
        if getattr(watched, name) != value:
            raise InputError(
                f"{state} was begun with --{name.replace('_', '-')} {getattr(watched, name):g}; this cannot change later"
            )
    return watched


def count_batch(watched: Monitor, cal: Calibrator | None, batch: Batch, spec: InputSpec) -> None:
    """Add the confidence and correctness of a batch to the monitor."""
    from dataclasses import replace

    from rhocal.data.sources import Source
    from rhocal.metrics import Scored

    data = Source((batch.block,), spec, resident=True).predictions
    if cal is not None:
        data = replace(data, scores=cal.map_.logits(data), kind="logits")
    samples = Scored.from_predictions(data)
    watched.add(samples.confidence, samples.correct)
    watched.positions[batch.source] = batch.n_done


def files(watched: Monitor, folder: Path, arrays: Arrays, spec: InputSpec, every: float | None) -> Iterator[Batch]:
    """Row groups that are new, in the order of the files' names; with ``every``, again and again.

    A file that is written under its final name cannot be read before it is whole; who follows waits for it.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder}: not a folder; a monitor follows a folder of .parquet files, or - for standard input"
        )
    known: dict[str, tuple[int, int]] = {}
    waiting: set[str] = set()
    while True:
        there = sorted(folder.glob("*.parquet"))
        watched.positions = {name: n for name, n in watched.positions.items() if name in {path.name for path in there}}
        for path in there:
            try:
                about = path.stat()
                if known.get(path.name) != (about.st_size, about.st_mtime_ns):
                    yield from new_groups(watched, path, arrays, spec)
                    known[path.name] = (about.st_size, about.st_mtime_ns)
            except (FileError, FileNotFoundError) as error:
                if every is None:
                    raise FileError(str(error)) from error
                if path.name not in waiting:
                    typer.echo(f"waiting: {error}", err=True)
                    waiting.add(path.name)
        if every is None:
            return
        time.sleep(every)


def new_groups(watched: Monitor, path: Path, arrays: Arrays, spec: InputSpec) -> Iterator[Batch]:
    """Row groups of a file that are not counted yet."""
    from rhocal.data.blocks import read_block

    blocks = list(ExecutionOptions(stream=True).open(path, arrays, spec, "test").blocks)
    done = watched.positions.get(path.name, 0)
    for k, ref in enumerate(blocks[done:], start=done):
        yield Batch(path.name, k + 1, read_block(ref))


def lines(watched: Monitor, arrays: Arrays, *, resume: bool) -> Iterator[Batch]:
    """Yield batches of lines of standard input. A line that cannot be used raises after the lines before it were counted."""
    from rhocal.data.blocks import Block

    done = watched.positions.get(STANDARD_INPUT, 0)
    number = done if resume else 0
    for some in _arriving():
        logits, labels, first = [], [], number + 1
        trouble: InputError | None = None
        for line in some:
            number += 1
            if number <= done or not line.strip():
                continue
            try:
                row = json.loads(line)
                logits.append(row[arrays.logits_name])
                labels.append(row[arrays.labels_name])
            except (ValueError, KeyError, TypeError) as error:
                example = json.dumps({arrays.logits_name: [0.5, 2, -1], arrays.labels_name: 1})
                trouble = InputError(f"line {number}: need JSON such as {example}; {type(error).__name__}: {error}")
                number -= 1
                break
        if labels:
            location = f"lines {first} to {number}"
            yield Batch(STANDARD_INPUT, number, Block(_rows(logits, location), labels, location))
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


def _show(watched: Monitor, *, as_json: bool) -> None:
    from rhocal.reporting import tables

    summary = watched.values()
    if as_json:
        print_json(summary)
        return
    flat = {
        "samples": summary["n_samples"],
        "p-value, valid at any time": summary["p_value"],
        "alarm": summary["alarm"],
    }
    if watched.alarm_at is not None:
        flat["alarm at sample"] = watched.alarm_at
    for name in ("all", "recent", "rolling"):
        flat |= {f"{key}, {name}": value for key, value in summary[name].items() if key != "weight"}
    tables.console().print(tables.pairs(flat, "monitor"))
