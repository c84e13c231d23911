"""The sizes of logits that a fit takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import InputError
from rhocal.numerics.special import row_max
from rhocal.numerics.threads import row_blocks

if TYPE_CHECKING:
    from rhocal.data.predictions import Predictions

MAX_LOGIT = 1e60
"""Fourth powers of logits up to this do not overflow in double precision."""

MIN_LOGIT = 1e-20
"""If all logits are smaller, scales that fit them leave the range of single precision, in which exported maps compute."""

MAX_SINGLE_LOGIT = 1e8
"""The same in single precision, times the smallest exponential."""

MIN_SINGLE_LOGIT = 1e-8
"""Fourth powers of differences of smaller logits vanish in single precision."""

MIN_DIFFERENCE = 1e-7
"""Of logits in a row, for a fit that reads probabilities. Double precision rounds log p ≈ −log m by up to 1e-16·log m, of which
weights of 30 / 1e-7 make 3e-8·log m: exports agree to 6e-7 with 150 classes. Of far smaller differences rounding decides."""


def check_size(size: float) -> None:
    """Refuse logits of which the farthest from 0 is ``size``, if a fit on them would leave the range of numbers."""
    if 0 < size < MIN_LOGIT:
        raise InputError(
            f"logits are too small: none is farther than {size:g} from 0, and one must be at {MIN_LOGIT:g} at least. Multiply "
            "them by a constant"
        )


def check_differences(data: Predictions, name: str) -> None:
    """Refuse logits that differ, and in no row enough for a fit on probabilities."""
    difference = largest_difference(data)
    if not 0 < difference < MIN_DIFFERENCE:
        return
    if data.kind != "logits":
        raise InputError(
            f"{name} cannot learn from probabilities that are equal but for rounding: in no row do two of their logarithms "
            f"differ by {MIN_DIFFERENCE:g}. Use temperature or svs, or make them exactly equal"
        )
    raise InputError(
        f"{name} reads probabilities, which do not hold logits so close to each other: they differ by {difference:g} in "
        f"a row at most, and must by {MIN_DIFFERENCE:g} at least. Multiply the logits by a constant, or use temperature or svs"
    )


def largest_difference(data: Predictions) -> float:
    """Of two logits of a row with weight, without masks; or the first that a fit on probabilities can use."""
    data = data.prepared()
    logits, masked, largest = data.logits, data.masked, 0.0
    for rows in row_blocks(*logits.shape):
        z = logits[rows].astype(np.float64)
        top = row_max(z)
        low = -row_max(-(z if masked is None else np.where(masked[rows], top[:, None], z)))
        counts = np.ones(len(z), np.bool_) if data.weights is None else data.weights[rows] > 0
        largest = max(largest, float((top - low).max(initial=0.0, where=counts)))
        if largest >= MIN_DIFFERENCE:
            break
    return largest
