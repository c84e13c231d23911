"""`rhocal demo`: the comparison on the shipped logits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rhocal.cli.compare import show_comparison
from rhocal.cli.options import Arrays, Json, print_json
from rhocal.cli.report import headline, write
from rhocal.data.atomic import make_folder
from rhocal.errors import MissingExtraError

if TYPE_CHECKING:
    from rhocal.evaluation.rows import Row

SHOWN = (
    "identity", "temperature", "temperature-avuc", "rho-norm", "field", "ets", "vector", "svs:field", "sms:field", "isotonic",
    "spline", "histogram-binning",
)  # fmt: skip
"""The paper's method and its rivals, and the best of the others; `rhocal compare` runs all."""

IN_THE_REPORT = ("rho-norm", "temperature", "vector", "temperature-avuc", "histogram-binning", "field", "sms:field")
"""The paper's five, and two more: a page that a newcomer can read."""


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for what the demo writes.")] = Path(
        "rhocal-demo"
    ),
    as_json: Json = False,
) -> None:
    """Compare methods on the logits shipped with rhocal, networks of 10 and of 102 classes, and write a report."""
    from importlib.resources import as_file

    from rhocal import calibrator
    from rhocal.data.demo import NETWORKS, demo_file
    from rhocal.evaluation.compare import compare, file_sources, splits
    from rhocal.evaluation.rows import summary, write_rows
    from rhocal.reporting import tables
    from rhocal.reporting.document import build_document
    from rhocal.reporting.sections.provenance import InputFile, Provenance

    make_folder(output)
    rows: list[Row] = []
    with tables.progress("fitting", len(SHOWN) * len(NETWORKS)) as step:
        for network in reversed(NETWORKS):  # the report below is on the last
            with as_file(demo_file(network)) as path:
                (split,) = splits(*file_sources(Arrays().contents(path)))
                shipped = InputFile.from_path(path, f"{path.parent.name}/{path.name}, shipped with rhocal")
            chosen = {name: calibrator(name) for name in SHOWN}
            for row in compare(network, [(split, chosen)]):
                rows.append(row)
                step(f"{network}, {row.method}")
    chosen["rho-norm"].save(output / "rho-norm.safetensors")
    write_rows(output / "comparison.csv", [row.flat() for row in rows])
    if as_json:
        print_json({network: summary(mine(rows, network)) for network in NETWORKS})
    else:
        for network in NETWORKS:
            show_comparison(mine(rows, network), output=None, per_network=False, as_json=False)
        typer.echo(f"one row per network and method: {output / 'comparison.csv'}")
        typer.echo(f"the fitted rho-norm calibrator of cifar10: {output / 'rho-norm.safetensors'}")
    cals = {name: chosen[name] for name in IN_THE_REPORT}
    source = Provenance.now("A thin ResNet-18 on CIFAR-10", ["rhocal demo"], [shipped])
    calibration, test = split.calibration.predictions, split.test.predictions
    document = build_document(test, cals, source, calibration=calibration, headline=headline(cals))
    try:
        write(document, output / "report.html", output / "report.json", quiet=True)
    except MissingExtraError as error:
        typer.echo(f"no report: {error}", err=True)
        return
    if not as_json:
        typer.echo(f"the report, open it in a browser: {output / 'report.html'}")


def mine(rows: list[Row], network: str) -> list[Row]:
    """The rows of a network."""
    return [row for row in rows if row.network == network]
