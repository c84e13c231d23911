"""Sources: blocks, what they hold, and who processes them. An array is a source of one resident block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rhocal.data.arrays import is_dask
from rhocal.data.blocks import Block, HeldBlock, NumberedBlock, concat_blocks, n_columns
from rhocal.data.columns import shown
from rhocal.data.executors import Executor, LocalExecutor
from rhocal.data.labels.columns import text_classes
from rhocal.data.labels.masked import refuse_masked_labels
from rhocal.data.predictions import Predictions
from rhocal.data.sampling import PilotRows, fits_in_pilot, pilot_blocks, pilot_rows, pilot_size
from rhocal.data.spec import InputSpec
from rhocal.data.storage.checksums import verify
from rhocal.data.tasks import (
    BlockTask,
    Outcome,
    PilotTask,
    ReadTask,
    merge_outcomes,
    same_classes,
    same_columns,
    validate,
    with_block_context,
)
from rhocal.errors import InputError
from rhocal.numerics.caching import cached_property

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rhocal.data.blocks import BlockRef
    from rhocal.data.formats.base import LogFacts
    from rhocal.data.storage.checksums import Piece

R = TypeVar("R")

EMPTY = "the stream is empty: no block could be read"
NO_SAMPLES = "the stream has no samples: every label is ignore_index, or every weight 0"


@dataclass
class ReadLog:
    """What was read of a source, shared by the sources derived from it."""

    bytes_read: int = 0
    """Bytes of scores, as they are stored."""
    skip_bad: bool = False
    """Leave out blocks that cannot be read, and list them in ``skipped``."""
    skipped: list[str] = field(default_factory=list)
    unused_columns: tuple[str, ...] = ()
    """Columns of a table that hold neither classes nor what was asked for."""
    columns: tuple[str, ...] | None = None
    """The columns of data frames, where all that a pilot came from have the same."""
    log: LogFacts | None = None
    """What is known of a log of a language model."""

    def add(self, outcome: Outcome[Any]) -> None:
        """Count what was read for a result."""
        self.bytes_read += outcome.n_bytes
        self.skipped += [message for message in outcome.skipped if message not in self.skipped]


@dataclass(frozen=True)
class Source:
    """Blocks of scores, what they hold, and who processes them.

    ``rhocal.stream`` and ``as_source`` make sources; ``fit``, ``evaluate`` and ``apply`` take them.
    """

    blocks: Iterable[BlockRef]
    """A list, or an iterator that can be read once."""
    spec: InputSpec = field(default_factory=InputSpec)
    executor: Executor = field(default_factory=LocalExecutor)
    resident: bool = False
    """Whether the rows stay in memory: a later question can still be answered."""
    needs_labels: bool = True
    log: ReadLog = field(default_factory=ReadLog)
    n_skipped: int = 0
    """Blocks in front that are left out; numbers count them."""
    progress: Callable[[int], None] | None = None
    """Called with a number of rows when they are done."""
    pilot_of_all: dict[int, PilotRows] | None = field(default=None, repr=False)
    """A few rows of every block that the pilot came from, or that was processed since."""

    @classmethod
    def from_predictions(cls, data: Predictions, log: ReadLog | None = None) -> Source:
        """Validated rows as a resident source; they are not validated again."""
        block = Block(data.scores, data.labels, "", data.weights, data.groups, data.clusters)
        source = cls((block,), InputSpec(data.kind, data.classes), resident=True, log=log or ReadLog())
        source.__dict__["predictions"] = data
        return source

    def map(self, work: Callable[[Predictions], R]) -> Iterator[R]:
        """Read and validate every block and run a function on it; results in the order of the blocks."""
        if self.resident:
            yield self._on_resident(work)
            return
        yield from self._values(self._task(work))

    def _values(self, task: Callable[[BlockRef], Outcome[R]]) -> Iterator[R]:
        """The results of a task for all blocks, which must have as many columns and the same classes."""
        n_blocks, n_values, columns, classes = 0, 0, None, None
        pieces: list[Piece] = []
        for outcome in self.executor.map(task, self._numbered()):
            self._count(outcome)
            if outcome.columns is not None and (columns is None or outcome.columns[1] != columns[1]):
                columns = same_columns(columns, outcome.columns)
            if outcome.classes is not None and (classes is None or not np.array_equal(outcome.classes[1], classes[1])):
                classes = same_classes(classes, outcome.classes)
            pieces += outcome.pieces
            n_blocks += not outcome.skipped
            if outcome.value is not None:
                n_values += 1
                yield outcome.value
        verify(pieces)
        if not n_values:
            raise InputError(NO_SAMPLES if n_blocks else EMPTY)

    def reduce(self, work: Callable[[Predictions], R], merge: Callable[[R, R], R]) -> R:
        """The same, with the results merged in the order of the blocks."""
        if self.resident:
            return self._on_resident(work)
        total = self.executor.reduce(
            self._task(work), partial(merge_outcomes, merge=merge), self._numbered(), self._step
        )
        self.log.add(total)
        verify(total.pieces)
        if total.value is None:
            raise InputError(NO_SAMPLES if total.columns else EMPTY)
        return total.value

    def pilot(self, *, every_block: bool = False) -> tuple[Predictions, Source]:
        """Some rows from all over, and the source, which still gives each block once.

        Of an iterator they are the first rows. With ``every_block`` they come from every block. Where a pilot has room for all
        rows, they are all rows with their weights, and the source is resident then.
        """
        if self.resident:
            return self.predictions, self
        if every_block and self.pilot_of_all is not None and self.is_rereadable:
            rows, source = [self.pilot_of_all[k] for k in sorted(self.pilot_of_all)], self
        else:
            rows, source = self._pilot_rows(every_block=every_block)
        if not rows:
            raise InputError(EMPTY)
        names = {part.columns for part in rows}
        self.log.columns = names.pop() if len(names) == 1 else None
        is_small = source.n_rows is not None and fits_in_pilot(source.n_rows, rows[0].scores)
        return source._in_memory(rows) if is_small else source._validated(rows)  # noqa: SLF001 - our own

    def _in_memory(self, rows: list[PilotRows]) -> tuple[Predictions, Source]:
        """All rows, and a resident source of them; each block is read once."""
        data = self._all_rows(rows)
        return data, Source.from_predictions(data, self.log)

    def _all_rows(self, pilot: list[PilotRows]) -> Predictions:
        """Arrays of one type are validated together, as one array is. Blocks of other containers are validated one by one."""
        blocks = list(self._values(ReadTask(self.log.skip_bad)))
        parts = replace(self, blocks=blocks, executor=LocalExecutor(), progress=None, pilot_of_all=None)
        block = concat_blocks(blocks)
        if block is None:
            _, parts = parts._validated(pilot)  # noqa: SLF001 - our own
            return Predictions.concat(list(parts.map(_with_possible_labels)))
        try:
            return _with_possible_labels(validate(block, self.spec, needs_labels=True))
        except InputError:
            list(parts.map(_with_possible_labels))  # an error of a block names it
            raise

    def _validated(self, rows: list[PilotRows]) -> tuple[Predictions, Source]:
        """The rows of a pilot, and the source with what they show of its classes."""
        if len({np.shape(part.scores)[1:] for part in rows}) > 1:
            columns = None
            for part in rows:
                columns = same_columns(columns, (part.location, n_columns(part.scores)))
        scores, labels = (np.concatenate([getattr(part, name) for part in rows]) for name in ("scores", "labels"))
        spec = _named(self.spec, rows)
        try:
            data = Predictions.from_arrays(scores, labels, spec=spec)
        except InputError:
            _name_bad_block(self, rows)
            raise
        source = self
        if self.spec.classes is None and data.classes.dtype.kind not in "iu":  # a block need not show every class
            source = replace(source, spec=replace(self.spec, classes=data.classes, classes_of_labels=True))
        if data.score_column is not None:
            source = replace(source, spec=replace(source.spec, positive=data.positive))
        return data, source

    def _pilot_rows(self, *, every_block: bool) -> tuple[list[PilotRows], Source]:
        if not self.is_rereadable:
            return self._first_rows()
        assert isinstance(self.blocks, Sequence)
        chosen = range(len(self.blocks)) if every_block else pilot_blocks(len(self.blocks))
        some = [NumberedBlock(k, self.blocks[k]) for k in chosen]
        held: dict[int, Block] | None = {} if isinstance(self.executor, LocalExecutor) else None
        outcomes = list(self.executor.map(PilotTask(len(some), self.log.skip_bad, held), some))
        for outcome in outcomes:
            self.log.add(outcome)
        rows = {
            ref.number: outcome.value for ref, outcome in zip(some, outcomes, strict=True) if outcome.value is not None
        }
        if held is None:
            return list(rows.values()), self
        blocks = [HeldBlock(ref, held[k]) if k in held else ref for k, ref in enumerate(self.blocks)]
        return list(rows.values()), replace(self, blocks=blocks, pilot_of_all=rows if len(rows) == len(blocks) else {})

    def _first_rows(self) -> tuple[list[PilotRows], Source]:
        """The pilot of an iterator: blocks until it has no room for all rows. Blocks of few rows become a list."""
        blocks, rest, n_rows = [], iter(self.blocks), 0
        rows: list[PilotRows] = []
        for ref in rest:
            block = ref.read()
            blocks.append(block)
            with with_block_context(block.location):
                rows.append(pilot_rows(block, 1))
            n_rows += block.n_rows
            if n_rows > pilot_size(block.scores):
                break
        is_small = bool(blocks) and fits_in_pilot(n_rows, blocks[0].scores)
        return rows, replace(self, blocks=blocks if is_small else chain(blocks, rest))

    @property
    def is_rereadable(self) -> bool:
        """Whether the blocks can be read a second time."""
        return isinstance(self.blocks, Sequence)

    @property
    def infers_classes(self) -> bool:
        """Whether labels that are texts name the columns: those of all blocks are read first, which are few bytes."""
        return not self.resident and self.is_rereadable and not self.log.skip_bad

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """PilotRows of every block; None for an iterator."""
        return tuple(block.n_rows for block in self.blocks) if isinstance(self.blocks, Sequence) else None

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None for an iterator."""
        return None if self.sizes is None else sum(self.sizes)

    @property
    def bytes_read(self) -> int:
        """Bytes of scores that were read so far."""
        return self.log.bytes_read

    @property
    def skipped(self) -> list[str]:
        """Blocks that could not be read and were left out, with the reason."""
        return self.log.skipped

    def skip(self, n_blocks: int) -> Source:
        """The source without its first blocks, for work that is resumed."""
        if not isinstance(self.blocks, Sequence):
            raise InputError("an iterator cannot be resumed; apply to a file")
        return replace(self, blocks=self.blocks[n_blocks:], n_skipped=self.n_skipped + n_blocks)

    def on(self, executor: Executor) -> Source:
        """The same blocks, processed by another executor."""
        if not self.is_rereadable:
            raise InputError("an iterator cannot be sent to workers; give files, or Dask arrays")
        return replace(self, executor=executor)

    def with_progress(self, progress: Callable[[int], None]) -> Source:
        """The source with a function that is called with a number of rows when they are done."""
        return replace(self, progress=progress)

    @cached_property
    def predictions(self) -> Predictions:
        """All rows in memory: validated once, however many functions run on them."""
        if not self.resident:
            return Predictions.concat(list(self.map(_unchanged)))
        (block,) = self.blocks
        with with_block_context(block.location):
            return validate(block.read(), self.spec, needs_labels=self.needs_labels)

    def _on_resident(self, work: Callable[[Predictions], R]) -> R:
        (block,) = self.blocks
        data = self.predictions
        with with_block_context(block.location):
            return work(data)

    def _task(self, work: Callable[[Predictions], R]) -> BlockTask[R]:
        n_blocks = len(self.blocks) if isinstance(self.blocks, Sequence) else 1
        pilot = self.pilot_of_all if isinstance(self.executor, LocalExecutor) else None
        if pilot is not None and len(pilot) == n_blocks:  # the pilot came from every block
            pilot = None
        return BlockTask(work, self.spec, self.needs_labels, self.log.skip_bad, pilot, n_blocks)

    def _numbered(self) -> Iterable[BlockRef]:
        numbered = (NumberedBlock(k, block) for k, block in enumerate(self.blocks, start=self.n_skipped))
        return list(numbered) if self.is_rereadable else numbered

    def _count(self, outcome: Outcome[Any]) -> None:
        self.log.add(outcome)
        self._step(outcome)

    def _step(self, outcome: Outcome[Any]) -> None:
        if self.progress is not None:
            self.progress(outcome.n_rows)


