"""What a metric sees of a sample, and the scores that are plain means of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.special import Vector, log_softmax, row_argmax, row_blocks, row_sum

if TYPE_CHECKING:
    from rhocal.predictions import Predictions


@dataclass(frozen=True)
class Scored:
    """Samples reduced to what metrics look at, in one blocked pass over the logits."""

    confidence: Vector
    correct: Vector
    log_label: Vector
    sum_squares: Vector
    weights: Vector

    @classmethod
    def of(cls, data: Predictions) -> Scored:
        """Softmax once, in float64, and keep four numbers a sample."""
        assert data.labels is not None
        n = data.n_samples
        predicted = row_argmax(data.logits)
        confidence, log_label, sum_squares = np.empty(n), np.empty(n), np.empty(n)
        for rows in row_blocks(n, data.n_classes):
            log_p = log_softmax(data.logits[rows].astype(np.float64))
            samples = np.arange(len(log_p))
            log_label[rows] = log_p[samples, data.labels[rows]]
            confidence[rows] = np.exp(log_p[samples, predicted[rows]])
            sum_squares[rows] = row_sum(np.exp(2 * log_p))
        weights = np.ones(n) if data.weights is None else data.weights
        return cls(confidence, (predicted == data.labels).astype(np.float64), log_label, sum_squares, weights)


@dataclass(frozen=True)
class WeightedMean:
    """A mean as two sums, so that batches and machines can be added."""

    total: float
    weight: float

    @classmethod
    def of(cls, values: Vector, weights: Vector) -> WeightedMean:
        """The sums of one batch."""
        return cls(float(weights @ values), float(weights.sum()))

    def __add__(self, other: WeightedMean) -> WeightedMean:
        return WeightedMean(self.total + other.total, self.weight + other.weight)

    @property
    def value(self) -> float:
        """The mean."""
        return self.total / self.weight


def accuracy_per_sample(scored: Scored) -> Vector:
    """1 where the top class is right."""
    return scored.correct


def nll_per_sample(scored: Scored) -> Vector:
    """−log p_y, from log-probabilities, so that it is finite where p_y rounds to 0."""
    return -scored.log_label


def brier_per_sample(scored: Scored) -> Vector:
    """Σ_j (p_j − y_j)² = Σp² − 2 p_y + 1; between 0 and 2."""
    return scored.sum_squares - 2 * np.exp(scored.log_label) + 1


def top_brier_per_sample(scored: Scored) -> Vector:
    """(correct − confidence)²."""
    return np.asarray((scored.correct - scored.confidence) ** 2)
