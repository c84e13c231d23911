"""`rhocal profile`: a file of logits becomes the few numbers a sample that fits need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rhocal.cli.options import Arrays, Json, SourceFile, SpecOptions, grouped, print_json
from rhocal.cli.streaming import TUNE, ExecutionOptions, opened, reading, skipped


@grouped
def profile(
    tune: SourceFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The .safetensors file to write.")],
    *,
    arrays: Arrays,
    spec: SpecOptions,
    how: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Keep what fits of scale calibrators need of a tune set, so that its logits need not be kept.

    `rhocal fit` takes the profile in place of the logits, for methods that scale the logits of each sample. If the file
    has a tune and a test split, the tune split is used.
    """
    from rhocal.calibrators.fitting import profile_logits
    from rhocal.data.atomic import check_output
    from rhocal.profile.saved import save_profile

    check_output(output, [tune])
    if how.wanted(tune):
        how.refuse({"--class-axis": spec.class_axis != -1})
        source = opened(tune, arrays, TUNE, how)
        with how.cluster(), reading("profiling", source, how) as blocks:
            made = profile_logits(blocks, kind=spec.kind, ignore_index=spec.ignore_index)
        n_bytes, about = source.bytes_read, skipped(source)
    else:
        contents = arrays.read(tune)
        split = contents.for_tuning()
        made = profile_logits(split.logits, split.labels, classes=contents.classes, **vars(spec))
        n_bytes, about = split.logits.nbytes, {}
    save_profile(made, output)
    document = {
        "output": str(output),
        "n_samples": made.n_samples,
        "n_classes": made.n_classes,
        "bytes": output.stat().st_size,
        **({"bytes_of_logits": n_bytes} if n_bytes else {}),  # of what workers read nothing is known here
        **about,
    }
    if as_json:
        print_json(document)
        return
    beside = f" (the logits: {n_bytes / 1e6:.1f} MB)" if n_bytes else ""
    typer.echo(
        f"{made.n_samples:,} samples, {made.n_classes:,} classes: {output.stat().st_size / 1e6:.1f} MB{beside}. "
        f"Fit with: rhocal fit {output} -o calibrator.safetensors"
    )
