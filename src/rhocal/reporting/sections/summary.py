"""The summary of the report: the calibrator it is about, and the level of trust."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rhocal.errors import InputError
from rhocal.metrics.inference.defaults import SIGNIFICANCE_LEVEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.evaluation.evaluation import Evaluation

MAX_SMALL_EXCESS = 0.02
"""An ECE up to this much above the floor is small, even if it is significant."""


def select_headline(calibrators: Mapping[str, Any], name: str | None) -> str | None:
    """The calibrator the summary is about: the named one, by default the first."""
    if name is not None and name not in calibrators:
        raise InputError(f"headline is one of {', '.join(calibrators) or 'none'}; got {name!r}")
    return name or next(iter(calibrators), None)


MAX_UNDETECTED_ECE = 0.03
"""If the upper end of the interval is above this, the absence of a significant error says little."""


def level(evaluation: Evaluation, *, same_samples: bool = False) -> str:
    """``good``: no test rejects calibration; ``fair``: one does, but the error is small; ``bad``: the error is not small.

    ``unsure``: no test rejects, but none could detect much: few samples, or the samples of the fit.
    """
    ece = evaluation["ece"]
    if not evaluation.distinguishable:
        return "unsure" if same_samples or ece.high > MAX_UNDETECTED_ECE else "good"
    return "fair" if ece.p_value > SIGNIFICANCE_LEVEL or ece.excess < MAX_SMALL_EXCESS else "bad"
