"""The mistakes that the model was most confident of: where a person looks for wrong labels and odd inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.metrics.scored import Scored
from rhocal.numerics.special import row_argmax

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.data.predictions import Predictions

MAX_MISTAKES = 10


def confident_mistakes(views: Mapping[str, Predictions]) -> dict[str, Any] | None:
    """The most confident mistakes of the last view, with their rows; None if nothing is wrong.

    ``n_wrong`` of the ``n_as_confident`` rows that are at least as confident as the last one listed are wrong. By weight
    ``share_wrong`` of them are wrong, where ``share_expected`` is if the confidences are right. Rows are counted from 0,
    ignored ones included; rows of weight 0 are left out.
    """
    name, data = list(views.items())[-1]
    scored = Scored.from_predictions(data)
    confidence = np.asarray(scored.confidence, np.float64)
    weights = data.counts
    counts = weights > 0
    wrong = np.flatnonzero((scored.correct == 0) & counts)
    if not len(wrong):
        return None
    assert data.labels is not None
    order = wrong[np.lexsort((wrong, -confidence[wrong]))][:MAX_MISTAKES]
    as_confident = counts & (confidence >= confidence[order[-1]])
    predicted, names = row_argmax(data.logits), data.classes
    if data.of_answers:
        predicted, names = np.full(data.n_samples, 1), np.array(["wrong", "right"])
    numbers = np.arange(data.n_samples) if data.rows is None else data.rows
    rows = [
        {
            "row": int(numbers[i]), "label": str(names[data.labels[i]]), "predicted": str(names[predicted[i]]),
            "confidence": float(confidence[i]), "group": None if data.groups is None else str(data.groups[i]),
        }
        for i in order
    ]  # fmt: skip
    return {
        "method": name,
        "n_as_confident": int(as_confident.sum()),
        "n_wrong": int((as_confident & (scored.correct == 0)).sum()),
        "share_wrong": float(1 - np.average(scored.correct[as_confident], weights=weights[as_confident])),
        "share_expected": float(np.average(1 - confidence[as_confident], weights=weights[as_confident])),
        "is_weighted": data.weights is not None and bool(np.ptp(weights[counts]) > 0),
        "rows": rows,
    }
