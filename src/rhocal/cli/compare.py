"""`rhocal compare`: many methods over many files."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rhocal.cli import options
from rhocal.cli.options import Arrays, Json, KindOption, grouped, input_spec, kind_of, print_json
from rhocal.cli.report import ReportOption, headline, origin, write
from rhocal.cli.streaming import ExecutionOptions, opened_pair, reading, skipped
from rhocal.errors import InputError, RhocalWarning

if TYPE_CHECKING:
    from collections.abc import Collection

    from rhocal.evaluation.compare import Row, TunedOn
    from rhocal.evaluation.parallel_comparison import Key

BETWEEN_WRITES = 5.0
"""Seconds between two writes of all rows found so far."""


@grouped
def compare(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Files of logits and labels; a folder of Parquet files or a pattern in quotes is one network.",
            show_default=False,
        ),
    ],
    *,
    methods: Annotated[str, typer.Option(help="Methods, separated by commas, or `all`.")] = "all",
    seeds: Annotated[int, typer.Option(min=1, help="Random halvings of files without a split of their own.")] = 5,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write one row per network, split and method (.csv).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the rows that the output file has, and run only what is missing.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes to work on; each takes a file and split at a time.")] = 1,
    report: ReportOption = None,
    per_network: Annotated[bool, typer.Option("--per-network", help="A table for each network too.")] = False,
    kind: KindOption = "logits",
    arrays: Arrays,
    how: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Compare methods: fit each on the tune half and measure it on the test half.

    A file with a tune and a test split is used as it is; other files are cut into random halves, once for each seed. A
    report is about one file, and its last halving. What is read block by block is read twice, whatever the number of
    methods and seeds: once to fit them all and once to measure them all; methods that need whole rows are fitted on a
    subsample, and their rows say so.
    """
    from rhocal.calibrators import CALIBRATORS, calibrator
    from rhocal.data.files import Names
    from rhocal.evaluation import compare as comparing
    from rhocal.evaluation import parallel_comparison as campaign
    from rhocal.reporting import tables

    names = list(CALIBRATORS) if methods == "all" else [name.strip() for name in methods.split(",")]
    for name in names:
        calibrator(name)  # an unknown name is an error now, not after an hour
    _check(sources, output, report, arrays, resume=resume)
    ledger = Ledger(output, names, resume=resume)
    large = [source for source in sources if how.wanted(source)]
    if large:
        how.refuse({"--report": report is not None})
    small = [source for source in sources if source not in large]
    todo = campaign.tasks(
        small, names, seeds, Names(arrays.logits_name, arrays.labels_name), kind_of(kind), ledger.done, arrays.labels
    )
    with tables.progress("fitting", sum(len(task.methods) for task in todo)) as step:
        try:
            for new in campaign.run(todo, jobs):
                ledger.keep(new)
                for row in new:
                    step(f"{row.network}, {row.method}")
        finally:  # an interrupted run keeps what it has
            ledger.write()
    for source in large:
        ledger.keep(stream_rows(source, names, seeds, arrays, kind, how, ledger.done))
        ledger.write()
    show_comparison(ledger.ordered, output=output, per_network=per_network, as_json=as_json)
    if report is not None:
        pair = comparing.splits(arrays.read(sources[0]), seeds, kind_of(kind))[-1]
        write_report(report, sources[0], pair, ledger.ordered, quiet=as_json)


class Ledger:
    """The rows found so far, and the file that they are kept in, if there is one."""

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
    """What does not go together is said before any work."""
    if resume and output is None:
        raise InputError("--resume goes on with the rows of a file; name it with -o")
    if report is not None and len(sources) > 1:
        raise InputError(f"--report is about one file; got {len(sources)}")
    if arrays.labels is not None and len(sources) > 1:
        raise InputError(f"--labels belongs to one file of logits; got {len(sources)}")


def stream_rows(
    source: Path, names: list[str], seeds: int, arrays: Arrays, kind: str, how: ExecutionOptions, done: Collection[Key]
) -> list[Row]:
    """The rows of a source that is read block by block."""
    from rhocal.data.sources import as_source
    from rhocal.evaluation.compare import split_names
    from rhocal.evaluation.compare_streams import fit_all, measure_all
    from rhocal.evaluation.parallel_comparison import network_name

    network = network_name(source)
    tune, test = opened_pair(source, arrays, how)
    todo = {
        split: [name for name in names if (network, split, name) not in done]
        for split in split_names(seeds, has_test=test is not None)
    }
    if not any(todo.values()):
        return []
    spec = {"kind": kind_of(kind)}
    with how.cluster():
        with reading(f"{network}, fitting", tune, how) as blocks:
            fitted = fit_all(blocks, todo, spec)
        execution = options.ExecutionOptions(how.stream, how.skip_bad, how.workers, how.scheduler)
        measured = as_source(test or tune, spec=input_spec(kind))
        with execution.progress(f"{network}, measuring", measured) as source_blocks:
            found = measure_all(network, fitted, source_blocks)
    for stream in (tune, test):
        if stream is not None:
            skipped(stream)
    return found


def write_report(target: Path, source: Path, pair: TunedOn, rows: list[Row], *, quiet: bool) -> None:
    """The report on the last split: its calibrators are fitted once more, for those that worked."""
    from rhocal.calibrators import calibrator
    from rhocal.calibrators.base import fit_validated
    from rhocal.evaluation.compare import FAILED
    from rhocal.reporting.document import build_document

    notes = {row.method: row.note for row in rows if row.split == pair.name and not row.note.startswith(FAILED)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)  # they are in the notes
        chosen = {name: fit_validated(calibrator(name), pair.tune, kind="logits") for name in notes}
    found = build_document(
        pair.test, chosen, origin(source.stem, [source]), calibration=pair.tune, headline=headline(chosen), notes=notes
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
