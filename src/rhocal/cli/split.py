"""`rhocal split`: one file of logits and labels becomes one with a tune and a test part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rhocal.cli.options import InputFile, Json, LabelsName, LabelsOption, LogitsName, print_json, read
from rhocal.errors import InputError


def split(
    source: InputFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write: .npz or .safetensors.")],
    share: Annotated[float, typer.Option("--tune", help="The share of the samples to tune on.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Of the random order.")] = 0,
    labels: LabelsOption = None,
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    as_json: Json = False,
) -> None:
    """Cut a file at random into a part to tune on and a part to test on, as the other commands expect them."""
    import numpy as np

    from rhocal.data import files

    contents = read(source, labels, logits_name, labels_name)
    if contents.tune is not None and contents.test is not None:
        raise InputError(f"{source} has a tune and a test part already")
    part = contents.for_tuning()
    if part.labels is None:
        raise InputError(f"{source}: no labels; name them with --labels or --labels-name")
    n = len(part.logits)
    n_tune = round(share * n)
    if not 0 < n_tune < n:
        raise InputError(f"--tune must leave samples on both sides; {share} of {n:,} are {n_tune:,}")
    order = np.random.default_rng(seed).permutation(n)
    halves = {"val": order[:n_tune], "test": order[n_tune:]}
    arrays = {}
    for name, rows in halves.items():
        arrays[f"logits_{name}"] = np.asarray(part.logits)[rows]
        arrays[f"labels_{name}"] = np.asarray(part.labels)[rows]
    if contents.classes is not None:
        arrays["classes"] = np.asarray(contents.classes)
    files.write_arrays(output, arrays)
    if as_json:
        print_json({"output": str(output), "n_tune": n_tune, "n_test": n - n_tune, "seed": seed})
    else:
        typer.echo(f"{n_tune:,} samples to tune on, {n - n_tune:,} to test on: {output}")
