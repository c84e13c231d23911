"""`rhocal compare`: many methods over many files."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.fit import for_options
from rhocal.cli.options import (
    Arrays,
    ExecutionOptions,
    Json,
    KeepDecision,
    KindOption,
    PositiveOption,
    grouped,
    input_spec,
    print_json,
    skipped,
)
from rhocal.cli.report import ReportOption, check_report, headline, origin, write
from rhocal.errors import InputError, RhocalWarning
from rhocal.numerics.caching import cached_property

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rhocal.data.formats.base import StoredFile
    from rhocal.data.sources import Source
    from rhocal.evaluation.compare import CalibrationSplit
    from rhocal.evaluation.models import ModelAnswers, ModelComparison
    from rhocal.evaluation.rows import Row

BETWEEN_WRITES = 5.0
"""Seconds between two writes of all rows."""
MAX_SAMPLE_BYTES = 1 << 29
"""Memory for numbers of test samples, from which differences between methods are computed."""
NO_DIFFERENCES = (
    "ties with the best are not tested: rows of an earlier run, or of too many networks, have no samples to compare on"
)


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
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas, or `all`. The default is a few that are fitted in seconds; with two classes "
            "there are more of them.",
            show_default=False,
        ),
    ] = None,
    keep_decision: KeepDecision = False,
    seeds: Annotated[int, typer.Option(min=1, help="Number of random halvings of files without a test split.")] = 5,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write one row per network, split and method (.csv).")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Keep the rows of the output file that are of the same data, and run what is missing."
        ),
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes; each takes a file and split at a time.")] = 1,
    models: Annotated[
        bool,
        typer.Option(
            "--models",
            help="Compare the files with each other too, as models of the same samples in the same order. Logs of the same "
            "questions are always compared.",
        ),
    ] = False,
    report: ReportOption = None,
    per_network: Annotated[bool, typer.Option("--per-network", help="Print a table for each network too.")] = False,
    kind: KindOption = None,
    positive: PositiveOption = None,
    arrays: Arrays,
    execution: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Compare methods: fit each on a calibration set and measure it on a test set.

    Unless methods are named, these are identity, temperature, rho-norm, field, svs, svs:field and cascade, and if all files
    have two classes quadratic, beta, centered-isotonic and venn-abers too; `--methods all` compares all.

    The two splits of a file are used if it has them; other files are cut into random halves, once for each seed. A
    report is about one file and its last split. Files that are read block by block are read twice, whatever the number of
    methods and seeds; methods that need all rows are fitted on a subsample, and their rows have a note.
    """
    from rhocal.calibrators import CALIBRATORS, calibrator
    from rhocal.evaluation.compare import default_methods, network_names, run, split_by_seed
    from rhocal.reporting import tables

    _check(paths, output, report, arrays, resume=resume)
    _open.cache_clear()
    _stored.cache_clear()
    are_streamed = any(execution.streams(path, skip_bad=arrays.skip_bad) for path in paths)
    execution.refuse({"--report": report is not None and are_streamed})
    files = [
        LogitsFile(path, network, arrays, kind, execution, positive)
        for path, network in zip(paths, network_names(paths), strict=True)
    ]
    if methods is None:
        n_classes = 2 if all(file.n_classes == 2 for file in files) else 0
        names = default_methods(n_classes, holds_options=all(file.holds_options for file in files))
    else:
        names = list(CALIBRATORS) if methods == "all" else [name.strip() for name in methods.split(",")]
    if keep_decision:
        names = keeping_methods(names, are_named=methods not in {None, "all"})
    for name in names:
        calibrator(name)  # an unknown name is an error now, not after an hour
    side_by_side = model_comparison(files, is_stated=models)
    ledger = Ledger(output, names, files, resume=resume)
    resident = sorted((file for file in files if not file.streams), key=lambda file: -file.n_bytes)
    has_keys = output is not None  # where rows are kept, a later run compares what they were computed from
    tasks = [task for file in resident for task in file.tasks(names, seeds, ledger.done, has_keys=has_keys)]
    with tables.progress("fitting", sum(task.n_fits for task in tasks)) as step:
        try:
            for new in run(tasks, jobs):
                ledger.keep(new)
                for row in new:
                    step(f"{row.network}, {row.method}")
        finally:  # an interrupted run keeps what it has
            ledger.write()
    for file in files:
        if file.streams:
            for task in file.tasks(names, seeds, ledger.done, has_keys=has_keys):
                ledger.keep(list(task.rows()))
            ledger.write()
    beside = show_models(side_by_side, as_json=as_json)
    show_comparison(ledger.ordered, output=output, per_network=per_network, as_json=as_json, **beside)
    if report is not None:
        split = split_by_seed(*files[0].open(), seeds - 1)
        write_report(report, paths[0], split, ledger.ordered, files[0].stored, quiet=as_json)


