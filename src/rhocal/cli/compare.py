"""`rhocal compare`: many methods over many files."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rhocal.cli.options import (
    Arrays,
    ExecutionOptions,
    Json,
    KindOption,
    grouped,
    input_spec,
    print_json,
    skipped,
)
from rhocal.cli.report import ReportOption, headline, origin, write
from rhocal.errors import InputError, RhocalWarning

if TYPE_CHECKING:
    from collections.abc import Collection

    from rhocal.evaluation.compare import CalibrationSplit, Row
    from rhocal.evaluation.parallel_comparison import Key

BETWEEN_WRITES = 5.0
"""Seconds between two writes of all rows."""


@grouped
def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Files of logits and labels; a folder of Parquet files or a pattern in quotes is one network.",
            show_default=False,
        ),
    ],
    *,
    methods: Annotated[str, typer.Option(help="Methods, separated by commas, or `all`.")] = "all",
    seeds: Annotated[int, typer.Option(min=1, help="Number of random halvings of files without a test split.")] = 5,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write one row per network, split and method (.csv).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the rows of the output file, and run only what is missing.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes; each takes a file and split at a time.")] = 1,
    report: ReportOption = None,
    per_network: Annotated[bool, typer.Option("--per-network", help="Print a table for each network too.")] = False,
    kind: KindOption = "logits",
    arrays: Arrays,
    execution: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Compare methods: fit each on a calibration set and measure it on a test set.

    The two splits of a file are used if it has them; other files are cut into random halves, once for each seed. A
    report is about one file and its last split. Files that are read block by block are read twice, whatever the number of
    methods and seeds; methods that need all rows are fitted on a subsample, and their rows have a note.
    """
    from rhocal.calibrators import CALIBRATORS, calibrator
    from rhocal.evaluation import parallel_comparison as comparison
    from rhocal.evaluation.compare import split_of
    from rhocal.reporting import tables

    names = list(CALIBRATORS) if methods == "all" else [name.strip() for name in methods.split(",")]
    for name in names:
        calibrator(name)  # an unknown name is an error now, not after an hour
    _check(paths, output, report, arrays, resume=resume)
    ledger = Ledger(output, names, resume=resume)
    streamed = [path for path in paths if execution.streams(path)]
    execution.refuse({"--report": report is not None and bool(streamed)})
    resident = [path for path in paths if path not in streamed]
    array_names, stated = arrays.names(), input_spec(kind).kind
    tasks = comparison.tasks(resident, names, seeds, array_names, stated, ledger.done, arrays.labels)
    with tables.progress("fitting", sum(len(task.methods) for task in tasks)) as step:
        try:
            for new in comparison.run(tasks, jobs):
                ledger.keep(new)
                for row in new:
                    step(f"{row.network}, {row.method}")
        finally:  # an interrupted run keeps what it has
            ledger.write()
    for path in streamed:
        ledger.keep(_streamed_rows(path, names, seeds, arrays, kind, execution, ledger.done))
        ledger.write()
    show_comparison(ledger.ordered, output=output, per_network=per_network, as_json=as_json)
    if report is not None:
        sets = comparison.validated_file(paths[0], array_names, arrays.labels, stated)
        write_report(report, paths[0], split_of(*sets, seeds - 1), ledger.ordered, quiet=as_json)


class Ledger:
    """The rows so far, and the file that holds them, if there is one."""

    def __init__(self, output: Path | None, names: list[str], *, resume: bool) -> None:
        from rhocal.evaluation.compare import Row, read_rows

        before = read_rows(output) if resume and output is not None and output.is_file() else []
        self.output, self.names = output, names
        self.rows = [Row.from_flat(row) for row in before]
        self.done = {(row.network, row.split, row.method) for row in self.rows}
        self.written = time.monotonic()

    @property
    def ordered(self) -> list[Row]:
        """By network and split, methods in the order in which they were named."""
        return in_order(self.rows, self.names)

    def keep(self, new: list[Row]) -> None:
        """Add rows; they are written if the last time was a while ago."""
        self.rows += new
        if time.monotonic() > self.written + BETWEEN_WRITES:
            self.write()

    def write(self) -> None:
        """Write all rows."""
        from rhocal.evaluation.compare import write_rows

        if self.output is not None:
            write_rows(self.output, [row.flat() for row in self.ordered])
        self.written = time.monotonic()


