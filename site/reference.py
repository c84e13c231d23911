"""The reference pages of the site, written from the code: Python names, calibrators, objectives and commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer

import rhocal
from rhocal.cli import app

if TYPE_CHECKING:
    import click

MODELS = {method.class_name for method in rhocal.CALIBRATORS.values()}
OBJECTIVES = set(rhocal.PUBLIC["rhocal.objectives"])
METHODS = ("fit", "predict_proba", "predict", "transform", "save", "decide", "apply_fn", "to_torch", "to_onnx")
"""What users call on a calibrator."""


def entry(name: str, members: tuple[str, ...] = ()) -> str:
    """The documentation of a public name."""
    module, attribute = rhocal.public_names()[name]
    options = f"    options:\n      members: [{', '.join(members)}]\n" if members else ""
    return f"::: {module}.{attribute}\n{options}"


def python_page() -> str:
    """Functions and results."""
    names = [name for name in rhocal.public_names() if name not in MODELS | OBJECTIVES]
    verbs = sorted(name for name in names if name[0].islower())
    values = sorted(name for name in names if name[0].isupper())
    head = "# Python\n\n`import rhocal` imports NumPy and nothing else; every name below is imported when it is used.\n"
    return "\n".join([head, *(entry(name) for name in [*verbs, *values])])


def calibrators_page() -> str:
    """Every family, and what all of them have."""
    head = (
        "# Calibrators\n\nAll have the methods of the first entry; `rhocal.calibrator(name)` makes one by its name.\n"
    )
    base = f"::: rhocal.calibrators.base.Calibrator\n    options:\n      members: [{', '.join(METHODS)}]\n"
    return "\n".join([head, base, *(entry(name) for name in sorted(MODELS))])


def objectives_page() -> str:
    """What a fit minimizes."""
    head = "# Objectives\n\nThey add and scale: `rhocal.NLL() + 0.5 * rhocal.TopBrier()`. [All objectives](../objectives.md).\n"
    return "\n".join([head, *(entry(name) for name in sorted(OBJECTIVES))])


def cli_page() -> str:
    """Every command with its arguments and options."""
    group: Any = typer.main.get_command(app)
    lines = [
        "# Command line",
        "",
        "Every command has `--help`. Bad input gives a one-line message and exit code 2.",
        "",
    ]
    for name, command in group.commands.items():
        if not command.hidden:
            lines += command_lines(name, command)
    return "\n".join(lines)


def command_lines(name: str, command: click.Command) -> list[str]:
    """One command: usage, description, and a table of its options."""
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    usage = " ".join(
        ["rhocal", name, *(str(item.metavar or (item.name or "").upper()) for item in arguments), "[OPTIONS]"]
    )
    text = (command.help or "").replace("\b\n", "").strip()
    rows = ["| option | |", "|---|---|"]
    for item in command.params:
        shown = (
            ", ".join(f"`{flag}`" for flag in getattr(item, "opts", [])) if item not in arguments else f"`{item.name}`"
        )
        about = re.sub(r"\s+", " ", getattr(item, "help", None) or "").replace("|", "\\|")
        default = item.default
        is_plain = isinstance(default, str | int | float) and not isinstance(default, bool) and default != ""
        rows.append(f"| {shown} | {about}{f' Default: `{default}`.' if is_plain else ''} |")
    return [f"## {name}", "", "```text", usage, "```", "", text, "", *rows, ""]


def reference_pages() -> dict[str, str]:
    """File name → text."""
    return {
        "python.md": python_page(),
        "calibrators.md": calibrators_page(),
        "objectives.md": objectives_page(),
        "cli.md": cli_page(),
    }