def model_comparison(files: list[LogitsFile], *, is_stated: bool) -> ModelComparison | None:
    """The files as models of the same samples: if that is stated, or if they are logs with common questions."""
    from rhocal.evaluation.models import compare_models

    if len(files) < 2:
        if is_stated:
            raise InputError("--models compares files with each other; got one")
        return None
    answers = {file.network: file.answers for file in files}
    known = {name: part for name, part in answers.items() if part is not None}
    has_ids = len(known) == len(files) and all(part.question_id is not None for part in known.values())
    if not is_stated and not has_ids:
        return None
    if len(known) < len(files):
        raise InputError(
            "--models needs the files in memory, but they are read block by block; --no-stream reads them whole"
        )
    if not has_ids:
        known = {name: replace(part, question_id=None) for name, part in known.items()}
        sizes = {part.data.n_samples for part in known.values()}
        if len(sizes) > 1:
            raise InputError(
                f"--models: files without question_id need the same samples in the same order; they have {sizes}"
            )
    try:
        return compare_models(known)
    except InputError as error:
        if is_stated:
            raise
        typer.echo(f"models are not compared with each other: {error.message}", err=True)
        return None


def show_models(side_by_side: ModelComparison | None, *, as_json: bool) -> dict[str, Any]:
    """Print models side by side, or return what the JSON has of them."""
    from rhocal.reporting import tables

    if side_by_side is None:
        return {}
    if not as_json:
        screen = tables.console()
        screen.print(tables.models(side_by_side))
        for sentence in tables.model_differences(side_by_side):
            screen.print(sentence)
    return {"models": side_by_side.to_dict()}


def keeping_methods(names: list[str], *, are_named: bool) -> list[str]:
    """The methods that never change the predicted class; an error if one that was named may."""
    from rhocal.calibrators import calibrator

    kept = [name for name in names if calibrator(name).keeps_decision]
    if are_named and len(kept) < len(names):
        others = ", ".join(name for name in names if name not in kept)
        raise InputError(f"--keep-decision: {others} may change the predicted class; leave it out of --methods")
    return kept if are_named else [*kept, *(name for name in ("cascade-order", "cascade-top") if name not in kept)]


@dataclass(frozen=True)
class LogitsFile:
    """A file of logits and labels, and how it is read."""

    path: Path
    network: str
    """How rows call it."""
    arrays: Arrays
    kind: str | None
    execution: ExecutionOptions
    positive: str | None = None

    @property
    def streams(self) -> bool:
        """Whether it is read block by block."""
        return self.execution.streams(self.path, skip_bad=self.arrays.skip_bad)

    @property
    def n_bytes(self) -> int:
        """Its size; 0 for the standard input."""
        return self.path.stat().st_size if self.path.exists() else 0

    @cached_property
    def key(self) -> str:
        """Changes with its bytes, and with what is stated about them."""
        from rhocal.data.content import content_key

        options = [self.kind, self.positive, *(getattr(self.arrays, field.name) for field in fields(self.arrays))]
        return content_key(self.path, [] if self.arrays.labels is None else [self.arrays.labels], options)

    @property
    def stored(self) -> StoredFile:
        """Its arrays; of a folder or pattern those of the first file."""
        return _stored(self)

    @property
    def holds_options(self) -> bool:
        """Whether its columns are options of questions."""
        return self.stored.holds_options

    @property
    def answers(self) -> ModelAnswers | None:
        """The samples of a file in memory, to be compared with those of another model."""
        from rhocal.evaluation.models import ModelAnswers

        if self.streams:
            return None
        first, test = self.open()
        log, ids = self.stored.log, self.stored.arrays.get("question_id")
        ids = None if log is None or ids is None else ids[:]
        return ModelAnswers((test or first).predictions, ids, log is not None and not log.holds_options)

    @property
    def n_classes(self) -> int:
        """Number of classes; of a file that is read block by block, in its first block."""
        import numpy as np

        first = self.open()[0]
        if first.resident:
            return first.predictions.n_classes
        shape = np.shape(next(iter(first.blocks)).read().scores)
        return max(shape[-1], 2) if len(shape) > 1 else 2

    def open(self) -> tuple[Source, Source | None]:
        """Its calibration and test set, or its single set."""
        return _open(self)

    def tasks(
        self, names: list[str], seeds: int, done: Collection[tuple[str, str, str]], *, has_keys: bool
    ) -> list[Task]:
        """What is left to do: one task per split, or one for all splits of a file that is read block by block."""
        from rhocal.data.streams import has_splits
        from rhocal.evaluation.compare import split_names

        has_test = has_splits(self.path, self.arrays.names())
        missing = {
            seed: tuple(name for name in names if (self.network, split, name) not in done)
            for seed, split in enumerate(split_names(seeds, has_test=has_test))
        }
        todo = [(seed, left) for seed, left in missing.items() if left]
        parts = [todo] if self.streams and todo else [[part] for part in todo]
        return [Task(self, tuple(part), self.key if has_keys else "") for part in parts]


