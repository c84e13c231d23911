"""`rhocal demo`: the comparison on the shipped logits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rhocal.cli.compare import show_comparison
from rhocal.cli.desk import Json, read
from rhocal.cli.report import headline, write
from rhocal.errors import MissingExtraError

if TYPE_CHECKING:
    from rhocal.compare import Row

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
    """Compare methods on the logits shipped with rhocal, a small residual network on CIFAR-10, and write a report."""
    from importlib.resources import as_file

    from rhocal import calibrator, tables
    from rhocal import compare as comparing
    from rhocal.demo import demo_file
    from rhocal.report import Input, about, document

    with as_file(demo_file()) as path:
        (pair,) = comparing.splits(read(path, None, "logits", "labels"), 1)
        shipped = Input.of(path, f"{path.name}, shipped with rhocal")
    rows: list[Row] = []
    chosen = {name: calibrator(name) for name in SHOWN}
    with tables.progress("fitting", len(SHOWN)) as step:
        for row in comparing.compare("demo", pair, chosen):
            rows.append(row)
            step(row.method)
    output.mkdir(parents=True, exist_ok=True)
    chosen["rho-norm"].save(output / "rho-norm.safetensors")
    show_comparison(rows, output=output / "comparison.csv", per_network=False, as_json=as_json)
    if not as_json:
        typer.echo(f"the fitted rho-norm calibrator: {output / 'rho-norm.safetensors'}")
    cals = {name: chosen[name] for name in IN_THE_REPORT}
    source = about("A small residual network on CIFAR-10", ["rhocal demo"], [shipped])
    found = document(pair.test, cals, source, tune=pair.tune, headline=headline(cals))
    try:
        write(found, output / "report.html", output / "report.json", quiet=True)
    except MissingExtraError as error:
        typer.echo(f"no report: {error}", err=True)
        return
    if not as_json:
        typer.echo(f"the report, open it in a browser: {output / 'report.html'}")
