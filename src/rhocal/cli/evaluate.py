"""`rhocal evaluate`: how well calibrated a file is, with and without a calibrator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rhocal.cli.desk import (
    ClassAxis,
    GroupsOption,
    IgnoreIndex,
    InputFile,
    Json,
    KindOption,
    LabelsName,
    LabelsOption,
    LogitsName,
    groups_of,
    kind_of,
    print_json,
    read,
    with_labels,
)
from rhocal.cli.streaming import How, Scheduler, SkipBad, StreamOption, Workers, measured, opened, skipped
from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator


def evaluate(
    source: InputFile,
    *,
    artifact: Annotated[Path | None, typer.Option("-c", "--calibrator", help="Compare with this calibrator.")] = None,
    kind: KindOption = "logits",
    labels: LabelsOption = None,
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    ignore_index: IgnoreIndex = None,
    class_axis: ClassAxis = -1,
    groups: GroupsOption = None,
    stream: StreamOption = None,
    skip_bad: SkipBad = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
    as_json: Json = False,
) -> None:
    """Measure calibration: as the numbers are, and with a calibrator if one is given.

    If the file has a tune and a test split, the test split is used.
    """
    from rhocal import metrics, tables
    from rhocal.artifact import load
    from rhocal.predictions import predictions

    cal = None if artifact is None else load(artifact)
    how = How(stream, skip_bad, workers, scheduler)
    if how.wanted(source):
        if groups is not None or class_axis != -1:
            raise InputError("--groups and --class-axis do not go with files that are read block by block")
        blocks = opened(source, labels, logits_name, labels_name, ("_test",), how)
        said = {"kind": kind_of(kind), "ignore_index": ignore_index, "classes": None if cal is None else cal.classes_}
        who: dict[str, Calibrator | None] = {"as it is": None} | ({} if cal is None else {cal.name: cal})
        found, bounds = measured(blocks, who, said, how)
        about = skipped(blocks)
        if as_json:
            print_json({"n_rows": blocks.n_rows, "figures": found, "error_at_most": bounds, **about})
            return
        tables.console().print(tables.figures(found, f"{source}: {blocks.n_rows:,} rows, block by block"))
        for name, bound in bounds.items():
            tables.console().print(f"{name} from a sketch in fixed memory: at most {bound:.1e} from the exact one")
        return
    contents = read(source, labels, logits_name, labels_name)
    split = with_labels(contents)
    data = predictions(
        split.logits,
        split.labels,
        classes=contents.classes if cal is None else cal.classes_,
        kind=kind_of(kind),
        ignore_index=ignore_index,
        class_axis=class_axis,
        groups=groups_of(groups),
    )
    columns = {"as it is": metrics.figures(data)}
    if cal is not None:
        calibrated = cal.transform(data.logits, kind="logits", groups=data.groups)
        columns[cal.name] = metrics.figures(predictions(calibrated, data.labels))
    if as_json:
        print_json({"n_samples": data.n_samples, "n_classes": data.n_classes, "figures": columns})
        return
    tables.console().print(tables.figures(columns, f"{source}: {data.n_samples:,} samples, {data.n_classes} classes"))
