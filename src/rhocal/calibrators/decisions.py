"""What a fit does to predicted classes: how many change on the calibration set, and what that does to accuracy."""

from __future__ import annotations

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
    counts = np.ones(data.n_samples) if data.weights is None else data.weights
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
    return DecisionChange(len(rows), n_changed, *accuracies(right_before, right_after, counts[rows]))


def accuracies(
    before: NDArray[np.bool_], after: NDArray[np.bool_], counts: Vector
) -> tuple[float, float, float, float]:
    """Accuracy before and after, and the 95 % interval of the difference.

    Samples that are right once decide on it: Wilson's interval of the share among them that is right afterwards, times their
    share. Weights count as repetitions.
    """
    total = float(counts.sum())
    gained, lost = float(counts @ (after & ~before)), float(counts @ (before & ~after))
    n = gained + lost
    low = high = 0.0
    if n:
        share, square = gained / n, Z_95**2
        center = (share + square / (2 * n)) / (1 + square / n)
        half = Z_95 * np.sqrt(share * (1 - share) / n + square / (4 * n**2)) / (1 + square / n)
        low, high = ((2 * (center + sign * half) - 1) * n / total for sign in (-1, 1))
    return float(counts @ before) / total, float(counts @ after) / total, float(low), float(high)


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
