"""`rhocal split`: one file of logits and labels becomes one with a calibration and a test split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rhocal.cli.options import Arrays, InputFile, Json, grouped, print_json
from rhocal.errors import InputError


@grouped
def split(
    source: InputFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write: .npz or .safetensors.")],
    share: Annotated[float, typer.Option("--cal", help="The share of the samples in the calibration split.")] = 0.5,
    seed: Annotated[int, typer.Option(help="The seed of the random order.")] = 0,
    *,
    arrays: Arrays,
    as_json: Json = False,
) -> None:
    """Cut a file at random into a calibration and a test split, as the other commands take them."""
    import numpy as np

    from rhocal.data.formats import write_arrays

    contents = arrays.contents(source)
    if contents.has_splits:
        raise InputError(f"{source} has two splits already")
    whole = contents.calibration_set()
    n = whole.n_rows
    n_calibration = round(share * n)
    if not 0 < n_calibration < n:
        raise InputError(f"--cal must leave samples on both sides; {share} of {n:,} are {n_calibration:,}")
    order = np.random.default_rng(seed).permutation(n)
    halves = {"val": order[:n_calibration], "test": order[n_calibration:]}
    parts = {} if contents.classes is None else {"classes": np.asarray(contents.classes)}
    for name, rows in halves.items():
        parts[f"logits_{name}"] = np.asarray(whole.scores)[rows]
        parts[f"labels_{name}"] = np.asarray(whole.labels)[rows]
    write_arrays(output, parts)
    if as_json:
        print_json({"output": str(output), "n_calibration": n_calibration, "n_test": n - n_calibration, "seed": seed})
    else:
        typer.echo(f"{n_calibration:,} calibration samples, {n - n_calibration:,} test samples: {output}")