def as_source(
    scores: Any,
    labels: Any = None,
    weights: Any = None,
    groups: Any = None,
    clusters: Any = None,
    *,
    spec: InputSpec | None = None,
    needs_labels: bool = True,
) -> Source:
    """Whatever holds scores as a source: an array, data frame or tensor is one resident block.

    A ``Source`` (``rhocal.stream``) brings its own labels; Dask arrays have one block for each of their chunks.
    """
    spec = spec or InputSpec()
    if isinstance(scores, Source):
        source = scores
        if labels is not None or weights is not None:
            raise InputError("labels, sample_weight: the blocks of a stream bring their own; leave them out")
        if not source.resident:
            _check_streamed(groups, clusters, spec)
        elif clusters is not None:
            source = replace(source, blocks=tuple(replace(block.read(), clusters=clusters) for block in source.blocks))
        classes, columns = spec.classes, spec.columns or source.spec.columns
        if classes is None:
            classes = source.spec.classes
            if classes is None and (columns is None or len(columns) == 1) and needs_labels and source.infers_classes:
                classes = text_classes(source.blocks)
        elif columns is None and source.spec.classes is not None:  # a file that names its columns: put in order
            columns = tuple(str(name) for name in source.spec.classes)
            spec = replace(spec, labels_count_columns=True)
        return replace(source, spec=replace(spec, classes=classes, columns=columns), needs_labels=needs_labels)
    if is_dask(scores):
        from rhocal.dask import dask_source  # noqa: PLC0415 - Dask is there if its arrays are

        _check_streamed(groups, clusters, spec)
        source = dask_source(scores, labels, weights)
        columns = spec.columns or source.spec.columns
        return replace(source, spec=replace(spec, columns=columns), needs_labels=needs_labels)
    return Source(
        (Block(scores, labels, "", weights, groups, clusters),), spec, resident=True, needs_labels=needs_labels
    )


