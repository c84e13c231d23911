"""Tables and progress bars of the terminal: formatted on a terminal, plain text in files."""

from __future__ import annotations

import math
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from rich.text import Text

from rhocal.evaluation.best import ORDER, best_method
from rhocal.evaluation.decision import SEGMENT_HEADER, THRESHOLD_HEADER, segment_cells, threshold_cells
from rhocal.evaluation.evaluation import (
    ARROWS,
    CLASS_HEADER,
    GROUP_HEADER,
    HEADER,
    MAX_CLASSES_SHOWN,
    MAX_GROUPS_SHOWN,
    cells,
    class_cells,
    group_cells,
)
from rhocal.evaluation.set_decision import COVERAGE_HEADER, class_rows, coverage_cells
from rhocal.metrics import METRICS
from rhocal.reporting.fitted_table import FittedTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.progress import ProgressColumn, TaskID

    from rhocal.evaluation.best import DifferenceToBest
    from rhocal.evaluation.decision import ClassThreshold, SegmentRisk
    from rhocal.evaluation.evaluation import Evaluation, Group
    from rhocal.evaluation.models import ModelComparison
    from rhocal.evaluation.set_decision import ClassCoverage

SELECTED = "Accuracy of the most confident 80 %"
"""The heading of the selective accuracy of a model."""

SECONDS_BETWEEN_LINES = 2.0
"""Seconds between two lines of progress, if stderr is not a terminal."""

PLAIN_WIDTH = 120
"""Characters per line if the output is not a terminal: all columns of a table fit, unless names are long."""


def console() -> Console:
    """The console on which tables are printed."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar of tasks on stderr; lines if stderr is not a terminal."""
    lines = Lines(what, total)
    with _bar(what, total, MofNCompleteColumn()) as (bar, task):

        def step(name: str) -> None:
            bar.update(task, advance=1, description=name)
            lines.step(1, name)

        yield step


