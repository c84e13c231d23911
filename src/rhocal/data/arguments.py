"""Numbers that callers give as arguments, and how levels are written."""

from __future__ import annotations

import math
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from rhocal.errors import InputError


def is_number(value: Any) -> bool:
    """Whether it is a single real number; NaN is, True is not."""
    is_scalar = getattr(value, "ndim", None) == 0 and value.dtype.kind in "fiu"
    return (isinstance(value, Real) or is_scalar) and not isinstance(value, bool)


def check_level(value: Any, name: str, example: str) -> None:
    """Raise an error unless it is a number between 0 and 1."""
    if not is_number(value):
        raise InputError(f"{name} must be a number between 0 and 1 ({example}); got {_shown(value)}")
    if not 0 < value < 1:
        raise InputError(f"{name} must lie between 0 and 1 ({example}); got {value!r}")


def check_finite(value: Any, name: str, what: str) -> None:
    """Raise an error unless it is a finite number."""
    if not is_number(value) or not math.isfinite(value):
        raise InputError(f"{name} must be {what}; got {_shown(value)}")


def check_whole(value: Any, name: str, minimum: int, maximum: int | None = None) -> None:
    """Raise an error unless it is a whole number in a range."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < minimum or (maximum is not None and value > maximum):
        limits = f"of at least {minimum:,}" if maximum is None else f"from {minimum:,} to {maximum:,}"
        raise InputError(f"{name} must be a whole number {limits}; got {_shown(value)}")


def check_flag(value: Any, name: str) -> None:
    """Raise an error unless it is True or False."""
    if type(value).__name__ not in {"bool", "bool_"}:
        raise InputError(f"{name} must be True or False; got {_shown(value)}")


def show_level(level: float) -> str:
    """A level in percent, never rounded up to 100.

    >>> show_level(0.95), show_level(1 - 1e-12)
    ('95 %', '99.9999999999 %')
    """
    text = f"{100 * level:.10g}"
    if text in {"100", "0"} and 0 < level < 1:
        text = f"{100 * Decimal(repr(float(level))):f}".rstrip("0")
    return f"{text} %"


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None or isinstance(value, Real) else f"{type(value).__name__} of shape {shape}"
