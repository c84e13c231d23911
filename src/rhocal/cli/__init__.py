"""The command line: one file per command. A command parses options, calls one library function and prints a table or JSON.

Options that commands share are declared in ``options.py``. Bad input is one line on stderr and exit code 2. Statistics and
file formats belong to other packages.
"""

from __future__ import annotations

import sys
import warnings
from functools import partial
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
    help="Calibrate classifiers after training: from a file of logits to calibrated probabilities.\n\n"
    "Files: .npz, .npy, .csv, .tsv, .jsonl, .parquet, .safetensors, .pt, - (stdin). Arrays: `logits` and `labels`, or "
    "`logits_val`, `labels_val`, `logits_test`, `labels_test`.",
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
    warnings.showwarning = partial(_show_warning, app)
    try:
        app()
    except RhocalError as error:
        typer.echo(f"error: {in_options(error, app)}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(141)  # the reader of our output went away (`rhocal methods | head`)


def in_options(error: RhocalError | RhocalWarning, app: typer.Typer) -> str:
    """The text of an error or warning; its remedy names an option, and is left out where no command has that option."""
    if error.argument is None:
        return error.message
    name, _, value = error.argument.partition("=")
    option = f"--{name.replace('_', '-')}"
    commands = typer.main.get_group(app).commands.values()
    if not any(option in parameter.opts for command in commands for parameter in command.params):
        return error.message
    value = value.strip("'")
    return f"{error.message}. Use {option}{value and f' {value}'} to {error.remedy}"


def _show_warning(app: typer.Typer, message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    text = in_options(message, app) if isinstance(message, RhocalWarning) else str(message)
    label = "warning" if issubclass(category, RhocalWarning) else category.__name__
    typer.echo(f"{label}: {text}", err=True)
