"""Numbers that were stated to be probabilities and are not: what is wrong with them, in the caller's own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.data.spec import Kind
    from rhocal.numerics.special import Floats

LARGEST_PERCENTAGE_SUM = 101.0
"""Of a row, with room for rounding."""


def probability_error(
    table: Floats, kind: Kind, tolerance: float, name: str, columns: Sequence[str], *, is_single: bool
) -> InputError:
    """The error for scores of kind ``probs`` or ``log_probs`` that are not probabilities.

    ``table`` holds the scores; with ``is_single`` its second column is what the caller passed, and the first was computed.
    ``columns`` are the names of the columns that the caller passed, if they have names.
    """
    scores = table[:, 1:] if is_single else table
    probs = scores if kind == "probs" else np.exp(np.minimum(scores, 1))
    outside = (probs < 0) | (probs > 1 + tolerance)
    if outside.any():
        row, column = (int(k) for k in np.argwhere(outside)[0])
        where = f"column {columns[column]}" if len(columns) == scores.shape[1] else name
        return _outside(scores, kind, f"{where} has {scores[row, column]:g} in row {row}")
    totals = probs.sum(axis=1)
    row = int(np.abs(totals - 1).argmax())
    what = "probabilities" if kind == "probs" else "exponentials"
    return InputError(
        f"{name}: the {what} of each row must sum to 1 (within {tolerance:.3g}); row {row} sums to {totals[row]:.7g}. If a "
        "column is missing, add it; otherwise divide each row by its sum"
    )


def _outside(scores: Floats, kind: Kind, problem: str) -> InputError:
    """The error for a score that is no probability; logits are suggested only if there are negative numbers."""
    if kind == "log_probs":
        return InputError(
            f"{problem}, which is no log-probability: those are at most 0",
            argument="kind='logits'",
            remedy="use the numbers as logits, if they are logits",
        )
    problem = f"{problem}, which is no probability"
    others = "Another column may hold the probabilities" if scores.shape[1] == 1 else "Other columns may hold them"
    if scores.min() < 0:
        return InputError(
            f"{problem}. {others}", argument="kind='logits'", remedy="use the numbers as logits, if they are logits"
        )
    percentages = "If these are percentages, divide them by 100. " if _may_be_percentages(scores) else ""
    return InputError(f"{problem}. {percentages}{others}")


def _may_be_percentages(scores: Floats) -> bool:
    totals = scores.max(axis=1) if scores.shape[1] == 1 else scores.sum(axis=1)
    return bool((totals <= LARGEST_PERCENTAGE_SUM).all())
