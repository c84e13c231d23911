"""The front desk: arguments in, one library call, a table or JSON out. Bad input is one clear line and exit code 2.

A command is a file here and a line below.
"""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer

from rhocal._version import __version__
from rhocal.cli.apply import apply_
from rhocal.cli.card import card
from rhocal.cli.compare import compare
from rhocal.cli.demo import demo
from rhocal.cli.evaluate import evaluate
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
from rhocal.errors import RhocalError, RhocalWarning

app = typer.Typer(
    name="rhocal",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Make a classifier's confidence trustworthy: from a file of logits to calibrated probabilities.\n\n"
    "Files: .npz, .npy, .csv, .parquet, .safetensors, .pt. Arrays: `logits` and `labels`, or `logits_val`, "
    "`labels_val`, `logits_test`, `labels_test`.",
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version and stop.")] = False,
) -> None:
    """Print the version, or leave it to the command."""
    if version:
        typer.echo(f"rhocal {__version__}")
        raise typer.Exit


app.command()(split)
app.command()(fit)
app.command()(profile)
app.command("apply")(apply_)
app.command()(evaluate)
app.command()(export)
app.command()(card)
app.command()(compare)
app.command()(report)
app.command()(plot)
app.command()(power)
app.command()(shift)
app.command("methods")(methods_)
app.command("metrics")(metrics_)
app.command()(monitor)
app.command()(demo)


def main() -> None:
    """Run the command line."""
    run(app)


def run(app: typer.Typer) -> None:
    """Run a command-line application; an error of ours is one line and exit code 2."""
    warnings.simplefilter("always", RhocalWarning)
    warnings.showwarning = _show_warning
    try:
        app()
    except RhocalError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(141)  # the reader of our output went away (`rhocal methods | head`)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    label = "warning" if issubclass(category, RhocalWarning) else category.__name__
    typer.echo(f"{label}: {message}", err=True)
