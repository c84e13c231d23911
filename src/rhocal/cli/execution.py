"""From options to a source: where blocks are read and processed, and notes about what was read."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rhocal.cli.options import Arrays
    from rhocal.data.files import Split
    from rhocal.data.formats.base import LogFacts
    from rhocal.data.sources import Source
    from rhocal.data.spec import InputSpec


LARGE_SHARE = 0.25
"""Share of the machine's memory: files larger than this are read block by block."""


MAX_SHOWN_SKIPPED = 20
"""Lines or blocks that were left out whose reasons are printed; the JSON has all."""


BLOCKS = "Block by block, and on many processes"


StreamOption = Annotated[
    bool | None,
    typer.Option(
        "--stream/--no-stream",
        help="Read block by block, or read the whole file. Default: folders, patterns and files larger than a quarter of "
        "the memory are read block by block.",
        rich_help_panel=BLOCKS,
    ),
]


Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Number of local processes that read and compute.", rich_help_panel=BLOCKS),
]


Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", help="Address of a Dask scheduler (tcp://host:port).", rich_help_panel=BLOCKS),
]


@dataclass(frozen=True)
class ExecutionOptions:
    """Where blocks are read and processed."""

    stream: StreamOption = None
    workers: Workers = None
    scheduler: Scheduler = None

    def open(
        self,
        path: Path,
        arrays: Arrays,
        spec: InputSpec,
        split: Split,
        groups: str | None = None,
        *,
        clusters: str | None = None,
        needs_labels: bool = True,
    ) -> Source:
        """Open a file as a source, resident or streamed; of a file with two splits, one of them.

        ``groups`` is the name of an array of the file, or another file; ``clusters`` the name of a column that blocks carry.
        """
        from rhocal.data.sources import as_source
        from rhocal.data.streams import open_split

        resident = not self.streams(path, skip_bad=arrays.skip_bad)
        if not resident:
            self.refuse({"--groups": groups is not None, "--class-axis": spec.class_axis != -1})
        group_file = Path(groups) if groups is not None and Path(groups).is_file() else None
        names = arrays.names(clusters if group_file or groups is None else groups, spec.classes)
        source = open_split(path, names, split, labels=arrays.labels, resident=resident, skip_bad=arrays.skip_bad)
        if source.spec.columns is not None and arrays.columns is None:
            _show_columns(path, source.spec.columns, source.log.unused_columns)
        if resident:
            show_skipped(source)
        if source.log.log is not None:
            show_log(path, source.log.log, arrays.logits_name)
            source = replace(source, spec=_log_spec(source.spec, source.log.log, arrays.logits_name))
        if needs_labels and resident:
            _check_labels(path, source)
        spec = arrays.stated(spec, source.spec)
        if groups is not None:
            source = _with_groups(source, groups, group_file)
        return as_source(source, spec=spec, needs_labels=needs_labels)

    def open_splits(
        self, path: Path, arrays: Arrays, spec: InputSpec, clusters: str | None = None
    ) -> tuple[Source, Source | None]:
        """The calibration and the test source of a file; None for a file with a single set."""
        from rhocal.data.streams import has_splits

        first = self.open(path, arrays, spec, "calibration")
        first = self.with_clusters(first, clusters, path, arrays, spec)
        return first, self.open(path, arrays, spec, "test") if has_splits(path, arrays.names()) else None

    def with_clusters(
        self, source: Source, clusters: str | None, path: Path, arrays: Arrays, spec: InputSpec
    ) -> Source:
        """A calibration set with the clusters that are stated, or the questions of a log that occur more than once."""
        name = clusters_of(source, clusters)
        if name is None:
            return source
        self.refuse({"--clusters": not source.resident})
        (block,) = self.open(path, arrays, spec, "calibration", name).blocks
        (rows,) = source.blocks
        return replace(source, blocks=(replace(rows.read(), clusters=block.read().groups),))

    def streams(self, path: Path, *, skip_bad: bool = False) -> bool:
        """Whether a file is read block by block; of a log single lines are left out, of another file blocks."""
        from rhocal.data.formats import holds_lines

        skip_bad = skip_bad and not holds_lines(path)
        if self.stream is False:
            if self._uses_workers or skip_bad:
                raise InputError("--no-stream cannot be combined with --workers, --scheduler or --skip-bad")
            return False
        is_many = path.is_dir() or any(sign in str(path) for sign in "*?[")
        if self.stream or self._uses_workers or skip_bad or is_many:
            return True
        return path.is_file() and path.stat().st_size > LARGE_SHARE * _memory()

    def refuse(self, used: Mapping[str, bool]) -> None:
        """Raise an error for options that need the whole file in memory."""
        options = [option for option, is_used in used.items() if is_used]
        if options:
            raise InputError(
                f"{' and '.join(options)} need{'s' if len(options) == 1 else ''} the file in memory, but it is read block by "
                "block; --no-stream reads it whole"
            )

    def cluster(self) -> AbstractContextManager[Any]:
        """The processes that the options name; nothing if this process does the work."""
        if not self._uses_workers:
            return nullcontext()
        from rhocal.dask import cluster

        return cluster(self.scheduler, self.workers)

    @contextmanager
    def progress(self, task: str, source: Source) -> Iterator[Source]:
        """The source with a progress bar, processed on the cluster if there is one."""
        from rhocal.reporting import tables

        if source.resident:
            yield source
            return
        with tables.row_progress(task, source.n_rows) as step:
            shown = source.with_progress(step)
            if self._uses_workers:
                from rhocal.dask import DaskExecutor

                shown = shown.on(DaskExecutor())
            yield shown

    @property
    def _uses_workers(self) -> bool:
        return self.workers is not None or self.scheduler is not None


