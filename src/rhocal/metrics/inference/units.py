"""Samples as resampling sees them: in an order that does not depend on how they came, and whole weights as repetitions.

A weight of k means that a sample stood there k times, so it counts as k independent samples. With weights that are not
whole, a sample counts as that share of samples: sums have the variance Σ w·variance.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

MOST_UNITS = 5_000_000
"""Whole weights are written out as repetitions up to here; beyond, they are treated like weights that are not whole."""


def units(*views: Scored) -> NDArray[np.intp]:
    """The rows of one or several views of the same samples, in canonical order, each as often as its weight says.

    Rows of weights that are not whole, or far too many to write out, appear once each; they keep their weights.
    """
    order = canonical_order(*views)
    weights = views[0].weights[order]
    if are_counts(weights):
        return np.repeat(order, weights.astype(np.intp))
    return order[weights > 0]


def canonical_order(*views: Scored) -> NDArray[np.intp]:
    """Rising confidence (of the first view), then everything else that tells samples apart."""
    keys = [getattr(view, field.name) for view in views for field in fields(view)]
    return np.lexsort([key for key in reversed(keys) if key.ndim == 1])


def are_counts(weights: Vector) -> bool:
    """Whether weights can be written out as repetitions."""
    return bool((weights == np.round(weights)).all()) and float(weights.sum()) <= MOST_UNITS


def rows_of(scored: Scored, rows: NDArray[np.intp]) -> Scored:
    """Some rows of a view."""
    values = {field.name: getattr(scored, field.name) for field in fields(scored)}
    picked: dict[str, Any] = {name: value[rows] for name, value in values.items() if isinstance(value, np.ndarray)}
    return replace(scored, **picked)


def take(scored: Scored, rows: NDArray[np.intp]) -> Scored:
    """Rows that ``units`` chose; those that stand there by their weight have weight 1."""
    picked = rows_of(scored, rows)
    return replace(picked, weights=np.ones(len(rows))) if are_counts(scored.weights) else picked
