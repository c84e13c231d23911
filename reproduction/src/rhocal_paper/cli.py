"""`rhocal-paper`: the paper's tables and figures on your logits, with the published numbers beside."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli import run
from rhocal.cli.options import Json, print_json
from rhocal.errors import InputError
from rhocal_paper.campaign_command import campaign
from rhocal_paper.train_command import train

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.table import Table

    from rhocal.evaluation.compare import CalibrationSplit
    from rhocal.evaluation.rows import Row

app = typer.Typer(
    no_args_is_help=True, help="The paper's tables and figures on your logits, with the published numbers beside."
)

TABLES = {
    1: "Table 1: post-hoc methods by ECE, AdaECE and MCE with 10 bins.",
    2: "Table 2: which part helps, the structure (ρ-norm) or the objective (SCE + KL)?",
    3: "Table 3: vector scaling under eight objectives, by mini-batches and exactly.",
    4: "Table 4: ρ-norm scaling for one ρ after the other.",
    5: "Table 5: the weight of the KL term, for every reduction and direction of it.",
}

Figure = Annotated[Path, typer.Option("-o", "--output", help="The figure to write: .svg, .pdf or .png.")]
RowsFile = Annotated[Path | None, typer.Option("--rows", help="Write what is drawn as tidy rows too (.csv).")]
OneFile = Annotated[Path, typer.Option(help="A file of logits and labels.", show_default=False)]


app.command()(train)
app.command()(campaign)


@app.callback()
def root() -> None:
    """Leave it to the table or figure that is named."""


def table_command(number: int) -> Callable[..., None]:
    """The command of one table; all take the same options."""

    def table(
        logits: Annotated[
            list[Path],
            typer.Option(
                help="A folder of .npz files, or of runs of `rhocal-paper train`; repeatable.", show_default=False
            ),
        ],
        seeds: Annotated[int, typer.Option(min=1, help="Random cuts into a tune and a test part.")] = 5,
        jobs: Annotated[int, typer.Option(min=1, help="Processes to work on.")] = 1,
        networks: Annotated[
            str | None, typer.Option(help="Only these, by the names of their files or runs, separated by commas.")
        ] = None,
        all_networks: Annotated[
            bool, typer.Option("--all", help="Also networks of data that the table does not have.")
        ] = False,
        output: Annotated[
            Path | None, typer.Option("-o", "--output", help="Write one row per network, split and method (.csv).")
        ] = None,
        resume: Annotated[
            bool, typer.Option("--resume", help="Keep the rows that the output file has, and run only what is missing.")
        ] = False,
        as_json: Json = False,
    ) -> None:
        import rhocal_paper as paper
        from rhocal.evaluation.compare import network_name
        from rhocal.reporting import tables
        from rhocal_paper.measure import measure, old_rows, tasks

        if resume and output is None:
            raise InputError("--resume goes on with the rows of a file; name it with -o")
        grid = paper.GRIDS[number]
        paths = chosen(number, logits, networks, everything=all_networks)
        before = old_rows(output) if resume else []
        left = sum(len(task.methods) for task in tasks(grid, paths, seeds, before))
        with tables.progress("fitting", left) as step:
            rows = measure(
                grid, paths, n_seeds=seeds, n_jobs=jobs, output=output, before=before,
                step=lambda row: step(f"{row.network}, {row.method}"),
            )  # fmt: skip
        found = {network_name(path): paper.network_of(path) for path in paths}
        show(number, [row for row in rows if row.network in found], found, as_json=as_json)

    return table


for _number, _text in TABLES.items():
    app.command(
        f"table{_number}",
        short_help=_text,
        help=f"{_text} A file with a tune and a test set must have kept both out of training: they are put together and "
        "cut again for each seed. A network belongs to the table if its name (cifar100_resnet18.npz) or the card of its "
        "run says a dataset of the table.",
    )(table_command(_number))


def chosen(number: int, folders: Sequence[Path], networks: str | None, *, everything: bool) -> list[Path]:
    """The files of a table."""
    import rhocal_paper as paper
    from rhocal.evaluation.compare import network_name

    every = paper.logits_files(folders)
    if networks is not None:
        known = {network_name(path): path for path in every}
        wanted = [name.strip() for name in networks.split(",")]
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise InputError(f"networks: there is no {', '.join(unknown)}; there are {', '.join(known)}")
        return [known[name] for name in wanted]
    used = [path for path in every if everything or paper.network_of(path).beside(number)[0]]
    if not used:
        raise InputError(
            f"none of {len(every)} networks is of a dataset of Table {number} by its name; --all takes them"
        )
    return used


def show(number: int, rows: list[Row], networks: Mapping[str, Any], *, as_json: bool) -> None:
    """Ours beside the published, the verdicts, and what is missing."""
    import rhocal_paper as paper
    from rhocal.reporting import tables

    grid = paper.GRIDS[number]
    lines, verdicts = paper.lines(grid, rows, networks), paper.verdicts(grid, rows, networks)
    missing = paper.missing(number, list(networks.values()))
    if as_json:
        absent = [{"dataset": d, "model": m, "command": command} for (d, m), command in missing.items()]
        print_json({"rows": lines, "verdicts": verdicts, "missing": absent})
        return
    screen = tables.console()
    for label in dict.fromkeys(line["network"] for line in lines):
        screen.print(_table([line for line in lines if line["network"] == label], label))
        _print_verdicts([found for found in verdicts if found["network"] == label])
    for (dataset, model), command in missing.items():
        screen.print(f"{dataset}, {model}: its own network is not here. Needs a GPU: {command}", soft_wrap=True)


@app.command()
def figure2(
    runs: Annotated[
        list[Path], typer.Option(help="A folder of runs of `rhocal-paper train`; repeatable.", show_default=False)
    ],
    output: Figure,
    rows: RowsFile = None,
) -> None:
    """Figure 2: amplitude during training, with and without weight decay; confidence and amplitude at the end."""
    from rhocal_paper import figure2 as figure

    found = figure.runs(runs)
    _finish(figure.draw(found), output, rows, figure.rows(found), figure.verdicts(found))


@app.command()
def figure3(logits: OneFile, output: Figure, rows: RowsFile = None) -> None:
    """Figure 3: confidence histograms and reliability diagrams of the methods of Table 1."""
    from rhocal_paper import figure3 as figure

    found = figure.panels(_cut(logits))
    _finish(figure.draw(found), output, rows, figure.rows(found, logits.stem), figure.verdicts(found, logits.stem))


@app.command()
def figure4(logits: OneFile, output: Figure, rows: RowsFile = None) -> None:
    """Figure 4: where vector scaling moves the samples of each bin, under SCE with and without KL."""
    from rhocal_paper import figure4 as figure

    found = figure.panels(_cut(logits))
    _finish(figure.draw(found), output, rows, figure.rows(found, logits.stem), figure.verdicts(found, logits.stem))


def _cut(path: Path) -> CalibrationSplit:
    """The first cut that tables have of a file."""
    from rhocal.data.files import read
    from rhocal_paper.measure import draws

    return draws(read(path), 1)[0]


def _finish(
    axes: Any, output: Path, target: Path | None, rows: list[dict[str, Any]], verdicts: list[dict[str, str]]
) -> None:
    from rhocal.evaluation.rows import write_rows
    from rhocal.reporting import plots

    plots.save(axes, output)
    if target is not None:
        write_rows(target, rows)
    _print_verdicts(verdicts)
    typer.echo(f"figure: {output}")


def _print_verdicts(verdicts: Sequence[Mapping[str, str]]) -> None:
    from rhocal.reporting import tables

    screen = tables.console()
    for found in verdicts:
        screen.print(f"{found['network']}: {found['claim']}: {found['verdict']} ({found['reason']})", soft_wrap=True)


def _table(lines: Sequence[Mapping[str, Any]], label: str) -> Table:
    """Methods as rows; ours ± sd, and the published number in brackets."""
    from rich.table import Table
    from rich.text import Text

    first = lines[0]
    how = "in place of" if first["stand_in"] else "as"
    cell = f" {how} {first['dataset']}, {first['model']}" if first["dataset"] else ""
    title = f"{label}{cell}: ours (mean of {first['n']}, ± sd) [published]"
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


def main() -> None:
    """Run the command line."""
    run(app)
