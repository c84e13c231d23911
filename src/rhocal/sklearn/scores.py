"""Logits of a fitted classifier: its decision function, else the logarithm of its probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.resolution import Resolution
from rhocal.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

ABSENT = 20.0
"""A class that a fold has not seen gets a logit this far below the lowest: e^−20 = 2e−9."""

SMALLEST = float(np.finfo(np.float64).tiny)
"""A probability below this is 0."""


def logits_of(
    estimator: Any,
    X: Any,  # noqa: N803
    smallest: float | None = None,
    total_weight: float | None = None,
) -> tuple[NDArray[np.float64], float]:
    """A column for each class of a fitted classifier, and what smaller probabilities were raised to.

    If that is None, it is found here; ``total_weight`` is that of the samples then (None: their number). Of two classes only
    the difference of the columns is kept, so that a margin, its two-column form and the probabilities of the same model give
    the same logits.
    """
    n_classes = len(classes_of(estimator))
    scores = decision_values(estimator, X, n_classes)
    if scores is None:
        probs = probabilities(estimator, X, n_classes)
        if smallest is None:
            weight = len(probs) if total_weight is None else total_weight
            smallest = Resolution.from_probs(probs, weight, SMALLEST).smallest_prob(n_classes, SMALLEST)
        scores = np.log(np.maximum(probs, smallest))
    if n_classes == 2:
        half = (scores[:, 1] - scores[:, 0]) / 2
        scores = np.stack([-half, half], axis=1)
    return scores, SMALLEST if smallest is None else smallest


def classes_of(estimator: Any) -> NDArray[Any]:
    """The labels of a fitted classifier."""
    if not hasattr(estimator, "classes_"):
        raise InputError(f"{type(estimator).__name__} has no classes_ after fit; the estimator must be a classifier")
    return np.asarray(estimator.classes_)


def decision_values(estimator: Any, X: Any, n_classes: int) -> NDArray[np.float64] | None:  # noqa: N803
    """The decision function with a column for each class; None where there is none."""
    if not hasattr(estimator, "decision_function") or (n_classes > 2 and compares_pairs(estimator)):
        return None
    scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
    if scores.size == len(scores) and n_classes == 2:
        margin = scores.reshape(-1)
        return np.stack([-margin / 2, margin / 2], axis=1)  # as ``Predictions`` makes two columns of one score
    return scores if scores.shape[1:] == (n_classes,) else None


def compares_pairs(estimator: Any) -> bool:
    """Whether the columns of a decision function are pairs of classes; of three classes there are as many."""
    parameters = estimator.get_params() if hasattr(estimator, "get_params") else {}
    return any(name.endswith("decision_function_shape") and value == "ovo" for name, value in parameters.items())


def probabilities(estimator: Any, X: Any, n_classes: int) -> NDArray[np.float64]:  # noqa: N803
    """``predict_proba``; a single column is the probability of the second class."""
    name = type(estimator).__name__
    if not hasattr(estimator, "predict_proba"):
        raise InputError(
            f"{name} has neither a decision_function with a column for each class nor predict_proba; "
            "calibration needs scores"
        )
    probs = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    if probs.size == len(probs) and n_classes == 2:
        probs = np.stack([1 - probs.reshape(-1), probs.reshape(-1)], axis=1)
    if probs.shape[1:] != (n_classes,):
        raise InputError(f"predict_proba of {name} has shape {probs.shape}; its classes_ are {n_classes}")
    if not (probs >= 0).all():
        raise InputError(f"predict_proba of {name} must be at least 0; got {probs.min()}")
    return probs
