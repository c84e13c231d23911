"""Tables and Figure 2 from a folder of runs: every run with a card is used, whatever its name."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from rhocal.data.files import write_text
from rhocal.data.storage.atomic import make_folder
from rhocal.errors import RhocalWarning
from rhocal.evaluation.compare import network_name
from rhocal.evaluation.rows import write_rows
from rhocal.reporting import plots
from rhocal_paper import GRIDS, cells, figure2, network_of, overall
from rhocal_paper.grid import RULE_OF_SEEDS
from rhocal_paper.measure import current, measure, old_rows, tasks
from rhocal_paper.page import Measured, markdown, verdict_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from rhocal_paper.networks import Network

    Step = Callable[[str], None]

FOLDER = "tables"


def finished_runs(folder: Path) -> list[Path]:
    """The logits of every finished run in a folder."""
    return [path for path in sorted(folder.glob("*/logits.npz")) if (path.parent / "run.json").is_file()]


def write_results(folder: Path, *, n_jobs: int = 1, step: Step = lambda _text: None) -> Path:
    """Measure all tables on the official split of each run and write their pages; the rows of unchanged runs are kept."""
    target = folder / FOLDER
    make_folder(target)
    paths = finished_runs(folder)
    networks = {network_name(path): network_of(path) for path in paths}
    parts = ["# Results of the campaign", RULE_OF_SEEDS, seeds_table(networks)]
    claims: list[list[str]] = []
    for number, grid in GRIDS.items():
        mine = [path for path in paths if network_name(path) in shown_in(number, networks)]
        if not mine:
            parts.append(f"Table {number}: no run of its data sets.")
            continue
        output = target / f"table{number}.csv"
        names = {network_name(path) for path in mine}
        before = [row for row in current(old_rows(output), mine) if row.network in names]
        step(f"table {number}: {sum(len(task.methods) for task in tasks(grid, mine, None, before))} fits")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RhocalWarning)  # they are in the notes of the rows
            rows = measure(grid, mine, n_seeds=None, n_jobs=n_jobs, output=output, before=before)
        page = Measured(grid, rows, networks)
        write_text(target / f"table{number}.md", page.page())
        for claim in dict.fromkeys(verdict["claim"] for verdict in page.verdicts):
            verdict, told = overall([v for v in page.verdicts if v["claim"] == claim])
            claims.append([f"[Table {number}](table{number}.md)", claim, f"**{verdict}**", told])
    if paths:
        parts += figure(folder, target)
    parts += ["## Claims", markdown(["where", "claim", "verdict", "networks"], claims)]
    write_text(target / "README.md", "\n\n".join(parts) + "\n")
    return target / "README.md"


def shown_in(table: int, networks: Mapping[str, Network]) -> set[str]:
    """Names of the runs that a table shows: the networks it has; of a data set without those, all others."""
    own = {name for name, network in networks.items() if (network.dataset, network.model) in cells(table)}
    have = {networks[name].dataset for name in own}
    others = {name for name, network in networks.items() if network.beside(table)[0] and network.dataset not in have}
    return own | others


def figure(folder: Path, target: Path) -> list[str]:
    """Figure 2, as a plot and as rows; its section of the page: networks that have a partner without weight decay."""
    every = figure2.runs([folder])
    plain = {run.network for run in every if run.weight_decay == 0}
    paired = plain & {run.network for run in every if run.weight_decay > 0}
    runs = [run for run in every if run.network in paired]
    if not runs:
        return ["## Figure 2", "No two runs differ in weight decay alone, one of them without."]
    write_rows(target / "figure2.csv", figure2.rows(runs))
    plots.save(figure2.draw(runs), target / "figure2.svg")
    return ["## Figure 2", "![Figure 2](figure2.svg)", verdict_table(figure2.verdicts(runs))]


def seeds_table(networks: Mapping[str, Network]) -> str:
    """How many seeds each network has, and whether it is the paper's or a stand-in."""
    labels: dict[str, list[Network]] = {}
    for network in networks.values():
        labels.setdefault(network.label, []).append(network)
    lines: Sequence[list[str]] = [
        [f"`{label}`", str(len(mine)), "as the paper's" if mine[0].follows_recipe else "stand-in"]
        for label, mine in labels.items()
    ]
    return markdown(["network", "seeds", "recipe"], list(lines))
