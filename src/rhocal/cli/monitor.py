"""`rhocal monitor`: watch a stream of predictions with labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.monitor_batches import STANDARD_INPUT, files, lines
from rhocal.cli.monitor_requests import leave_requests, requests_file
from rhocal.cli.monitor_run import Run, count_batch, exclusive, what_is_counted
from rhocal.cli.monitor_service import Service, ServiceOptions
from rhocal.cli.options import (
    Arrays,
    Json,
    PositiveOption,
    grouped,
    input_spec,
    print_json,
)
from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
    from rhocal.data.labels.late import LateLabels
    from rhocal.evaluation.monitor import Monitor

MAX_SECONDS = 86_400
"""Between two looks at a folder."""


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
        float | None, typer.Option(help="The probability of a false alarm over the whole stream; 0.05 unless given.")
    ] = None,
    half_life: Annotated[
        float | None,
        typer.Option(help="Samples after which one counts half in the recent values; 10,000 unless given."),
    ] = None,
    window: Annotated[
        int | None, typer.Option(help="Number of latest samples in the rolling values; 10,000 unless given.")
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
            help="Size of the calibration set: errors within the uncertainty of such a fit raise no alarm. Unless given, "
            "that of -c; 0: the map is taken as exact."
        ),
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option(
            "--clusters",
            help="A column or key that names the cluster of a sample (patient, session). Samples of a cluster that follow each "
            "other count as one. Without it samples are assumed to be independent.",
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
    labels_from: Annotated[
        Path | None,
        typer.Option("--labels-from", help="A folder of Parquet files with labels that come later, joined by --id."),
    ] = None,
    id_name: Annotated[
        str, typer.Option("--id", help="The column that names a sample, in the files of scores and of labels.")
    ] = "id",
    service_options: ServiceOptions,
    arrays: Arrays,
    as_json: Json = False,
) -> None:
    """Raise an alarm when calibration is off, at any time, with at most 5 % false alarms over the whole stream.

    A line of standard input is `{"logits": [...], "labels": 3}`, or has one number for each of `--columns`. Rows are counted
    once: a file that was moved, or written again with more rows, adds its new rows. Weights are 0 or 1. The state is written
    after every row group of a file, or whenever lines have come, so that a stopped monitor goes on where it was. If -c has a
    policy, the risk or the coverage that it promises is watched too (a mean cost is not). Exit code 1: an alarm is raised, and
    nobody acknowledged it.

    For cron, run it without --follow. With --serve it is a service; --on-alarm and --webhook run once for an alarm, and again
    if they fail or the monitor is killed before they end. --acknowledge and --reset are kept in the history.
    """
    from rhocal.calibrators.artifact import load

    if leave_requests(state, {"acknowledge": service_options.acknowledge, "reset": service_options.reset}):
        typer.echo("noted; a running monitor follows at its next look, else the next run")
        return
    if not 0 < every <= MAX_SECONDS:
        raise InputError(f"--every must be a number of seconds above 0, at most {MAX_SECONDS:,} (a day); got {every:g}")
    if arrays.labels is not None:
        raise InputError("--labels: a monitor reads labels beside the scores; name them with --labels-name")
    cal = None if artifact is None else load(artifact)
    with exclusive(state):
        options = {"alpha": alpha, "half_life": half_life, "window": window, "tolerance": tolerance}
        watched = _begun(state, options | {"n_calibration": n_calibration}, cal)
        _watch_policy(watched, cal, state)
        kind = kind or ("logits" if cal is None else cal.kind_)
        if cal is None:
            spec = input_spec(kind, positive=positive)
        else:
            spec = input_spec(kind, cal.classes_, positive=cal.positive_ if positive is None else positive)
        late = None if labels_from is None else _late_labels(labels_from, id_name, arrays, clusters, source)
        if service_options.serve is not None and not follow:
            raise InputError("--serve: without --follow the monitor ends after one look; add --follow")
        service = Service(service_options)
        size = n_calibration or (None if cal is None or n_calibration == 0 else cal.n_samples_)
        run = Run(watched, state, service, what_is_counted(cal, spec, arrays, clusters), size)
        own = (state, requests_file(state), service_options.log)
        batches = (
            lines(watched, arrays, spec, clusters, resume=resume)
            if source == STANDARD_INPUT
            else files(
                watched, Path(source), arrays, spec, cal, every if follow else None, clusters, late, run.look, own
            )
        )
        try:
            run.look()
            for batch in batches:
                count_batch(watched, cal, batch)
                run.save("batch", source=batch.source)
        except KeyboardInterrupt:
            typer.echo("stopped; the same command continues", err=True)
        finally:
            service.close()
        watched.save(state)
        _show(watched, as_json=as_json)
        if watched.open_alarms and artifact is not None and not as_json:
            typer.echo(
                f"to learn from labeled samples: rhocal update {artifact} FILE -s online.safetensors -o NEW.safetensors, and "
                "--reset this monitor if the calibrator changes",
                err=True,
            )
        if watched.open_alarms:
            raise typer.Exit(1)


def _late_labels(folder: Path, id_name: str, arrays: Arrays, clusters: str | None, source: str) -> LateLabels:
    from rhocal.data.labels.late import LateLabels

    if source == STANDARD_INPUT or clusters is not None:
        raise InputError("--labels-from: labels that come later are joined with files of a folder, without --clusters")
    return LateLabels(folder, id_name, arrays.labels_name)


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
    if promise is None and policy is not None and (policy.certificate is not None or policy.sets is not None):
        what = "its prediction sets" if policy.certificate is None else f"a mean {policy.certificate.risk}"
        typer.echo(f"the promise of -c about {what} is not watched; calibration is", err=True)
    if watched.promise is None:
        watched.promise = promise
    elif promise is None or (promise.risk, promise.target) != (watched.promise.risk, watched.promise.target):
        raise InputError(
            f"{state} watches a promise of {watched.promise.risk} at {watched.promise.target:g}, which the policy of -c does "
            "not make; begin another state with -s"
        )


def _show(watched: Monitor, *, as_json: bool) -> None:
    from rhocal.data.labels.late import n_waiting
    from rhocal.reporting import tables
    from rhocal.reporting.monitor import table_values

    summary = watched.values() | {"waiting_samples": n_waiting(watched.positions)}
    if as_json:
        print_json(summary)
        return
    names = {
        "all": "all samples",
        "recent": f"recent (half-life {watched.half_life:,g})",
        "rolling": f"rolling (last {watched.window:,})",
    }
    was_reset = any(event.get("event") == "reset" for event in watched.history)
    tables.console().print(tables.pairs(table_values(summary, names, was_reset=was_reset), "monitor"))
