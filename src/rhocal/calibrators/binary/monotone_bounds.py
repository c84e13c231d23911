"""Bounds of calibrated probabilities where all that is assumed is that they do not decrease with the score."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.binary import formulas
from rhocal.calibrators.binary.class_scores import ClassScores
from rhocal.calibrators.binary.monotone_interval import MonotoneInterval
from rhocal.calibrators.binary.one_vs_rest import ONE_VS_REST
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.numerics.special import expit, softmax

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.binary.one_vs_rest import BinaryCalibrator
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Vector

Bounds = tuple["Vector", "Vector"]


@dataclass(frozen=True, eq=False)
class MonotoneBounds:
    """A fitted calibrator of non-decreasing maps, and the likelihood ratios of each."""

    calibrator: BinaryCalibrator
    intervals: tuple[MonotoneInterval, ...]

    @classmethod
    def from_fit(cls, calibrator: BinaryCalibrator, data: Predictions, n_units: float = math.inf) -> MonotoneBounds:
        """From the samples of the fit; ``n_units`` is the effective number of clusters."""
        outcomes = calibrator.outcomes(data)
        return cls(calibrator, tuple(MonotoneInterval.from_outcomes(own, n_units) for _, own in outcomes))

    def bounds(self, data: Predictions, level: float) -> Bounds:
        """Bounds of every probability; 0 for masked classes."""
        logits, gap = data.precise_logits().astype(np.float64), self.calibrator.map_.mask_gap
        masked = logits / 2 - logits.max(axis=1, keepdims=True) / 2 <= -gap / 2  # halves do not overflow
        low, high = self._of_classes(logits, masked, level)
        return np.where(masked, 0.0, low), np.where(masked, 0.0, high)

    def _of_classes(self, logits: Vector, masked: NDArray[np.bool_], level: float) -> Bounds:
        scores = ClassScores.from_logits(logits, self.calibrator.score_kind)
        if self.calibrator.scope != ONE_VS_REST:
            return self._of_top(logits, scores, level)
        if len(self.intervals) == 1:
            low, high = self.intervals[0].bounds(scores.of_class(1), level)
            return np.stack([1 - high, low], axis=1), np.stack([1 - low, high], axis=1)
        low, high = np.empty(logits.shape), np.empty(logits.shape)
        for column, interval in enumerate(self.intervals):
            low[:, column], high[:, column] = interval.bounds(scores.of_class(column), level)
        probs, low, high = (np.where(masked, 0.0, side) for side in (self._unnormalized(logits), low, high))
        return normalized_bounds(probs, np.minimum(low, probs), np.maximum(high, probs))

    def digest(self) -> str:
        """Of the numbers that bounds depend on."""
        digest = hashlib.sha256()
        for interval in self.intervals:
            for values in (interval.score, interval.center, interval.share, interval.others.value):
                digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()

    def _of_top(self, logits: Vector, scores: ClassScores, level: float) -> Bounds:
        low, high = self.intervals[0].bounds(scores.of_top(), level)
        is_top = scores.predicted[:, None] == np.arange(logits.shape[1])
        others = softmax(np.where(is_top, -np.inf, logits))
        return (
            np.where(is_top, low[:, None], others * (1 - high)[:, None]),
            np.where(is_top, high[:, None], others * (1 - low)[:, None]),
        )

    def _unnormalized(self, logits: Vector) -> Vector:
        map_ = self.calibrator.map_
        score = formulas.class_scores(NUMPY, map_.parameters, logits)
        of_class = map_.formula.args[0]  # type: ignore[attr-defined]
        return np.asarray(formulas.mapped(of_class, NUMPY, map_.parameters, score))


def normalized_bounds(probs: Vector, low: Vector, high: Vector) -> Bounds:
    """Bounds of p / Σp in every row from those of p: distances to bounds add as standard errors do (Zou and Donner 2008).

    >>> low, high = normalized_bounds(np.array([[0.5, 0.5]]), np.array([[0.4, 0.5]]), np.array([[0.6, 0.5]]))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([[0.444, 0.455]], [[0.545, 0.556]])
    """
    rest = np.maximum(probs.sum(axis=1, keepdims=True) - probs, 0.0)
    below, above = (probs - low) ** 2, (high - probs) ** 2
    rest_low = np.maximum(rest - np.sqrt(np.maximum(below.sum(axis=1, keepdims=True) - below, 0.0)), 0.0)
    rest_high = rest + np.sqrt(np.maximum(above.sum(axis=1, keepdims=True) - above, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(probs) - np.log(rest)
        down = np.hypot(np.log(probs) - np.log(low), np.log(rest_high) - np.log(rest))
        up = np.hypot(np.log(high) - np.log(probs), np.log(rest) - np.log(rest_low))
        return np.nan_to_num(expit(odds - down), nan=0.0), np.nan_to_num(expit(odds + up), nan=1.0)
