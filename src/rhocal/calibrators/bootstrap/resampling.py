"""Weights of resampled calibration sets: the Bayesian bootstrap (Rubin 1981) of samples, or of whole clusters."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Vector


def draw_weights(data: Predictions, n_replicates: int, seed: int) -> Iterator[Vector]:
    """Weights of the samples, with a sum of 1, for each replicate.

    Draws belong to samples, or clusters, by what they hold: neither their order nor names of clusters matter. The weight of a
    sample is drawn from a gamma distribution whose shape is its weight, so that a weight of 2 is two copies. All samples of a
    cluster are multiplied by one draw: copies that are clusters have the draws of single samples.
    """
    weights = data.counts
    digests = _digests(data)
    if data.clusters is None:
        order = np.lexsort([weights, digests])
        for k in range(n_replicates):
            drawn = np.zeros(len(order))
            drawn[order] = np.random.default_rng((seed, k)).standard_gamma(weights[order])
            yield drawn / drawn.sum()
        return
    counts = weights > 0
    names, codes = np.unique(data.clusters[counts], return_inverse=True)
    smallest, sums = np.full(len(names), np.iinfo(np.uint64).max, np.uint64), np.zeros(len(names), np.uint64)
    np.minimum.at(smallest, codes, digests[counts])
    np.add.at(sums, codes, digests[counts])
    order = np.lexsort([np.bincount(codes, weights[counts]), sums, smallest])
    for k in range(n_replicates):
        of_cluster = np.zeros(len(names))
        of_cluster[order] = np.random.default_rng((seed, k)).standard_gamma(np.ones(len(names)))
        drawn = np.zeros(len(weights))
        drawn[counts] = weights[counts] * of_cluster[codes]
        yield drawn / drawn.sum()


def effective_clusters(data: Predictions) -> float:
    """The number of equal clusters whose means vary as much: (Σw)²/Σw² of the weights of clusters."""
    assert data.clusters is not None
    of_clusters = np.bincount(data.clusters, data.counts)
    shares = of_clusters / of_clusters.sum()
    return float(1 / (shares @ shares))


def effective_variance_clusters(data: Predictions) -> float:
    """The number of equal clusters from which a variance is known as well: (Σw²)²/Σw⁴ of the weights of clusters.

    Satterthwaite's degrees of freedom of a sum of squares that are proportional to w². Where samples of a cluster depend on
    each other, variances come from the largest clusters: of sizes 1 (60 clusters), 5 (20) and 40 (4) from 4.7, not from 14.7.
    """
    assert data.clusters is not None
    squares = np.bincount(data.clusters, data.counts) ** 2
    shares = squares / squares.sum()
    return float(1 / (shares @ shares))


def _digests(data: Predictions) -> Vector:
    """A number for each sample, equal where scores and label are."""
    assert data.labels is not None
    rows = np.ascontiguousarray(data.logits, np.float64)
    digests = [
        hashlib.blake2b(row, digest_size=8, key=label).digest()
        for row, label in zip(rows, np.asarray(data.labels, np.int64), strict=True)
    ]
    return np.frombuffer(b"".join(digests), np.uint64)
