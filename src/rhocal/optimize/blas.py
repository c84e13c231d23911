"""BLAS on one thread while an optimiser runs.

Products here are of blocks of rows that take a millisecond. Threads of BLAS cost more than that to wake, and on a busy machine
an evaluation waits for whichever of them gets no core: fits with 100 classes took six times as long, and nine then.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_lock = threading.Lock()
_inside: list[Any] = []
"""One entry for every fit that is under way; the first one set the limit."""


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Hold BLAS to one thread, in the whole process; the last of several fits at the same time gives the others back."""
    with _lock:
        _inside.append(None if _inside else _blas("scipy.linalg" in sys.modules).limit(limits=1))
    try:
        yield
    finally:
        with _lock:
            limit = _inside.pop() if len(_inside) == 1 else _inside.pop(1)
            if limit is not None:
                limit.restore_original_limits()


@cache
def _blas(_of_scipy: bool) -> Any:  # noqa: FBT001
    """Every BLAS that is loaded; SciPy brings one of its own."""
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415

    return ThreadpoolController().select(user_api="blas")
