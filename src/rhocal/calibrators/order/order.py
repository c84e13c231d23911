"""Maps that are not a scale and still keep the order of a sample's classes."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.scale.scaling import keep_decision
from rhocal.numerics.special import Floats, Vector, softmax
from rhocal.numerics.threads import row_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray


KAPPA = 1e-7
"""Smoothing of the maximum where statistics are taken from logits: none to speak of, the top class cannot change."""

SMALLEST = float(np.finfo(np.float64).tiny)
"""No probability is below this where its logarithm is taken: that stays finite."""


class OrderCalibrator(Calibrator):
    """Maps every row of logits so that a larger logit never becomes a smaller one (intra order-preserving).

    The prediction is read off the raw logits, so that rounding cannot change it.
    """

    keeps_decision = True

    @abstractmethod
    def _rows(self, z: Vector) -> Vector:
        """Calibrated logits of a block of rows; within a row never decreasing in the logit, to the last bit."""

    def _transform(self, logits: Floats) -> Floats:
        out = np.empty_like(logits)
        for rows in row_blocks(*logits.shape):
            out[rows] = self._rows(logits[rows].astype(np.float64))
            keep_decision(out[rows], logits[rows])
        return out

    def _probs(self, logits: Floats) -> Floats:
        out = np.empty_like(logits)
        for rows in row_blocks(*logits.shape):
            out[rows] = softmax(self._rows(logits[rows].astype(np.float64)))
            keep_decision(out[rows], logits[rows])
        return out

    def _predicted(self, logits: Floats) -> NDArray[np.intp]:
        return logits.argmax(axis=1)


def keep_order(out: Vector, logits: Vector) -> Vector:
    """Undo what rounding did to the order of a row: where a larger logit got less, it gets as much as the smaller one.

    >>> keep_order(np.array([[0.3, 0.2, 0.1]]), np.array([[1.0, 2.0, 0.0]])).tolist()
    [[0.3, 0.3, 0.1]]
    """
    order = np.argsort(logits, axis=1, kind="stable")
    sorted_out = np.maximum.accumulate(np.take_along_axis(out, order, axis=1), axis=1)
    kept = np.empty_like(out)
    np.put_along_axis(kept, order, sorted_out, axis=1)
    return kept
