"""The score of one class against all others, as a probability or as log-odds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rhocal.calibrators.binary.formulas import log_odds, top_log_odds
from rhocal.numerics.caching import cached_property
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.numerics.special import row_argmax, row_max, without_noise
from rhocal.numerics.threads import row_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.special import Floats, Vector

ScoreKind = Literal["probs", "log-odds"]

COPIED_COLUMNS = 16
"""Columns of float32 that fill a line of the cache."""

COPIED_ROWS = 256
"""Rows whose entries of these columns stay in the cache while they are copied: a quarter of the time of all rows at once."""


@dataclass(frozen=True)
class ClassScores:
    """The scores of every class for a fit, one class at a time: a table of all would be twice the logits in float64.

    They are those of ``formulas.class_scores``, to the last bit: a map is looked up where it was fitted.
    """

    logits: Floats
    score_kind: ScoreKind
    largest: Vector
    total: Vector
    """Σ e^(z − largest)."""
    top_log_odds: Vector
    _copied: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_logits(cls, logits: Floats, score_kind: ScoreKind) -> ClassScores:
        """One pass over the logits."""
        largest, total, top = np.empty((3, len(logits)))
        for rows in row_blocks(*logits.shape):
            z = logits[rows].astype(np.float64)
            largest[rows] = row_max(z)
            total[rows] = np.exp(z - largest[rows, None]).sum(axis=1)
            if score_kind == "log-odds":
                top[rows] = top_log_odds(NUMPY, z, row_argmax(z)[:, None] == np.arange(z.shape[1]))[:, 0]
        return cls(logits, score_kind, largest, total, top)

    @cached_property
    def predicted(self) -> NDArray[np.intp]:
        """The column of the predicted class of every sample; maps of probabilities of single classes do not need it."""
        return row_argmax(self.logits)

    def of_class(self, column: int) -> Vector:
        """The score of one class in every sample."""
        shifted = self._column(column) - self.largest
        if self.score_kind == "probs":
            np.exp(shifted, out=shifted)
            shifted /= self.total
            return without_noise(shifted)
        top, n_classes = self.predicted == column, self.logits.shape[1]
        return without_noise(log_odds(NUMPY, shifted, self.total, top, self.top_log_odds, n_classes))

    def _column(self, column: int) -> Floats:
        """The logits of a class, from a copy of neighboring columns: in a wide table no two entries of a column are close."""
        first = column - column % COPIED_COLUMNS
        if self._copied.get("first") != first:
            self._copied["first"] = first
            part = self.logits[:, first : first + COPIED_COLUMNS].T
            self._copied["columns"] = np.empty(part.shape, part.dtype)
            for start in range(0, len(self.logits), COPIED_ROWS):
                rows = slice(start, start + COPIED_ROWS)
                self._copied["columns"][:, rows] = part[:, rows]
        return self._copied["columns"][column - first]

    def of_top(self) -> Vector:
        """The score of the predicted class of every sample."""
        return without_noise(1 / self.total if self.score_kind == "probs" else self.top_log_odds)
