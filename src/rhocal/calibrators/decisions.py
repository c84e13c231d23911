"""What a fit does to predicted classes: how many change on the calibration set, and what that does to accuracy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.registry import CALIBRATORS
from rhocal.errors import DecisionWarning, InputError, warn
from rhocal.numerics.special import row_argmax, row_max
from rhocal.optimize import DecisionChange

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.base import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Vector

MAX_ENTRIES = 1 << 21
"""Logits of the samples that are counted: of more samples some are, at regular ranks of their largest logit."""

KEEPING = "cascade-order and auto with keep_decision"
"""Methods that never change a predicted class and are as flexible as those that do."""

Z_95 = 1.959964


def record_changes(calibrator: Calibrator, data: Predictions) -> None:
    """Count changed predictions of a fitted calibrator in its evidence, with a warning if there are any.

    Answers are not predictions of "right" or "wrong": nothing is counted.
    """
    if data.of_answers:
        return
    change = count_changes(calibrator, data)
    calibrator.solution_ = replace(calibrator.solution_, decisions=change)
    if change.n_changed:
        warn_of_changes(calibrator, change.sentence, gains=change.low > 0)


def warn_of_changes(calibrator: Calibrator, sentence: str, *, gains: bool = False) -> None:
    """Warn that a fit changes predictions, and name what keeps them: an option of the method, or another method.

    If accuracy ``gains`` by it nothing is named: predictions that are kept keep their errors.
    """
    text = f"{calibrator.label} {sentence}"
    if gains:
        warn(text, DecisionWarning)
    elif "keep_decision" in calibrator.get_params(deep=False):
        warn(text, DecisionWarning, argument="keep_decision=True", remedy="keep all of them")
    else:
        warn(f"{text}. {calibrator.label} cannot keep all of them; {KEEPING} can", DecisionWarning)


def count_changes(calibrator: Calibrator, data: Predictions) -> DecisionChange:
    """The predictions before and after, on the calibration set or on some of its samples."""
    assert data.labels is not None
    counts = data.counts
    rows = np.flatnonzero(counts > 0)
    if calibrator.map_.keeps_decision:
        return DecisionChange(len(rows), 0)
    every = -(-len(rows) * data.n_classes // MAX_ENTRIES)
    if every > 1:
        rows = rows[np.argsort(row_max(data.logits)[rows], kind="stable")[every // 2 :: every]]
    part = data.take(rows)
    before, after = row_argmax(part.logits), calibrator.map_.predicted(part)
    right_before, right_after = (predicted == data.labels[rows] for predicted in (before, after))
    n_changed = int((before != after).sum())
    clusters = None if data.clusters is None else data.clusters[rows]
    return DecisionChange(len(rows), n_changed, *accuracies(right_before, right_after, counts[rows], clusters))


def accuracies(
    before: NDArray[np.bool_], after: NDArray[np.bool_], counts: Vector, clusters: NDArray[np.intp] | None = None
) -> tuple[float, float, float, float]:
    """Accuracy before and after, and the 95 % interval of the difference for samples of the same kind.

    Whole weights count as repetitions. Others, and clusters, count with their effective number of samples.
    """
    shares = counts / counts.sum()
    n = effective_number(after.astype(float) - before, counts, clusters)
    interval = paired_interval(n * float(shares @ (after & ~before)), n * float(shares @ (before & ~after)), n)
    return float(shares @ before), float(shares @ after), *interval


def effective_number(differences: Vector, counts: Vector, clusters: NDArray[np.intp] | None) -> float:
    """Independent samples whose mean difference varies as much; without a difference, as many as would if all were alike."""
    total = float(counts.sum())
    number = total if (counts == np.round(counts)).all() else total**2 / float(counts @ counts)
    if clusters is None:
        return number
    centered = differences - float(counts @ differences) / total
    variance = float(counts @ centered**2) / total
    values = centered if variance > 0 else np.ones(len(counts))
    sums = np.bincount(clusters, counts * values)
    n_clusters = len(np.unique(clusters))
    square = float(sums @ sums) * (n_clusters / (n_clusters - 1) if n_clusters > 1 else 1.0)
    return min(number, total**2 * (variance or 1.0) / square) if square > 0 else number


def paired_interval(gained: float, lost: float, n: float) -> tuple[float, float]:
    """The 95 % score interval of a difference of two shares of the same n samples (Tango 1998).

    ``gained`` and ``lost`` are the samples that are right only after and only before. Neither their number nor its variance is
    taken as known: a difference is kept if the samples do not reject it with the variance that it implies.
    """

    def score(difference: float) -> float:
        linear = (2 * n - gained + lost) * difference - gained - lost
        root = math.sqrt(max(linear**2 + 8 * n * lost * difference * (1 - difference), 0.0))
        variance = n * (max(root - linear, 0.0) / (2 * n) + difference * (1 - difference))
        distance = gained - lost - n * difference
        if variance > 0:
            return distance / math.sqrt(variance)
        return math.copysign(math.inf, distance) if distance else 0.0

    def crossing(level: float) -> float:
        low, high = -1.0, 1.0
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (middle, high) if score(middle) > level else (low, middle)
        return (low + high) / 2

    return crossing(Z_95), crossing(-Z_95)


def with_decision_kept(calibrator: Calibrator) -> Calibrator:
    """The calibrator with ``keep_decision=True`` where that is an option of it; an error if it may change the decision."""
    if "keep_decision" in calibrator.get_params(deep=False):
        return calibrator.set_params(keep_decision=True)
    if not calibrator.keeps_decision:
        able = [name for name, method in CALIBRATORS.items() if method.family(**method.options).keeps_decision]
        raise InputError(
            f"{calibrator.label} may change the predicted class, so that keep_decision cannot hold; use auto, "
            f"{', '.join(able)}",
            argument="method",
            remedy="name one of them",
        )
    return calibrator
