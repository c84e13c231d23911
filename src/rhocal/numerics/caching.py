"""A cached property without a lock.

``functools.cached_property`` of Python 3.11 holds one lock for all instances of a class while it computes. A process that is
forked while another thread holds it waits for it forever. Here two threads may both compute the value; it is the same.
"""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - it stands for the one of functools
        """A property that is computed at its first use and kept in the ``__dict__`` of the instance."""

        def __init__(self, compute: Any) -> None:
            super().__init__(compute)
            self.lock = nullcontext()


__all__ = ["cached_property"]
