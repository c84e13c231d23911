"""`rhocal paper`: the paper's tables on a folder of logits, with the published numbers beside."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.desk import Json, print_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

app = typer.Typer(no_args_is_help=True, help="The paper's tables on your logits, with the published numbers beside.")


@app.callback()
def root() -> None:
    """Leave it to the table that is named."""


@app.command()
def table1(
    logits: Annotated[
        Path, typer.Option(help="A folder of .npz files, or of runs of `rhocal train`.", show_default=False)
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Random halvings of files without a split of their own.")] = 5,
    jobs: Annotated[int, typer.Option(min=1, help="Processes to work on.")] = 1,
    all_networks: Annotated[
        bool, typer.Option("--all", help="Also networks that Table 1 does not have, without published numbers.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write one row per network, metric and method (.csv).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Table 1: post-hoc methods by ECE, AdaECE and MCE with 10 bins.

    A network is one of the table's if the name of its file says so (cifar100_resnet18.npz), or the card of its run.
    """
    from rhocal import campaign, paper, tables
    from rhocal.compare import write_rows
    from rhocal.errors import InputError
    from rhocal.files import Names

    every = {path: paper.network_of(path) for path in paper.logits_files(logits)}
    used = {path: network for path, network in every.items() if all_networks or network.cell in paper.cells(1)}
    if not used:
        raise InputError(f"{logits}: none of {len(every)} networks is one of Table 1 by its name; --all takes them")
    networks = {campaign.network_name(path): network for path, network in used.items()}
    todo = campaign.tasks(list(used), list(paper.TABLE1), seeds, Names(), "logits")
    rows = []
    with tables.progress("fitting", sum(len(task.methods) for task in todo)) as step:
        for new in campaign.run(todo, jobs):
            rows += new
            for row in new:
                step(f"{row.network}, {row.method}")
    lines = paper.table1(sorted(rows, key=lambda row: (row.network, row.split)), networks)
    verdicts, missing = paper.verdicts(lines), paper.missing(list(every.values()))
    if output is not None:
        write_rows(output, lines)
    if as_json:
        absent = [{"dataset": d, "model": m, "command": command} for (d, m), command in missing.items()]
        print_json({"rows": lines, "verdicts": verdicts, "missing": absent})
        return
    screen = tables.console()
    for label in dict.fromkeys(line["network"] for line in lines):
        screen.print(_table([line for line in lines if line["network"] == label], label))
        for found in verdicts:
            if found["network"] == label:
                screen.print(f"{found['metric']}: {found['verdict']} ({found['reason']})")
    for (dataset, model), command in missing.items():
        screen.print(f"{dataset}, {model}: no network here. Needs a GPU: {command}", soft_wrap=True)


def _table(lines: Sequence[Mapping[str, Any]], label: str) -> Table:
    """Methods as rows; ours ± sd, and the published number in brackets."""
    from rich.table import Table
    from rich.text import Text

    cell = f" as {lines[0]['dataset']}, {lines[0]['model']}" if lines[0]["dataset"] else ""
    title = f"{label}{cell}: ours (mean of {lines[0]['n']}, ± sd) [published]"
    table = Table(title=Text(title), title_justify="left")
    metrics = list(dict.fromkeys(line["metric"] for line in lines))
    table.add_column("method", no_wrap=True)
    for metric in metrics:
        table.add_column(metric, justify="right", no_wrap=True)
    table.add_column("ECE floor", justify="right")
    for method in dict.fromkeys(line["method"] for line in lines):
        mine = {line["metric"]: line for line in lines if line["method"] == method}
        cells = [_cell(mine[metric]) for metric in metrics]
        table.add_row(method, *map(Text, cells), f"{mine[metrics[0]]['ece_floor']:.4f}")
    return table


def _cell(line: Mapping[str, Any]) -> str:
    spread = "" if math.isnan(line["ours_sd"]) else f" ±{line['ours_sd']:.4f}"
    beside = "" if math.isnan(line["published"]) else f" [{line['published']:.3f}]"
    return f"{line['ours']:.4f}{spread}{beside}"
