"""Samples as units of resampling: in an order that does not depend on the order of the input, whole weights as repetitions.

A weight of k stands for k copies of a sample, so it counts as k independent samples. With weights that are not
whole, a sample counts as that share of samples: sums have the variance Σ w·variance.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

MAX_UNITS = 5_000_000
"""Up to here whole weights become repetitions; beyond, they are treated like weights that are not whole."""


def unit_rows(*views: Scored) -> NDArray[np.intp]:
    """The rows of one or several views of the same samples, in canonical order, each repeated as its weight says.

    Rows of weights that are not whole, or too many to repeat, appear once each; they keep their weights.
    """
    order = canonical_order(*views)
    weights = views[0].weights[order]
    if are_counts(weights):
        return np.repeat(order, weights.astype(np.intp))
    return order[weights > 0]


def canonical_order(*views: Scored) -> NDArray[np.intp]:
    """Ascending confidence (of the first view), then all other numbers of the samples."""
    keys = [getattr(view, field.name) for view in views for field in fields(view)]
    return np.lexsort([key for key in reversed(keys) if key.ndim == 1])


def are_counts(weights: Vector) -> bool:
    """Whether weights can become repetitions."""
    return bool((weights == np.round(weights)).all()) and float(weights.sum()) <= MAX_UNITS


def take_units(scored: Scored, rows: NDArray[np.intp]) -> Scored:
    """The rows that ``unit_rows`` gives; rows that are repeated by their weight have weight 1."""
    units = scored.take(rows)
    return replace(units, weights=np.ones(len(rows))) if are_counts(scored.weights) else units


def expand(scored: Scored) -> Scored:
    """The samples in canonical order, with whole weights as repetitions."""
    return take_units(scored, unit_rows(scored))
