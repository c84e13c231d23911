"""Sources that are processed by Dask, on one machine or many. The only importer of Dask.

Workers send profiles and sums, not rows. Results are merged in the order of the blocks, so neither the worker that processed
a block nor the order in which workers finish changes a result.
"""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rhocal.dask.frames import as_array, column_array, is_frame
from rhocal.data.blocks import Block, NumberedBlock
from rhocal.data.columns import frame_columns
from rhocal.data.executors import BLOCKS_PER_MERGE, merge_results, raise_error, return_error
from rhocal.data.sources import Source
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError, MissingExtraError, RhocalError

try:
    import dask as _dask
except ImportError as error:
    raise MissingExtraError("dask", "dask", "computing on many machines") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rhocal.data.blocks import BlockRef

R = TypeVar("R")

LOOPBACK = "127.0.0.1"
"""Where a cluster of this machine listens."""

engine: Any = _dask  # it comes with half of its types
delayed = engine.delayed


class Unread:
    """A block that is read by whoever works on it: reading and working are one task, and the scheduler has half as many."""

    def __init__(self, ref: BlockRef) -> None:  # no dataclass: Dask looks into those for tasks
        self.ref = ref


def _beside(values: Any, rows: tuple[int, ...], name: str) -> list[Any]:
    """One value a row, cut like the rows."""
    if values is None:
        return [None] * len(rows)
    if is_frame(values):
        values = column_array(values)
    if hasattr(values, "compute_chunk_sizes") and np.isnan(values.shape[0]):
        values = values.compute_chunk_sizes()
    if len(values) != sum(rows):
        raise InputError(f"{name} and logits differ in length: {len(values)} {name}, {sum(rows)} samples")
    if hasattr(values, "to_delayed"):
        return list(values.rechunk((rows,)).to_delayed().ravel())
    ends = np.cumsum(rows)
    array = np.asarray(values)
    return [array[end - n : end] for n, end in zip(rows, ends, strict=True)]


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
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host=LOOPBACK,  # no other machine can connect
            dashboard_address=f"{LOOPBACK}:0",  # None would be port 8787 of every interface
            worker_dashboard_address=f"{LOOPBACK}:0",
            scheduler_kwargs={"dashboard": False},
            memory_limit=None,
        ) as local,
        distributed.Client(local) as client,
    ):
        try:
            yield client
        finally:
            _mute(client)


def _mute(client: Any) -> None:
    """Workers that end with their cluster log tracebacks: the scheduler no longer answers. No one can act on that."""
    with suppress(Exception):  # a worker that does not answer either has nothing more to log
        client.run(logging.disable, logging.CRITICAL, on_error="ignore")


# The executor of a cluster ------------------------------------------------------------------------------------------


class DaskBlock:
    """A block of Dask arrays: a task that gives it."""

    def __init__(self, location: str, n_rows: int, task: Any) -> None:  # no dataclass: Dask looks into those for tasks
        self.location, self.n_rows, self.task = location, n_rows, task

    def read(self) -> Block:
        """Compute the block here."""
        block: Block = self.task.compute()
        return block


@dataclass(frozen=True)
class DaskExecutor:
    """Runs a function on blocks where they are: on the workers of the client that is there, else in threads."""

    def map(self, work: Callable[[BlockRef], R], blocks: Iterable[BlockRef]) -> Iterator[R]:
        tasks, client = _tasks(work, blocks), _client()
        if client is None:
            yield from map(raise_error, engine.compute(*tasks))
        else:
            yield from (raise_error(future.result()) for future in client.compute(tasks))

    def reduce(
        self,
        work: Callable[[BlockRef], R],
        merge: Callable[[R, R], R],
        blocks: Iterable[BlockRef],
        progress: Callable[[R], None] | None = None,
    ) -> R:
        """Merged by the workers, so that what arrives here does not grow with the number of blocks.

        Groups of ``BLOCKS_PER_MERGE`` blocks, then groups of groups: always the same ones, whoever is quick.
        """
        level = _merge_groups(merge, _tasks(work, blocks))
        client = _client()
        if progress is not None and client is not None:
            futures = client.compute(level)
            for future in sys.modules["distributed"].as_completed(futures):
                if not isinstance(result := future.result(), RhocalError):
                    progress(result)
            level = [delayed(future) for future in futures]
        while len(level) > 1:
            level = _merge_groups(merge, level)
        (total,) = engine.compute(*level)
        return raise_error(total)


def _client() -> Any:
    """The client of a cluster, if there is one."""
    distributed = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.default_client()
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
    """On a worker: the result for a block, or the error."""
    return return_error(work, NumberedBlock(number, ref.ref if isinstance(ref, Unread) else ref))


def _merge_groups(merge: Callable[[R, R], R], level: Sequence[Any]) -> list[Any]:
    shared = delayed(merge, traverse=False)
    return [
        delayed(merge_results)(shared, level[k : k + BLOCKS_PER_MERGE]) for k in range(0, len(level), BLOCKS_PER_MERGE)
    ]


def dask_source(scores: Any, labels: Any, weights: Any) -> Source:
    """The chunks of Dask arrays, or the partitions of frames, as the blocks of a source, processed where they are."""
    columns = frame_columns(scores)
    scores = as_array(scores)
    if scores.ndim != 2:
        raise InputError(f"a Dask array of logits has shape (n_samples, n_classes); got {scores.shape}")
    if np.isnan(scores.shape[0]):
        scores = scores.compute_chunk_sizes()
    scores = scores.rechunk({1: -1})
    parts = [(part, n) for part, n in zip(scores.to_delayed().ravel(), scores.chunks[0], strict=True) if n]
    sizes = tuple(n for _, n in parts)  # a partition may be empty: a filter leaves such
    beside = [_beside(values, sizes, name) for values, name in ((labels, "labels"), (weights, "sample_weight"))]
    blocks = []
    for k, ((part, n), label, weight) in enumerate(zip(parts, *beside, strict=True)):
        location = f"block {k} ({n:,} rows)"
        blocks.append(DaskBlock(location, n, delayed(Block)(part, label, location, weight)))
    return Source(blocks, InputSpec(columns=columns), executor=DaskExecutor())
