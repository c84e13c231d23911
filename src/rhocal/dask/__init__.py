"""Many machines: the same functions of a block, where the blocks are. The only importer of Dask.

Only profiles and sums travel. Which worker did which block, and in which order, changes nothing: what blocks leave behind is
put together in the order of the blocks.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rhocal.data.blocks import NumberedBlock
from rhocal.data.sources import Source
from rhocal.data.stored import Chunk
from rhocal.data.streams import Stream, read_piece
from rhocal.errors import FileError, InputError, MissingExtraError, RhocalError

try:
    import dask as _dask
except ImportError as error:
    raise MissingExtraError("dask", "dask", "computing on many machines") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rhocal.calibrators import Calibrator
    from rhocal.data.blocks import BlockRef
    from rhocal.data.stored import Piece

R = TypeVar("R")

FAN = 32
"""Blocks whose sums one task merges."""

engine: Any = _dask  # it comes with half of its types
delayed = engine.delayed


class Unread:
    """A block that is read by whoever works on it: reading and working are one task, and the scheduler has half as many."""

    def __init__(self, piece: Piece) -> None:  # no dataclass: Dask looks into those for tasks
        self.piece = piece


class Blocks:
    """Blocks that lie somewhere, unread or as tasks that give a ``Chunk``: a ``rhocal.data.reader.BlockReader``."""

    again = True

    def __init__(
        self,
        tasks: Sequence[Any],
        sizes: Sequence[int],
        classes: Any = None,
        stream: Stream | None = None,
        step: Callable[[int], None] | None = None,
    ) -> None:
        self.tasks, self.sizes, self.classes, self.stream = tasks, sizes, classes, stream
        self.step = step
        """Called with a number of rows when they are done."""

    @classmethod
    def of(
        cls, logits: Any, labels: Any = None, sample_weight: Any = None, step: Callable[[int], None] | None = None
    ) -> Blocks:
        """From a stream of files, or from Dask arrays."""
        if isinstance(logits, Stream):
            if logits.pieces is None:
                raise InputError("an iterator cannot be sent to workers; give files, or Dask arrays")
            tasks = [Unread(piece) for piece in logits.pieces]
            return cls(tasks, [piece.n_rows for piece in logits.pieces], logits.classes, logits, step)
        if logits.ndim != 2:
            raise InputError(f"a Dask array of logits has shape (n_samples, n_classes); got {logits.shape}")
        if np.isnan(logits.shape[0]):
            logits = logits.compute_chunk_sizes()
        logits = logits.rechunk({1: -1})
        rows = logits.chunks[0]
        beside = [
            _beside(values, rows, name) for values, name in ((labels, "labels"), (sample_weight, "sample_weight"))
        ]
        parts = logits.to_delayed().ravel()
        tasks = [
            delayed(Chunk)(part, label, f"block {k} ({n:,} rows)", weight)
            for k, (part, n, label, weight) in enumerate(zip(parts, rows, *beside, strict=True))
        ]
        return cls(tasks, rows, step=step)

    def as_source(self) -> Source:
        """The source of the same blocks, processed by the workers."""
        if self.stream is None:
            blocks = [
                DaskBlock(f"block {k} ({n:,} rows)", n, task)
                for k, (task, n) in enumerate(zip(self.tasks, self.sizes, strict=True))
            ]
            source = Source(blocks, executor=DaskExecutor())
        else:
            source = self.stream.as_source().on(DaskExecutor())
        return source if self.step is None else source.with_progress(self.step)

    def each(
        self, work: Callable[..., Any], *arguments: Any, only: Sequence[int] | None = None
    ) -> list[tuple[int, Any]]:
        """What some work gives for every block (or only some), done where the block is."""
        chosen = range(len(self.tasks)) if only is None else only
        tasks = self._started(work, arguments, chosen)
        if only is None:
            tasks = self._watched(tasks, self.sizes)
        found = engine.compute(*tasks)
        self._skip([value for value in found if isinstance(value, RhocalError)])
        return [(k, value) for k, value in zip(chosen, found, strict=True) if not isinstance(value, RhocalError)]

    def reduce(self, work: Callable[..., Any], merge: Callable[[Any, Any], Any], *arguments: Any) -> Any:
        """Merged by the workers, so that what arrives here does not grow with the number of blocks.

        Groups of ``FAN`` blocks, then groups of groups: always the same ones, whoever is quick.
        """
        if not self.tasks:
            return None
        level = self._grouped(merge, self._started(work, arguments, range(len(self.tasks))))
        level = self._watched(level, [sum(self.sizes[k : k + FAN]) for k in range(0, len(self.sizes), FAN)])
        while len(level) > 1:
            level = self._grouped(merge, level)
        (found,) = engine.compute(*level)
        self._skip(found.bad)
        return found.total

    def _started(self, work: Callable[..., Any], arguments: Sequence[Any], chosen: Iterable[int]) -> list[Any]:
        shared = [delayed(argument, traverse=False) for argument in arguments]
        return [delayed(_safely)(work, k, self.tasks[k], *shared) for k in chosen]

    def _grouped(self, merge: Callable[[Any, Any], Any], level: Sequence[Any]) -> list[Any]:
        return [delayed(_merged)(merge, level[k : k + FAN]) for k in range(0, len(level), FAN)]

    def _watched(self, tasks: list[Any], sizes: Sequence[int]) -> list[Any]:
        """The tasks as futures that are done, each one told to ``step``; without a cluster, or nobody to tell, as they are."""
        distributed = sys.modules.get("distributed")
        if self.step is None or distributed is None:
            return tasks
        futures = distributed.default_client().compute(tasks)
        rows = dict(zip([future.key for future in futures], sizes, strict=True))
        for future in distributed.as_completed(futures):
            self.step(rows[future.key])
        return [delayed(future) for future in futures]

    def _skip(self, bad: Sequence[RhocalError]) -> None:
        """Raise what is wrong, unless it is a block that cannot be read and may be left out."""
        for error in bad:
            if self.stream is None or not self.stream.skip_bad or not isinstance(error, FileError):
                raise error
            if str(error) not in self.stream.skipped:
                self.stream.log.skipped.append(str(error))


@dataclass(frozen=True)
class Merged:
    """What a group of blocks comes to, and what went wrong in it."""

    total: Any
    bad: list[RhocalError]


def _merged(merge: Callable[[Any, Any], Any], found: Sequence[Any]) -> Merged:
    """Merge what blocks, or groups of them, left behind."""
    total: Any = None
    bad: list[RhocalError] = []
    for item in found:
        if isinstance(item, RhocalError):
            bad.append(item)
            continue
        value = item
        if isinstance(item, Merged):
            value, bad = item.total, bad + item.bad
        if value is None:
            continue
        both = value if total is None else _caught(merge, total, value)
        if isinstance(both, RhocalError):
            bad.append(both)
        else:
            total = both
    return Merged(total, bad)


def _safely(work: Callable[..., Any], k: int, block: Chunk | Unread, *arguments: Any) -> Any:
    chunk = _caught(read_piece, block.piece) if isinstance(block, Unread) else block
    return chunk if isinstance(chunk, RhocalError) else _caught(work, k, chunk, *arguments)


def _caught(work: Callable[..., Any], *arguments: Any) -> Any:
    """An error is a value here: raised on a worker it would fill the log there before it is said here."""
    try:
        return work(*arguments)
    except MissingExtraError as error:  # it is made of other things than its message, and does not travel
        return InputError(f"on a worker: {error}")
    except RhocalError as error:
        return error


def _beside(values: Any, rows: tuple[int, ...], name: str) -> list[Any]:
    """One value a row, cut like the rows."""
    if values is None:
        return [None] * len(rows)
    if len(values) != sum(rows):
        raise InputError(f"{name} and logits differ in length: {len(values)} {name}, {sum(rows)} samples")
    if hasattr(values, "to_delayed"):
        return list(values.rechunk((rows,)).to_delayed().ravel())
    ends = np.cumsum(rows)
    array = np.asarray(values)
    return [array[end - n : end] for n, end in zip(rows, ends, strict=True)]


def predict_proba(calibrator: Calibrator, logits: Any, kind: Any = None) -> Any:
    """Calibrated probabilities as a Dask array: computed when asked for, block by block."""
    if logits.ndim != 2 or logits.shape[1] != len(calibrator.classes_):
        raise InputError(
            f"a Dask array of logits has shape (n_samples, {len(calibrator.classes_)}) here; got {logits.shape}"
        )
    single = logits.rechunk({1: -1})
    dtype = np.float32 if single.dtype.itemsize <= 4 and single.dtype.kind == "f" else np.float64
    return single.map_blocks(calibrator.predict_proba, kind=kind, dtype=dtype)


@contextmanager
def cluster(scheduler: str | None, workers: int | None, timeout: str = "10s") -> Iterator[Any]:
    """A client of a running scheduler (``tcp://…``), or of a new local cluster of that many processes."""
    try:
        from dask import distributed as _distributed  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("dask.distributed", "dask", "a cluster of processes") from error
    distributed: Any = _distributed
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, timeout=timeout)
        except OSError as error:
            raise InputError(f"no scheduler answers at {scheduler}: {error}") from error
        with client:
            yield client
        return
    with (
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=None
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


# The executor of a cluster ------------------------------------------------------------------------------------------


class DaskBlock:
    """A block of Dask arrays: a task that gives it."""

    def __init__(self, location: str, n_rows: int, task: Any) -> None:  # no dataclass: Dask looks into those for tasks
        self.location, self.n_rows, self.task = location, n_rows, task

    def read(self) -> Chunk:
        """Compute the block here."""
        block: Chunk = self.task.compute()
        return block


@dataclass(frozen=True)
class DaskExecutor:
    """Runs a function on blocks where they are: on the workers of the client that is there, else in threads."""

    def map(self, work: Callable[[BlockRef], R], blocks: Iterable[BlockRef]) -> Iterator[R]:
        tasks = _tasks(work, blocks)
        distributed = sys.modules.get("distributed")
        if distributed is not None and _client(distributed) is not None:
            futures = _client(distributed).compute(tasks)
            results = (future.result() for future in futures)
        else:
            results = iter(engine.compute(*tasks))
        for result in results:
            if isinstance(result, RhocalError):
                raise result
            yield result

    def reduce(
        self,
        work: Callable[[BlockRef], R],
        merge: Callable[[R, R], R],
        blocks: Iterable[BlockRef],
        progress: Callable[[R], None] | None = None,
    ) -> R:
        """Merged by the workers, so that what arrives here does not grow with the number of blocks.

        Groups of ``FAN`` blocks, then groups of groups: always the same ones, whoever is quick.
        """
        level = _merge_groups(merge, _tasks(work, blocks))
        distributed = sys.modules.get("distributed")
        if progress is not None and distributed is not None and _client(distributed) is not None:
            futures = _client(distributed).compute(level)
            for future in distributed.as_completed(futures):
                if not isinstance(result := future.result(), RhocalError):
                    progress(result)
            level = [delayed(future) for future in futures]
        while len(level) > 1:
            level = _merge_groups(merge, level)
        (total,) = engine.compute(*level)
        if isinstance(total, RhocalError):
            raise total
        return total


def _client(distributed: Any) -> Any:
    try:
        return distributed.default_client()
    except ValueError:  # imported, but there is no cluster
        return None


def _tasks(work: Callable[[BlockRef], R], blocks: Iterable[BlockRef]) -> list[Any]:
    shared = delayed(work, traverse=False)
    return [delayed(_run)(shared, *_parts(block)) for block in blocks]


def _parts(block: BlockRef) -> tuple[int, Any]:
    """The number of a block, and what a worker reads it from."""
    number, ref = (block.number, block.ref) if isinstance(block, NumberedBlock) else (0, block)
    return number, ref.task if isinstance(ref, DaskBlock) else Unread(ref)


def _run(work: Callable[[BlockRef], R], number: int, ref: BlockRef | Unread) -> R | RhocalError:
    """On a worker: an error is a value here, for raised it would fill the log of the worker."""
    return _caught(work, NumberedBlock(number, ref.piece if isinstance(ref, Unread) else ref))


def _merge_groups(merge: Callable[[R, R], R], level: Sequence[Any]) -> list[Any]:
    shared = delayed(merge, traverse=False)
    return [delayed(_merge_all)(shared, level[k : k + FAN]) for k in range(0, len(level), FAN)]


def _merge_all(merge: Callable[[R, R], R], results: Sequence[R | RhocalError]) -> R | RhocalError:
    for result in results:
        if isinstance(result, RhocalError):
            return result
    return _caught(reduce, merge, results)


def dask_source(scores: Any, labels: Any, weights: Any) -> Source:
    """The chunks of Dask arrays as the blocks of a source, processed where they are."""
    if scores.ndim != 2:
        raise InputError(f"a Dask array of logits has shape (n_samples, n_classes); got {scores.shape}")
    if np.isnan(scores.shape[0]):
        scores = scores.compute_chunk_sizes()
    scores = scores.rechunk({1: -1})
    sizes = scores.chunks[0]
    beside = [_beside(values, sizes, name) for values, name in ((labels, "labels"), (weights, "sample_weight"))]
    blocks = []
    for k, (part, n, label, weight) in enumerate(zip(scores.to_delayed().ravel(), sizes, *beside, strict=True)):
        location = f"block {k} ({n:,} rows)"
        blocks.append(DaskBlock(location, n, delayed(Chunk)(part, label, location, weight)))
    return Source(blocks, executor=DaskExecutor())
