"""What is to be certified, and the numbers of each sample that a threshold reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from rhocal.calibrators.fit_spec import stated_classes
from rhocal.data.arguments import check_finite, check_level
from rhocal.data.columns import class_order, frame_columns, name_key, shown
from rhocal.data.cost_files import REVIEW
from rhocal.data.labels.per_sample import positive_column
from rhocal.errors import InputError, one_line
from rhocal.metrics.inference.risk_control import AT_LEAST, FIXED_DENOMINATOR, RISKS, Risk
from rhocal.metrics.inference.units import MAX_UNITS, are_counts
from rhocal.numerics.special import row_argmax, row_max, softmax

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Vector

Score = Literal["confidence", "per-class", "positive"]
SCORES: tuple[Score, ...] = get_args(Score)
OF_POSITIVE = (*FIXED_DENOMINATOR, "precision")
"""Risks of decisions about a positive class."""
CONFIDENCE = 0.95
"""Of a certificate, unless another is given."""


@dataclass(frozen=True)
class Question:
    """What is to be certified."""

    risk: Risk
    target: float
    confidence: float = CONFIDENCE
    score: Score | None = None
    costs: Any = None
    otherwise: str = "review"
    positive: Any = None
    by_segment: bool = False
    """Whether the risk is certified in every segment (the groups of the samples) with one threshold."""

    def __post_init__(self) -> None:
        if self.risk not in RISKS:
            raise InputError(f"risk is one of {', '.join(RISKS)}; got {self.risk!r}")
        check_level(self.confidence, "confidence", "0.95 for 95 %")
        if self.risk == "cost":
            check_finite(self.target, "target", "a number, the largest mean cost")
        else:
            check_level(self.target, "target", "0.02 for 2 % errors")
        if self.score is not None and self.score not in SCORES:
            raise InputError(f"score is one of {', '.join(SCORES)}; got {self.score!r}")
        if (self.rule == "positive") != (self.risk in OF_POSITIVE):
            able = "positive" if self.risk in OF_POSITIVE else "confidence or per-class"
            raise InputError(f"risk {self.risk} is decided by a threshold on score {able}; got score {self.score}")
        if (self.costs is None) == (self.risk == "cost"):
            raise InputError("costs: a table of costs belongs to risk cost, and only to it")
        if self.by_segment and self.rule == "per-class":
            raise InputError(
                "score per-class has a threshold for each predicted class, segments one for all; give one of them"
            )
        if self.risk == "cost" and self.rule == "per-class":
            raise InputError(
                "score per-class certifies the error rate of each class; for risk cost use score confidence"
            )

    @property
    def rule(self) -> Score:
        """What the threshold is on."""
        return self.score or ("positive" if self.risk in OF_POSITIVE else "confidence")

    @property
    def limit(self) -> float:
        """The target as a largest loss."""
        return 1 - self.target if self.risk in AT_LEAST else self.target


@dataclass(frozen=True, eq=False)
class SampleScores:
    """What a threshold reads of each sample."""

    score: Vector
    predicted: NDArray[np.intp]
    labels: NDArray[np.intp]
    """Empty for a reference."""
    weights: Vector
    classes: NDArray[Any]
    positive: int | None
    of_answers: bool = False
    """Whether samples are answers that are accepted as right, or not."""
    segments: NDArray[Any] | None = None
    """The part of the population that each belongs to, where the risk of every part is certified."""

    @classmethod
    def concat(cls, parts: Sequence[SampleScores]) -> SampleScores:
        """The samples of several blocks."""
        names = ["score", "predicted", "labels", "weights"] + ["segments"] * (parts[0].segments is not None)
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return replace(parts[0], **columns)

    def take(self, rows: NDArray[np.bool_]) -> SampleScores:
        """Some of the samples."""
        labels = self.labels[rows] if len(self.labels) else self.labels
        return replace(
            self,
            score=self.score[rows],
            predicted=self.predicted[rows],
            labels=labels,
            weights=self.weights[rows],
            segments=None if self.segments is None else self.segments[rows],
        )

    def by_segment(self) -> dict[Any, SampleScores]:
        """The samples of each segment, in order of their names; an error if one has none."""
        assert self.segments is not None
        parts = {name: self.take(self.segments == name) for name in np.unique(self.segments).tolist()}
        for name, part in parts.items():
            if not part.weights.sum():
                raise InputError(
                    f"segment {name!s} has no samples (all weights are 0), so that nothing can be certified there; leave its "
                    "rows out, or give it samples"
                )
        return parts


def in_order(data: Predictions, calibrator: Calibrator | None) -> Predictions:
    """The samples with the classes in the order of the calibrator."""
    return data if calibrator is None else data.in_order_of(calibrator.classes_)[0]


def counts_of(data: Predictions) -> Vector:
    """How many samples each stands for; an error if weights are no counts."""
    weights = data.counts
    if not (weights == np.round(weights)).all():
        raise InputError(
            "sample_weight: a guarantee counts samples, so weights must be whole numbers; leave weights out, or draw samples "
            "in proportion to them"
        )
    if not are_counts(weights):
        raise InputError(
            f"sample_weight: the weights sum to {weights.sum():,.6g}, and each stands for as many independent samples; at most "
            f"{MAX_UNITS:,} can be counted. Divide weights by a common factor, or leave them out"
        )
    return weights


def score_block(data: Predictions, calibrator: Calibrator | None, question: Question) -> SampleScores:
    """The scores of a block."""
    data = in_order(data, calibrator)
    classes = data.classes
    probs = softmax(data.logits) if calibrator is None else calibrator.map_.probs(data)
    probs = probs.astype(np.float64)
    weights = counts_of(data)
    positive = None
    if question.rule == "positive":
        if len(classes) != 2:
            raise InputError(
                f"risk {question.risk} is that of the positive class of two; there are {len(classes)} classes. Use risk error"
            )
        stated = data.positive  # by name: of a single column it may have moved the columns
        if calibrator is not None:
            stated = calibrator.positive_ if question.positive is None else question.positive
        elif stated is None:
            stated = question.positive
        positive = 1 if stated is None else positive_column(stated, classes)
    labels = np.zeros(0, np.intp) if data.labels is None else data.labels
    score = np.asarray(row_max(probs) if positive is None else probs[:, positive], np.float64)
    segments = data.groups if question.by_segment else None
    return SampleScores(score, row_argmax(probs), labels, weights, classes, positive, data.of_answers, segments)


def sample_losses(samples: SampleScores, question: Question) -> tuple[Vector, NDArray[np.bool_] | None, float, float]:
    """Losses between 0 and 1, the samples of the class whose rate it is, and what a loss of 0 and of 1 stands for."""
    if question.risk == "cost":
        table = cost_table(question.costs, samples.classes)[:, : len(samples.classes)]
        low, high = float(table.min()), float(table.max())
        if not low < question.target < high:
            raise InputError(
                f"target must lie between the smallest and the largest cost, {low:g} and {high:g}; got {question.target!r}"
            )
        return (table[samples.labels, samples.predicted] - low) / (high - low), None, low, high
    if samples.positive is None:
        return (samples.predicted != samples.labels).astype(np.float64), None, 0.0, 1.0
    is_positive = samples.labels == samples.positive
    subjects = ~is_positive if question.risk == "fpr" else is_positive
    if not samples.weights[subjects].any():
        name = samples.classes[samples.positive]
        what = (
            "negative sample (every label is" if question.risk == "fpr" else "sample of the positive class (no label is"
        )
        raise InputError(
            f"there is no {what} {name!s}), so that the risk {question.risk} is unknown; certify on samples of both classes",
            argument="positive",
            remedy="name the positive class",
        )
    return (~is_positive).astype(np.float64), subjects, 0.0, 1.0


def costs_of_fit(costs: Any, calibrator: Calibrator | None, classes: Any) -> Any:
    """Costs in the order of stated classes, in that of the calibrator."""
    if costs is None or calibrator is None or classes is None:
        return costs
    names, n_classes = stated_classes(calibrator, classes), len(calibrator.classes_)
    table = cost_table(costs, names)
    order = class_order(names.tolist(), calibrator.classes_.tolist())
    if order is None:
        return table
    return np.hstack([table[np.ix_(order, order)], table[order, n_classes:]])


def cost_table(costs: Any, classes: Sequence[Any] | NDArray[Any]) -> Vector:
    """Validated costs, one row for each class, one column for each decision; a last column may be the cost of a review."""
    n_classes = len(classes)
    try:
        table = np.asarray(_in_class_order(costs, classes), np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"costs must be a table of numbers, with a row for each class and a column for each decision: {one_line(error)}"
        ) from error
    if table.ndim != 2 or len(table) != n_classes or table.shape[1] not in {n_classes, n_classes + 1}:
        raise InputError(
            f"costs must have a row for each of the {n_classes} classes and a column for each decision (and one for a review); "
            f"got shape {table.shape}"
        )
    if not np.isfinite(table).all():
        raise InputError("costs must be finite numbers")
    if table[:, :n_classes].max() <= table[:, :n_classes].min():
        raise InputError("costs are all the same, so that no decision is better than another")
    return table


def _in_class_order(costs: Any, classes: Sequence[Any] | NDArray[Any]) -> Any:
    """A data frame of costs with its named rows and columns in the order of the classes; what has no names, as it is."""
    if not hasattr(costs, "columns") or len(np.shape(costs)) != 2:
        return costs
    wanted = [name_key(name) for name in np.asarray(classes).tolist()]
    counted = [str(k) for k in range(max(np.shape(costs)))]  # what a frame has instead of names
    columns = [name_key(name) for name in frame_columns(costs) or counted[: np.shape(costs)[1]]]
    rows = [name_key(name) for name in getattr(costs, "index", range(len(costs)))]
    decisions = [*wanted, *({REVIEW} & set(columns) - set(wanted))]
    if rows == counted[: len(rows)] and columns in (counted[: len(columns)], decisions):
        return costs
    if sorted(columns) != sorted(decisions) or sorted(rows) != sorted(wanted):
        raise InputError(
            f"costs have rows {shown(rows)} and columns {shown(columns)}, and the classes are {shown(wanted)}; name rows (the "
            f"index) and columns after the classes (a column {REVIEW} too), or pass an array in their order"
        )
    table = np.asarray(costs)
    return table[np.ix_([rows.index(name) for name in wanted], [columns.index(name) for name in decisions])]