@lru_cache(maxsize=1)  # the splits of a file are compared one after the other
def _open(file: LogitsFile) -> tuple[Source, Source | None]:
    return file.execution.open_splits(file.path, file.arrays, input_spec(file.kind, positive=file.positive))


@lru_cache(maxsize=1)
def _stored(file: LogitsFile) -> StoredFile:
    from rhocal.data.streams import source_files

    return file.arrays.contents(source_files(file.path)[0]).file


@dataclass(frozen=True)
class Task:
    """Methods on splits of one file; each split by its seed."""

    file: LogitsFile
    todo: tuple[tuple[int, tuple[str, ...]], ...]
    key: str = ""
    """What rows state about the bytes that they were computed from, where they are kept."""

    @property
    def n_fits(self) -> int:
        """Number of rows."""
        return sum(len(names) for _, names in self.todo)

    def rows(self) -> Iterator[Row]:
        """Fit and measure."""
        from rhocal.calibrators import calibrator
        from rhocal.evaluation.compare import compare, split_by_seed

        execution, sources = self.file.execution, self.file.open()
        stored = self.file.stored
        work = (
            (split_by_seed(*sources, seed), {name: for_options(calibrator(name), stored, ()) for name in names})
            for seed, names in self.todo
        )
        with execution.cluster():
            for row in compare(self.file.network, work, progress=execution.progress):
                yield replace(row, data=self.key)
        for source in sources:
            if source is not None:
                skipped(source)


class Ledger:
    """The rows so far, and the file that holds them, if there is one."""

    def __init__(self, output: Path | None, names: list[str], files: list[LogitsFile], *, resume: bool) -> None:
        from rhocal.evaluation.rows import Row, read_rows

        before = read_rows(output) if resume and output is not None and output.is_file() else []
        self.output, self.names = output, names
        self.rows = of_same_data([Row.from_flat(row) for row in before], files)
        self.done = {(row.network, row.split, row.method) for row in self.rows}
        self.written = time.monotonic()
        self.sample_bytes = 0

    @property
    def ordered(self) -> list[Row]:
        """By network and split, methods in the order in which they were named."""
        return in_order(self.rows, self.names)

    def keep(self, new: list[Row]) -> None:
        """Add rows; they are written if the last time was a while ago."""
        for row in new:
            self.sample_bytes += 0 if row.samples is None else row.samples.n_bytes
            self.rows.append(row if self.sample_bytes <= MAX_SAMPLE_BYTES else replace(row, samples=None))
        if time.monotonic() > self.written + BETWEEN_WRITES:
            self.write()

    def write(self) -> None:
        """Write all rows."""
        from rhocal.evaluation.rows import write_rows

        if self.output is not None:
            write_rows(self.output, [row.flat() for row in self.ordered])
        self.written = time.monotonic()


def of_same_data(rows: list[Row], files: list[LogitsFile]) -> list[Row]:
    """The rows of an earlier run that still hold: those of the same bytes, by the name that they have now, and those of others.

    Rows that have the name of one of the files and not its bytes are left out, and computed again.
    """
    if not rows:
        return []
    names: dict[str, list[str]] = {}
    for file in files:
        names.setdefault(file.key, []).append(file.network)
    taken = {file.network for file in files}
    kept: list[Row] = []
    left_out: dict[str, int] = {}
    for row in rows:
        if row.data in names:
            name = row.network if row.network in names[row.data] else names[row.data][0]
            kept.append(replace(row, network=name))
        elif row.network in taken:
            left_out[row.network] = left_out.get(row.network, 0) + 1
        else:
            kept.append(row)
    for network, n in left_out.items():
        typer.echo(f"{network}: {n:,} rows of other data or other options are computed again", err=True)
    return kept


