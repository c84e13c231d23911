"""`rhocal evaluate`: how well calibrated a file is, before and after applying calibrators."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.artifacts import load_calibrators
from rhocal.cli.execution import ExecutionOptions, clusters_of, skipped
from rhocal.cli.options import (
    Arrays,
    ClustersOption,
    Json,
    SourceFile,
    SpecOptions,
    ToleranceOption,
    WeightKindOption,
    grouped,
    print_json,
)
from rhocal.cli.top_k import score_top_k_file, top_k_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.calibrators import Calibrator
    from rhocal.data.sources import Source
    from rhocal.evaluation.evaluation import Evaluation
    from rhocal.evaluation.measure import MetricValues
    from rhocal.evaluation.samples import Samples
    from rhocal.metrics.inference.design import SamplingDesign
    from rhocal.metrics.inference.paired import Difference

PREDICTED = "predicted"

MAX_GROUP_VERDICTS = 5
"""Groups whose verdict is printed below their table; the JSON has all."""

MAX_KEPT_ROWS = 20_000_000
"""Rows of which eight numbers are kept (1.3 GB), so that values come with intervals and tests."""


@grouped
def evaluate(
    source: SourceFile,
    *,
    artifacts: Annotated[
        list[Path] | None,
        typer.Option("-c", "--calibrator", help="A calibrator to apply and compare with; repeatable."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            "--groups", help="Evaluate by group: an array or column of the file, another file, or `predicted`."
        ),
    ] = None,
    clusters: ClustersOption = None,
    weight_kind: WeightKindOption = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", help="The metrics of the table, separated by commas.", show_default=False)
    ] = None,
    tolerance: ToleranceOption = 0.02,
    max_ece: Annotated[
        float | None,
        typer.Option(
            "--max-ece",
            help="Exit with 1 if the error is shown to be above this: a gate for pipelines. It is the tolerance then.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="With --max-ece: too few samples to tell is exit code 1 as well.")
    ] = False,
    margin: Annotated[
        float | None,
        typer.Option(
            "--margin",
            help='Test whether metrics before and after differ by less than this: "equal within" it if so.',
            show_default=False,
        ),
    ] = None,
    arrays: Arrays,
    spec: SpecOptions,
    seed: Annotated[int, typer.Option(help="The seed of intervals and floors.")] = 0,
    execution: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Evaluate calibration, before and after applying calibrators.

    Each metric is printed with a 95 % interval, its noise floor (the value of a perfectly calibrated model) and a p-value,
    followed by a verdict. The test split is used if the file has one. Files that are read block by block have values
    without intervals and tests above 20,000,000 rows, and for metrics that need all probabilities at once.

    The verdict compares the error with --tolerance: shown within it, shown beyond it, or too few samples to tell. --max-ece
    is the same comparison as a gate: exit code 1 if the error of the last calibrator, or of the scores without one, is shown
    to be above it, with --strict unless it is shown to be within it.
    """
    from rhocal.errors import InputError
    from rhocal.evaluation.evaluate import DEFAULT_METRICS, UNCALIBRATED
    from rhocal.evaluation.measure import COUNT, FLOOR, Measurement, check_metrics, measure_source
    from rhocal.evaluation.samples import score
    from rhocal.metrics import CORE
    from rhocal.metrics.inference.design import SamplingDesign

    tolerance = _tolerance(tolerance, max_ece, strict=strict)
    arrays.check_weight_kind(weight_kind)
    if margin is not None and not 0 < margin < math.inf:
        raise InputError(f"--margin must be positive; got {margin:g}")
    calibrators: dict[str, Calibrator | None] = {
        UNCALIBRATED: None,
        **(loaded := load_calibrators(artifacts or [], source, arrays)),
    }
    shown = list(DEFAULT_METRICS) if metrics is None else [name.strip() for name in metrics.split(",")]
    if (top := top_k_of(source, arrays, spec, execution)) is not None:
        raw, labeled = score_top_k_file(top, calibrators, shown)
        design = SamplingDesign(weight_kind, None if clusters is None else top.beside(clusters, labeled))
        by = None if groups is None else labeled.predicted if groups == PREDICTED else top.beside(groups, labeled)
        _conclude(
            source, raw, design, by, shown, shown, tolerance, max_ece, margin, seed, strict=strict, as_json=as_json
        )
        return
    stated = spec.spec(loaded.values())
    arrays = arrays.of_calibrator(next(iter(loaded.values()), None), source)
    data = execution.open(source, arrays, stated, "test", None if groups == PREDICTED else groups)
    clusters = clusters_of(data, clusters)
    if (groups or clusters) is not None and not data.resident:
        execution.refuse({"--groups": groups is not None, "--clusters": clusters is not None})
    design = SamplingDesign(weight_kind)
    if clusters is not None:
        clustered = execution.open(source, arrays, stated, "test", clusters)
        design = replace(design, clusters=clustered.predictions.groups)
    values = list(CORE) if metrics is None or data.resident else shown
    if not _keeps_samples(data, [*shown, *values]):
        if max_ece is not None:
            raise InputError("--max-ece needs intervals; this file is too long for them, or --metrics needs all rows")
        check_metrics(values)  # before processes are started
        with execution.cluster(), execution.progress("measuring", data) as blocks:
            measured = measure_source(blocks, [Measurement(calibrators)], [*values, FLOOR, COUNT])
        _show_values(source, data, measured, as_json=as_json)
        return
    with execution.cluster(), execution.progress("measuring", data) as blocks:
        samples = score(blocks, calibrators, dict.fromkeys([*shown, *values]))
    positive = data.predictions.positive if data.resident else stated.positive
    facts = {} if data.resident else {"n_rows": data.n_rows}
    _conclude(
        source, samples, design, _groups(data, groups), shown, values, tolerance, max_ece, margin, seed,
        strict=strict, as_json=as_json, facts=facts, left_out=skipped(data), positive=positive,
    )  # fmt: skip


