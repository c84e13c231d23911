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
from rhocal.cli.streaming import How, SkipBad, StreamOption, bar, opened, skipped
from rhocal.errors import InputError


def profile(
    tune: InputFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The .safetensors file to write.")],
    kind: KindOption = "logits",
    labels: LabelsOption = None,
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    ignore_index: IgnoreIndex = None,
    class_axis: ClassAxis = -1,
    stream: StreamOption = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Keep what fits of scale calibrators need of a tune set, so that its logits need not be kept.

    `rhocal fit` takes the profile in place of the logits, for methods that scale the logits of each sample. If the file
    has a tune and a test split, the tune split is used.
    """
    from rhocal import out_of_core, saved_profile

    how = How(stream, skip_bad)
    if how.wanted(tune):
        if class_axis != -1:
            raise InputError("--class-axis does not go with files that are read block by block")
        source = opened(tune, labels, logits_name, labels_name, ("_val", "_tune"), how)
        with bar("profiling", source) as step:
            said = {"kind": kind_of(kind), "ignore_index": ignore_index, "classes": None}
            made = out_of_core.profile(source, said, step)
        n_bytes, about = source.bytes_read, skipped(source)
    else:
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
        n_bytes, about = split.logits.nbytes, {}
    saved_profile.save_profile(made, output)
    document = {
        "output": str(output),
        "n_samples": made.n_samples,
        "n_classes": made.n_classes,
        "bytes": output.stat().st_size,
        "bytes_of_logits": n_bytes,
        **about,
    }
    if as_json:
        print_json(document)
        return
    typer.echo(
        f"{made.n_samples:,} samples, {made.n_classes:,} classes: {output.stat().st_size / 1e6:.1f} MB "
        f"(the logits: {n_bytes / 1e6:.1f} MB). Fit with: rhocal fit {output} -o calibrator.safetensors"
    )
