"""The summary of the report: the calibrator it is about, and the level of trust."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.evaluation.evaluation import Evaluation


def select_headline(calibrators: Mapping[str, Any], name: str | None) -> str | None:
    """The calibrator the summary is about: the named one, by default the first."""
    if name is not None and name not in calibrators:
        raise InputError(f"headline is one of {', '.join(calibrators) or 'none'}; got {name!r}")
    return name or next(iter(calibrators), None)


def level(evaluation: Evaluation, *, same_samples: bool = False) -> str:
    """``good``: shown within the tolerance; ``fair``: so, but not perfectly calibrated; ``bad``: shown beyond the tolerance.

    ``unsure``: too few samples to tell, or the samples of the fit; ``doubtful``: too few to tell how large the error is, but it
    is detected.
    """
    if evaluation.state == "beyond":
        return "bad"
    if evaluation.state == "within":
        return "unsure" if same_samples else "fair" if evaluation.distinguishable else "good"
    return "doubtful" if evaluation.distinguishable else "unsure"
