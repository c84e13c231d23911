"""Numbers of the document: rounded, finite, as plain Python values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

DIGITS = 10
"""Significant digits: the page then recomputes ECE to nine decimals."""


def round_numbers(value: Any) -> Any:
    """Plain lists, dictionaries, texts and numbers of ``DIGITS`` digits; numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(key): round_numbers(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return round_numbers(value.tolist())
    if isinstance(value, list | tuple):
        return [round_numbers(item) for item in value]
    if isinstance(value, float):
        return _number(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _number(value: float) -> float:
    shortened = float(f"{value:.{DIGITS}g}")
    return int(shortened) if shortened.is_integer() and abs(shortened) < 1e15 else shortened


def for_plot(value: Any, digits: int = 4) -> Any:
    """Numbers for a plot, which shows no more than four digits."""
    return [None if not math.isfinite(x) else float(f"{x:.{digits}g}") for x in np.asarray(value, np.float64).tolist()]
