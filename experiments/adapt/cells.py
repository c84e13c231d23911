"""The command line of the simulations of this folder: a row for each cell of a grid, written as they come."""

from __future__ import annotations

import argparse
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from rhocal.evaluation.rows import write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Cell = TypeVar("Cell")


def run_cells(
    description: str | None,
    cells: Iterable[Cell],
    row: Callable[[Cell, int], dict[str, Any]],
    path: Path,
    n_trials: int = 100,
) -> None:
    """Run all cells with as many trials as the command line asks for, by default ``n_trials``."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--trials", type=int, default=n_trials)
    n_trials = options.parse_args().trials
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for cell in cells:
        rows.append(row(cell, n_trials))
        print(rows[-1], flush=True)
        write_rows(path, rows)
