"""`rhocal power`: how many samples it takes to see a given miscalibration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rhocal.cli.options import IN_MEMORY, Arrays, Json, KindOption, grouped, input_spec, print_json
from rhocal.errors import InputError
from rhocal.metrics.inference.defaults import SIGNIFICANCE_LEVEL
from rhocal.metrics.inference.power import EXCESSES, POWER

if TYPE_CHECKING:
    from rhocal.numerics.special import Vector


@grouped
def power(
    source: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A file of logits, for its confidences.", show_default=False)
    ] = None,
    accuracy: Annotated[
        float | None, typer.Option(help="Instead of a file: the accuracy of the model, with typical confidences.")
    ] = None,
    excess: Annotated[str, typer.Option(help="True ECEs to look for, separated by commas.")] = ",".join(
        map(str, EXCESSES)
    ),
    chance: Annotated[float, typer.Option("--power", help="The probability of detecting it.")] = POWER,
    level: Annotated[float, typer.Option(help="The probability of a false alarm.")] = SIGNIFICANCE_LEVEL,
    design_effect: Annotated[
        float,
        typer.Option(
            help="Samples for each independent one, where they are clustered or weighted; see `rhocal evaluate`."
        ),
    ] = 1.0,
    kind: KindOption = None,
    *,
    arrays: Arrays,
    as_json: Json = False,
) -> None:
    """Print the sample size at which a given over-confidence is distinguished from perfect calibration.

    The error is that of the confidence in the predicted class, not that of a rare class.
    """
    from rich.table import Table

    from rhocal.metrics.inference import samples_needed, typical_confidences
    from rhocal.reporting import tables

    if (source is None) == (accuracy is None):
        raise InputError("power takes either a file of logits or --accuracy")
    try:
        excesses = [float(text) for text in excess.split(",")]
    except ValueError as error:
        raise InputError(f"--excess takes numbers separated by commas; got {excess!r}") from error
    if source is not None:
        confidence, what = _confidences(source, kind, arrays), f"the confidences of {source}"
    else:
        assert accuracy is not None
        confidence, what = typical_confidences(accuracy), f"typical confidences of a model with accuracy {accuracy:g}"
    sizes = samples_needed(confidence, excesses, power=chance, level=level, design_effect=design_effect)
    if as_json:
        print_json({"power": chance, "level": level, "needed": [vars(needed) for needed in sizes]})
        return
    table = Table("true ECE", "samples needed", "a perfect model then scores", title=what, title_justify="left")
    for needed in sizes:
        n = f"{needed.n_samples:,}" if needed.n_samples else "more than 100,000,000"
        table.add_row(f"{needed.excess:g}", n, f"{needed.floor:.4f}" if needed.n_samples else "")
    tables.console().print(table)
    typer.echo(f"to detect it with {100 * chance:g} % power, with false alarms for {100 * level:g} % of perfect models")


def _confidences(source: Path, kind: str | None, arrays: Arrays) -> Vector:
    import numpy as np

    from rhocal.numerics.special import softmax

    data = IN_MEMORY.open(source, arrays, input_spec(kind), "test", needs_labels=False).predictions
    return np.asarray(softmax(data.logits.astype(np.float64)).max(axis=1))
