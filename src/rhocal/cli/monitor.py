"""`rhocal monitor`: watch a stream of predictions with labels."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.options import (
    Arrays,
    ExecutionOptions,
    Json,
    PositiveOption,
    grouped,
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
    position: Any
    """What is counted of the source after this batch: a number of lines, or what ``Position`` keeps of a file."""
    block: Block
    spec: InputSpec


@grouped
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
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="The gap between accuracy and confidence that is no alarm: 0.02 for two points; 0 unless given."
        ),
    ] = None,
    n_calibration: Annotated[
        int | None,
        typer.Option(
            help="Samples that the calibrator was fitted on; what so few leave uncertain is no alarm. Unless given, those "
            "of -c; 0: its map is taken as exact."
        ),
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option(
            "--clusters",
            help="A column or key that names the cluster of a sample (patient, session). Samples of a cluster that follow each "
            "other are one bet. Without it samples are assumed to be independent.",
        ),
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
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="What the scores are: logits, probs or log_probs; unless given, as in the fit."),
    ] = None,
    positive: PositiveOption = None,
    arrays: Arrays,
    as_json: Json = False,
) -> None:
    """Raise an alarm when calibration is off, at any time, with at most 5 % false alarms over the whole stream.

    A line of standard input is `{"logits": [...], "labels": 3}`, or has one number for each of `--columns`. Rows are counted
    once: a file that was moved, or written again with more rows, adds its new rows. Weights are 0 or 1. The state is written
    after every row group of a file, or whenever lines have come, so that a stopped monitor goes on where it was. If -c has a
    policy, the risk that it promises is watched too. Exit code 1: an alarm is raised.
    """
    from rhocal.calibrators.artifact import load

    if arrays.labels is not None:
        raise InputError("--labels: a monitor reads labels beside the scores; name them with --labels-name")
    cal = None if artifact is None else load(artifact)
    options = {"alpha": alpha, "half_life": half_life, "window": window, "tolerance": tolerance}
    watched = _begun(state, options | {"n_calibration": n_calibration}, cal)
    _watch_policy(watched, cal, state)
    before = [watched.alarm, watched.promise is not None and watched.promise.alarm]
    kind = kind or ("logits" if cal is None else cal.kind_)
    if cal is None:
        spec = input_spec(kind, positive=positive)
    else:
        spec = input_spec(kind, cal.classes_, positive=cal.positive_ if positive is None else positive)
    batches = (
        lines(watched, arrays, spec, clusters, resume=resume)
        if source == STANDARD_INPUT
        else files(watched, Path(source), arrays, spec, cal, every if follow else None, clusters)
    )
    try:
        for batch in batches:
            count_batch(watched, cal, batch)
            watched.save(state)
            if watched.alarm and not before[0]:
                typer.echo(
                    f"alarm: calibration is off, seen at sample {watched.alarm_at:,}; {watched.alarm_reason}", err=True
                )
                before[0] = True
            promise = watched.promise
            if promise is not None and promise.alarm and not before[1]:
                typer.echo(f"alarm: {promise.sentence}, seen at sample {promise.alarm_at:,}", err=True)
                before[1] = True
    except KeyboardInterrupt:
        typer.echo("stopped; the same command continues", err=True)
    watched.save(state)
    _show(watched, as_json=as_json)
    if watched.alarm or (watched.promise is not None and watched.promise.alarm):
        raise typer.Exit(1)


def _begun(state: Path, options: dict[str, Any], cal: Calibrator | None) -> Monitor:
    """Return the monitor of a state, or a new one; options must equal those it was started with."""
    from rhocal.evaluation.monitor import Monitor

    given = {name: value for name, value in options.items() if value is not None}
    if given.get("n_calibration") == 0:
        given["n_calibration"] = None
    if not state.exists():
        return Monitor(**({} if cal is None else {"n_calibration": cal.n_samples_}) | given)
    watched = Monitor.load(state)
    for name, value in given.items():
        begun = getattr(watched, name)
        if begun != value:
            raise InputError(
                f"{state} was begun with --{name.replace('_', '-')} {begun or 0:g}; this cannot change later"
            )
    return watched


def _watch_policy(watched: Monitor, cal: Calibrator | None, state: Path) -> None:
    """Watch the promise of the calibrator's policy, if it has one; it must be the one that was watched before."""
    from rhocal.evaluation.risk_monitor import RiskMonitor

    policy = None if cal is None else cal.policy_
    promise = None if policy is None else RiskMonitor.from_policy(policy, watched.alpha)
    if watched.promise is None:
        watched.promise = promise
    elif promise is None or (promise.risk, promise.target) != (watched.promise.risk, watched.promise.target):
        raise InputError(
            f"{state} watches a promise of {watched.promise.risk} at {watched.promise.target:g}, which the policy of -c does "
            "not make; begin another state with -s"
        )


