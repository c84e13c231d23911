"""Measure every table and figure of the paper on the networks that are here.

python reproduction/pages/paper_rows.py --logits ../shared/data/logits

goes on where it was stopped: cells whose rows are in `rows/` are not run again. Networks trained by this project are read
from `runs/` and from the package's own data; where the folder of public logits is absent, the rows of its networks stay
as they are. `paper_pages.py` writes the pages.
"""

from __future__ import annotations

import argparse
import time
import tomllib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import rhocal_paper as paper
from rhocal.data.files import read
from rhocal.errors import FileError, RhocalWarning
from rhocal.evaluation.compare import network_name
from rhocal.evaluation.rows import Row, write_rows
from rhocal.reporting import plots
from rhocal_paper import figure2, figure3, figure4
from rhocal_paper.measure import draws, measure, old_rows, tasks

if TYPE_CHECKING:
    from rhocal_paper.grid import Grid

HERE = Path(__file__).parent
ROWS = HERE / "rows"
OWN = [HERE.parents[1] / "src" / "rhocal" / "data" / "shipped", HERE / "runs"]

with (HERE / "networks.toml").open("rb") as _file:
    _CHOSEN = tomllib.load(_file)
STAND_IN: str = _CHOSEN["stand_in"]
NETWORKS: dict[int, list[str]] = {
    int(table): [name for entry in names for name in _CHOSEN["groups"].get(entry, [entry])]
    for table, names in _CHOSEN["tables"].items()
}
"""For each table the networks to measure it on; 0 is what the paper leaves open. Runs that are given need no entry."""


def here(folders: list[Path]) -> dict[str, Path]:
    """Every network in the folders that are there."""
    found: dict[str, Path] = {}
    for folder in folders:
        try:
            found |= {network_name(path): path for path in paper.logits_files([folder])}
        except FileError as error:
            print(error)
    return found


def grids() -> dict[int, Grid]:
    """The tables, and what the paper leaves open."""
    return {**paper.GRIDS, paper.OPEN_CHOICES.table: paper.OPEN_CHOICES}


def rows_file(number: int) -> Path:
    """Where the rows of a grid are."""
    return ROWS / (f"table{number}.csv" if number in paper.GRIDS else "open_choices.csv")


def table(number: int, known: dict[str, Path], runs: dict[str, Path], n_seeds: int, n_jobs: int) -> None:
    grid, output = grids()[number], rows_file(number)
    paths = [known[name] for name in NETWORKS[number] if name in known]
    paths += [path for name, path in runs.items() if paper.network_of(path).beside(number)[0] and path not in paths]
    before = old_rows(output)
    left = sum(len(task.methods) for task in tasks(grid, paths, n_seeds, before))
    print(f"{output.stem}: {len(paths)} networks here, {left} fits left", flush=True)
    start, last = time.perf_counter(), [""]

    def step(row: Row) -> None:
        key = f"{row.network}, {row.split}"
        if key != last[0]:
            last[0] = key
            print(f"  {time.perf_counter() - start:6.0f} s  {key}", flush=True)

    measure(grid, paths, n_seeds=n_seeds, n_jobs=n_jobs, output=output, before=before, step=step)


def figures(known: dict[str, Path], folders: list[Path]) -> None:
    """Figures are quick but for the fits of 3 and 4, which are not made again either."""
    try:
        runs = figure2.runs([folder for folder in [*OWN, *folders] if folder.is_dir()])
    except FileError as error:
        print(f"figure 2: {error}")
    else:
        write_rows(ROWS / "figure2.csv", figure2.rows(runs))
        write_rows(ROWS / "figure2_verdicts.csv", figure2.verdicts(runs))
        plots.save(figure2.draw(runs), HERE / "figure2.svg")
    for number, module in ((3, figure3), (4, figure4)):
        if STAND_IN not in known or (ROWS / f"figure{number}.csv").is_file():
            continue
        print(f"figure {number}", flush=True)
        found = module.panels(draws(read(known[STAND_IN]), 1)[0])
        plots.save(module.draw(found), HERE / f"figure{number}.svg")
        write_rows(ROWS / f"figure{number}_verdicts.csv", module.verdicts(found, STAND_IN))
        write_rows(ROWS / f"figure{number}.csv", module.rows(found, STAND_IN))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logits", type=Path, default=Path("../shared/data/logits"), help="folder of public networks")
    parser.add_argument("--runs", type=Path, nargs="*", default=[], help="folders of runs of `rhocal-paper train`")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    warnings.simplefilter("ignore", RhocalWarning)  # they are in the notes of the rows
    ROWS.mkdir(exist_ok=True)
    runs = here(args.runs)
    known = here([args.logits, *OWN]) | runs
    for number in NETWORKS:
        table(number, known, runs, args.seeds, args.jobs)
    figures(known, args.runs)


if __name__ == "__main__":
    main()
