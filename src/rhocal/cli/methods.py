"""`rhocal methods`: the registry of methods, and the options of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.options import Json, print_json

if TYPE_CHECKING:
    from rhocal.calibrators import Method


def methods_(
    method: Annotated[
        str | None, typer.Argument(help="A method; its options are listed with defaults and values.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the methods, or the options of one method that `rhocal fit -O` takes."""
    from rhocal.calibrators.registry import CALIBRATORS, find_method
    from rhocal.reporting import tables
    from rhocal.reporting.fitted_table import FittedTable

    entries = [_describe(line) for line in (CALIBRATORS.values() if method is None else [find_method(method)])]
    if as_json:
        print_json({"methods": entries})
        return
    if method is None:
        header = ("method", "what it does", "keeps the decision", "exports", "options")
        rows = [(entry["method"], entry["summary"], *_flags(entry), ", ".join(entry["options"])) for entry in entries]
        table = FittedTable(header, rows, texts=["what it does", "options"], optional=["options"], left=header)
    else:
        options = entries[0]["options"].items()
        rows = [(name, declared["default"], declared["values"]) for name, declared in options]
        title = f"{method}: {entries[0]['summary']}"
        table = FittedTable(("option", "default", "values"), rows, title, texts=["default", "values"])
    tables.console().print(table)


def _flags(entry: dict[str, Any]) -> list[str]:
    return ["yes" if entry[key] else "no" for key in ("keeps_decision", "exports")]


def _describe(method: Method) -> dict[str, Any]:
    from rhocal.calibrators.estimator import describe_options

    unfitted = method.family(**method.options)
    return {
        "method": method.name,
        "summary": method.summary,
        "keeps_decision": unfitted.keeps_decision,
        "exports": unfitted.is_portable,
        "options": describe_options(unfitted),
    }
