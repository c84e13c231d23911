"""A ``CorrectnessModel`` on the answers of one file, as commands that take calibrators use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.map import Map, unchanged
from rhocal.errors import InputError
from rhocal.numerics.special import softmax
from rhocal.optimize import Solution

if TYPE_CHECKING:
    from rhocal.data.predictions import Predictions
    from rhocal.data.spec import Kind
    from rhocal.numerics.special import Floats, Vector


@dataclass(frozen=True, eq=False)
class RowMap(Map):
    """Calibrated logits by the number of the row: features and subjects are not among the scores."""

    log_odds: Vector = field(default_factory=lambda: np.zeros(0))
    """Of every answer of the file."""

    def logits(self, data: Predictions) -> Floats:
        odds = self.log_odds if data.rows is None else self.log_odds[data.rows]
        if len(odds) != data.n_samples:
            raise InputError(f"the model of answers was applied to {len(odds):,} answers; these are {data.n_samples:,}")
        return np.column_stack([-odds / 2, odds / 2])

    def probs(self, data: Predictions) -> Floats:
        return softmax(self.logits(data))


@dataclass(eq=False, repr=False)
class AnswerProbabilities(Calibrator):
    """The probabilities that a fitted model gives the answers of a file. It cannot be fitted, saved or exported."""

    name = "correctness"
    keeps_decision = False
    is_portable = False

    @classmethod
    def of_file(cls, kind: Kind, probs: Floats) -> AnswerProbabilities:
        """A model of scores of this kind with its probabilities of all answers of a file, in their order."""
        calibrator = cls()
        calibrator.classes_, calibrator.kind_, calibrator.positive_ = np.array([0, 1]), kind, 1
        odds = np.log(np.maximum(probs[:, 1], 1e-300)) - np.log(np.maximum(probs[:, 0], 1e-300))
        calibrator.solution_ = Solution("nll", np.nan, converged=True, n_evaluations=0)
        vars(calibrator)["map_"] = RowMap(unchanged, {}, n_classes=2, log_odds=odds)
        return calibrator

    @property
    def label(self) -> str:
        return self.name

    def _fit(self, data: Any, start: Map | None = None) -> tuple[Map, Solution]:
        raise InputError("fit a CorrectnessModel")

    def _map(self, *args: Any, **fitted: Any) -> Map:
        raise InputError("fit a CorrectnessModel")
