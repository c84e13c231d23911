"""`rhocal apply`: a saved calibrator and a file of logits become a file of probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rhocal.cli.desk import (
    ClassAxis,
    GroupsOption,
    InputFile,
    Json,
    LabelsName,
    LogitsName,
    groups_of,
    kind_of,
    print_json,
    read,
)
from rhocal.errors import InputError


def apply_(
    artifact: Annotated[Path, typer.Argument(help="A calibrator saved by `rhocal fit`.", show_default=False)],
    source: InputFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file to write: .npz, .npy, .csv or .safetensors.")
    ],
    what: Annotated[str, typer.Option("--write", help="Write `probs` or calibrated `logits`.")] = "probs",
    kind: Annotated[str | None, typer.Option("--kind", help="What the numbers are, if not as in the fit.")] = None,
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    class_axis: ClassAxis = -1,
    groups: GroupsOption = None,
    as_json: Json = False,
) -> None:
    """Calibrate a file of logits: probabilities, predicted class and confidence of every sample.

    If the file has a tune and a test split, the test split is used.
    """
    import numpy as np

    from rhocal import files
    from rhocal.artifact import load

    if what not in {"probs", "logits"}:
        raise InputError(f"--write is probs or logits; got {what!r}")
    cal = load(artifact)
    split = read(source, None, logits_name, labels_name, groups).for_testing()
    said: dict[str, Any] = {
        "kind": None if kind is None else kind_of(kind),
        "class_axis": class_axis,
        "groups": groups_of(groups, source, split),
    }
    probs = cal.predict_proba(split.logits, **said)
    arrays = {what: probs if what == "probs" else cal.transform(split.logits, **said)}
    arrays["predicted"] = cal.predict(split.logits, **said)
    arrays["confidence"] = probs.max(axis=class_axis)
    if split.labels is not None:
        arrays["labels"] = np.asarray(split.labels)
    files.write_arrays(output, arrays)
    document = {"output": str(output), "shape": list(probs.shape), "arrays": list(arrays), "method": cal.name}
    if as_json:
        print_json(document)
    else:
        typer.echo(f"{' × '.join(f'{n:,}' for n in probs.shape)} {what}, calibrated with {cal.name}: {output}")
