"""`rhocal card`: a snippet of Markdown for a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rhocal.cli.options import ClassAxis, IgnoreIndex, LabelsName, LabelsOption, LogitsName, read, with_labels


def card(
    artifact: Annotated[Path, typer.Argument(help="A calibrator saved by `rhocal fit`.", show_default=False)],
    source: Annotated[
        Path | None, typer.Option("--on", help="Logits and labels to measure on: before and after, with intervals.")
    ] = None,
    labels: LabelsOption = None,
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    ignore_index: IgnoreIndex = None,
    class_axis: ClassAxis = -1,
    seed: Annotated[int, typer.Option(help="Of the draws behind intervals and floors.")] = 0,
) -> None:
    """Print Markdown for a model card: method, parameters, and what it did on other data."""
    import datetime as dt
    import platform

    import numpy as np

    from rhocal._version import __version__
    from rhocal.calibrators.artifact import load
    from rhocal.data.predictions import predictions
    from rhocal.evaluation.evaluate import evaluate_checked
    from rhocal.reporting.model_card import model_card

    cal = load(artifact)
    facts = {
        "file": f"`{artifact.name}`",
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "versions": f"rhocal {__version__}, NumPy {np.__version__}, Python {platform.python_version()}",
    }
    if source is None:
        typer.echo(model_card(cal, facts), nl=False)
        return
    split = with_labels(read(source, labels, logits_name, labels_name))
    spec = {"ignore_index": ignore_index, "class_axis": class_axis}
    data = predictions(split.logits, split.labels, classes=cal.classes_, kind=cal.kind_, **spec)  # type: ignore[arg-type]
    after = predictions(cal.transform(data.logits, kind="logits"), data.labels)
    before, now = (evaluate_checked(one, seed=seed) for one in (data, after))
    typer.echo(model_card(cal, facts, before, now, measured_on=source.name), nl=False)
