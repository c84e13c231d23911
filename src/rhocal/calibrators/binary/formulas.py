"""Binary maps for many classes: the formulas of ``BinaryCalibrator``.

Parameters beside those of the maps: ``score_kind``, what a map is a function of; ``rounds_scores``, whether scores are rounded;
``order``, the number of each class; ``missing`` and ``factor`` where there are classes without a map; ``behind`` where other
classes are capped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rhocal.data.predictions import SMALLEST_PROB

if TYPE_CHECKING:
    from rhocal.numerics.ops import Formula, Ops, Parameters, Value

MAX_LOG_ODDS = 1e100
"""Log-odds are cut here, so that products with them stay finite."""

NONE = float("-inf")
"""The logit of a class that is left out."""


def one_vs_rest(formula: Formula, ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """A map for each class, rows normalized; log-probabilities."""
    p = ops.maximum(mapped(formula, ops, parameters, class_scores(ops, parameters, logits)), SMALLEST_PROB)
    return log(ops, p / ops.sum(p))


def mirrored(formula: Formula, ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """One map for the second of two classes; log-probabilities."""
    p = mapped(formula, ops, parameters, ops.column(class_scores(ops, parameters, logits), 1))
    return log(ops, ops.concat([1.0 - p, p]))


def of_top(formula: Formula, ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """One map for the confidence, the others in the proportions they have among themselves; log-probabilities.

    Those are a softmax without the top class: divided by the rest of the whole row, which may be 1e-300, they would overflow.
    """
    top = ops.first_max(logits, parameters["order"])
    confidence = mapped(formula, ops, parameters, top_score(ops, parameters, logits))
    others = ops.softmax(ops.where(top, NONE, logits)) * (1.0 - confidence)
    if parameters["behind"] is not None:
        limit = confidence * (1.0 - parameters["behind"])
        others = ops.cap(others, top, limit, 1.0 - confidence, parameters["order"])
    return log(ops, ops.where(top, confidence, others))


def mapped(formula: Formula, ops: Ops, parameters: Parameters, score: Value) -> Value:
    """The map, or where a class never (or always) occurred ``one_sided``."""
    p = formula(ops, parameters, score)
    if "missing" not in parameters:
        return p
    plain = score if parameters["score_kind"] == "probs" else ops.expit(score)
    return ops.where(parameters["missing"], one_sided(ops, parameters["factor"], plain), p)


def one_sided(ops: Ops, factor: Value, p: Value) -> Value:
    """P times a factor; where that is negative the same of 1 − p."""
    return ops.where(factor > 0.0, factor * p, 1.0 + factor * (1.0 - p))


def class_scores(ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """Probability or log-odds of every class."""
    shifted = logits - ops.max(logits)
    e = ops.exp(shifted)
    total = ops.sum(e)
    if parameters["score_kind"] == "probs":
        return without_noise(ops, parameters, e / total)
    top = ops.first_max(logits, parameters["order"])
    odds = top_log_odds(ops, logits, top)
    return without_noise(ops, parameters, log_odds(ops, shifted, total, top, odds, parameters["n_classes"]))


def without_noise(ops: Ops, parameters: Parameters, score: Value) -> Value:
    """Scores for a map, without digits that are noise if it ``rounds_scores``."""
    return ops.round_noise(score) if parameters["rounds_scores"] else score


def log_odds(ops: Ops, shifted: Value, total: Value, top: Value, odds: Value, n_classes: int) -> Value:
    """Log-odds from logits minus the largest and Σ of their exponentials; ``odds`` where ``top``."""
    if n_classes == 2:
        return ops.where(top, odds, -odds)
    log_p = ops.maximum(shifted - ops.log(total), -MAX_LOG_ODDS)
    # Of a class that is not the top one p ≤ 1/2; the top one's own place is filled by its odds.
    rest = ops.log1p(-ops.minimum(ops.exp(log_p), 0.5))
    return ops.where(top, odds, log_p - rest)


def top_score(ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """Probability or log-odds of the predicted class."""
    if parameters["score_kind"] == "probs":
        return without_noise(ops, parameters, 1.0 / ops.sum(ops.exp(logits - ops.max(logits))))
    return without_noise(ops, parameters, top_log_odds(ops, logits, ops.first_max(logits, parameters["order"])))


def top_log_odds(ops: Ops, logits: Value, top: Value) -> Value:
    """Largest logit minus the log-sum of the others: log p/(1 − p), which p itself would lose where it rounds to 1."""
    others = ops.where(top, NONE, logits)
    second = ops.max(others)
    rest = ops.log(ops.sum(ops.exp(others - second)))
    return ops.minimum(ops.max(logits) - second - rest, MAX_LOG_ODDS)


def log(ops: Ops, p: Value) -> Value:
    """Logarithm of probabilities, none below ``SMALLEST_PROB``."""
    return ops.log(ops.maximum(p, SMALLEST_PROB))
