"""Blocks of rows that fit the cache, and work on them in threads."""

from __future__ import annotations

import _thread
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

T = TypeVar("T")
R = TypeVar("R")

BLOCK_ENTRIES = 1 << 17
"""Entries handled at a time: a float64 block and its exponentials stay inside a 2 MiB second-level cache."""


_local = threading.local()


def row_blocks(n_rows: int, n_columns: int, entries: int = BLOCK_ENTRIES) -> Iterator[slice]:
    """Cut the rows of an array so that a block fits the cache."""
    step = max(1, entries // max(1, n_columns))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def over_blocks(shape: tuple[int, ...], work: Callable[[slice], None]) -> None:
    """Call ``work`` on every block of rows, with several threads if there are enough blocks (NumPy releases the lock).

    The result of a block depends on its rows alone, so the number of threads changes only the time.
    """
    n_rows, n_columns = shape
    blocks = list(row_blocks(n_rows, n_columns))
    n_threads = max(1, min(threads(), len(blocks) // 4))

    def share(k: int) -> None:
        for rows in blocks[k::n_threads]:
            work(rows)

    in_threads(share, range(n_threads))


def in_threads(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The results of ``work`` for every item, in order. Inside a thread of this function it runs without further threads.

    The calling thread works too, and each thread takes the next item when it has finished one. ``_thread`` starts a thread in
    a third of the time that ``threading`` takes, whose ``start`` waits until it runs; a pool of threads would not survive a
    fork.
    """
    n_threads = min(threads(), len(items))
    if n_threads < 2 or getattr(_local, "shared", False):
        return [work(item) for item in items]
    waiting = list(range(len(items)))[::-1]
    results: dict[int, R] = {}
    errors: list[BaseException] = []
    lock = threading.Lock()

    def next_index() -> int | None:
        with lock:
            return waiting.pop() if waiting else None

    def run() -> None:
        _local.shared = True
        try:
            while (k := next_index()) is not None:
                results[k] = work(items[k])
        except BaseException as error:  # noqa: BLE001 - raised below, when every thread has ended
            errors.append(error)
            waiting.clear()
        finally:
            _local.shared = False

    ends = [end for _ in range(n_threads - 1) if (end := _start(run)) is not None]
    run()
    for end in ends:
        end.acquire()
    if errors:
        raise errors[0]
    return [results[k] for k in range(len(items))]


def _start(run: Callable[[], None]) -> _thread.LockType | None:
    """Start a thread. Returns a lock that is released when it has ended, or None if there are too many threads."""
    end = _thread.allocate_lock()
    end.acquire()

    def work() -> None:
        try:
            run()
        finally:
            end.release()

    try:
        _thread.start_new_thread(work, ())
    except RuntimeError:
        return None
    return end


def threads() -> int:
    """Number of threads: OMP_NUM_THREADS, as in other numerical libraries, else one for each available core."""
    requested = os.environ.get("OMP_NUM_THREADS", "")
    if requested.isdigit():
        return max(1, int(requested))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def scratch(k: int, like: Floats) -> Floats:
    """Scratch memory number k of this thread, in the shape and type of an array; a later call with the same k reuses it.

    Allocating memory for every block would take longer than a product, because pages are mapped one by one.
    """
    kept: dict[tuple[int, np.dtype[Any]], Floats] = _local.__dict__.setdefault("kept", {})
    if like.size > 2 * BLOCK_ENTRIES:
        return np.empty_like(like)
    key = (k, like.dtype)
    if key not in kept or kept[key].size < like.size:
        kept[key] = np.empty(like.size, like.dtype)
    return kept[key][: like.size].reshape(like.shape)
