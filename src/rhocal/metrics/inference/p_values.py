"""How p-values are written, everywhere in the same form: three digits, or *≤* the smallest that draws or digits can show."""

from __future__ import annotations

import math

LEAST_SHOWN = 0.001
"""The smallest p-value of three digits."""


def shown_p(p_value: float, least: float = 0.0) -> str:
    """A p-value; ``least`` is the smallest that its draws can show, 0 for one that is computed.

    >>> shown_p(0.0312), shown_p(1e-7), shown_p(1 / 501, 1 / 501)
    ('0.031', '≤ 0.001', '≤ 0.002')
    """
    if math.isnan(p_value):
        return "–"
    bound = max(least, LEAST_SHOWN)
    if p_value <= bound * (1 + 1e-9):
        return f"≤ {math.ceil(1000 * bound - 1e-6) / 1000:.3f}"  # rounded up, so that it stays true
    return f"{p_value:.3f}"


def equals_p(p_value: float, least: float = 0.0) -> str:
    """A p-value after "p": with its sign."""
    text = shown_p(p_value, least)
    return text if text.startswith("≤") else f"= {text}"


def least_of_draws(n_draws: int) -> float:
    """The smallest p-value that so many draws can show; 0 without draws."""
    return 1 / (1 + n_draws) if n_draws else 0.0
