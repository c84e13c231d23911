"""`rhocal evaluate`: how well calibrated a file is, with and without a calibrator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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


def evaluate(
    source: InputFile,
    artifact: Annotated[Path | None, typer.Option("-c", "--calibrator", help="Compare with this calibrator.")] = None,
    kind: KindOption = "logits",
    labels: LabelsOption = None,
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    ignore_index: IgnoreIndex = None,
    class_axis: ClassAxis = -1,
    groups: GroupsOption = None,
    as_json: Json = False,
) -> None:
    """Measure calibration: as the numbers are, and with a calibrator if one is given.

    If the file has a tune and a test split, the test split is used.
    """
    from rhocal import metrics, tables
    from rhocal.artifact import load
    from rhocal.predictions import predictions

    contents = read(source, labels, logits_name, labels_name)
    split = with_labels(contents)
    cal = None if artifact is None else load(artifact)
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
