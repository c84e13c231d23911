"""How sure the network is of one class against all others, as a probability or as log-odds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from rhocal.numerics.special import without_noise
from rhocal.numerics.threads import row_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.special import Floats, Vector

ScoreKind = Literal["probs", "log-odds"]

LARGEST = 1e100
"""Log-odds are cut here, so that products with them stay finite."""


@dataclass(frozen=True)
class ClassScores:
    """The scores of every class for a fit, one class at a time: a table of all would be twice the logits in float64.

    They are those of ``formulas.class_scores``, to the last bit: a map is looked up where it was fitted.

    log p/(1 − p) of the top class is z₁ − log Σ_{j ≠ 1} e^{z_j}: taken from p itself it would be lost where p rounds to 1.
    """

    logits: Floats
    score_kind: ScoreKind
    predicted: NDArray[np.intp]
    largest: Vector
    total: Vector
    """Σ e^(z − largest)."""
    top_log_odds: Vector

    @classmethod
    def from_logits(cls, logits: Floats, score_kind: ScoreKind) -> ClassScores:
        """One pass over the logits."""
        predicted = logits.argmax(axis=1)
        largest, total, top = np.empty((3, len(logits)))
        for rows in row_blocks(*logits.shape):
            z = logits[rows].astype(np.float64)
            largest[rows] = z.max(axis=1)
            total[rows] = np.exp(z - largest[rows, None]).sum(axis=1)
            if score_kind == "log-odds":
                z[np.arange(len(z)), predicted[rows]] = -np.inf
                second = z.max(axis=1)
                rest = np.log(np.exp(z - second[:, None]).sum(axis=1))
                top[rows] = np.minimum(largest[rows] - second - rest, LARGEST)
        return cls(logits, score_kind, predicted, largest, total, top)

    def of_class(self, column: int) -> Vector:
        """The score of one class in every sample."""
        return without_noise(self._of_class(column))

    def of_top(self) -> Vector:
        """The score of the predicted class of every sample."""
        return without_noise(1 / self.total if self.score_kind == "probs" else self.top_log_odds)

    def _of_class(self, column: int) -> Vector:
        shifted = self.logits[:, column].astype(np.float64) - self.largest
        if self.score_kind == "probs":
            return np.exp(shifted) / self.total
        top = self.predicted == column
        if self.logits.shape[1] == 2:
            return np.where(top, self.top_log_odds, -self.top_log_odds)
        log_p = np.maximum(shifted - np.log(self.total), -LARGEST)
        log_p[top] = -1  # replaced below; its own value could be 0
        return np.where(top, self.top_log_odds, log_p - np.log1p(-np.exp(log_p)))
