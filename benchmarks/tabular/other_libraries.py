"""Calibrators of other libraries behind one function: fit on logits and labels, give probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

Array = NDArray[Any]
Predict = Callable[[Array], Array]


class Passthrough(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted classifier whose features are its scores."""

    def __init__(self, n_classes: int = 2) -> None:
        self.n_classes = n_classes
        self.classes_ = np.arange(n_classes)

    def fit(self, X: Array, y: Array) -> Passthrough:  # noqa: ARG002, N803
        """Nothing is learned."""
        return self

    def decision_function(self, X: Array) -> Array:  # noqa: N803
        """The scores; of two classes their difference."""
        return X[:, 1] - X[:, 0] if self.n_classes == 2 else X

    def predict(self, X: Array) -> Array:  # noqa: N803
        """The class with the largest score."""
        return X.argmax(axis=1)


def sklearn_peer(method: str) -> Callable[[Array, Array], Predict]:
    """``CalibratedClassifierCV`` with a frozen estimator: the calibrator is fitted on all samples."""

    def fit(logits: Array, labels: Array) -> Predict:
        model = FrozenEstimator(Passthrough(logits.shape[1]))
        calibrated = CalibratedClassifierCV(model, method=method, ensemble=False).fit(logits.astype(float), labels)
        return lambda test: calibrated.predict_proba(test.astype(float))

    return fit


def probmetrics_peer(name: str) -> Callable[[Array, Array], Predict]:
    """One of probmetrics' calibrators, given logits."""

    def fit(logits: Array, labels: Array) -> Predict:
        import torch  # noqa: PLC0415
        from probmetrics.calibrators import get_calibrator  # noqa: PLC0415
        from probmetrics.distributions import CategoricalLogits  # noqa: PLC0415

        torch.set_num_threads(1)
        peer = get_calibrator(name)
        peer.fit_torch(CategoricalLogits(torch.tensor(logits)), torch.tensor(labels))
        return lambda test: peer.predict_proba_torch(CategoricalLogits(torch.tensor(test))).get_probs().numpy()

    return fit


PEERS: dict[str, Callable[[Array, Array], Predict]] = {
    "sklearn sigmoid": sklearn_peer("sigmoid"),
    "sklearn isotonic": sklearn_peer("isotonic"),
    "sklearn temperature": sklearn_peer("temperature"),
    "probmetrics svs": probmetrics_peer("svs"),
    "probmetrics sms": probmetrics_peer("sms"),
}
