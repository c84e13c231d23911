"""`rhocal profile`: a file of logits becomes the few numbers a sample that fits need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rhocal.cli.desk import (
    ClassAxis,
    IgnoreIndex,
    InputFile,
    Json,
    KindOption,
    LabelsName,
    LabelsOption,
    LogitsName,
    kind_of,
    print_json,
    read,
)


def profile(
    tune: InputFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The .safetensors file to write.")],
    kind: KindOption = "logits",
    labels: LabelsOption = None,
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    ignore_index: IgnoreIndex = None,
    class_axis: ClassAxis = -1,
    as_json: Json = False,
) -> None:
    """Keep what fits of scale calibrators need of a tune set, so that its logits need not be kept.

    `rhocal fit` takes the profile in place of the logits, for methods that scale the logits of each sample. If the file
    has a tune and a test split, the tune split is used.
    """
    from rhocal import saved_profile

    contents = read(tune, labels, logits_name, labels_name)
    split = contents.for_tuning()
    made = saved_profile.profile(
        split.logits,
        split.labels,
        kind=kind_of(kind),
        classes=contents.classes,
        ignore_index=ignore_index,
        class_axis=class_axis,
    )
    saved_profile.save_profile(made, output)
    document = {
        "output": str(output),
        "n_samples": made.n_samples,
        "n_classes": made.n_classes,
        "bytes": output.stat().st_size,
        "bytes_of_logits": split.logits.nbytes,
    }
    if as_json:
        print_json(document)
        return
    typer.echo(
        f"{made.n_samples:,} samples, {made.n_classes:,} classes: {output.stat().st_size / 1e6:.1f} MB "
        f"(the logits: {split.logits.nbytes / 1e6:.1f} MB). Fit with: rhocal fit {output} -o calibrator.safetensors"
    )
