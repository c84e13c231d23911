"""Samples that depend on each other: a guarantee counts independent samples, so that one of each cluster is used.

Answers to one question, images of one patient, are right or wrong together. If clusters are independent draws, so is one
sample of each. Its risk is that of a random sample of a random cluster: every cluster counts once, whatever its size.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.sampling import content_keys
from rhocal.data.sources import Source
from rhocal.errors import InputError
from rhocal.evaluation.question import counts_of, in_order
from rhocal.metrics.inference.design import cluster_codes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions


def one_of_each_cluster(source: Source, clusters: Any, calibrator: Calibrator | None) -> Source:
    """One sample of each cluster; all samples without clusters. ``clusters`` has one name for each sample of the caller."""
    if clusters is None:
        return source
    if not source.resident:
        raise InputError("clusters: blocks carry none; give arrays in memory")
    data = source.predictions
    names = np.asarray(clusters)
    cluster_codes(names, data.n_samples + data.n_ignored)  # validates
    return Source.from_predictions(draw_one_of_each(data, names if data.rows is None else names[data.rows], calibrator))


def draw_one_of_each(data: Predictions, clusters: NDArray[Any], calibrator: Calibrator | None = None) -> Predictions:
    """One sample of each cluster, drawn in proportion to weights.

    Samples of a cluster are put in the order of what they hold, and the name of the cluster draws one of them: the order of
    samples does not matter, copies count as often as they come, and equal clusters draw independently.
    """
    ordered = in_order(data, calibrator)
    assert ordered.labels is not None
    weights, codes = counts_of(data), cluster_codes(clusters, data.n_samples)
    order = np.lexsort([content_keys(ordered.logits, ordered.labels), codes])
    order = order[weights[order] > 0]
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    levels = np.concatenate([[0.0], np.cumsum(weights[order])])
    ends = np.append(starts[1:], len(order))
    drawn = np.array([_uniform(name) for name in clusters[order[starts]]])
    targets = levels[starts] + drawn * (levels[ends] - levels[starts])
    places = np.clip(np.searchsorted(levels[1:], targets, side="right"), starts, ends - 1)
    return replace(data.take(np.sort(order[places])), weights=None)


def _uniform(name: Any) -> float:
    """A number from 0 to 1 that looks random and follows from a name."""
    return int.from_bytes(hashlib.blake2b(str(name).encode(), digest_size=6).digest(), "big") / 2.0**48
