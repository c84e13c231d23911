"""Who runs a function on every block.

``LocalExecutor`` is this process; ``rhocal.dask`` and ``rhocal.integrations`` have executors of clusters, which share the
functions at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rhocal.data.blocks import read_ahead
from rhocal.errors import InputError, RhocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rhocal.data.blocks import BlockRef

R = TypeVar("R")

BLOCKS_PER_MERGE = 32
"""Blocks whose sums one task of a cluster merges; another number would round sums otherwise."""


class Executor(Protocol):
    """Runs a function on every block; results come in the order of the blocks."""

    def map(self, work: Callable[[BlockRef], R], blocks: Iterable[BlockRef]) -> Iterator[R]:
        """The result for every block."""

    def reduce(
        self,
        work: Callable[[BlockRef], R],
        merge: Callable[[R, R], R],
        blocks: Iterable[BlockRef],
        progress: Callable[[R], None] | None = None,
    ) -> R:
        """The results of all blocks, merged; ``progress`` may be called with partial results as they arrive."""


@dataclass(frozen=True)
class LocalExecutor:
    """Processes blocks here; a thread reads blocks ahead of the one that is processed."""

    def map(self, work: Callable[[BlockRef], R], blocks: Iterable[BlockRef]) -> Iterator[R]:
        return map(work, read_ahead(blocks))

    def reduce(
        self,
        work: Callable[[BlockRef], R],
        merge: Callable[[R, R], R],
        blocks: Iterable[BlockRef],
        progress: Callable[[R], None] | None = None,
    ) -> R:
        total: R | None = None
        for result in self.map(work, blocks):
            if progress is not None:
                progress(result)
            total = result if total is None else merge(total, result)
        if total is None:
            raise InputError("the source is empty: no block could be read")
        return total


# On workers an error is a value: raised there it would fill the log of the worker, and arrive wrapped in another error.


def return_error(work: Callable[..., R], *arguments: Any) -> R | RhocalError:
    """The result, or the error as a value."""
    try:
        return work(*arguments)
    except RhocalError as error:
        return error


def raise_error(result: R | RhocalError) -> R:
    """The result; an error that a worker returned is raised."""
    if isinstance(result, RhocalError):
        raise result
    return result


def merge_results(merge: Callable[[R, R], R], results: Sequence[R | RhocalError]) -> R | RhocalError:
    """The results of several blocks merged in their order, or the first error among them."""
    for result in results:
        if isinstance(result, RhocalError):
            return result
    return return_error(reduce, merge, results)