@contextmanager
def row_progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar of rows with their rate and the remaining time; lines if stderr is not a terminal."""
    lines = Lines(what, total, "rows")
    columns = TaskProgressColumn(show_speed=total is None), TextColumn("{task.fields[rate]} rows/s")
    with _bar(what, total, *columns) as (bar, task):

        def step(rows: int) -> None:
            bar.update(task, advance=rows)
            lines.step(rows)
            speed = bar.tasks[0].speed
            bar.update(task, rate="…" if speed is None else f"{speed:,.0f}")

        yield step


@dataclass
class Lines:
    """Progress as lines on stderr where that is not a terminal: one every few seconds, so that short work prints none."""

    what: str
    total: int | None
    unit: str = ""
    done: int = 0
    start: float = field(default_factory=time.monotonic)
    printed: float = field(default_factory=time.monotonic)

    def step(self, n: int, name: str = "") -> None:
        """Count what is done, and print it if the last line was a while ago."""
        self.done += n
        now = time.monotonic()
        if now < self.printed + SECONDS_BETWEEN_LINES or sys.stderr.isatty():
            return
        self.printed = now
        of = "" if self.total is None else f" of {self.total:,}"
        parts = [f"{self.what}: {self.done:,}{of}{self.unit and f' {self.unit}'}", *([name] if name else [])]
        sys.stderr.write(f"{', '.join(parts)} ({now - self.start:.0f} s)\n")
        sys.stderr.flush()


@contextmanager
def _bar(what: str, total: int | None, *columns: ProgressColumn) -> Iterator[tuple[Progress, TaskID]]:
    stderr = Console(stderr=True)
    stderr.quiet = not stderr.is_terminal  # early versions of Rich end a bar that is not shown with an empty line
    layout = (TextColumn("{task.description}"), BarColumn(), *columns, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*layout, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        yield bar, bar.add_task(what, total=total, rate="…")


COMPARED = {
    "accuracy": "",
    "ece": "",
    "ece_debiased": "debiased ↓",
    "ece_floor": "floor",
    "adaptive_ece": "",
    "nll": "",
    "brier": "",
}
"""The columns of a comparison, with headings that are not those of a metric; rows and JSON have more metrics."""

SECONDS = "fit s"
LEAST_IMPORTANT = (SECONDS, "adaptive_ece", "ece_floor", "brier", "accuracy")
"""The columns of a comparison that a narrow terminal leaves out, in this order."""


def comparison(
    lines: Sequence[Mapping[str, Any]],
    title: str,
    to_best: Mapping[str, Mapping[str, DifferenceToBest]] | None = None,
) -> FittedTable:
    """Methods as rows, metrics as columns; the best of a column is bold and starred, methods tied with it have a ``=``.

    The best ECE is the smallest debiased one. ``to_best`` are the differences to the best method; without them ties are not
    known.
    """
    headings = {name: heading or _heading(name) for name, heading in COMPARED.items()}
    headings[SECONDS] = SECONDS
    known = [line for line in lines if not math.isnan(line["nll"])]
    best = {column: best_method(known, metric, column) for metric, column in ORDER.items()} if known else {}
    tied = {
        ORDER[metric]: {method for method, difference in by_method.items() if difference.is_tied}
        for metric, by_method in (to_best or {}).items()
    }
    rows = []
    for line in lines:
        method, cells = line["method"], []
        for name in COMPARED:
            is_best = best.get(name) == method
            mark = "*" if is_best else "=" if method in tied.get(name, ()) else " "
            spread = f" ±{line[f'{name}_sd']:.4f}" if line.get(f"{name}_sd") and name in {"ece", "nll"} else ""
            text = _number(line[name], 4, f"{spread}{mark}" if name in ORDER.values() else spread)
            cells.append(Text(text, style="bold" if is_best else ""))
        label = f"{method} (subsample)" if line.get("subsampled") else method
        rows.append((label, *cells, _number(line["seconds"], 2)))
    optional = [headings[name] for name in LEAST_IMPORTANT]
    return FittedTable(("method", *headings.values()), rows, title, optional=optional)


def _heading(name: str) -> str:
    """The title of a metric, and which way is better."""
    metric = METRICS[name]
    return f"{metric.title} {ARROWS[metric.better]}".rstrip()


def models(comparison: ModelComparison) -> FittedTable:
    """Models as rows, metrics as columns."""
    names = list(next(iter(comparison.values.values())))
    headings = [_heading(name) if name in METRICS else f"{SELECTED} ↑" for name in names]
    rows = [(model, *(_number(values[name], 4) for name in names)) for model, values in comparison.values.items()]
    title = f"models on the same {comparison.n_samples:,} samples, uncalibrated"
    return FittedTable(("model", *headings), rows, title)


def model_differences(comparison: ModelComparison) -> list[str]:
    """Each model against the first, and the samples that are not compared."""
    first = next(iter(comparison.values))
    sentences = [
        f"{name} against {first}, on the same samples: {', '.join(map(str, by_metric.values()))}"
        for name, by_metric in comparison.differences.items()
    ]
    left_out = [f"{n:,} of {name}" for name, n in comparison.left_out.items() if n]
    if left_out:
        sentences.append(
            f"not all models have the questions of these samples, which are left out: {', '.join(left_out)}"
        )
    return sentences


def _number(value: float, digits: int, after: str = "") -> str:
    """A dash where there is no result."""
    return "—" if math.isnan(value) else f"{value:.{digits}f}{after}"


def metric_values(columns: Mapping[str, Mapping[str, float]], title: str) -> FittedTable:
    """Metrics as rows, one column for each set of values."""
    names = next(iter(columns.values()))
    rows = [(_heading(name), *(f"{values[name]:.4f}" for values in columns.values())) for name in names]
    return FittedTable(("metric", *columns), rows, title)


def evaluation(result: Evaluation, title: str) -> FittedTable:
    """Metrics as rows: value, interval, value if calibrated, excess, p-value."""
    return FittedTable(HEADER, [cells(value) for value in result.values], title, optional=["excess"])


def classes(result: Evaluation, title: str) -> FittedTable:
    """The classes that differ most in mean probability and prevalence."""
    cells = [class_cells(figures) for figures in result.classes[:MAX_CLASSES_SHOWN]]
    return FittedTable(CLASS_HEADER, cells, title, optional=["labels"])


def groups(results: Sequence[Group], title: str) -> FittedTable:
    """Slices as rows, as many as fit a screen."""
    more = (
        f" (the first {MAX_GROUPS_SHOWN} of {len(results)}; --json has all)" if len(results) > MAX_GROUPS_SHOWN else ""
    )
    cells = [group_cells(group) for group in results[:MAX_GROUPS_SHOWN]]
    return FittedTable(GROUP_HEADER, cells, title + more, optional=["excess", "floor"])


def class_thresholds(rows: Sequence[ClassThreshold], title: str) -> FittedTable:
    """The thresholds of predicted classes, as many as fit a screen."""
    more = f" (the first {MAX_GROUPS_SHOWN} of {len(rows)}; --json has all)" if len(rows) > MAX_GROUPS_SHOWN else ""
    return FittedTable(THRESHOLD_HEADER, [threshold_cells(row) for row in rows[:MAX_GROUPS_SHOWN]], title + more)


def segment_risks(rows: Sequence[SegmentRisk], risk: str, title: str) -> FittedTable:
    """The risk of every segment at the common threshold, as many as fit a screen."""
    more = f" (the first {MAX_GROUPS_SHOWN} of {len(rows)}; --json has all)" if len(rows) > MAX_GROUPS_SHOWN else ""
    return FittedTable(SEGMENT_HEADER, [segment_cells(row, risk) for row in rows[:MAX_GROUPS_SHOWN]], title + more)


def class_coverages(rows: Sequence[ClassCoverage], score: str, title: str) -> FittedTable:
    """The coverage of classes, the least covered first, as many as fit a screen."""
    more = f" (the first {MAX_GROUPS_SHOWN} of {len(rows)}; --json has all)" if len(rows) > MAX_GROUPS_SHOWN else ""
    cells = [coverage_cells(row, score) for row in class_rows(rows)[:MAX_GROUPS_SHOWN]]
    return FittedTable(COVERAGE_HEADER, cells, title + more)


def class_shares(rows: Sequence[Mapping[str, Any]], title: str) -> FittedTable:
    """The share of each class before and now, as many classes as fit a screen."""
    more = f" (the first {MAX_GROUPS_SHOWN} of {len(rows)}; --json has all)" if len(rows) > MAX_GROUPS_SHOWN else ""
    header = ("class", "calibration set", "share now", "95 % interval")
    cells = [
        (
            str(row["class"]),
            f"{100 * row['calibration']:.2f} %",
            f"{100 * row['share']:.2f} %",
            f"{100 * row['low']:.2f} – {100 * row['high']:.2f} %" if "low" in row else "–",
        )
        for row in rows[:MAX_GROUPS_SHOWN]
    ]
    return FittedTable(header, cells, title + more)


def pairs(rows: Mapping[str, Any], title: str) -> FittedTable:
    """Names and values."""
    texts = [(name, f"{value:.6g}" if isinstance(value, float) else str(value)) for name, value in rows.items()]
    return FittedTable(("name", "value"), texts, title, texts=["value"], show_header=False)
