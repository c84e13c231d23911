"""`rhocal evaluate`: how well calibrated a file is, with and without a calibrator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.options import Arrays, InputSpec, Json, SourceFile, grouped, groups_of, print_json, with_labels
from rhocal.cli.streaming import TEST, ExecutionOptions, evaluated, keeps_numbers, measured, opened, skipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.calibrators import Calibrator
    from rhocal.data.streams import Stream
    from rhocal.evaluation.evaluation import Evaluation
    from rhocal.metrics.inference.paired import Difference

PREDICTED = "predicted"


@grouped
def evaluate(
    source: SourceFile,
    *,
    artifact: Annotated[Path | None, typer.Option("-c", "--calibrator", help="Compare with this calibrator.")] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            "--groups", help="Measure by group: an array or column of the file, another file, or `predicted`."
        ),
    ] = None,
    shown: Annotated[
        str | None, typer.Option("--metrics", help="The metrics of the table, separated by commas.", show_default=False)
    ] = None,
    arrays: Arrays,
    spec: InputSpec,
    seed: Annotated[int, typer.Option(help="Of the draws behind intervals and floors.")] = 0,
    how: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Measure calibration: as the numbers are, and with a calibrator if one is given.

    Every figure comes with a 95 % interval, with what a perfectly calibrated model scores on as many samples, and with the
    chance (p) that a perfect model looks as bad; a verdict says it in words. If the file has a tune and a test split,
    the test split is used. Files larger than memory are read block by block; beyond 20,000,000 rows, or with metrics that
    only add up, the figures come with the floor of ECE alone.
    """
    from rhocal import metrics
    from rhocal.calibrators.artifact import load
    from rhocal.data.predictions import predictions
    from rhocal.evaluation.evaluate import SHOWN, evaluate_checked
    from rhocal.metrics import inference
    from rhocal.metrics.scored import Scored

    cal = None if artifact is None else load(artifact)
    if how.wanted(source):
        how.refuse({"--groups": groups is not None, "--class-axis": spec.class_axis != -1})
        blocks = opened(source, arrays, TEST, how)
        blocks_spec = spec.of_blocks() | ({} if cal is None else {"classes": cal.classes_})
        who: dict[str, Calibrator | None] = {"uncalibrated": None} | ({} if cal is None else {cal.name: cal})
        _of_stream(
            source, blocks, who, blocks_spec, None if shown is None else _listed(shown), seed, how, as_json=as_json
        )
        return
    named = None if groups == PREDICTED else groups
    contents = arrays.read(source, named)
    split = with_labels(contents)
    data = predictions(
        split.logits,
        split.labels,
        classes=contents.classes if cal is None else cal.classes_,
        groups=groups_of(named, source, split),
        **spec.of_arrays(),
    )
    slices = PREDICTED if groups == PREDICTED else data.groups
    columns = {"uncalibrated": data}
    if cal is not None:
        calibrated = cal.transform(data.logits, kind="logits", groups=data.groups if cal.takes_groups else None)
        columns[cal.name] = predictions(calibrated, data.labels, classes=data.classes if groups else None)
    chosen = SHOWN if shown is None else _listed(shown)
    found = {
        name: evaluate_checked(column, groups=slices, metrics=chosen, seed=seed) for name, column in columns.items()
    }
    differences: dict[str, Difference] = {}
    if cal is not None:
        before, after = (Scored.from_predictions(column) for column in columns.values())
        differences = inference.differences(after, before, ["ece", "nll", "brier"], seed=seed)
    if as_json:
        figures = {name: metrics.measure_all(column) for name, column in columns.items()}
        about = {"n_samples": data.n_samples, "n_classes": data.n_classes}
        print_json({**about, **_document(figures, found, differences)})
        return
    _show(found, differences, f"{source}: {data.n_samples:,} samples, {data.n_classes} classes")


def _of_stream(
    source: Path,
    blocks: Stream,
    who: dict[str, Calibrator | None],
    spec: dict[str, Any],
    shown: list[str] | None,
    seed: int,
    how: ExecutionOptions,
    *,
    as_json: bool,
) -> None:
    """The same, block by block."""
    from rhocal.evaluation.evaluate import SHOWN
    from rhocal.evaluation.measure import COUNT, FLOOR
    from rhocal.metrics import CORE

    wanted = list(CORE) if shown is None else shown
    if not keeps_numbers(blocks, wanted):
        _show_stream(source, blocks, measured(blocks, who, spec, [*wanted, FLOOR, COUNT], how), as_json=as_json)
        return
    found, differences, figures = evaluated(blocks, who, spec, wanted, shown or SHOWN, seed, how)
    left_out = skipped(blocks)
    first = next(iter(found.values()))
    if as_json:
        about = {"n_rows": blocks.n_rows, "n_samples": first.n_samples, "n_classes": first.n_classes}
        print_json({**about, **_document(figures, found, differences), **left_out})
        return
    _show(found, differences, f"{source}: {first.n_samples:,} samples, {first.n_classes} classes, block by block")


def _document(
    figures: Mapping[str, Mapping[str, float]],
    found: Mapping[str, Evaluation],
    differences: Mapping[str, Difference],
) -> dict[str, Any]:
    return {
        "values": figures,
        "evaluation": {name: evaluation.to_dict() for name, evaluation in found.items()},
        "differences": {name: vars(difference) for name, difference in differences.items()},
    }


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


def _show_stream(source: Path, blocks: Any, measures: tuple[Any, Any], *, as_json: bool) -> None:
    """The figures of a file that was read block by block, of more samples than are kept, or with metrics that add up only."""
    from rhocal.evaluation.measure import COUNT, FLOOR
    from rhocal.reporting import tables

    found, bounds = measures
    n_samples = max(int(values.pop(COUNT)) for values in found.values())
    floors = {who: values.pop(FLOOR) for who, values in found.items()}
    left_out = skipped(blocks)
    if as_json:
        about = {"n_rows": blocks.n_rows, "n_samples": n_samples}
        print_json({**about, "values": found, FLOOR: floors, "error_at_most": bounds, **left_out})
        return
    screen = tables.console()
    screen.print(tables.metric_values(found, f"{source}: {n_samples:,} samples, block by block"))
    for who, floor in floors.items():
        screen.print(
            f"{who}: a perfectly calibrated model with these confidences has an ECE of {floor:.4f}, on average"
        )
    for name, bound in bounds.items():
        screen.print(f"{name} from a sketch in fixed memory: at most {bound:.1e} from the exact one")


def _show(found: dict[str, Evaluation], differences: dict[str, Difference], title: str) -> None:
    from rhocal.reporting import tables

    screen = tables.console()
    screen.print(title)
    for name, evaluation in found.items():
        screen.print(tables.evaluation(evaluation, name))
        screen.print(f"verdict: {evaluation.verdict}")
        screen.print(f"tests: {evaluation.tested}", end="\n\n")
        if evaluation.groups:
            screen.print(tables.groups(evaluation.groups, f"{name}, worst group first"))
    if differences:
        after, before = reversed(found)
        parts = [f"{d.metric} {d.value:+.4f} ({d.verdict})" for d in differences.values()]
        screen.print(f"{after} against {before!r}, on the same samples: {', '.join(parts)}")
