"""A cached property without a lock.

``functools.cached_property`` of Python 3.11 holds one lock for all instances of a class while it computes. A process that is
forked while another thread holds it waits for it forever. Here two threads may both compute the value; it is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:  # noqa: N801 - it stands for the one of functools
        """A property that is computed at its first use and kept in the ``__dict__`` of the instance."""

        def __init__(self, compute: Any) -> None:
            self.compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.compute(instance)
            return value


__all__ = ["cached_property"]
