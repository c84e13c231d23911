"""`rhocal methods`: the table of calibrators."""

from __future__ import annotations

from rhocal.cli.options import Json, print_json


def methods_(as_json: Json = False) -> None:
    """List the methods, with the options that `rhocal fit -O` takes."""
    from rich.table import Table

    from rhocal.calibrators import CALIBRATORS
    from rhocal.reporting import tables

    listed = [
        {
            "method": name,
            "summary": method.summary,
            "keeps_decision": method.family.keeps_decision,
            "exports": method.family.exports,
            "options": {key: str(value) for key, value in method.family(**method.options).get_params().items()},
        }
        for name, method in CALIBRATORS.items()
    ]
    if as_json:
        print_json({"methods": listed})
        return
    table = Table("method", "what it does", "keeps the decision", "exports", "options")
    for line in listed:
        options = ", ".join(line["options"])  # type: ignore[arg-type]
        flags = ("yes" if line[key] else "no" for key in ("keeps_decision", "exports"))
        table.add_row(line["method"], line["summary"], *flags, options)  # type: ignore[arg-type]
    tables.console().print(table)
