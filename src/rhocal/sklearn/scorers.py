"""Metrics of the table as scikit-learn scorers: larger is better, as its searches expect."""

from __future__ import annotations

from typing import Any

import numpy as np

from rhocal.errors import InputError
from rhocal.metrics import METRICS


class Scorer:
    """Calls a metric on ``predict_proba``; where lower is better, the figure comes back negative."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.name, self.options = name, options

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Score an estimator."""
        metric = METRICS[self.name]
        probs = np.asarray(estimator.predict_proba(X))
        codes = np.searchsorted(estimator.classes_, np.asarray(y))
        known = np.append(estimator.classes_, estimator.classes_[-1:])[codes] == np.asarray(y)
        if not np.all(known):
            raise InputError(f"{self.name}: y holds labels that the estimator was not fitted with")
        value = metric(probs, codes, sample_weight=sample_weight, **self.options)
        return value if metric.better == "higher" else -abs(value) if metric.better == "zero" else -value

    def __repr__(self) -> str:
        given = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return f"scorer({self.name!r}{given})"


def scorer(name: str, **options: Any) -> Scorer:
    """A metric by its name, for ``scoring=`` of searches and cross-validation: ``scorer("ece", n_bins=15)``."""
    if name not in METRICS or METRICS[name].better == "neither":
        raise InputError(
            f"there is no metric {name!r} to score with; there are "
            f"{', '.join(key for key, metric in METRICS.items() if metric.better != 'neither')}"
        )
    return Scorer(name, options)
