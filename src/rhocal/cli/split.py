"""`rhocal split`: one file of logits and labels becomes one with a calibration and a test split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rhocal.cli.options import InputFile, Json, LabelsName, LabelsOption, LogitsName, print_json, read
from rhocal.errors import InputError


def split(
    source: InputFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write: .npz or .safetensors.")],
    share: Annotated[float, typer.Option("--cal", help="The share of the samples in the calibration split.")] = 0.5,
    seed: Annotated[int, typer.Option(help="The seed of the random order.")] = 0,
    labels: LabelsOption = None,
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    as_json: Json = False,
) -> None:
    """Cut a file at random into a calibration and a test split, as the other commands take them."""
    import numpy as np

    from rhocal.data import files

    contents = read(source, labels, logits_name, labels_name)
    if contents.calibration is not None and contents.test is not None:
        raise InputError(f"{source} has two splits already")
    part = contents.for_tuning()
    if part.labels is None:
        raise InputError(
            f"{source}: labels are missing", argument="labels_name", remedy="name the array that holds them"
        )
    n = len(part.logits)
    n_calibration = round(share * n)
    if not 0 < n_calibration < n:
        raise InputError(f"--cal must leave samples on both sides; {share} of {n:,} are {n_calibration:,}")
    order = np.random.default_rng(seed).permutation(n)
    halves = {"val": order[:n_calibration], "test": order[n_calibration:]}
    arrays = {}
    for name, rows in halves.items():
        arrays[f"logits_{name}"] = np.asarray(part.logits)[rows]
        arrays[f"labels_{name}"] = np.asarray(part.labels)[rows]
    if contents.classes is not None:
        arrays["classes"] = np.asarray(contents.classes)
    files.write_arrays(output, arrays)
    if as_json:
        print_json({"output": str(output), "n_calibration": n_calibration, "n_test": n - n_calibration, "seed": seed})
    else:
        typer.echo(f"{n_calibration:,} calibration samples, {n - n_calibration:,} test samples: {output}")
