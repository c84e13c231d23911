"""Reliability diagrams in scikit-learn's manner, for any number of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.calibration import CalibrationDisplay

from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec


class ReliabilityDisplay:
    """scikit-learn's ``CalibrationDisplay`` of the confidence: the top probability against how often it is right."""

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, *, n_bins: int = 10, **options: Any) -> CalibrationDisplay:  # noqa: N803
        """Of a fitted classifier; ``options`` go to ``CalibrationDisplay.from_predictions``."""
        options.setdefault("name", type(estimator).__name__)
        return cls.from_predictions(y, estimator.predict_proba(X), classes=estimator.classes_, n_bins=n_bins, **options)

    @classmethod
    def from_predictions(
        cls, y_true: Any, probs: Any, *, classes: Any = None, n_bins: int = 10, **options: Any
    ) -> CalibrationDisplay:
        """Of probabilities, a column for each class."""
        data = Predictions.from_arrays(probs, y_true, name="probs", spec=InputSpec("probs", classes))
        assert data.labels is not None
        confidence = np.minimum(data.seen.top.astype(np.float64), 1.0)
        correct = (data.seen.column == data.labels).astype(int)
        return CalibrationDisplay.from_predictions(correct, confidence, n_bins=n_bins, pos_label=1, **options)
