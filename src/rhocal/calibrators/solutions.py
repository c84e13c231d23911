"""The evidence of fits, and the warnings that go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rhocal.errors import BoundaryWarning, ConvergenceWarning, FewSamplesWarning, warn
from rhocal.optimize import Solution

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.objectives import Objective
    from rhocal.optimize import Minimum

MIN_SAMPLES_PER_CLASS = 20
"""Samples per class below which a map for each class is mostly noise; on held-out samples that is not visible yet."""


def warn_if_few(
    name: str, samples_per_class: float, other: str, *, argument: str | None = None, remedy: str | None = None
) -> None:
    """Warn of a map for each class that is fitted on few samples, and name another method (and an option)."""
    if samples_per_class < MIN_SAMPLES_PER_CLASS:
        warn(
            f"{name} fits a map for each class on {samples_per_class:.3g} samples per class; below "
            f"{MIN_SAMPLES_PER_CLASS} that is mostly noise. Use {other}",
            FewSamplesWarning,
            argument=argument,
            remedy=remedy,
        )


def solution_at(
    minimum: Minimum,
    target: Objective,
    what: str,
    at_bound: str = "",
    trials: tuple[Mapping[str, Any], ...] = (),
    n_evaluations: int | None = None,
    bounds: tuple[float, float] | None = None,
) -> Solution:
    """The evidence of a minimum, with a warning if it did not converge; ``what`` is the name of the fit there.

    With ``bounds``, between which its first number, a log scale, was searched, also with a warning if it lies at one.
    """
    if bounds is not None:
        at_bound = warn_at_bound(float(minimum.x[0]), bounds)
    warn_unless_converged(what, converged=minimum.converged)
    n_evaluations = minimum.n_evaluations if n_evaluations is None else n_evaluations
    return Solution(str(target), minimum.value, minimum.converged, n_evaluations, at_bound, trials)


def equal_logits_solution(target: Objective | str) -> Solution:
    """The evidence of a fit on logits that are all equal."""
    return Solution(str(target), float("nan"), True, 0, "every logit of every sample is equal")  # noqa: FBT003


def warn_unless_converged(what: str, *, converged: bool) -> None:
    """Warn if a fit did not converge."""
    if not converged:
        warn(
            f"{what}: the optimizer stopped before its tolerance was met (solution_.converged is False)",
            ConvergenceWarning,
        )


def warn_at_bound(log_scale: float, bounds: tuple[float, float]) -> str:
    """Warn if the optimum lies at a bound, and return the reason in words; empty if it lies inside."""
    low, high = bounds
    message = ""
    if log_scale >= high - 1e-9:
        message = (
            "all calibration samples are predicted correctly (near ties aside), so confidence cannot be learned from them; use "
            "more samples. The mean confidence of the n correct ones was set to (n + 1) / (n + 2)"
        )
    elif log_scale <= low + 1e-9:
        message = (
            "the logits are no better than chance on the calibration set, so the probabilities are (nearly) uniform"
        )
    if message:
        warn(message, BoundaryWarning)
    return message