IN_MEMORY = ExecutionOptions(stream=False)
"""For commands that need all rows at once."""


@cache  # a command may open a file more than once
def _show_columns(path: Path, columns: tuple[str, ...], unused: tuple[str, ...]) -> None:
    """Print which columns were inferred to hold classes."""
    from rhocal.data.columns import shown

    others = f"; other columns: {shown(name or '(no name)' for name in unused)}" if unused else ""
    typer.echo(f"{path}: classes in columns {shown(columns)}{others}", err=True)


def show_log(path: Path, log: LogFacts, name: str) -> None:
    """Print what a log was recognized as, and which of its scores are used."""
    others = "; ".join(f"--logits-name {other}: {text}" for other, text in log.scores.items() if other != name)
    used = log.scores.get(name, name)
    _print_once(f"{path}: {log.source}; {used}" + (f" ({others})" if others else ""))
    for note in log.notes:
        _print_once(f"{path}: {note}")


@cache  # a command may open a file more than once
def _print_once(line: str) -> None:
    typer.echo(line, err=True)


def forget_printed_lines() -> None:
    """Print every line again: another command of the same process begins."""
    _print_once.cache_clear()
    _show_columns.cache_clear()


def clusters_of(source: Source, clusters: str | None) -> str | None:
    """The name of the clusters that the caller states, else of the questions of a log that occur more than once."""
    log = source.log.log
    if clusters is not None or log is None or log.clusters is None:
        return clusters
    _print_once(
        f"questions occur more than once; samples of a question may depend on each other (--clusters {log.clusters})"
    )
    return log.clusters


def _log_spec(spec: InputSpec, log: LogFacts, name: str) -> InputSpec:
    """What a log states about its scores."""
    kind = log.kinds.get(name)
    are_answers = not log.holds_options and log.positive is not None
    return replace(
        spec, kind=kind or "logits", kind_is_stated=kind is not None, positive=log.positive, of_answers=are_answers
    )


def _check_labels(path: Path, source: Source) -> None:
    """Raise an error for a table without labels that names the columns that may hold them."""
    (block,) = source.blocks
    if block.read().labels is None and source.log.unused_columns:
        raise labels_not_found(str(path), source.log.unused_columns)


def labels_not_found(
    location: str, columns: tuple[str, ...], kind: type[FileError | InputError] = FileError
) -> FileError | InputError:
    """The error for a table without labels, with the columns that may hold them."""
    from rhocal.data.columns import shown

    others = f"; other columns of the table: {shown(columns)}" if columns else ""
    text = f"{location}: labels are missing{others}"
    return kind(text, argument="labels_name", remedy="name the column that holds them")


def _with_groups(source: Source, groups: str, group_file: Path | None) -> Source:
    """A resident source with the group of every sample, from a file of its own or from an array of the file."""
    from rhocal.data.files import only_array

    (block,) = source.blocks
    if group_file is not None:
        return replace(source, blocks=(replace(block.read(), groups=only_array(group_file, "groups")),))
    if block.read().groups is None:
        raise FileError(
            f"{block.location}: no array or column {groups!r} beside these logits, and no file of that name either"
        )
    return source


def show_skipped(source: Source) -> None:
    """Print why lines or blocks were left out, and how many."""
    for line in source.skipped[:MAX_SHOWN_SKIPPED]:
        _print_once(f"skipped: {line}")
    if source.log.skip_bad:
        _print_once(f"skipped: {len(source.skipped):,} in all")


def skipped(source: Source) -> dict[str, Any]:
    """Report the blocks that were left out."""
    if not source.resident:  # of a file in memory they are printed when it is opened
        show_skipped(source)
    return {"n_skipped": len(source.skipped), "skipped": source.skipped} if source.log.skip_bad else {}


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 8 << 30
