"""`rhocal apply`: a saved calibrator and a file of logits become a file of probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rhocal.cli.options import (
    Arrays,
    ClassAxis,
    GroupsOption,
    Json,
    SourceFile,
    grouped,
    groups_of,
    kind_of,
    print_json,
)
from rhocal.cli.streaming import BLOCKS, TEST, ExecutionOptions, StreamOption, bar, opened
from rhocal.errors import InputError


@grouped
def apply_(
    artifact: Annotated[Path, typer.Argument(help="A calibrator saved by `rhocal fit`.", show_default=False)],
    source: SourceFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file to write: .npz, .npy, .csv or .safetensors.")
    ],
    what: Annotated[str, typer.Option("--write", help="Write `probs` or calibrated `logits`.")] = "probs",
    kind: Annotated[str | None, typer.Option("--kind", help="What the numbers are, if not as in the fit.")] = None,
    *,
    arrays: Arrays,
    class_axis: ClassAxis = -1,
    groups: GroupsOption = None,
    stream: StreamOption = None,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Begin anew, whatever an interrupted run left.", rich_help_panel=BLOCKS),
    ] = False,
    as_json: Json = False,
) -> None:
    """Calibrate a file of logits: probabilities, predicted class and confidence of every sample.

    If the file has a tune and a test split, the test split is used. Files larger than a quarter of the memory are read and
    written block by block (.npy or .safetensors); interrupted, the same command goes on where it stopped.
    """
    import numpy as np

    from rhocal.calibrators import applying
    from rhocal.calibrators.artifact import load
    from rhocal.data import files
    from rhocal.data.atomic import check_output

    if what not in {"probs", "logits"}:
        raise InputError(f"--write is probs or logits; got {what!r}")
    check_output(output, [source, artifact])
    cal = load(artifact)
    how = ExecutionOptions(stream)
    if how.wanted(source):
        how.refuse({"--groups": groups is not None, "--class-axis": class_axis != -1})
        blocks = opened(source, arrays, TEST, how)
        with bar("applying", blocks) as step:
            done = applying.apply(cal, blocks, output, what=what, kind=kind, step=step, restart=restart)
        if as_json:
            print_json({"output": str(output), "method": cal.name, **done})
        else:
            resumed = f" (from row {done['resumed_at']:,} on)" if done["resumed_at"] else ""
            typer.echo(f"{done['rows']:,} rows of {what}, calibrated with {cal.name}{resumed}: {output}")
        return
    split = arrays.read(source, groups).for_testing()
    spec: dict[str, Any] = {
        "kind": None if kind is None else kind_of(kind),
        "class_axis": class_axis,
        "groups": groups_of(groups, source, split),
    }
    probs = cal.predict_proba(split.logits, **spec)
    written = {what: probs if what == "probs" else cal.transform(split.logits, **spec)}
    written["predicted"] = cal.predict(split.logits, **spec)
    written["confidence"] = probs.max(axis=class_axis)
    if split.labels is not None:
        written["labels"] = np.asarray(split.labels)
    files.write_arrays(output, written)
    document = {"output": str(output), "shape": list(probs.shape), "arrays": list(written), "method": cal.name}
    if as_json:
        print_json(document)
    else:
        typer.echo(f"{' × '.join(f'{n:,}' for n in probs.shape)} {what}, calibrated with {cal.name}: {output}")
