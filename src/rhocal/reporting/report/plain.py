"""Values as JSON holds them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

DIGITS = 10
"""Significant digits: the page then recomputes ECE to nine decimals."""


def rounded(value: Any) -> Any:
    """Plain lists, dictionaries, texts and numbers of ``DIGITS`` digits; what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return rounded(value.tolist())
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    if isinstance(value, float):
        return _number(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _number(value: float) -> float:
    few = float(f"{value:.{DIGITS}g}")
    return int(few) if few.is_integer() and abs(few) < 1e15 else few


def short(value: Any, digits: int = 4) -> Any:
    """Numbers for a picture, where four digits are more than the eye sees."""
    return [None if not math.isfinite(x) else float(f"{x:.{digits}g}") for x in np.asarray(value, np.float64).tolist()]
