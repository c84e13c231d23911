"""`rhocal demo`: the comparison on the shipped logits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rhocal.cli.compare import show_comparison
from rhocal.cli.desk import Json, read

if TYPE_CHECKING:
    from rhocal.compare import Row


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for what the demo writes.")] = Path(
        "rhocal-demo"
    ),
    as_json: Json = False,
) -> None:
    """Compare all methods on the logits shipped with rhocal: a small residual network on CIFAR-10."""
    from importlib.resources import as_file

    from rhocal import calibrator, tables
    from rhocal import compare as comparing
    from rhocal.calibrators import CALIBRATORS
    from rhocal.demo import demo_file

    with as_file(demo_file()) as path:
        (pair,) = comparing.splits(read(path, None, "logits", "labels"), 1)
    rows: list[Row] = []
    with tables.progress("fitting", len(CALIBRATORS)) as step:
        for row in comparing.compare("demo", pair, {name: calibrator(name) for name in CALIBRATORS}):
            rows.append(row)
            step(row.method)
    output.mkdir(parents=True, exist_ok=True)
    cal = calibrator("rho-norm").fit(pair.tune.logits, pair.tune.labels)
    cal.save(output / "rho-norm.safetensors")
    show_comparison(rows, output=output / "comparison.csv", per_network=False, as_json=as_json)
    if not as_json:
        typer.echo(f"the fitted rho-norm calibrator: {output / 'rho-norm.safetensors'}")
