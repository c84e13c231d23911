"""Top-k data as metrics read it: five numbers a sample. What needs the probability of every class is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.scored import Scored

if TYPE_CHECKING:
    from rhocal.data.top_k import TopK
    from rhocal.numerics.special import Vector
    from rhocal.profile.top_k import LabeledTopK


def score_top_k(samples: LabeledTopK) -> Scored:
    """Confidence, correctness, log-probability of the label and Σp² of every sample, the rest spread by a power law."""
    data, columns = samples.data, samples.labels
    values, counts = data.tail
    is_label = data.indices == columns[:, None]
    share = counts * np.exp(values - data.rest[:, None])
    expected = (share * values).sum(axis=1) / np.maximum(share.sum(axis=1), 1e-300)
    return Scored(
        confidence=np.exp(data.log_probs[:, 0]),
        correct=is_label[:, 0].astype(np.float64),
        log_label=np.where(is_label.any(axis=1), (is_label * data.log_probs).sum(axis=1), expected),
        sum_squares=np.exp(2 * data.log_probs).sum(axis=1) + np.exp(2 * values) @ counts,
        weights=samples.weights,
    )


def top_k_moments(data: TopK) -> Vector:
    """−Σ p log p, Σ p log²p and Σ p³ of every sample, as rows (see ``inference.floor.label_moments``)."""
    values, counts = data.tail
    moments = []
    for log_p, times in ((data.log_probs, np.ones(data.log_probs.shape[1])), (values, counts)):
        p = np.exp(log_p)
        moments.append(np.stack([-(p * log_p) @ times, (p * log_p**2) @ times, p**3 @ times]))
    return moments[0] + moments[1]
