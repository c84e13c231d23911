"""Measure every table and figure of the paper on the networks that are here.

python reproduction/pages/paper_rows.py --logits ../shared/data/logits

goes on where it was stopped: cells whose rows are in `rows/` are not run again. Networks trained by this project are read
from `runs/` and from the package's own data; where the folder of public logits is absent, the rows of its networks stay
as they are. `paper_pages.py` writes the pages.
"""

from __future__ import annotations

import argparse
import time
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

SHIPPED = "cifar10-resnet18-w16-wd1e-4"
"""The run that the package ships."""
RESNET18 = [SHIPPED, "flowers102_64px-resnet18-w16-wd1e-4"]
STAND_IN = "cifar100_resnet56"
"""Of the public networks nearest to the paper's ResNet35 on CIFAR-100."""

CIFAR100 = [
    STAND_IN, "cifar100_resnet50_brier", "cifar100_vgg16_bn", "cifar100_mobilenetv2_x1_0", "cifar100_repvgg_a2",
    "cifar100_resnet20", "cifar100_shufflenetv2_x2_0", "cifar100_vgglike_playground",
]  # fmt: skip
"""Every public network on CIFAR-100."""

NETWORKS: dict[int, list[str]] = {
    1: [
        *CIFAR100, "cifar10_resnet56", "svhn_disiji_logp", "flowers102_effnetlite0_lin", *RESNET18,
        "cifar10-vgg16-w8-wd0", "cifar10-vgg16-w8-wd1e-4", "fashion-mnist-resnet18-w8-wd0",
    ],
    2: [STAND_IN, "cifar100_resnet50_brier", "cifar100_vgg16_bn", *RESNET18],
    3: [STAND_IN, "cifar10_resnet56", *RESNET18],
    4: [STAND_IN, "cifar100_resnet50_brier", "cifar100_vgg16_bn", *RESNET18],
    5: [STAND_IN, "cifar10_resnet56", "flowers102_effnetlite0_lin", *RESNET18],
    paper.OPEN_CHOICES.table: CIFAR100,
}  # fmt: skip
"""For each table the networks to measure it on: the paper's own, one for each of its datasets, and ours."""


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


def table(number: int, known: dict[str, Path], n_seeds: int, n_jobs: int) -> None:
    grid, output = grids()[number], rows_file(number)
    paths = [known[name] for name in NETWORKS[number] if name in known]
    before = old_rows(output)
    left = sum(len(task.methods) for task in tasks(grid, paths, n_seeds, before))
    print(f"{output.stem}: {len(paths)} of {len(NETWORKS[number])} networks here, {left} fits left", flush=True)
    start, last = time.perf_counter(), [""]

    def step(row: Row) -> None:
        key = f"{row.network}, {row.split}"
        if key != last[0]:
            last[0] = key
            print(f"  {time.perf_counter() - start:6.0f} s  {key}", flush=True)

    measure(grid, paths, n_seeds=n_seeds, n_jobs=n_jobs, output=output, before=before, step=step)


def figures(known: dict[str, Path]) -> None:
    """Figures are quick but for the fits of 3 and 4, which are not made again either."""
    try:
        runs = figure2.runs([folder for folder in OWN if folder.is_dir()])
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
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    warnings.simplefilter("ignore", RhocalWarning)  # they are in the notes of the rows
    ROWS.mkdir(exist_ok=True)
    known = here([args.logits, *OWN])
    for number in NETWORKS:
        table(number, known, args.seeds, args.jobs)
    figures(known)


if __name__ == "__main__":
    main()
