"""Where errors end: one line on stderr and exit code 2, whatever was raised. ``--debug`` shows where it came from."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from functools import partial
from typing import Any

import typer

from rhocal.errors import RhocalError, RhocalWarning, one_line

DEBUG = "--debug"
BROKEN_PIPE = 141
"""The exit code of a process that the signal SIGPIPE ends."""


def run(app: typer.Typer) -> None:
    """Run a command-line application. Any error is one line and exit code 2; ``--debug``, anywhere, adds its traceback."""
    is_debugging = DEBUG in sys.argv[1:]
    sys.argv[1:] = [argument for argument in sys.argv[1:] if argument != DEBUG]
    warnings.simplefilter("always", RhocalWarning)
    warnings.showwarning = partial(_show_warning, app, set())
    _print_what_an_encoding_lacks()
    code = 0
    try:
        app()
    except SystemExit as end:  # every command ends so
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:  # noqa: BLE001 - the one place where every error ends
        code = _report(error, app, is_debugging=is_debugging)
    try:
        sys.stdout.flush()  # a full disk is noticed now, not when the interpreter has nobody to tell
    except OSError as error:
        code = _report(error, app, is_debugging=is_debugging)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _report(error: Exception, app: typer.Typer, *, is_debugging: bool) -> int:
    """Print an error; returned is the exit code."""
    if isinstance(error, BrokenPipeError):  # the reader of our output went away (`rhocal methods | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    if is_debugging:
        typer.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    typer.echo(f"error: {message(error, app)}", err=True)
    return 2


def message(error: Exception, app: typer.Typer) -> str:
    """The text of an error in one line. That of an error which is not ours names its type."""
    if isinstance(error, RhocalError):
        return " ".join(in_options(error, app).splitlines())
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename is not None else "the output: "
        return f"{place}{error.strerror}"
    if isinstance(error, MemoryError):
        return f"not enough memory: {one_line(error)}. Use --stream to read the file block by block"
    return f"{type(error).__name__}: {one_line(error)}. This is a defect; use {DEBUG} to see where it comes from"


METHOD_OPTIONS = {"exchangeable", "scope"}
"""Options of methods that messages name; of a command they are values of -O."""


def in_options(error: RhocalError | RhocalWarning, app: typer.Typer) -> str:
    """The text of an error or warning; its remedy names an option, and is left out where no command has that option."""
    if error.argument is None:
        return error.message
    name, _, value = error.argument.replace("'", "").partition("=")
    option = f"--{name.replace('_', '-')}"
    if error.remedy is None:
        return f"{option}{error.message.removeprefix(name)}" if error.message.startswith(f"{name} ") else error.message
    commands = typer.main.get_group(app).commands.values()
    if not any(option in parameter.opts for command in commands for parameter in command.params):
        return (
            f"{error.message}. Use -O {name}={value.lower()} to {error.remedy}"
            if name in METHOD_OPTIONS
            else error.message
        )
    value = "" if value == "True" else value  # a flag has no value
    return f"{error.message}. Use {option}{value and f' {value}'} to {error.remedy}"


def _print_what_an_encoding_lacks() -> None:
    """A terminal that does not know ρ gets a question mark, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _show_warning(
    app: typer.Typer, shown: set[str], warning: Warning | str, category: type[Warning], *_: Any, **__: Any
) -> None:
    """Print a warning, once: a file that is read twice has nothing new to say."""
    text = in_options(warning, app) if isinstance(warning, RhocalWarning) else str(warning)
    label = "warning" if issubclass(category, RhocalWarning) else category.__name__
    if text not in shown:
        typer.echo(f"{label}: {text}", err=True)
        shown.add(text)
