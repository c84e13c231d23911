"""The scores of a fitted classifier for each class: its decision function, else its probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.predictions import Kind

ABSENT = 20.0
"""A class that a fold has not seen gets a logit this far below the lowest: e^−20 = 2e−9."""


def scores_of(estimator: Any, X: Any, classes: NDArray[Any]) -> tuple[NDArray[np.floating[Any]], Kind]:  # noqa: N803
    """One column a class of ``classes``, and what the numbers are."""
    own = np.asarray(estimator.classes_)
    if hasattr(estimator, "decision_function"):
        scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
        if scores.ndim == 1 or (scores.ndim == 2 and scores.shape[1] == 1):
            score = scores.reshape(-1)
            scores = np.stack(
                [-score / 2, score / 2], axis=1
            )  # as ``Predictions.from_arrays`` makes two columns of one score
        if scores.shape[1] == len(own):
            return spread(scores, own, classes, scores.min(axis=1, keepdims=True) - ABSENT), "logits"
    if not hasattr(estimator, "predict_proba"):
        raise InputError(
            f"{type(estimator).__name__} has neither a decision_function with a column for each class nor predict_proba; "
            "calibration needs scores"
        )
    return spread(np.asarray(estimator.predict_proba(X)), own, classes, np.zeros((1, 1))), "probs"


def spread(
    scores: NDArray[Any], own: NDArray[Any], classes: NDArray[Any], absent: NDArray[Any]
) -> NDArray[np.floating[Any]]:
    """Columns for all classes, of which the estimator may not have seen every one."""
    if len(own) == len(classes):
        return scores
    out = np.broadcast_to(absent, (len(scores), len(classes))).astype(scores.dtype)
    out[:, np.searchsorted(classes, own)] = scores
    return out