def _check(sources: list[Path], output: Path | None, report: Path | None, arrays: Arrays, *, resume: bool) -> None:
    """Raise an error for options that exclude each other, before any work."""
    if resume and output is None:
        raise InputError("--resume continues the rows of a file; name it with -o")
    if report is not None and len(sources) > 1:
        raise InputError(f"--report is about one file; got {len(sources)}")
    if arrays.labels is not None and len(sources) > 1:
        raise InputError(f"--labels belongs to one file of logits; got {len(sources)}")


def _streamed_rows(
    path: Path,
    names: list[str],
    seeds: int,
    arrays: Arrays,
    kind: str,
    execution: ExecutionOptions,
    done: Collection[Key],
) -> list[Row]:
    """The rows of a file that is read block by block."""
    from rhocal.evaluation.compare import split_names
    from rhocal.evaluation.compare_streams import fit_all, measure_all
    from rhocal.evaluation.parallel_comparison import network_name

    network = network_name(path)
    source, test = execution.open_splits(path, arrays, input_spec(kind))
    todo = {
        split: [name for name in names if (network, split, name) not in done]
        for split in split_names(seeds, has_test=test is not None)
    }
    if not any(todo.values()):
        return []
    with execution.cluster():
        with execution.progress(f"{network}, fitting", source) as blocks:
            fitted = fit_all(blocks, todo)
        with execution.progress(f"{network}, measuring", test or source) as blocks:
            rows = measure_all(network, fitted, blocks)
    for part in (source, test):
        if part is not None:
            skipped(part)
    return rows


def write_report(target: Path, source: Path, pair: CalibrationSplit, rows: list[Row], *, quiet: bool) -> None:
    """Write the report on the last split; the calibrators that could be fitted are fitted again."""
    from rhocal.calibrators import calibrator
    from rhocal.calibrators.base import fit_validated
    from rhocal.evaluation.compare import FAILED
    from rhocal.reporting.document import build_document

    notes = {row.method: row.note for row in rows if row.split == pair.name and not row.note.startswith(FAILED)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)  # they are in the notes
        chosen = {name: fit_validated(calibrator(name), pair.calibration, kind="logits") for name in notes}
    found = build_document(
        pair.test,
        chosen,
        origin(source.stem, [source]),
        calibration=pair.calibration,
        headline=headline(chosen),
        notes=notes,
    )
    write(found, target, quiet=quiet)


def in_order(rows: list[Row], methods: list[str]) -> list[Row]:
    """By network, split and method, however they came."""
    place = {name: k for k, name in enumerate(methods)}
    return sorted(rows, key=lambda row: (row.network, row.split, place.get(row.method, len(place)), row.method))


def show_comparison(rows: list[Row], *, output: Path | None, per_network: bool, as_json: bool) -> None:
    """Write the rows, and print their summary."""
    from rhocal.evaluation import compare as comparing
    from rhocal.reporting import tables

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
    shared = comparing.averaged(rows)
    what = networks[0] if len(networks) == 1 else f"mean over {len(shared)} networks"
    n_splits = len({(row.network, row.split) for row in rows})
    screen.print(
        tables.comparison(lines, f"{what}, {n_splits} split{'s' if n_splits > 1 else ''} (* best, ± sd of splits)")
    )
    if len(shared) < len(networks):
        screen.print(
            f"not in the means, because some method has no result there: {', '.join(set(networks) - set(shared))}"
        )
    for note in dict.fromkeys(f"{row.network}, {row.method}: {row.note}" for row in rows if row.note):
        screen.print(f"note: {note}")
    if output is not None:
        screen.print(f"one row per network, split and method: {output}")
