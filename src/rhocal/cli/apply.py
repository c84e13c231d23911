"""`rhocal apply`: a saved calibrator and a file of logits become a file of probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rhocal.cli.options import (
    BLOCKS,
    Arrays,
    ClassAxis,
    ExecutionOptions,
    GroupsOption,
    Json,
    SourceFile,
    StreamOption,
    grouped,
    input_spec,
    print_json,
)
from rhocal.errors import InputError


@grouped
def apply_(
    artifact: Annotated[Path, typer.Argument(help="A calibrator saved by `rhocal fit`.", show_default=False)],
    source: SourceFile,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="The file to write: .npz, .npy, .csv, .tsv, .jsonl, .parquet or .safetensors."
        ),
    ],
    write: Annotated[str, typer.Option("--write", help="Write `probs` or calibrated `logits`.")] = "probs",
    kind: Annotated[str | None, typer.Option("--kind", help="What the scores are, if not as in the fit.")] = None,
    *,
    arrays: Arrays,
    class_axis: ClassAxis = -1,
    groups: GroupsOption = None,
    stream: StreamOption = None,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Discard what an interrupted run has written.", rich_help_panel=BLOCKS),
    ] = False,
    as_json: Json = False,
) -> None:
    """Apply a calibrator to a file of logits.

    The output holds the probabilities (or logits), the predicted class and the confidence of every sample, and the labels
    if the file has them; a .npy file holds the first of these. The test split is used if the file has one. Files that are
    read block by block are written block by block (.npy or .safetensors); the same command continues an interrupted run.
    """
    from rhocal.calibrators.applying import WRITE, apply_source
    from rhocal.calibrators.artifact import load
    from rhocal.data.atomic import check_output

    if write not in WRITE:
        raise InputError(f"--write is {' or '.join(WRITE)}; got {write!r}")
    check_output(output, [source, artifact])
    calibrator = load(artifact)
    execution = ExecutionOptions(stream)
    spec = input_spec(kind or calibrator.kind_, calibrator.classes_, None, class_axis, calibrator.positive_)
    arrays = arrays.of_calibrator(calibrator, source)
    scores = execution.open(source, arrays, spec, "test", groups, needs_labels=False)
    with execution.progress("applying", scores) as blocks:
        document = apply_source(calibrator, blocks, output, write=write, restart=restart)
    if as_json:
        print_json({"output": str(output), "method": calibrator.label, **document})
        return
    resumed = f" (from row {document['resumed_at']:,} on)" if document["resumed_at"] else ""
    typer.echo(f"{document['rows']:,} rows of {write}, calibrated with {calibrator.label}{resumed}: {output}")
