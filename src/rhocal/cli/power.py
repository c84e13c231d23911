"""`rhocal power`: how many samples it takes to detect a miscalibration, and how many until the verdict is decided."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.artifacts import load_calibrators
from rhocal.cli.execution import IN_MEMORY
from rhocal.cli.options import Arrays, Json, SpecOptions, ToleranceOption, grouped, print_json
from rhocal.errors import InputError
from rhocal.metrics.inference.defaults import SIGNIFICANCE_LEVEL
from rhocal.metrics.inference.power import EXCESSES, POWER
from rhocal.metrics.inference.verdict import enough_text, points

if TYPE_CHECKING:
    from rhocal.data.predictions import Predictions
    from rhocal.evaluation.evaluation import Evaluation


@grouped
def power(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A file of logits, for its confidences; with labels also for its verdict.",
            show_default=False,
        ),
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
    artifact: Annotated[
        Path | None, typer.Option("-c", "--calibrator", help="A calibrator to apply first.", show_default=False)
    ] = None,
    tolerance: ToleranceOption = 0.02,
    *,
    arrays: Arrays,
    spec: SpecOptions,
    as_json: Json = False,
) -> None:
    """Print how many samples it takes to detect an over-confidence, and how many until the verdict is decided.

    The table is about the confidence in the predicted class, not about a rare class: at that sample size an over-confidence of
    x everywhere is distinguished from perfect calibration. To show that an error is *within* a tolerance takes more samples,
    the more the closer the error is to it. Of a file with labels a line below the table gives that number, by the calculation
    of `rhocal evaluate`: whether its verdict is decided, and about how many samples would decide it. With --design-effect there
    is no such line.
    """
    import numpy as np
    from rich.table import Table

    from rhocal.evaluation.evaluate import check_tolerance, infer
    from rhocal.evaluation.samples import Samples
    from rhocal.metrics.inference import samples_needed, typical_confidences
    from rhocal.numerics.special import softmax
    from rhocal.reporting import tables

    if (source is None) == (accuracy is None):
        raise InputError("power takes either a file of logits or --accuracy")
    try:
        excesses = [float(text) for text in excess.split(",")]
    except ValueError as error:
        raise InputError(f"--excess takes numbers separated by commas; got {excess!r}") from error
    check_tolerance(tolerance, "--tolerance")
    evaluation = None
    if source is not None:
        data = _predictions(source, artifact, arrays, spec)
        confidence = softmax(data.logits.astype(np.float64)).max(axis=1)
        what = f"the confidences of {source}" + (f" after {artifact}" if artifact else "")
        if data.labels is not None and design_effect == 1:
            evaluation = infer(Samples.from_predictions(data), tolerance=tolerance)
    else:
        assert accuracy is not None
        if artifact is not None:
            raise InputError("-c needs a file of logits; --accuracy stands for a model without one")
        confidence, what = typical_confidences(accuracy), f"typical confidences of a model with accuracy {accuracy:g}"
    sizes = samples_needed(confidence, excesses, power=chance, level=level, design_effect=design_effect)
    if as_json:
        document = {"power": chance, "level": level, "needed": [vars(needed) for needed in sizes]}
        print_json(document | ({} if evaluation is None else {"verdict": _verdict(evaluation)}))
        return
    table = Table("true ECE", "samples needed", "floor at that size", title=what, title_justify="left")
    for needed in sizes:
        n = f"{needed.n_samples:,}" if needed.n_samples else "more than 100,000,000"
        table.add_row(f"{needed.excess:g}", n, f"{needed.floor:.4f}" if needed.n_samples else "")
    tables.console().print(table)
    typer.echo(
        f"to detect it with {100 * chance:g} % power, with false alarms for {100 * level:g} % of calibrated models"
    )
    if evaluation is not None:
        typer.echo(_verdict_text(evaluation))


def _predictions(source: Path, artifact: Path | None, arrays: Arrays, spec: SpecOptions) -> Predictions:
    """The test split of a file, after a calibrator if there is one."""
    from rhocal.evaluation.measure import apply_calibrator

    loaded = load_calibrators([] if artifact is None else [artifact], source, arrays)
    calibrator = next(iter(loaded.values()), None)
    arrays = arrays.of_calibrator(calibrator, source)
    stated = spec.spec(loaded.values())
    has_labels = arrays.contents(source, stated.classes).has_labels("test")
    data = IN_MEMORY.open(source, arrays, stated, "test", needs_labels=has_labels).predictions
    return apply_calibrator(calibrator, data)


def _verdict(evaluation: Evaluation) -> dict[str, Any]:
    """What the verdict has decided, and about how many samples it takes if it has not."""
    return {
        "state": evaluation.state,
        "tolerance": evaluation.tolerance,
        "n_samples": evaluation.n_samples,
        "n_needed": evaluation.n_needed,
    }


def _verdict_text(evaluation: Evaluation) -> str:
    verdict = f"the verdict for a tolerance of {points(evaluation.tolerance)}"
    if evaluation.state == "undecided":
        return f"{verdict} is undecided at {evaluation.n_samples:,} samples: {enough_text(evaluation.n_needed)}"
    return f"{verdict} is decided at {evaluation.n_samples:,} samples: {evaluation.state} it"