def _conclude(
    source: Path,
    raw: Mapping[str, Samples],
    design: SamplingDesign,
    groups: Any,
    shown: list[str],
    values: list[str],
    tolerance: float,
    max_ece: float | None,
    margin: float | None,
    seed: int,
    *,
    strict: bool,
    as_json: bool,
    facts: Mapping[str, Any] = MappingProxyType({}),
    left_out: Mapping[str, Any] = MappingProxyType({}),
    positive: Any = None,
) -> None:
    """Evaluate samples before and after calibrators, print the result, and exit with 1 where the gate is not passed."""
    from rhocal.evaluation.evaluate import UNCALIBRATED, infer
    from rhocal.evaluation.samples import pair_with_design
    from rhocal.metrics import inference

    samples = {name: part.with_design(design) for name, part in raw.items()}
    evaluations = {
        name: infer(part, shown, groups=groups, tolerance=tolerance, seed=seed) for name, part in samples.items()
    }
    differences = {
        name: inference.differences(
            *pair_with_design(part, raw[UNCALIBRATED], design), ["ece", "nll", "brier"], tolerance=margin, seed=seed
        )
        for name, part in raw.items()
        if name != UNCALIBRATED
    }
    first = evaluations[UNCALIBRATED]
    failed = max_ece is not None and _failed(evaluations, strict=strict)
    if as_json:
        gate = {} if max_ece is None else {"max_ece": max_ece, "strict": strict, "passed": not failed}
        print_json(
            {
                **facts,
                "n_samples": first.n_samples,
                "n_classes": first.n_classes,
                **({} if positive is None else {"positive": positive}),
                "values": {name: part.values(values) for name, part in samples.items()},
                "evaluation": {name: evaluation.to_dict() for name, evaluation in evaluations.items()},
                "differences": {
                    name: {metric: difference.to_dict() for metric, difference in by_metric.items()}
                    for name, by_metric in differences.items()
                },
                **gate,
                **left_out,
            }
        )
        raise typer.Exit(int(failed))
    suffix = ", block by block" if facts else ""
    _show(
        evaluations,
        differences,
        f"{source}: {first.size}{suffix}",
    )
    if max_ece is not None:
        print(f"--max-ece {max_ece:g}: {_gate_text(evaluations, strict=strict)}")
        raise typer.Exit(int(failed))


