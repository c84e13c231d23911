"""Binary maps for many classes over portable operations: the same as ``one_vs_rest`` and ``class_scores``.

``m`` is the number of classes. Numbers that a formula needs beside those of the maps: ``order``, the number of each class;
``factor`` and ``missing`` of classes without a map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rhocal.calibrators.binary.class_scores import LARGEST
from rhocal.data.predictions import SMALLEST_PROB

if TYPE_CHECKING:
    from rhocal.calibrators.binary.class_scores import Sees
    from rhocal.numerics.portable import Constants, Formula, Ops
    from rhocal.numerics.portable.ops import Value

NONE = float("-inf")
"""The logit of a class that is left out."""


def one_vs_rest(ops: Ops, c: Constants, z: Value, m: int, sees: Sees, formula: Formula, *, mirrored: bool) -> Value:
    """A map for each class (or, mirrored, one for the second of two), rows normalised; log-probabilities."""
    score = class_scores(ops, c, z, m, sees)
    if mirrored:
        p = mapped(ops, c, ops.column(score, 1), sees, formula)
        return log(ops, ops.concat([1.0 - p, p]))
    p = ops.maximum(mapped(ops, c, score, sees, formula), SMALLEST_PROB)
    return log(ops, p / ops.sum(p))


def of_top(ops: Ops, c: Constants, z: Value, m: int, sees: Sees, formula: Formula, *, behind: float | None) -> Value:
    """One map for the confidence, the rest in proportion; with ``behind``, no other class ahead of the top class."""
    top = first_top(ops, c, z, m)
    score = top_log_odds(ops, z, top) if sees == "log-odds" else 1.0 / ops.sum(ops.exp(z - ops.max(z)))
    confidence = mapped(ops, c, score, sees, formula)
    others = ops.softmax(ops.where(top, NONE, z)) * (1.0 - confidence)
    if behind is not None:
        others = capped(ops, c, others, top, confidence, m, behind)
    return log(ops, ops.where(top, confidence, others))


def mapped(ops: Ops, c: Constants, score: Value, sees: Sees, formula: Formula) -> Value:
    """The map, or where a class never (or always) occurred ``OneSided``."""
    p = formula(ops, c, score)
    if "missing" not in c:
        return p
    plain = score if sees == "probs" else ops.expit(score)
    factor = c["factor"]
    return ops.where(c["missing"], ops.where(factor > 0.0, factor * plain, 1.0 + factor * (1.0 - plain)), p)


def class_scores(ops: Ops, c: Constants, z: Value, m: int, sees: Sees) -> Value:
    """Probability or log-odds of every class."""
    shifted = z - ops.max(z)
    e = ops.exp(shifted)
    total = ops.sum(e)
    if sees == "probs":
        return e / total
    top = first_top(ops, c, z, m)
    odds = top_log_odds(ops, z, top)
    if m == 2:
        return ops.where(top, odds, -odds)
    log_p = ops.maximum(shifted - ops.log(total), -LARGEST)
    # Of a class that is not the top one p ≤ 1/2; the top one's own place is filled by its odds.
    rest = 1.0 - ops.minimum(ops.exp(log_p), 0.5)
    return ops.where(top, odds, log_p - ops.log(rest))


def first_top(ops: Ops, c: Constants, z: Value, m: int) -> Value:
    """Whether a class is the predicted one: the first of the largest."""
    order = ops.where(z < ops.max(z), float(m), c["order"])
    return order <= -ops.max(-order)


def top_log_odds(ops: Ops, z: Value, top: Value) -> Value:
    """Largest logit minus the log-sum of the others."""
    others = ops.where(top, NONE, z)
    second = ops.max(others)
    rest = ops.log(ops.sum(ops.exp(others - second)))
    return ops.minimum(ops.max(z) - second - rest, LARGEST)


def capped(ops: Ops, c: Constants, others: Value, top: Value, confidence: Value, m: int, behind: float) -> Value:
    """Let no class be ahead of the top class: q = min(λp, cap) with Σq what it was.

    With the k largest at the cap λ would be (rest − k·cap) / (sum of the others). The λ wanted is the largest of these:
    Σ min(λp, cap) is the smallest over k of k·cap + λ·(sum of the others), and increases with λ.
    """
    n_others = float(m - 1)
    rest, cap = 1.0 - confidence, confidence * (1.0 - behind)
    p = ops.where(top, 0.0, ops.maximum(others, SMALLEST_PROB))
    below = ops.cumsum(ops.sort(p))
    factor = ops.max((rest - (n_others - c["order"]) * cap) / ops.maximum(below, SMALLEST_PROB))
    possible = ops.where(cap * n_others >= rest, 1.0, 0.0)
    needed = ops.where(ops.max(ops.where(top, 0.0, others)) > cap, possible, 0.0)
    return ops.where(needed > 0.0, ops.minimum(factor * p, cap), others)


def log(ops: Ops, p: Value) -> Value:
    """Logarithm of probabilities, none below ``SMALLEST_PROB``."""
    return ops.log(ops.maximum(p, SMALLEST_PROB))


def unchanged(_ops: Ops, _c: Constants, score: Value) -> Value:
    """Where no class has a map."""
    return score
