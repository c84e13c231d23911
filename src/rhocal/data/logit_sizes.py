"""The sizes of logits that a fit takes."""

from __future__ import annotations

from rhocal.errors import InputError

MAX_LOGIT = 1e60
"""Fourth powers of logits up to this do not overflow in double precision."""

MIN_LOGIT = 1e-20
"""If all logits are smaller, scales that fit them leave the range of single precision, in which exported maps compute."""

MAX_SINGLE_LOGIT = 1e8
"""The same in single precision, times the smallest exponential."""

MIN_SINGLE_LOGIT = 1e-8
"""Fourth powers of differences of smaller logits vanish in single precision."""


def check_size(size: float) -> None:
    """Refuse logits of which the farthest from 0 is ``size``, if a fit on them would leave the range of numbers."""
    if 0 < size < MIN_LOGIT:
        raise InputError(
            f"logits are too small: none is farther than {size:g} from 0, and one must be at {MIN_LOGIT:g} at least. Multiply "
            "them by a constant"
        )
