"""`rhocal monitor`: watch a stream of predictions with labels."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.desk import Json, KindOption, LabelsName, LogitsName, kind_of, print_json
from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rhocal.calibrators import Calibrator
    from rhocal.monitor import Monitor

Batch = tuple[str, int, Any, Any]
"""Source, how much of it has been read after this, logits, labels."""

LINES = 1000
"""Lines of standard input that are taken in together."""


def monitor(
    source: Annotated[
        str, typer.Argument(help="A folder of Parquet files that grows, or `-`: lines of JSON on standard input.")
    ],
    *,
    state: Annotated[Path, typer.Option("-s", "--state", help="The JSON file that remembers; it is made if absent.")],
    artifact: Annotated[Path | None, typer.Option("-c", "--calibrator", help="Calibrate the logits first.")] = None,
    alpha: Annotated[float, typer.Option(help="Chance of a false alarm over the whole stream.")] = 0.05,
    half_life: Annotated[float, typer.Option(help="Samples after which one counts half in the recent figures.")] = 1e4,
    follow: Annotated[bool, typer.Option("--follow", help="Keep looking for new files until interrupted.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks at the folder.")] = 5.0,
    kind: KindOption = "logits",
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    as_json: Json = False,
) -> None:
    """Raise an alarm when calibration is off, at any time, with at most 5 % false alarms over the whole stream.

    A line of standard input is `{"logits": [...], "labels": 3}`. The state is written after every file (or 1,000 lines), so
    that a stopped monitor goes on where it was. Exit code 1: the alarm is raised.
    """
    from rhocal.artifact import load
    from rhocal.monitor import Monitor

    watched = Monitor.load(state) if state.exists() else Monitor(alpha, half_life)
    cal = None if artifact is None else load(artifact)
    before = watched.alarm
    batches = (
        _lines(watched, logits_name, labels_name)
        if source == "-"
        else _files(watched, Path(source), logits_name, labels_name, every if follow else None)
    )
    for name, upto, logits, labels in batches:
        take_in(watched, cal, logits, labels, kind)
        watched.seen[name] = upto
        watched.save(state)
        if watched.alarm and not before:
            typer.echo(f"alarm: calibration is off, seen at sample {watched.alarm_at:,}", err=True)
            before = True
    watched.save(state)
    _show(watched, as_json=as_json)
    if watched.alarm:
        raise typer.Exit(1)


def take_in(watched: Monitor, cal: Calibrator | None, logits: Any, labels: Any, kind: str) -> None:
    """Confidence and correctness of a batch, and what follows."""
    from dataclasses import replace

    from rhocal.metrics import Scored
    from rhocal.predictions import predictions

    data = predictions(logits, labels, kind=kind_of(kind), classes=None if cal is None else cal.classes_)
    if cal is not None:
        data = replace(data, scores=cal.transform_checked(data.logits), kind="logits")
    samples = Scored.of(data)
    watched.add(samples.confidence, samples.correct)


def _files(watched: Monitor, folder: Path, logits_name: str, labels_name: str, every: float | None) -> Iterator[Batch]:
    """Row groups of files that are new, in the order of their names; a file that is being written has another ending."""
    from rhocal.streams import read_piece, stream

    if not folder.is_dir():
        raise InputError(
            f"{folder}: not a folder; a monitor follows a folder of .parquet files, or - for standard input"
        )
    while True:
        for path in sorted(folder.glob("*.parquet")):
            done = watched.seen.get(path.name, 0)
            pieces = stream(path, logits_name=logits_name, labels_name=labels_name).pieces or ()
            for k, piece in enumerate(pieces[done:], start=done):
                chunk = read_piece(piece)
                if chunk.labels is None:
                    raise InputError(f"{chunk.where}: no labels to compare with")
                yield path.name, k + 1, chunk.logits, chunk.labels
        if every is None:
            return
        time.sleep(every)


def _lines(watched: Monitor, logits_name: str, labels_name: str) -> Iterator[Batch]:
    """Lines of standard input; a producer that starts again from its beginning is not taken in twice."""
    import numpy as np

    done, logits, labels = watched.seen.get("-", 0), [], []
    number = 0
    for number, line in enumerate(sys.stdin, start=1):
        if number <= done or not line.strip():
            continue
        try:
            said = json.loads(line)
            logits.append(said[logits_name])
            labels.append(said[labels_name])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"line {number}: need JSON such as {{{logits_name!r}: [...], {labels_name!r}: 3}}: {error}"
            ) from error
        if len(labels) == LINES:
            yield "-", number, np.array(logits), np.array(labels)
            logits, labels = [], []
    if labels:
        yield "-", number, np.array(logits), np.array(labels)


def _show(watched: Monitor, *, as_json: bool) -> None:
    from rhocal import tables

    found = watched.figures()
    if as_json:
        print_json(found)
        return
    flat = {"samples": found["n_samples"], "p-value, valid at any time": found["p_value"], "alarm": found["alarm"]}
    if watched.alarm_at is not None:
        flat["alarm at sample"] = watched.alarm_at
    for name in ("all", "recent"):
        flat |= {f"{key}, {name}": value for key, value in found[name].items() if key != "weight"}
    tables.console().print(tables.pairs(flat, "monitor"))