def count_batch(watched: Monitor, cal: Calibrator | None, batch: Batch) -> None:
    """Add the confidence and correctness of a batch to the monitor."""
    import numpy as np

    from rhocal.data.blocks import missing_labels
    from rhocal.data.sources import Source
    from rhocal.evaluation.measure import apply_calibrator
    from rhocal.evaluation.question import in_order
    from rhocal.evaluation.risk_monitor import policy_losses
    from rhocal.metrics import Scored

    block, spec = batch.block, batch.spec
    if block.labels is None:
        raise missing_labels().at(block.location)
    if block.weights is not None:
        weights = np.asarray(block.weights)
        if not np.isin(weights, (0, 1)).all():
            raise InputError(f"{block.location}: weights of a monitor are 0 or 1: a sample counts once, or not at all")
        rows = np.flatnonzero(weights)
        groups = None if block.groups is None else np.asarray(block.groups)[rows]
        labels = np.asarray(block.labels)[rows]
        block = replace(block, scores=block.scores[rows], labels=labels, weights=None, groups=groups)
    if block.n_rows:
        data = Source((block,), spec, resident=True).predictions
        if spec.classes is None and spec.columns is None and data.classes.dtype.kind not in "iu":
            raise InputError(
                f"{block.location}: labels are texts, and a batch need not show every class",
                argument="classes",
                remedy="name the label of each column, in order",
            )
        if cal is not None:
            calibrated = apply_calibrator(cal, data)
            if cal.policy_ is not None and watched.promise is not None:
                ordered = in_order(data, cal)
                assert ordered.labels is not None
                decisions = cal.policy_.decide(cal.map_.probs(ordered), cal.classes_)
                watched.promise.add(*policy_losses(cal.policy_, decisions, ordered.labels), data.groups)
            data = calibrated
        samples = Scored.from_predictions(data)
        watched.add_scored(samples, data.groups)
    watched.positions[batch.source] = batch.position


def files(
    watched: Monitor, folder: Path, arrays: Arrays, spec: InputSpec, cal: Calibrator | None, every: float | None,
    clusters: str | None = None,
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
        there = parquet_files(folder)
        present = {path.name for path in there}
        watched.positions = forget_absent(watched.positions, present)
        for path in there:
            try:
                yield from new_batches(watched, path, present, arrays.of_calibrator(cal, path), spec, clusters)
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


def _show(watched: Monitor, *, as_json: bool) -> None:
    from rhocal.evaluation.risk_monitor import TITLES
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
    if watched.n_calibration is not None:
        flat["samples of the calibration set"] = watched.n_calibration
    if watched.alarm_at is not None:
        flat["alarm at sample"] = watched.alarm_at
    if watched.alarm_reason is not None:
        flat["reason"] = watched.alarm_reason
    if watched.promise is not None:
        promise = watched.promise.values()
        promised = f"at most {promise['largest_rate']:g}"
        flat[f"{TITLES[promise['risk']]} ({promised} promised)"] = promise["rate"]
        flat["alarm of the promise"] = promise["alarm"]
        flat["p-value of the promise"] = promise["p_value"]
    for name in ("all", "recent", "rolling"):
        flat |= {f"{key}, {name}": value for key, value in summary[name].items() if key != "weight"}
    tables.console().print(tables.pairs(flat, "monitor"))
