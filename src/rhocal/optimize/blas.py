"""BLAS on one thread while an optimizer runs.

Products of a block of rows take a millisecond. Waking the threads of BLAS takes longer, and on a busy machine an evaluation
waits for the thread that gets no core: fits with 100 classes took six times as long, and nine times on a busy machine.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_lock = threading.Lock()
_limits: list[Any] = []
"""One entry for every running fit; the first one is the limit."""


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread, in the whole process; the last of several simultaneous fits lifts the limit."""
    with _lock:
        _limits.append(None if _limits else _blas("scipy.linalg" in sys.modules).limit(limits=1))
    try:
        yield
    finally:
        with _lock:
            limit = (_limits.pop() if len(_limits) == 1 else _limits.pop(1)) if _limits else None  # none after a fork
            if limit is not None:
                limit.restore_original_limits()


def _forget_other_threads() -> None:
    """In a forked process the threads that held the lock, or that fitted, do not exist."""
    global _lock  # noqa: PLW0603 - a lock that nobody will release
    _lock = threading.Lock()
    _limits.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


@cache
def _blas(_of_scipy: bool) -> Any:  # noqa: FBT001
    """Every BLAS that is loaded; SciPy brings one of its own."""
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415

    return ThreadpoolController().select(user_api="blas")
