"""`rhocal compare`: many methods over many files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rhocal.cli.desk import Json, KindOption, LabelsName, LogitsName, kind_of, print_json, read
from rhocal.cli.report import ReportOption, headline, origin, write
from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.compare import Row


def compare(
    sources: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files of logits and labels.", show_default=False)
    ],
    methods: Annotated[str, typer.Option(help="Methods, separated by commas, or `all`.")] = "all",
    seeds: Annotated[int, typer.Option(min=1, help="Random halvings of files without a split of their own.")] = 5,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write one row per network, split and method (.csv).")
    ] = None,
    report: ReportOption = None,
    per_network: Annotated[bool, typer.Option("--per-network", help="A table for each network too.")] = False,
    kind: KindOption = "logits",
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    as_json: Json = False,
) -> None:
    """Compare methods: fit each on the tune half and measure it on the test half.

    A file with a tune and a test split is used as it is; other files are cut into random halves, once for each seed. A
    report is about one file, and its last halving.
    """
    if report is not None and len(sources) > 1:
        raise InputError(f"--report is about one file; got {len(sources)}")
    from rhocal import compare as comparing
    from rhocal import tables
    from rhocal.calibrators import CALIBRATORS, calibrator
    from rhocal.report import document

    names = list(CALIBRATORS) if methods == "all" else [name.strip() for name in methods.split(",")]
    chosen = {name: calibrator(name) for name in names}
    cut = [
        (path.stem, pair)
        for path in sources
        for pair in comparing.splits(read(path, None, logits_name, labels_name), seeds, kind_of(kind))
    ]
    rows: list[Row] = []
    with tables.progress("fitting", len(cut) * len(chosen)) as step:
        for network, pair in cut:
            for row in comparing.compare(network, pair, chosen):
                rows.append(row)
                step(f"{network}, {row.method}")
    show_comparison(rows, output=output, per_network=per_network, as_json=as_json)
    if report is not None:
        network, pair = cut[-1]
        notes = {row.method: row.note for row in rows if row.split == pair.name}
        found = document(
            pair.test, chosen, origin(network, sources), tune=pair.tune, headline=headline(chosen), notes=notes
        )
        write(found, report, quiet=as_json)


def show_comparison(rows: list[Row], *, output: Path | None, per_network: bool, as_json: bool) -> None:
    """Write the rows, and print their summary."""
    from rhocal import compare as comparing
    from rhocal import tables

    if output is not None:
        comparing.write_rows(output, [row.flat() for row in rows])
    lines = comparing.summary(rows)
    if as_json:
        print_json({"summary": lines, "rows": [row.flat() for row in rows]})
        return
    screen = tables.console()
    networks = list(dict.fromkeys(row.network for row in rows))
    if per_network and len(networks) > 1:
        for network in networks:
            mine = [row for row in rows if row.network == network]
            screen.print(tables.comparison(comparing.summary(mine), network))
    what = networks[0] if len(networks) == 1 else f"mean over {len(networks)} networks"
    n_splits = len({(row.network, row.split) for row in rows})
    screen.print(
        tables.comparison(lines, f"{what}, {n_splits} split{'s' if n_splits > 1 else ''} (* best, ± sd of splits)")
    )
    for note in dict.fromkeys(f"{row.network}, {row.method}: {row.note}" for row in rows if row.note):
        screen.print(f"note: {note}")
    if output is not None:
        screen.print(f"one row per network, split and method: {output}")
