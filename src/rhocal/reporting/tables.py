"""Tables for people: rich on a terminal, plain text elsewhere. Says nothing to stdout that ``--json`` would have to share."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from rhocal.evaluation.evaluation import GROUP_HEADER, HEADER, MOST_GROUPS, cells, group_cells
from rhocal.metrics import CORE, METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rhocal.evaluation.evaluation import Evaluation, Group

PLAIN_WIDTH = 120
"""Columns when the output is not a terminal, so that nothing is cut off in a file or a log."""

ARROWS = {"lower": "↓", "higher": "↑", "zero": "→ 0", "neither": ""}
"""Which way a metric should go."""


def console() -> Console:
    """Where tables go."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """A bar on stderr while work goes on; nothing at all where stderr is not a terminal."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    stderr = Console(stderr=True)
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task(what, total=total)

        def step(name: str) -> None:
            bar.update(task, advance=1, description=name)

        yield step


@contextmanager
def row_progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar of rows with their rate and the time left; nothing at all where stderr is not a terminal."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(show_speed=total is None),
        TextColumn("{task.fields[rate]} rows/s"), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    stderr = Console(stderr=True)
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task(what, total=total, rate="…")

        def step(rows: int) -> None:
            bar.update(task, advance=rows)
            speed = bar.tasks[0].speed
            bar.update(task, rate="…" if speed is None else f"{speed:,.0f}")

        yield step


def comparison(lines: Sequence[Mapping[str, Any]], title: str) -> Table:
    """Methods as rows, metrics as columns; the best of each column is bold and starred."""
    shown = {name: metric for name, metric in CORE.items() if name != "top_brier"}  # all are in the JSON and the rows
    table = Table(title=title, title_justify="left")
    table.add_column("method", no_wrap=True)
    for metric in shown.values():
        table.add_column(f"{metric.title} {ARROWS[metric.better]}", justify="right")
    table.add_column("ECE floor", justify="right")
    table.add_column("fit s", justify="right")
    best = {}
    for name, metric in shown.items():
        values = [line[name] for line in lines if not math.isnan(line[name])] or [math.nan]
        best[name] = min(values) if metric.better == "lower" else max(values)
    for line in lines:
        cells = []
        for name in shown:
            is_best = line[name] == best[name]
            spread = f" ±{line[f'{name}_sd']:.4f}" if line.get(f"{name}_sd") and name in {"ece", "nll"} else ""
            text = _number(line[name], 4, f"{spread}{'*' if is_best else ' '}")
            cells.append(Text(text, style="bold" if is_best else ""))
        who = f"{line['method']} (subsample)" if line.get("subsampled") else line["method"]
        table.add_row(who, *cells, _number(line["ece_floor"], 4), _number(line["seconds"], 2))
    return table


def _number(value: float, digits: int, after: str = "") -> str:
    """A dash where there is no result."""
    return "—" if math.isnan(value) else f"{value:.{digits}f}{after}"


def metric_values(columns: Mapping[str, Mapping[str, float]], title: str) -> Table:
    """Metrics as rows, one column for each set of figures."""
    table = Table(title=title, title_justify="left")
    table.add_column("metric")
    for name in columns:
        table.add_column(name, justify="right")
    for name in next(iter(columns.values())):
        metric = METRICS[name]
        table.add_row(
            f"{metric.title} {ARROWS[metric.better]}", *(f"{values[name]:.4f}" for values in columns.values())
        )
    return table


def evaluation(found: Evaluation, title: str) -> Table:
    """Metrics as rows: value, interval, floor, excess, p-value."""
    table = Table(title=title, title_justify="left")
    for k, name in enumerate(HEADER):
        table.add_column(name, justify="right" if k else "left", no_wrap=True)
    for figure in found.values:
        table.add_row(*cells(figure))
    return table


def groups(found: Sequence[Group], title: str) -> Table:
    """Slices as rows, as many as a screen holds."""
    more = f" (the first {MOST_GROUPS} of {len(found)}; --json has all)" if len(found) > MOST_GROUPS else ""
    table = Table(title=title + more, title_justify="left")
    for k, name in enumerate(GROUP_HEADER):
        table.add_column(name, justify="right" if k else "left")
    for group in found[:MOST_GROUPS]:
        table.add_row(*(Text(cell) for cell in group_cells(group)))
    return table


def pairs(rows: Mapping[str, Any], title: str) -> Table:
    """Names and values."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column()
    for name, value in rows.items():
        table.add_row(name, Text(f"{value:.6g}" if isinstance(value, float) else str(value)))
    return table
