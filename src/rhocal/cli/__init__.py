"""The command line: one file per command. A command parses options, calls one library function and prints a table or JSON.

Options that commands share are declared in ``options.py``. Errors are one line on stderr and exit code 2 (``boundary.py``).
Statistics and file formats belong to other packages.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rhocal import __version__
from rhocal.cli.adapt import adapt
from rhocal.cli.apply import apply_
from rhocal.cli.boundary import DEBUG, in_options, run
from rhocal.cli.card import card
from rhocal.cli.compare import compare
from rhocal.cli.decide import decide
from rhocal.cli.demo import demo
from rhocal.cli.evaluate import evaluate
from rhocal.cli.execution import forget_printed_lines
from rhocal.cli.export import export
from rhocal.cli.fit import fit
from rhocal.cli.methods import methods_
from rhocal.cli.metrics import metrics_
from rhocal.cli.monitor import monitor
from rhocal.cli.plot import plot
from rhocal.cli.power import power
from rhocal.cli.profile import profile
from rhocal.cli.report import report
from rhocal.cli.shift import shift
from rhocal.cli.split import split
from rhocal.cli.update import update

app = typer.Typer(
    name="rhocal",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Calibrate classifiers after training: from a file of logits to calibrated probabilities.\n\n"
    "Files: .npz, .npy, .csv, .tsv, .jsonl, .ndjson, .json, .eval, .parquet, .safetensors, .pt, .zarr, - (stdin). Arrays: "
    "`logits` and `labels`, or `logits_cal`, `labels_cal`, `logits_test`, `labels_test`.",
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version and stop.")] = False,
    _debug: Annotated[bool, typer.Option(DEBUG, help="Show where an error comes from, with any command.")] = False,
) -> None:
    """Print the version, or leave it to the command."""
    if version:
        typer.echo(f"rhocal {__version__}")
        raise typer.Exit
    forget_printed_lines()


app.command()(split)
app.command()(fit)
app.command()(profile)
app.command("apply")(apply_)
app.command()(evaluate)
app.command()(decide)
app.command()(export)
app.command()(card)
app.command()(compare)
app.command()(report)
app.command()(plot)
app.command()(power)
app.command()(shift)
app.command()(adapt)
app.command("methods")(methods_)
app.command("metrics")(metrics_)
app.command()(monitor)
app.command()(update)
app.command()(demo)


def main() -> None:
    """Run the command line."""
    run(app)


__all__ = ["app", "in_options", "main", "run"]
