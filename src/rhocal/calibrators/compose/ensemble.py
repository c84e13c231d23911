"""Means of the probabilities of calibrators: of one fitted on parts of the calibration set, or of several on all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.compose.cross_fit import CrossFit
from rhocal.calibrators.cross_validation import N_FOLDS
from rhocal.calibrators.estimator import unfitted
from rhocal.calibrators.map import Map, mean_map
from rhocal.calibrators.options import Fitted, option
from rhocal.calibrators.validated_fit import fit_validated
from rhocal.optimize import Solution

if TYPE_CHECKING:
    from rhocal.data.predictions import Predictions


@dataclass(eq=False, repr=False)
class CrossFitted(Calibrator):
    """The mean of the probabilities of calibrators, each fitted on all folds of the calibration set but one.

    It keeps the decision of a calibrator that keeps it, except where rounding of the mean ties two classes.

    Parameters
    ----------
    calibrator
        A calibrator, or the name of a method. Its options are written ``calibrator__objective="brier"``.
    n_folds
        Number of folds, and of calibrators.

    Attributes
    ----------
    members_
        The fitted calibrators.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.CrossFitted("isotonic").fit(logits, labels)
    >>> calibrator.predict_proba(logits[:3]).shape
    (3, 10)
    """

    name = "cross-fitted"
    keeps_decision = False

    calibrator: str | Calibrator = option(stage=True)
    _: KW_ONLY
    n_folds: int = option(N_FOLDS, minimum=2)

    members_ = Fitted[list[Calibrator]]("calibrator", shape="members")

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, Solution]:
        models = CrossFit.from_predictions(self.calibrator, data, self.n_folds).models
        # Samples that cannot be divided into folds are fitted together.
        members = list(models) or [fit_validated(unfitted(self.calibrator), data, kind="logits")]
        return self._new_map(members=members), _mean_solution(members)

    @property
    def has_class_maps(self) -> bool:
        members = self.members_ if "map_" in vars(self) else [unfitted(self.calibrator)]
        return any(member.has_class_maps for member in members)

    def _map(self, *, members: Sequence[Calibrator]) -> Map:
        return mean_map([member.map_ for member in members])


@dataclass(eq=False, repr=False)
class Average(Calibrator):
    """The mean of the probabilities of several calibrators, all fitted on the whole calibration set.

    Parameters
    ----------
    calibrators
        Calibrators, or names of methods.

    Attributes
    ----------
    members_
        The fitted calibrators.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.Average(["temperature", "isotonic"]).fit(logits, labels)
    >>> calibrator.predict_proba(logits[:3]).shape
    (3, 10)
    """

    name = "average"
    keeps_decision = False

    calibrators: Sequence[str | Calibrator]

    members_ = Fitted[list[Calibrator]]("calibrator", shape="members")

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, Solution]:
        members = [fit_validated(unfitted(member), data, kind="logits") for member in self.calibrators]
        return self._new_map(members=members), _mean_solution(members)

    @property
    def has_class_maps(self) -> bool:
        members = self.members_ if "map_" in vars(self) else [unfitted(one) for one in self.calibrators]
        return any(member.has_class_maps for member in members)

    def with_choices(self) -> Average:
        return replace(self, calibrators=tuple(unfitted(member.with_choices()) for member in self.members_))

    def _map(self, *, members: Sequence[Calibrator]) -> Map:
        return mean_map([member.map_ for member in members])


def _mean_solution(members: Sequence[Calibrator]) -> Solution:
    """The mean of what the members came down to; converged if all did."""
    solutions = [member.solution_ for member in members]
    return Solution(
        f"mean of {', '.join(dict.fromkeys(solution.objective for solution in solutions))}",
        float(np.mean([solution.value for solution in solutions])),
        all(solution.converged for solution in solutions),
        sum(solution.n_evaluations for solution in solutions),
        "; ".join(dict.fromkeys(solution.at_bound for solution in solutions if solution.at_bound)),
    )
