"""`rhocal profile`: a file of logits becomes the few numbers of each sample that fits need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rhocal.cli.execution import ExecutionOptions, skipped
from rhocal.cli.options import Arrays, FitSpecOptions, Json, SourceFile, grouped, print_json


@grouped
def profile(
    path: SourceFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The .safetensors file to write.")],
    *,
    arrays: Arrays,
    spec: FitSpecOptions,
    execution: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Reduce a calibration set to the numbers that fits of scale calibrators need.

    `rhocal fit` takes the profile in place of the logits, for methods that scale the logits of each sample. The calibration
    split is used if the file has two splits.
    """
    from rhocal.calibrators.fitting import profile_source
    from rhocal.data.storage.atomic import check_artifact_output
    from rhocal.profile.saved import save_profile

    check_artifact_output("-o", output, [path])
    source = execution.open(path, arrays, spec.spec(), "calibration")
    with execution.cluster(), execution.progress("profiling", source) as blocks:
        numbers = profile_source(blocks)
    save_profile(numbers, output)
    n_bytes = source.predictions.scores.nbytes if source.resident else source.bytes_read
    document = {
        "output": str(output),
        "n_samples": numbers.n_samples,
        "n_classes": numbers.n_classes,
        "bytes": output.stat().st_size,
        **({"bytes_of_logits": n_bytes} if n_bytes else {}),
        **skipped(source),
    }
    if as_json:
        print_json(document)
        return
    logits = f" (the logits: {n_bytes / 1e6:.1f} MB)" if n_bytes else ""
    typer.echo(
        f"{numbers.n_samples:,} samples, {numbers.n_classes:,} classes: {output.stat().st_size / 1e6:.1f} MB{logits}. "
        f"Fit with: rhocal fit {output} -o calibrator.safetensors"
    )
