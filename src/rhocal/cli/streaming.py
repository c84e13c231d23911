"""Files larger than memory, and many files: the same commands, block by block."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.errors import InputError, MissingArrayError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rhocal.calibrators import Calibrator
    from rhocal.cli.options import Arrays
    from rhocal.data.reader import BlockReader as Source
    from rhocal.data.stored import Chunk
    from rhocal.data.streams import Stream

SHARE = 0.25
"""Of the memory of the machine: files larger than this are read block by block."""

TUNE, TEST = ("_val", "_tune"), ("_test",)
"""How the arrays of a split end."""

BLOCKS = "Block by block, and on many processes"
StreamOption = Annotated[
    bool | None,
    typer.Option(
        "--stream/--no-stream",
        help="Read block by block; without it, files larger than a quarter of the memory, folders and patterns are.",
        rich_help_panel=BLOCKS,
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option("--skip-bad", help="Leave out blocks that cannot be read, and count them.", rich_help_panel=BLOCKS),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Read and compute in so many local processes.", rich_help_panel=BLOCKS),
]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", help="Read and compute on a Dask cluster (tcp://host:port).", rich_help_panel=BLOCKS),
]


@dataclass(frozen=True)
class ExecutionOptions:
    """How a source is to be read."""

    stream: StreamOption = None
    skip_bad: SkipBad = False
    workers: Workers = None
    scheduler: Scheduler = None

    @property
    def elsewhere(self) -> bool:
        """Whether other processes do the work."""
        return self.workers is not None or self.scheduler is not None

    def wanted(self, source: Path) -> bool:
        """Whether the source is to be read block by block."""
        if self.stream is False:
            if self.elsewhere or self.skip_bad:
                raise InputError("--no-stream does not go with --workers, --scheduler or --skip-bad")
            return False
        many = source.is_dir() or any(sign in str(source) for sign in "*?[")
        if self.stream or self.elsewhere or self.skip_bad or many:
            return True
        return source.is_file() and source.stat().st_size > SHARE * _memory()

    def refuse(self, used: Mapping[str, bool]) -> None:
        """Options that need the whole file in memory."""
        spec = [option for option, is_used in used.items() if is_used]
        if spec:
            raise InputError(
                f"{' and '.join(spec)} need{'s' if len(spec) == 1 else ''} the file in memory, but it is read block by block; "
                "--no-stream reads it whole"
            )

    def cluster(self) -> Any:
        """The processes that do the work; nothing if this one does."""
        if not self.elsewhere:
            return nullcontext()
        from rhocal.dask import cluster

        return cluster(self.scheduler, self.workers)


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 8 << 30


def opened(source: Path, arrays: Arrays, splits: tuple[str, ...], how: ExecutionOptions) -> Stream:
    """The stream of a source; of a file with two splits, the one that comes first in ``splits``."""
    from rhocal.data.streams import stream

    last: MissingArrayError | None = None
    for split in ("", *splits):
        try:
            return stream(
                str(source), labels=arrays.labels, logits_name=arrays.logits_name, labels_name=arrays.labels_name,
                split=split, skip_bad=how.skip_bad,
            )  # fmt: skip
        except MissingArrayError as error:
            last = last or error
    assert last is not None
    raise last


def opened_pair(source: Path, arrays: Arrays, how: ExecutionOptions) -> tuple[Stream, Stream | None]:
    """The tune and the test stream of a source; None where it holds one set."""
    try:
        return opened(source, arrays, (), how), None
    except MissingArrayError:
        return opened(source, arrays, TUNE, how), opened(source, arrays, TEST, how)


@contextmanager
def bar(what: str, stream: Stream) -> Iterator[Callable[[Chunk], None]]:
    """A bar that grows with the rows."""
    from rhocal.reporting import tables

    with tables.row_progress(what, stream.n_rows) as step:
        yield lambda chunk: step(chunk.n_rows)


@contextmanager
def reading(what: str, stream: Stream, how: ExecutionOptions) -> Iterator[Source]:
    """Whoever reads the blocks: this process, or the workers of the cluster that is there. Both with a bar."""
    from rhocal.data.reader import Reader
    from rhocal.reporting import tables

    with tables.row_progress(what, stream.n_rows) as step:
        if how.elsewhere:
            from rhocal.dask import Blocks

            yield Blocks.of(stream, step=step)
        else:
            yield Reader(stream, step)


def fitted(cal: Calibrator, source: Stream, spec: dict[str, Any], how: ExecutionOptions) -> dict[str, Any]:
    """Fit on a stream, here or on workers; what is known of it then."""
    from rhocal.calibrators.fitting import Fits
    from rhocal.data.sources import as_source
    from rhocal.data.spec import InputSpec

    with how.cluster(), reading("fitting", source, how) as blocks:
        profile = Fits(as_source(blocks, spec=InputSpec(**spec)), {"": cal}).fit("", cal)
    found: dict[str, Any] = {} if profile is None else {"n_samples": profile.n_samples, "n_classes": profile.n_classes}
    return found | _about(source)


def _about(source: Stream) -> dict[str, Any]:
    found: dict[str, Any] = {"bytes_read": source.bytes_read} if source.bytes_read else {}
    return found | skipped(source)


def skipped(source: Stream) -> dict[str, Any]:
    """Blocks that were left out."""
    for line in source.skipped:
        typer.echo(f"skipped: {line}", err=True)
    return {"n_skipped": len(source.skipped), "skipped": source.skipped} if source.skip_bad else {}
