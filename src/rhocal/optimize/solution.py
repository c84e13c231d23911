"""The result of a solver, and the evidence of a fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rhocal.numerics.special import Vector

ScalarFunction = Callable[[float], tuple[float, float]]
"""x → value, slope."""

CurvedFunction = Callable[[float], tuple[float, float, float, float, float]]
"""log s → value and first three derivatives in s of a function convex in s, and s."""

Curved = tuple[float, tuple[float, float], tuple[float, float, float]]
"""Of a function of two variables: value, gradient, and the second derivatives vv, vw, ww."""

VectorFunction = Callable[[Vector], tuple[float, Vector]]
"""x → value, gradient."""


@dataclass(frozen=True)
class Solution:
    """The evidence of a fit."""

    objective: str
    value: float
    """The objective on the calibration set."""
    converged: bool
    n_evaluations: int
    at_bound: str = ""
    """Why the optimum is at a bound, in words; empty if it is inside."""
    trials: tuple[Mapping[str, Any], ...] = ()
    """Every candidate (ρ, α, …) with its values."""


@dataclass(frozen=True)
class Minimum:
    """The point at which a solver stopped."""

    x: Vector
    value: float
    converged: bool
    n_evaluations: int
