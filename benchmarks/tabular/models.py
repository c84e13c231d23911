"""Classifiers on tables that everyone has: scikit-learn's bundled data and generated data, trained here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification, make_moons
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

Array = NDArray[np.generic]

SMALLEST_PROBABILITY = 1e-12
"""Forests say 0; its logarithm is taken of this."""


class Scores(NamedTuple):
    """Logits and labels of a calibration set and of a test set."""

    logits: Array
    labels: Array
    test_logits: Array
    test_labels: Array


def tables() -> dict[str, tuple[Array, Array]]:
    """Features and labels of each table: 2, 3, 5 and 10 classes, one with 3 % of positives, one with label noise."""
    moons = make_moons(4000, noise=0.35, random_state=0)
    noisy = make_classification(6000, 20, n_informative=6, flip_y=0.15, random_state=1)
    rare = make_classification(12000, 20, n_informative=5, weights=[0.97], class_sep=0.8, random_state=2)
    five = make_classification(6000, 20, n_informative=8, n_classes=5, random_state=3)
    return {
        "breast-cancer": load_breast_cancer(return_X_y=True),
        "digits": load_digits(return_X_y=True),
        "wine": load_wine(return_X_y=True),
        "moons": moons,
        "noisy": noisy,
        "rare": rare,
        "five": five,
    }


CLASSIFIERS: dict[str, Callable[[], ClassifierMixin]] = {
    "lr": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "nb": GaussianNB,
    "rf": lambda: RandomForestClassifier(200, random_state=0),
    "hgb": lambda: HistGradientBoostingClassifier(random_state=0),
    "mlp": lambda: make_pipeline(StandardScaler(), MLPClassifier((64,), max_iter=150, random_state=0)),
    "svm": lambda: make_pipeline(StandardScaler(), SVC(random_state=0)),
}


def logits_of(model: ClassifierMixin, features: Array) -> Array:
    """Scores with a column for each class: margins where a model has them, else log-probabilities."""
    if hasattr(model, "decision_function"):
        margins = model.decision_function(features)
        return np.stack([-margins / 2, margins / 2], axis=1) if margins.ndim == 1 else margins
    return np.log(np.maximum(model.predict_proba(features), SMALLEST_PROBABILITY))


def trained_models() -> Iterator[tuple[str, Scores]]:
    """A third of each table trains a classifier, a third calibrates it, a third tests."""
    for table, (features, labels) in tables().items():
        x_train, x_rest, y_train, y_rest = train_test_split(
            features, labels, train_size=1 / 3, random_state=0, stratify=labels
        )
        x_cal, x_test, y_cal, y_test = train_test_split(
            x_rest, y_rest, train_size=1 / 2, random_state=0, stratify=y_rest
        )
        for name, classifier in CLASSIFIERS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # networks that stop early are wanted here
                model = classifier().fit(x_train, y_train)
            yield f"{table}_{name}", Scores(logits_of(model, x_cal), y_cal, logits_of(model, x_test), y_test)
