"""Calibrated classifiers of tables: scikit-learn's class with its three methods, and ours with its default, in one run.

    python benchmarks/tabular/classifiers.py

Two thirds of each table (``tables.py``) are for ``fit`` with cv=5, a third tests. Every method calibrates the same five
classifiers, which are trained once. `classifiers.csv` holds a line for each table, classifier and method; `classifiers.md`
is made from it.
"""

from __future__ import annotations

import csv
import os
import time
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.metaestimators import available_if
from tables import tables
from xgboost import XGBClassifier

import rhocal
from rhocal.data.files import write_text
from rhocal.sklearn import CalibratedClassifier

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

HERE = Path(__file__).parent
SMALLEST_PROBABILITY = 1e-15
"""Isotonic regression of scikit-learn gives 0 for what then happens; log-loss is cut here."""

CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "LogisticRegression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "RandomForest": lambda: RandomForestClassifier(100, random_state=0),
    "HistGradientBoosting": lambda: HistGradientBoostingClassifier(max_iter=50, random_state=0),
    "GaussianNB": GaussianNB,
    "SVC": lambda: make_pipeline(StandardScaler(), SVC(random_state=0)),
    "LightGBM": lambda: LGBMClassifier(n_estimators=50, random_state=0, verbose=-1, n_jobs=1),
    "XGBoost": lambda: XGBClassifier(n_estimators=50, random_state=0, n_jobs=1),
    "CatBoost": lambda: CatBoostClassifier(
        iterations=100, depth=4, random_seed=0, verbose=0, thread_count=1, allow_writing_files=False
    ),
}

METHODS: dict[str, Callable[[Any], Any]] = {
    "uncalibrated": lambda model: CalibratedClassifier(model, "identity", cv=5),
    "scikit-learn sigmoid": lambda model: CalibratedClassifierCV(model, method="sigmoid", cv=5),
    "scikit-learn isotonic": lambda model: CalibratedClassifierCV(model, method="isotonic", cv=5),
    "scikit-learn temperature": lambda model: CalibratedClassifierCV(model, method="temperature", cv=5),
    "rhocal default": lambda model: CalibratedClassifier(model, cv=5),
}
FIRST, OURS = "uncalibrated", "rhocal default"

LIMIT_SHARE, LIMIT = 0.02, 0.003
"""A model is clearly worse where its score is above by more than this share and by more than this."""


@cache
def features_and_labels(table: str) -> tuple[NDArray[Any], NDArray[Any]]:
    return tables()[table]


@cache
def trained(table: str, classifier: str, rows: bytes) -> Any:
    features, labels = features_and_labels(table)
    chosen = np.frombuffer(rows, dtype=np.int64)
    return CLASSIFIERS[classifier]().fit(features[chosen], labels[chosen])


