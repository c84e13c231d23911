"""`rhocal demo`: three models whose probabilities are wrong, before and after calibration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.compare import show_comparison
from rhocal.cli.options import Arrays, Json, print_json
from rhocal.cli.report import write
from rhocal.data.storage.atomic import make_folder
from rhocal.errors import MissingExtraError

if TYPE_CHECKING:
    from rhocal.data.predictions import Predictions
    from rhocal.evaluation.rows import Row
    from rhocal.reporting.overview import ModelSummary

HEADLINES = {"images": "rho-norm", "table": "auto", "options": "field"}
"""The paper's method; the default of `rhocal fit`; and for options, whose position means nothing, one that treats all alike."""
SHOWN = ("identity", "temperature", "rho-norm", "field", "vector", "svs:field", "isotonic", "histogram-binning", "auto")
"""What is compared; `rhocal compare --methods all` runs all."""
IN_THE_REPORT = ("temperature", "rho-norm", "field", "histogram-binning", "auto")
"""What the report of each model shows beside the uncalibrated model."""
TITLES = {
    "images": "An image network",
    "table": "A classifier of a table with rare positives",
    "options": "Multiple-choice options of a language model",
}
ABOUT = {
    "images": "A small network on CIFAR-10, trained until it knows its training images by heart.",
    "table": "Gradient boosting on generated payments, one in 25 fraudulent, trained with balanced class weights.",
    "options": "A trigram model of words chooses the true continuation of a sentence.",
}
LESSONS = {
    "images": "Calibration removed the error, and no prediction changed.",
    "table": "The predicted class hides a rare class: look at the probability of the class itself.",
    "options": "No error is detected any more, but 3,000 questions are too few to show that it is within the tolerance. "
    "Label more, or state a wider tolerance.",
}
"""What each model teaches; the verdicts of the shipped files are fixed."""


@dataclass(frozen=True)
class Shown:
    """A shipped file with the methods fitted on it."""

    name: str
    rows: list[Row]
    calibrators: dict[str, Any]
    calibration: Predictions
    test: Predictions


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for what the demo writes.")] = Path(
        "rhocal-demo"
    ),
    as_json: Json = False,
) -> None:
    """Calibrate three models that are shipped with rhocal, and write a report.

    They are an over-confident image network, a classifier of a table with rare positives, and options of a language model.
    """
    from rhocal.data.demo import STORY
    from rhocal.evaluation.rows import summary, write_rows
    from rhocal.reporting import tables

    make_folder(output)
    with tables.progress("fitting", len(SHOWN) * len(STORY)) as step:
        shown = [_fit(name, output, step) for name in STORY]
    write_rows(output / "comparison.csv", [row.flat() for part in shown for row in part.rows])
    if as_json:
        print_json({part.name: summary(part.rows) for part in shown})
    models = [_describe(part, quiet=as_json) for part in shown]
    commands = [
        f"rhocal evaluate {output / 'table.npz'} -c {output / 'table.safetensors'}",
        f"rhocal compare {output / 'images.npz'} --methods all",
        f"rhocal decide {output / 'images.npz'} -c {output / 'images.safetensors'} --max-error 0.05",
    ]
    try:
        _write_pages(shown, models, output, commands)
    except MissingExtraError as error:
        typer.echo(f"no report: {error}", err=True)
    if not as_json:
        _say_next(output, commands)


def _fit(name: str, output: Path, step: Any) -> Shown:
    """Copy a shipped file, fit all methods on its calibration set, and measure them on its test set."""
    from rhocal import calibrator
    from rhocal.data.demo import demo_file
    from rhocal.evaluation.compare import compare, file_sources, splits

    path = output / f"{name}.npz"
    path.write_bytes(demo_file(name).read_bytes())
    (split,) = splits(*file_sources(Arrays().contents(path)))
    calibrators = {method: calibrator(method) for method in SHOWN}
    rows = []
    for row in compare(name, [(split, calibrators)]):
        rows.append(row)
        step(f"{name}, {row.method}")
    calibrators[HEADLINES[name]].save(output / f"{name}.safetensors")
    return Shown(name, rows, calibrators, split.calibration.predictions, split.test.predictions)


def _describe(part: Shown, *, quiet: bool) -> ModelSummary:
    """Print a model before and after calibration, and return what the report shows of it."""
    from rhocal.evaluation.best import differences_to_best
    from rhocal.evaluation.evaluate import infer
    from rhocal.evaluation.measure import apply_calibrator
    from rhocal.evaluation.rows import summary
    from rhocal.evaluation.samples import Samples
    from rhocal.evaluation.ties import ties
    from rhocal.reporting.overview import ModelSummary, describe_state

    method = HEADLINES[part.name]
    after = apply_calibrator(part.calibrators[method], part.test)
    states = [
        describe_state(name, infer(Samples.from_predictions(data)), data)
        for name, data in (("uncalibrated", part.test), (method, after))
    ]
    lines = summary(part.rows)
    if not quiet:
        typer.echo(f"\n{TITLES[part.name]}. {ABOUT[part.name]}")
        show_comparison(part.rows, output=None, per_network=False, as_json=False)
        for when, state in zip(("before", f"with {method}"), states, strict=True):
            typer.echo(f"{when}: {state['verdict']}")
        typer.echo(LESSONS[part.name])
    conclusion = "; ".join(ties(differences_to_best(part.rows, lines, [part.name])))
    return ModelSummary(
        TITLES[part.name], ABOUT[part.name], LESSONS[part.name], method, f"{part.name}.html", (states[0], states[1]), lines,
        conclusion, part.calibration.n_samples,
    )  # fmt: skip


def _write_pages(shown: list[Shown], models: list[ModelSummary], output: Path, commands: list[str]) -> None:
    """Write the report of every model, and the page that compares them."""
    from rhocal.data.files import write_text
    from rhocal.reporting.document import build_document
    from rhocal.reporting.overview import render_overview
    from rhocal.reporting.sections.provenance import InputFile, Provenance

    page = render_overview("Three models before and after calibration", models, commands)
    for part in shown:
        source = Provenance.now(TITLES[part.name], ["rhocal demo"], [InputFile.from_path(output / f"{part.name}.npz")])
        calibrators = {name: part.calibrators[name] for name in IN_THE_REPORT}
        document = build_document(
            part.test, calibrators, source, calibration=part.calibration, headline=HEADLINES[part.name]
        )
        write(document, output / f"{part.name}.html", quiet=True)
    write_text(output / "report.html", page)


def _say_next(output: Path, commands: list[str]) -> None:
    typer.echo(f"\none row per model and method: {output / 'comparison.csv'}")
    if (output / "report.html").is_file():
        typer.echo(f"the report, open it in a browser: {output / 'report.html'}")
    typer.echo("three commands to try next:")
    for command in commands:
        typer.echo(f"  {command}")
