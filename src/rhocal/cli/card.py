"""`rhocal card`: a snippet of Markdown for a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rhocal.cli.execution import IN_MEMORY
from rhocal.cli.options import Arrays, ClassAxis, IgnoreIndex, grouped, input_spec


@grouped
def card(
    artifact: Annotated[
        Path, typer.Argument(metavar="CALIBRATOR", help="The file that `rhocal fit` wrote.", show_default=False)
    ],
    source: Annotated[
        Path | None, typer.Option("--on", help="Logits and labels to measure on: before and after, with intervals.")
    ] = None,
    *,
    arrays: Arrays,
    ignore_index: IgnoreIndex = None,
    class_axis: ClassAxis = -1,
    seed: Annotated[int, typer.Option(help="The seed of intervals and floors.")] = 0,
) -> None:
    """Print Markdown for a model card: method, parameters, and what it did on other data."""
    import datetime as dt
    import platform

    import numpy as np

    from rhocal import __version__
    from rhocal.calibrators.artifact import load
    from rhocal.evaluation.evaluate import infer
    from rhocal.evaluation.measure import apply_calibrator
    from rhocal.evaluation.samples import Samples
    from rhocal.reporting.model_card import code, model_card

    cal = load(artifact)
    facts = {
        "file": code(artifact.name),
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "versions": f"rhocal {__version__}, NumPy {np.__version__}, Python {platform.python_version()}",
    }
    if source is None:
        typer.echo(model_card(cal, facts), nl=False)
        return
    spec = input_spec(cal.kind_, cal.classes_, ignore_index, class_axis, cal.positive_)
    data = IN_MEMORY.open(source, arrays.of_calibrator(cal, source), spec, "test").predictions
    views = data, apply_calibrator(cal, data)
    before, after = (infer(Samples.from_predictions(view), seed=seed) for view in views)
    typer.echo(model_card(cal, facts, before, after, measured_on=source.name), nl=False)
