"""A fitted classifier and its calibrator: the members of a calibrated classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils._indexing import _safe_indexing

from rhocal.errors import FewSamplesWarning, InputError, warn
from rhocal.sklearn.scores import ABSENT, classes_of, logits_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator


@dataclass(frozen=True)
class Member:
    """A fitted classifier and the calibrator behind it."""

    estimator: Any
    calibrator: Calibrator
    classes: NDArray[Any]
    """All labels; the classifier may have seen fewer."""
    smallest: float
    """What a probability of 0 is raised to before its logarithm."""

    @property
    def calibrators(self) -> list[Calibrator]:
        """The calibrator in a list, as in scikit-learn; it is one for all classes."""
        return [self.calibrator]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Calibrated probabilities; 0 for a class that the classifier has not seen."""
        logits, _ = logits_of(self.estimator, X, self.smallest)
        probs = np.asarray(self.calibrator.predict_proba(logits), dtype=np.float64)
        return spread(probs, class_columns(self.estimator, self.classes), len(self.classes), np.zeros((1, 1)))


@dataclass(frozen=True)
class HeldOut:
    """Scores of samples that a classifier was not trained on, with their labels."""

    estimator: Any
    logits: NDArray[np.float64]
    """A column for each class that the classifier has seen."""
    labels: NDArray[np.intp]
    """Columns of the logits."""
    weight: NDArray[np.float64] | None
    columns: NDArray[np.intp]
    """The class of each column, by its place among all classes."""
    smallest: float
    groups: NDArray[np.intp] | None = None
    """The number of the group of each sample."""


def hold_out(
    estimator: Any,
    X: Any,  # noqa: N803
    y: Any,
    weight: Any,
    rows: Any,
    classes: NDArray[Any],
    groups: NDArray[np.intp] | None = None,
) -> HeldOut:
    """Score some of the samples (None: all). Those of a class that the classifier has not seen are left out, with a warning."""
    columns = class_columns(estimator, classes)
    if len(columns) < 2:
        raise InputError(
            f"{type(estimator).__name__} was trained on one class only, {classes[columns].tolist()}; use a cv whose training "
            "folds hold at least 2 classes, such as StratifiedKFold"
        )
    rows = np.arange(len(y)) if rows is None else rows
    places = np.full(len(classes), -1)
    places[columns] = np.arange(len(columns))
    codes = label_codes(y[rows], classes)
    labels = places[codes]
    known = labels >= 0
    if not known.any():
        raise InputError(
            f"a fold holds out only classes that were not trained on, {classes[np.unique(codes)].tolist()}; "
            "use a cv that mixes the classes, such as StratifiedKFold"
        )
    if not known.all():
        warn(
            f"a fold was trained without the classes {classes[np.unique(codes[~known])].tolist()}; its calibrator is fitted "
            f"without their {int((~known).sum())} samples. Use StratifiedKFold, or fewer folds",
            FewSamplesWarning,
        )
    own = None if weight is None else weight[rows[known]]
    total = None if own is None else float(own.sum())
    logits, smallest = logits_of(estimator, _safe_indexing(X, rows[known]), total_weight=total)
    of_rows = None if groups is None else groups[rows[known]]
    return HeldOut(estimator, logits, labels[known], own, columns, smallest, of_rows)


def as_clusters(groups: NDArray[np.intp] | None) -> NDArray[np.intp] | None:
    """The groups of samples as clusters; None for a single one, which cannot be cut into folds."""
    return None if groups is None or (groups == groups[0]).all() else groups


def fit_member(unfitted: Calibrator, held_out: HeldOut, classes: NDArray[Any]) -> Member:
    """A classifier with a calibrator of its own."""
    fitted = unfitted.fit(held_out.logits, held_out.labels, held_out.weight, clusters=as_clusters(held_out.groups))
    return Member(held_out.estimator, fitted, classes, held_out.smallest)


def pool(parts: Sequence[HeldOut], n_classes: int) -> dict[str, Any]:
    """What a calibrator is fitted on: logits, labels and weights of all folds, with a column for each class."""
    logits = np.concatenate(
        [
            spread(part.logits, part.columns, n_classes, part.logits.min(axis=1, keepdims=True) - ABSENT)
            for part in parts
        ]
    )
    labels = np.concatenate([part.columns[part.labels] for part in parts])
    weights = [part.weight for part in parts if part.weight is not None]
    weight = np.concatenate(weights) if weights else None
    groups = [part.groups for part in parts if part.groups is not None]
    clusters = as_clusters(np.concatenate(groups)) if groups else None
    return {"logits": logits, "labels": labels, "sample_weight": weight, "clusters": clusters}


def spread(
    scores: NDArray[np.float64], columns: NDArray[np.intp], n_classes: int, absent: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Scores with a column for each class, of which the classifier may not have seen every one."""
    if len(columns) == n_classes:
        return scores
    out = np.broadcast_to(absent, (len(scores), n_classes)).astype(scores.dtype)
    out[:, columns] = scores
    return out


def class_columns(estimator: Any, classes: NDArray[Any]) -> NDArray[np.intp]:
    """The place of each class of a classifier among all classes; as texts if the classifier has made texts of them."""
    own = classes_of(estimator).tolist()
    for places in (
        {label: k for k, label in enumerate(classes.tolist())},
        {str(label): k for k, label in enumerate(classes.tolist())},
    ):
        columns = np.array([places.get(label, -1) for label in own], dtype=np.intp)
        if (columns >= 0).all() and (np.diff(columns) > 0).all():
            return columns
    raise InputError(f"{type(estimator).__name__} has the classes {own}, but y holds {classes.tolist()}")


def label_codes(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """The place of each label among the classes."""
    codes = np.searchsorted(classes, labels)
    if (np.append(classes, classes[-1:])[codes] != labels).any():
        unknown = sorted(set(labels.tolist()) - set(classes.tolist()))
        raise InputError(f"y holds labels that the fitted classifier does not know: {unknown[:5]}")
    return codes