def _check(sources: list[Path], output: Path | None, report: Path | None, arrays: Arrays, *, resume: bool) -> None:
    """Raise an error for options that exclude each other, before any work."""
    from rhocal.data.atomic import check_output

    if report is not None:
        check_report(report)
    if output is not None:
        check_output(output, sources)
    if resume and output is None:
        raise InputError("--resume continues the rows of a file; name it with -o")
    if report is not None and len(sources) > 1:
        raise InputError(f"--report is about one file; got {len(sources)}")
    if arrays.labels is not None and len(sources) > 1:
        raise InputError(f"--labels belongs to one file of logits; got {len(sources)}")


def write_report(
    target: Path, source: Path, split: CalibrationSplit, rows: list[Row], file: StoredFile, *, quiet: bool
) -> None:
    """Write the report on the last split; the calibrators that could be fitted are fitted again."""
    from rhocal.calibrators import calibrator
    from rhocal.calibrators.base import fit_validated
    from rhocal.metrics.inference.design import SamplingDesign
    from rhocal.reporting.document import build_document

    calibration, test = split.calibration.predictions, split.test.predictions
    notes = {row.method: row.note for row in rows if row.split == split.name and not row.failed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)  # they are in the notes
        chosen = {
            name: fit_validated(for_options(calibrator(name), file, ()), calibration, kind="logits") for name in notes
        }
    provenance, main = origin(source.stem, [source]), headline(chosen)
    design = SamplingDesign.from_weights(test.weights)
    document = build_document(
        test, chosen, provenance, calibration=calibration, headline=main, notes=notes, design=design
    )
    write(document, target, quiet=quiet)


def in_order(rows: list[Row], methods: list[str]) -> list[Row]:
    """By network, split and method, however they came."""
    place = {name: k for k, name in enumerate(methods)}
    return sorted(rows, key=lambda row: (row.network, row.split, place.get(row.method, len(place)), row.method))


def show_comparison(rows: list[Row], *, output: Path | None, per_network: bool, as_json: bool, **beside: Any) -> None:
    """Write the rows, and print their summary; ``beside`` are further entries of the JSON."""
    from rhocal.evaluation.best import differences_to_best
    from rhocal.evaluation.rows import averaged, summary, write_rows
    from rhocal.evaluation.ties import ties
    from rhocal.reporting import tables

    if output is not None:
        write_rows(output, [row.flat() for row in rows])
    lines, shared = summary(rows), averaged(rows)
    to_best = differences_to_best(rows, lines, shared)
    if as_json:
        by_method = {
            line["method"]: {
                metric: found[line["method"]].to_dict() for metric, found in to_best.items() if line["method"] in found
            }
            for line in lines
        }
        print_json({"summary": lines, "to_best": by_method, "rows": [row.flat() for row in rows], **beside})
        return
    screen = tables.console()
    networks = list(dict.fromkeys(row.network for row in rows))
    if per_network and len(networks) > 1:
        for network in networks:
            mine = [row for row in rows if row.network == network]
            own = summary(mine)
            screen.print(tables.comparison(own, network, differences_to_best(mine, own, [network])))
    what = networks[0] if len(networks) == 1 else f"mean over {len(shared)} networks"
    n_splits = len({(row.network, row.split) for row in rows})
    marks = "* best, = tied with it" if to_best else "* best"
    title = f"{what}, {n_splits} split{'s' if n_splits > 1 else ''} ({marks}, ± sd of splits)"
    screen.print(tables.comparison(lines, title, to_best))
    for sentence in ties(to_best, lines):
        screen.print(sentence)
    if not to_best and len(lines) > 1:
        screen.print(NO_DIFFERENCES)
    if len(shared) < len(networks):
        screen.print(
            f"not in the means, because some method has no result there: {', '.join(set(networks) - set(shared))}"
        )
    for note in dict.fromkeys(_note(row) for row in rows if row.note):
        screen.print(f"note: {note}")
    if output is not None:
        screen.print(f"one row per network, split and method: {output}")


def _note(row: Row) -> str:
    """The note of a row; its sentences may begin with the method, which is named once."""
    sentences = "; ".join(part.removeprefix(f"{row.method}: ") for part in row.note.split("; "))
    return f"{row.network}, {row.method}: {sentences}"
