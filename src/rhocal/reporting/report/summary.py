"""What stands at the top: which calibrator it is about, and whether to trust."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rhocal.errors import InputError
from rhocal.metrics.inference.defaults import SIGNIFICANCE_LEVEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.evaluation.evaluation import Evaluation

SMALL_EXCESS = 0.02
"""An ECE that is this little above the floor is small, even where it is certain."""


def headline_of(calibrators: Mapping[str, Any], wanted: str | None) -> str | None:
    """The calibrator the summary is about: the one asked for, else the first."""
    if wanted is not None and wanted not in calibrators:
        raise InputError(f"headline is one of {', '.join(calibrators) or 'none'}; got {wanted!r}")
    return wanted or next(iter(calibrators), None)


WEAK = 0.03
"""Where the true ECE may be above this, seeing no error says little."""


def level(found: Evaluation, *, same_samples: bool = False) -> str:
    """``good``: no test tells it from a perfect model; ``fair``: only just; ``bad``: clearly off.

    ``unsure``: no test tells it, but they would not see much: few samples, or the very samples that were fitted on.
    """
    ece = found["ece"]
    if not found.distinguishable:
        return "unsure" if same_samples or ece.high > WEAK else "good"
    return "fair" if ece.p_value > SIGNIFICANCE_LEVEL or ece.excess < SMALL_EXCESS else "bad"
