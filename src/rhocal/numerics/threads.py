"""Work on many rows: cut into blocks that fit the cache, shared among threads."""

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


_mine = threading.local()


def row_blocks(n_rows: int, n_columns: int, entries: int = BLOCK_ENTRIES) -> Iterator[slice]:
    """Cut the rows of an array so that a block fits the cache."""
    step = max(1, entries // max(1, n_columns))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def over_blocks(shape: tuple[int, ...], work: Callable[[slice], None]) -> None:
    """Do some work on every block of rows; with several threads where there is enough of it (NumPy releases the lock).

    What a block's work gives depends on its rows alone, so the number of threads changes nothing but the time.
    """
    n_rows, n_columns = shape
    blocks = list(row_blocks(n_rows, n_columns))
    n_threads = max(1, min(threads(), len(blocks) // 4))

    def share(k: int) -> None:
        for rows in blocks[k::n_threads]:
            work(rows)

    in_threads(share, range(n_threads))


def in_threads(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """What some work gives for every item, in their order. Work that is already shared among threads is not shared again.

    This thread works too, and each takes the next item when it is done with one. ``_thread`` starts one in a third of the time
    that ``threading`` takes, whose ``start`` waits for it to run; threads that wait for work would not survive a fork.
    """
    n_threads = min(threads(), len(items))
    if n_threads < 2 or getattr(_mine, "shared", False):
        return [work(item) for item in items]
    waiting = list(range(len(items)))[::-1]
    found: dict[int, R] = {}
    errors: list[BaseException] = []
    lock = threading.Lock()

    def following() -> int | None:
        with lock:
            return waiting.pop() if waiting else None

    def run() -> None:
        _mine.shared = True
        try:
            while (k := following()) is not None:
                found[k] = work(items[k])
        except BaseException as error:  # noqa: BLE001 - raised below, when every thread has ended
            errors.append(error)
            waiting.clear()
        finally:
            _mine.shared = False

    ends = [end for _ in range(n_threads - 1) if (end := _begun(run)) is not None]
    run()
    for end in ends:
        end.acquire()
    if errors:
        raise errors[0]
    return [found[k] for k in range(len(items))]


def _begun(run: Callable[[], None]) -> _thread.LockType | None:
    """Begin some work in a thread of its own: a lock that is free when it has ended, or None if there are too many."""
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
    """As many as OMP_NUM_THREADS says, as for other numerical libraries, else one for each core we may use."""
    requested = os.environ.get("OMP_NUM_THREADS", "")
    if requested.isdigit():
        return max(1, int(requested))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def scratch(k: int, like: Floats) -> Floats:
    """Memory of this thread, number k, in the shape and type of an array; what it held is lost when it is asked for again.

    New memory for every block would be handed out page by page, which takes longer than a product.
    """
    kept: dict[tuple[int, np.dtype[Any]], Floats] = _mine.__dict__.setdefault("kept", {})
    if like.size > 2 * BLOCK_ENTRIES:
        return np.empty_like(like)
    key = (k, like.dtype)
    if key not in kept or kept[key].size < like.size:
        kept[key] = np.empty(like.size, like.dtype)
    return kept[key][: like.size].reshape(like.shape)