class Shared(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose features are row numbers of a table; it is trained once on the same rows."""

    def __init__(self, table: str, classifier: str) -> None:
        self.table, self.classifier = table, classifier

    def fit(self, X: Any, y: Any) -> Self:  # noqa: ARG002, N803
        self.model_ = trained(self.table, self.classifier, X[:, 0].astype(np.int64).tobytes())
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        return self.model_.predict_proba(features_and_labels(self.table)[0][X[:, 0]])

    @available_if(lambda self: hasattr(CLASSIFIERS[self.classifier](), "decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:  # noqa: N803
        return self.model_.decision_function(features_and_labels(self.table)[0][X[:, 0]])


def measured(table: str, classifier: str) -> list[dict[str, Any]]:
    """A row for each method."""
    labels = features_and_labels(table)[1]
    numbers = np.arange(len(labels))[:, None]
    fit_rows, test_rows = train_test_split(numbers, train_size=2 / 3, random_state=0, stratify=labels)
    rows = []
    for (
        method,
        calibrated,
    ) in METHODS.items():  # the first one trains, so that the time of the others is that of calibration
        start = time.perf_counter()
        model = calibrated(Shared(table, classifier)).fit(fit_rows, labels[fit_rows[:, 0]])
        seconds = time.perf_counter() - start
        probs, truth = np.asarray(model.predict_proba(test_rows), dtype=np.float64), labels[test_rows[:, 0]]
        nll = -np.log(np.maximum(probs[np.arange(len(truth)), truth], SMALLEST_PROBABILITY)).mean()
        rows.append({
            "table": table, "classifier": classifier, "method": method, "nll": f"{nll:.6f}",
            "brier": f"{rhocal.metrics.brier(probs, truth):.6f}", "seconds": f"{seconds:.3f}",
        })  # fmt: skip
    return rows


PAGE = """# Calibrated classifiers, side by side

`python benchmarks/tabular/classifiers.py` writes this page: {n_classifiers} classifiers on {n_tables} tables, `cv=5`.
Every method calibrates the same trained classifiers.

*Worst ratio*: the mean over the tables of `CalibratedClassifier` with its default method, divided by that of the method
in the line, for the classifier where it is largest. *Default clearly worse / better*: on how many of the {n_models} models its
NLL is above / below that of the method by more than 2 % and by more than 0.003.

| method | NLL | Brier | worst ratio NLL | worst ratio Brier | default clearly worse / better | seconds |
|---|---|---|---|---|---|---|
{methods}

Mean NLL / Brier by classifier:

{classifiers}
"""


def is_above(score: float, other: float) -> bool:
    return score > (1 + LIMIT_SHARE) * other and score > other + LIMIT


def summary(rows: list[dict[str, Any]]) -> str:
    """Means over all, and by classifier."""
    names = list(dict.fromkeys(row["table"] for row in rows))
    order = [(row["method"], row["classifier"]) for row in rows]
    scores = {
        score: {
            key: np.array([float(row[score]) for row, k in zip(rows, order, strict=True) if k == key]) for key in order
        }
        for score in ("nll", "brier")
    }

    def mean(score: str, method: str, classifier: str | None = None) -> float:
        return float(np.mean([scores[score][method, c].mean() for c in CLASSIFIERS if classifier in {None, c}]))

    lines = []
    for method in METHODS:
        cells = [f"{mean('nll', method):.4f}", f"{mean('brier', method):.4f}", "", "", ""]
        if method != OURS:
            cells[2:4] = (
                f"{max(mean(score, OURS, c) / mean(score, method, c) for c in CLASSIFIERS):.3f}" for score in scores
            )
            ours, other = (np.concatenate([scores["nll"][m, c] for c in CLASSIFIERS]) for m in (OURS, method))
            cells[4] = f"{sum(map(is_above, ours, other))} / {sum(map(is_above, other, ours))}"
        seconds = np.mean([float(row["seconds"]) for row in rows if row["method"] == method])
        lines.append(" | ".join([f"| {method}", *cells, "training" if method == FIRST else f"{seconds:.2f}"]) + " |")
    by_classifier = [" | ".join(["| classifier", *METHODS]) + " |", "|---" * (len(METHODS) + 1) + "|"]
    for c in CLASSIFIERS:
        cells = [f"{mean('nll', method, c):.4f} / {mean('brier', method, c):.4f}" for method in METHODS]
        by_classifier.append(" | ".join([f"| {c}", *cells]) + " |")
    return PAGE.format(
        n_classifiers=len(CLASSIFIERS),
        n_tables=len(names),
        n_models=len(CLASSIFIERS) * len(names),
        methods="\n".join(lines),
        classifiers="\n".join(by_classifier),
    )


def main() -> None:
    warnings.simplefilter("ignore")
    rows = []
    with (HERE / "classifiers.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ("table", "classifier", "method", "nll", "brier", "seconds"), lineterminator="\n")
        writer.writeheader()
        for table in tables():
            for classifier in CLASSIFIERS:
                rows += (found := measured(table, classifier))
                writer.writerows(found)
                trained.cache_clear()
    write_text(HERE / "classifiers.md", summary(rows))
    print(summary(rows))


if __name__ == "__main__":
    main()
