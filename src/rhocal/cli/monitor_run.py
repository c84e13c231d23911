"""The run of a monitor: batches are counted, the state is saved, and alarms are reported."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from rhocal.cli.monitor_requests import carry_out_requests
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rhocal.calibrators import Calibrator
    from rhocal.cli.monitor_batches import Batch
    from rhocal.cli.monitor_service import Service
    from rhocal.cli.options import Arrays
    from rhocal.data.spec import InputSpec
    from rhocal.evaluation.monitor import Monitor


CALIBRATOR, NOTHING = "-c", ""
"""The option of the calibrator, and the value of an option that is not given."""


@contextmanager
def exclusive(state: Path) -> Iterator[None]:
    """Let no other monitor use the state: each would overwrite what the other counted. A process that is killed lets go."""
    from rhocal.data.storage.part_file import try_lock

    path = state.with_name(f".{state.name}.lock")
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        raise FileError(f"cannot write {state}: {error.strerror or error}") from error
    try:
        if not try_lock(file):
            raise InputError(f"{state} is in use by another monitor; stop it, or begin another state with -s")
        yield
    finally:
        os.close(file)


def what_is_counted(cal: Calibrator | None, spec: InputSpec, arrays: Arrays, clusters: str | None) -> dict[str, str]:
    """What a run counts, by option: the calibrator, what the scores are, and the names of what is read."""
    from rhocal.calibrators.artifact import map_checksum

    given = {
        "kind": spec.kind, "positive": spec.positive, "clusters": clusters, "weights": arrays.weights,
        "logits-name": arrays.logits_name, "labels-name": arrays.labels_name, "columns": arrays.columns,
        "classes": arrays.classes,
    }  # fmt: skip
    names = {f"--{name}": NOTHING if value is None else str(value) for name, value in given.items()}
    return {CALIBRATOR: NOTHING if cal is None else map_checksum(cal)} | names


def _refuse_others(counted: Mapping[str, str], now: Mapping[str, str], state: Path) -> None:
    """Raise an error if a state would mix samples that differ."""
    for option, value in now.items():
        before = counted.get(option, value)
        if before == value:
            continue
        was = f"with {option} {before}" if before != NOTHING else f"without {option}"
        if option == CALIBRATOR:
            another = "with another" if value != NOTHING else "with a"
            was = f"{'without a' if before == NOTHING else another} calibrator ({CALIBRATOR})"
        raise InputError(
            f"{state} was begun {was}. Repeat that; or, if the change is meant, begin the test anew with --reset NOTE, or "
            "another state with -s"
        )


class Run:
    """A monitor with its state file and its reports: what is saved is reported, and what is reported is saved.

    ``counted`` is what this run counts, and ``n_calibration`` the size of its calibration set: a reset may change both.
    """

    def __init__(
        self, watched: Monitor, state: Path, service: Service, counted: dict[str, str] | None = None,
        n_calibration: int | None = None,
    ) -> None:  # fmt: skip
        self.watched, self.state, self.service = watched, state, service
        self.counted, self.n_calibration = counted or {}, n_calibration
        self.printed = set(watched.alarms)

    def look(self) -> None:
        """Carry out requests, and report alarms that were not reported yet."""
        before = self.watched.counted or {}
        actions = carry_out_requests(self.watched, self.state)
        if "reset" in actions and before.get(CALIBRATOR) not in {None, self.counted.get(CALIBRATOR)}:
            self.watched.n_calibration = self.n_calibration
        _refuse_others(self.watched.counted or {}, self.counted, self.state)
        self.watched.counted = self.counted
        for action in actions:
            self.printed &= set(self.watched.alarms)
            self.save(action)
        self.service.report(self.watched)
        self._notify()

    def save(self, event: str, **details: Any) -> None:
        """Save the state, then report it."""
        self.watched.save(self.state)
        self.service.report(self.watched, event, **details)
        self._print()
        self._notify()

    def _notify(self) -> None:
        """Report alarms that are neither reported nor acknowledged; each once, whatever was before."""
        watched = self.watched
        new = {name: part for name, part in watched.open_alarms.items() if not part.is_notified}
        if not new:
            return
        for part in new.values():
            self.service.report(watched, "alarm", alarm_at=part.alarm_at, reason=part.alarm_reason)
        is_notified = self.service.notify(watched, new)
        for part in new.values():
            part.is_notified = is_notified
        watched.save(self.state)

    def _print(self) -> None:
        for name, part in self.watched.alarms.items():
            if name not in self.printed:
                place = f"seen at sample {part.alarm_at:,}"
                is_off = name == "calibration"
                reason = (
                    f"calibration is off, {place}; {part.alarm_reason}" if is_off else f"{part.alarm_reason}, {place}"
                )
                typer.echo(f"alarm: {reason}", err=True)
                self.printed.add(name)


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
    if block is None:
        watched.positions[batch.source] = batch.position
        return
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