def _tolerance(tolerance: float, max_ece: float | None, *, strict: bool) -> float:
    """The tolerance of the verdict: that of the gate, if there is one."""
    from rhocal.errors import InputError
    from rhocal.evaluation.evaluate import check_tolerance

    check_tolerance(tolerance, "--tolerance")
    if strict and max_ece is None:
        raise InputError("--strict needs --max-ece, the error that is allowed")
    if max_ece is None:
        return tolerance
    check_tolerance(max_ece, "--max-ece")
    return max_ece


def _failed(evaluations: Mapping[str, Evaluation], *, strict: bool) -> bool:
    """Whether the error of the last calibrator, or of the scores without one, is shown to be beyond the tolerance.

    If ``strict``: whether it is not shown to be within it.
    """
    state = list(evaluations.values())[-1].state
    return state != "within" if strict else state == "beyond"


def _gate_text(evaluations: Mapping[str, Evaluation], *, strict: bool) -> str:
    name, last = list(evaluations.items())[-1]
    outcome = "failed, as it is" if strict else "passed, but"
    return {
        "beyond": f"failed: the error of {name} is shown to be above it",
        "within": f"passed: the error of {name} is shown to be within it",
        "undecided": f"{outcome} not shown: too few samples to tell whether the error of {name} is within it",
    }[last.state]


def _keeps_samples(data: Source, metrics: list[str]) -> bool:
    """Whether the samples are kept for intervals and tests, or only sums of them for the values."""
    from rhocal.evaluation.samples import STREAMED_METRICS

    is_short = data.n_rows is not None and data.n_rows <= MAX_KEPT_ROWS
    return data.resident or (is_short and all(name in STREAMED_METRICS for name in metrics))


def _groups(data: Source, groups: str | None) -> Any:
    """The groups to evaluate by: predicted classes, or the groups of the file."""
    if groups is None or groups == PREDICTED:
        return groups
    return data.predictions.groups


def _show_values(source: Path, data: Source, measured: MetricValues, *, as_json: bool) -> None:
    """Print the values of a file without intervals and tests."""
    from rhocal.evaluation.measure import COUNT, FLOOR
    from rhocal.reporting import tables

    values = measured.values
    n_samples = max(int(part.pop(COUNT)) for part in values.values())
    floors = {name: part.pop(FLOOR) for name, part in values.items()}
    left_out = skipped(data)
    if as_json:
        counts = {"n_rows": data.n_rows, "n_samples": n_samples}
        print_json({**counts, "values": values, FLOOR: floors, "error_at_most": measured.error_bounds, **left_out})
        return
    screen = tables.console()
    screen.print(tables.metric_values(values, f"{source}: {n_samples:,} samples, block by block"))
    for name, floor in floors.items():
        screen.print(f"{name}: a perfectly calibrated model with these confidences has a mean ECE of {floor:.4f}")
    for name, bound in measured.error_bounds.items():
        screen.print(f"{name} comes from a sketch in fixed memory, at most {bound:.1e} from the exact value")


def _show(
    evaluations: Mapping[str, Evaluation], differences: Mapping[str, Mapping[str, Difference]], title: str
) -> None:
    from rhocal.metrics.inference.defaults import SIGNIFICANCE_LEVEL
    from rhocal.reporting import tables

    screen = tables.console()
    screen.print(title)
    for name, evaluation in evaluations.items():
        screen.print(tables.evaluation(evaluation, name))
        screen.print(f"verdict: {evaluation.verdict}")
        screen.print(f"tests: {evaluation.tested}")
        for note in evaluation.notes:
            screen.print(note)
        if evaluation.positive is not None:
            screen.print(evaluation.positive_line)
        elif evaluation.classes:
            screen.print(tables.classes(evaluation, f"{name}, the classes that differ most"))
        screen.print()
        if evaluation.groups:
            screen.print(tables.groups(evaluation.groups, f"{name}, worst group first"))
            detected = [group for group in evaluation.groups if group.p_value <= SIGNIFICANCE_LEVEL]
            for group in detected[:MAX_GROUP_VERDICTS]:  # the ECE of the table may be low where a class is wrong
                screen.print(f"{group.group}: {group.verdict}")
    for name, by_metric in differences.items():
        parts = ", ".join(str(difference) for difference in by_metric.values())
        screen.print(f"{name} against {next(iter(evaluations))!r}, on the same samples: {parts}")