def _check_streamed(groups: Any, clusters: Any, spec: InputSpec) -> None:
    if groups is not None or clusters is not None or spec.class_axis != -1:
        raise InputError(
            "a stream takes no groups, clusters, sample_weight or class_axis: its blocks have shape (n_samples, n_classes), "
            "with sample weights as their third part"
        )


def _named(spec: InputSpec, rows: Sequence[PilotRows]) -> InputSpec:
    """The spec of a pilot, with the names of columns that its blocks bring; where these differ, blocks match them."""
    names = {part.columns for part in rows}
    if spec.columns is not None:
        return spec
    if len(names) == 1:
        return replace(spec, columns=names.pop())
    singles = {columns[0] if columns is not None and len(columns) == 1 else None for columns in names}
    if len(singles) > 1:
        raise InputError(f"blocks differ in the column of scores: {shown(sorted(map(repr, singles)))}")
    return spec


def _unchanged(data: Predictions) -> Predictions:
    return data


def _nothing(_data: Predictions) -> bool:
    return True


def _with_possible_labels(data: Predictions) -> Predictions:
    """The same; an error if the label of a row is certainly a masked class."""
    refuse_masked_labels(data)
    return data


def _name_bad_block(source: Source, rows: list[PilotRows]) -> None:
    """Validate the blocks of a pilot one by one: raises the error with the block that it came from."""
    places = {part.location for part in rows}
    blocks = [block for block in source.blocks if block.location in places]
    for _ in replace(source, blocks=blocks, pilot_of_all=None).map(_nothing):
        pass
