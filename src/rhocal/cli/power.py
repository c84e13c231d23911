"""`rhocal power`: how many samples it takes to detect a miscalibration, and how many until the verdict is decided."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.artifacts import load_calibrators
from rhocal.cli.execution import IN_MEMORY, clusters_of
from rhocal.cli.options import (
    Arrays,
    ClustersOption,
    Json,
    SpecOptions,
    ToleranceOption,
    WeightKindOption,
    grouped,
    print_json,
)
from rhocal.errors import InputError
from rhocal.metrics.inference.defaults import SIGNIFICANCE_LEVEL
from rhocal.metrics.inference.power import EXCESSES, POWER
from rhocal.metrics.inference.verdict import enough_text, points

if TYPE_CHECKING:
    from rhocal.data.predictions import Predictions
    from rhocal.evaluation.evaluation import Evaluation
    from rhocal.evaluation.samples import Samples
    from rhocal.metrics.inference.design import SamplingDesign
    from rhocal.numerics.special import Vector

DEFAULT_EXCESS = ",".join(map(str, EXCESSES))


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
    excess: Annotated[
        str, typer.Option(help="True ECEs to look for, separated by commas; below the mean confidence.")
    ] = DEFAULT_EXCESS,
    chance: Annotated[float, typer.Option("--power", help="The probability of detecting it.")] = POWER,
    level: Annotated[float, typer.Option(help="The probability of a false alarm.")] = SIGNIFICANCE_LEVEL,
    design_effect: Annotated[
        float | None,
        typer.Option(
            help="Samples for each independent one, where they are clustered or weighted; by default that of the file.",
            show_default=False,
        ),
    ] = None,
    artifact: Annotated[
        Path | None, typer.Option("-c", "--calibrator", help="A calibrator to apply first.", show_default=False)
    ] = None,
    tolerance: ToleranceOption = 0.02,
    *,
    clusters: ClustersOption = None,
    weight_kind: WeightKindOption = None,
    arrays: Arrays,
    spec: SpecOptions,
    as_json: Json = False,
) -> None:
    """Print how many samples it takes to detect an over-confidence, and how many until the verdict is decided.

    The table is about the confidence in the predicted class, not about a rare class: at that sample size an over-confidence of
    x everywhere is distinguished from perfect calibration. To show that an error is *within* a tolerance takes more samples,
    the more the closer the error is to it. Of a file with labels a line below the table gives that number, by the calculation
    of `rhocal evaluate`: whether its verdict is decided, and about how many samples would decide it. With --design-effect there
    is no such line. Samples are counted as they come: with --clusters and with weights that correct a selection it takes more.
    """
    from rhocal.evaluation.evaluate import check_tolerance, infer
    from rhocal.metrics.inference import samples_needed, typical_confidences
    from rhocal.reporting import tables
    from rhocal.reporting.fitted_table import FittedTable

    if (source is None) == (accuracy is None):
        raise InputError("power takes either a file of logits or --accuracy")
    try:
        excesses = EXCESSES if excess == DEFAULT_EXCESS else [float(text) for text in excess.split(",")]
    except ValueError as error:
        raise InputError(f"--excess takes numbers separated by commas; got {excess!r}") from error
    check_tolerance(tolerance, "--tolerance")
    evaluation = samples = weights = None
    effect = 1.0
    if source is not None:
        data, design = _predictions(source, artifact, arrays, spec, clusters, weight_kind)
        confidence, weights, samples, effect = _confidences(data, design)
        what = f"the confidences of {source}" + (f" after {artifact}" if artifact else "")
        if samples is not None and design_effect is None:
            evaluation = infer(samples, tolerance=tolerance)
    else:
        assert accuracy is not None
        if artifact is not None:
            raise InputError("-c needs a file of logits; --accuracy stands for a model without one")
        if clusters is not None or weight_kind is not None:
            raise InputError("--clusters and --weight-kind need a file; use --design-effect beside --accuracy")
        confidence, what = typical_confidences(accuracy), f"typical confidences of a model with accuracy {accuracy:g}"
    effect = effect if design_effect is None else design_effect
    options: dict[str, Any] = {"power": chance, "level": level, "design_effect": effect, "sample_weight": weights}
    sizes = samples_needed(confidence, excesses, **options)
    if as_json:
        document = {"power": chance, "level": level, "needed": [vars(needed) for needed in sizes]}
        print_json(document | ({} if evaluation is None else {"verdict": _verdict(evaluation, _size(samples))}))
        return
    rows = []
    for needed in sizes:
        n = f"{needed.n_samples:,}" if needed.n_samples else "more than 100,000,000"
        rows.append((f"{needed.excess:g}", n, f"{needed.floor:.4f}" if needed.n_samples else ""))
    tables.console().print(FittedTable(("true ECE", "samples needed", "floor at that size"), rows, what))
    typer.echo(
        f"to detect it with {100 * chance:g} % power, with false alarms for {100 * level:g} % of calibrated models"
    )
    if evaluation is not None:
        typer.echo(_verdict_text(evaluation, _size(samples)))


def _predictions(
    source: Path,
    artifact: Path | None,
    arrays: Arrays,
    spec: SpecOptions,
    clusters: str | None,
    weight_kind: str | None,
) -> tuple[Predictions, SamplingDesign]:
    """The test split of a file, after a calibrator if there is one, and how its samples were drawn."""
    from rhocal.evaluation.measure import apply_calibrator
    from rhocal.metrics.inference.design import SamplingDesign

    arrays.check_weight_kind(weight_kind)
    loaded = load_calibrators([] if artifact is None else [artifact], source, arrays)
    calibrator = next(iter(loaded.values()), None)
    arrays = arrays.of_calibrator(calibrator, source)
    stated = spec.spec(loaded.values())
    has_labels = arrays.contents(source, stated.classes).has_labels("test")
    opened = IN_MEMORY.open(source, arrays, stated, "test", needs_labels=has_labels)
    names = None
    if has_labels and (clusters := clusters_of(opened, clusters)) is not None:
        names = IN_MEMORY.open(source, arrays, stated, "test", clusters).predictions.groups
    elif clusters is not None:
        raise InputError(f"{source} has no labels, which --clusters needs: use --design-effect")
    return apply_calibrator(calibrator, opened.predictions), SamplingDesign(weight_kind, names)


def _confidences(data: Predictions, design: SamplingDesign) -> tuple[Vector, Vector, Samples | None, float]:
    """Confidences with their weights, the samples if they have labels, and samples for each independent one."""
    import numpy as np

    from rhocal.evaluation.samples import Samples
    from rhocal.metrics import Scored
    from rhocal.numerics.special import softmax

    weights = data.counts
    if data.labels is not None:
        samples = Samples.from_predictions(data).with_design(design)
        effective = samples.scored
    else:
        samples = None
        design.check_weights(weights)
        confidence = softmax(data.logits.astype(np.float64)).max(axis=1)
        effective = design.apply(Scored(confidence, confidence, confidence, confidence, weights))
    effect = float(design.counts(weights).sum() / effective.weights.sum())
    return effective.confidence, weights, samples, max(effect, 1.0)


def _size(samples: Samples | None) -> int:
    """Samples, as the verdict counts them."""
    assert samples is not None
    return round(float((samples.scored.weights if samples.counts is None else samples.counts).sum()))


def _verdict(evaluation: Evaluation, n_samples: int) -> dict[str, Any]:
    """What the verdict has decided, and about how many samples it takes if it has not."""
    return {
        "state": evaluation.state,
        "tolerance": evaluation.tolerance,
        "n_samples": n_samples,
        "n_needed": evaluation.n_needed,
    }


def _verdict_text(evaluation: Evaluation, n_samples: int) -> str:
    verdict = f"the verdict for a tolerance of {points(evaluation.tolerance)}"
    if evaluation.state == "undecided":
        return f"{verdict} is undecided at {n_samples:,} samples: {enough_text(evaluation.n_needed)}"
    return f"{verdict} is decided at {n_samples:,} samples: {evaluation.state} it"
