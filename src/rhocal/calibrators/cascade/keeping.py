"""Laws that keep the decision of the network: a law is projected, and its kept class gets a confidence.

p → projection on a family → c, the probability of the kept class → r = (1 − λ)·c + λ·T(c) → the law of the family with r.
Classes that share the largest logit are kept together: they share one probability.

``order``  no two classes change their order: isotonic regression along the logits
``top``    no class is above the network's: it is pooled with those above it, the others are free
``scale``  softmax(s·z) with one s > 0 for each sample, the nearest to p
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rhocal.numerics.ops import Ops, Parameters, Value

Keeps = Literal["order", "top", "scale"]

LEAD = 1e-6
"""How far the kept class stands above the others, relatively: the lead survives a cast to float32."""

TRACE = 1e-4
"""Weight of the scaled logits in a law that keeps the order: pooled classes, which are equal, part again."""

SMALLEST_OTHER = 1e-15
"""No class is below this before the confidence is set: there is something to multiply."""

SMALLEST_SUM = 1e-300

MAX_GAP = 50.0
"""Scaled logits this far below the largest are equal where a scale is searched."""

LOWEST = -1e30
"""Logits times a scale are not below this: finite in float32 too."""

LOG_SCALES = tuple(k / 2 - 3.0 for k in range(13))
HALVINGS = 7
"""The nearest scale is searched on a grid around β, and then between its neighbors."""

MAX_LOG_SCALE, BISECTIONS = 9.0, 42


def keep(ops: Ops, parameters: Parameters, keeps: Keeps, p: Value, logits: Value) -> Value:
    """Calibrated logits of the law p: 0 for the kept class, less for all others.

    ``parameters`` has β as ``scale``, λ as ``share``, T as ``confidence`` tables, and the numbers of the classes as ``places``.
    """
    top = ops.where(logits < ops.max(logits), 0.0, 1.0)
    projected, c = project(ops, parameters, keeps, p, logits)
    lowest = (1.0 + LEAD) / parameters["n_classes"]
    r = ops.minimum(ops.maximum(repaired(ops, parameters, c), lowest), 1.0 / ops.sum(top))
    if keeps == "scale":
        scale = scale_with_confidence(ops, scaled_gaps(ops, parameters, logits), r)
        return ops.maximum(scale * (parameters["scale"] * (logits - ops.max(logits))), LOWEST)
    q = with_confidence(ops, parameters, projected, top, r)
    if keeps == "order":
        q = (1.0 - TRACE) * q + TRACE * ops.softmax(parameters["scale"] * (logits - ops.max(logits)))
    log_q = ops.safe_log(q)
    out = ops.where(top > 0.0, 0.0, ops.minimum(log_q - ops.max(log_q), -LEAD))
    return ops.keep_order(out, logits) if keeps == "order" else out


def project(ops: Ops, parameters: Parameters, keeps: Keeps, p: Value, logits: Value) -> tuple[Value, Value]:
    """The law nearest to p of those that keep the decision, and the probability of its kept class.

    Isotonic regression is nearest in NLL and in Brier score at once: if p is true, no other law that keeps the order has a
    lower one. Pooling the network's class with those above it is so for laws that keep the decision.
    """
    if keeps == "order":
        projected = ops.isotonic(p, logits, int(parameters["n_classes"]))
        return projected, ops.max(projected)
    if keeps == "top":
        projected = pool_top(ops, parameters, p, ops.where(logits < ops.max(logits), 0.0, 1.0))
        return projected, ops.max(projected)
    gaps = scaled_gaps(ops, parameters, logits)
    return p, 1.0 / ops.sum(ops.exp(nearest_scale(ops, p, gaps) * gaps))


def repaired(ops: Ops, parameters: Parameters, c: Value) -> Value:
    """R = (1 − λ)·c + λ·T(c)."""
    share = parameters["share"]
    return (1.0 - share) * c + share * ops.interpolate(parameters["confidence"], c)


def pool_top(ops: Ops, parameters: Parameters, p: Value, top: Value) -> Value:
    """Pool the kept classes with those above them: the smallest pool that leaves no class above its mean.

    It is the largest mean of the kept classes and the k largest others, k = 0, 1, ….
    """
    m, places = parameters["n_classes"], parameters["places"]

    def change(p: Value, top: Value) -> Value:
        count, own = ops.sum(top), ops.sum(top * p)
        others = ops.sort((1.0 - top) * p)
        largest = ops.sum(others) - ops.cumsum(others) + others  # the sum from each place on
        level = ops.maximum(ops.max((own + largest) / (count + (m - places))), own / count)
        return ops.where(top > 0.0, level, ops.minimum(p, level))

    count = ops.sum(top)
    above = ops.max((1.0 - top) * p) - ops.sum(top * p) / count
    return ops.where_rows(ops.maximum(above, count - 1.0), change, p, top)


def with_confidence(ops: Ops, parameters: Parameters, p: Value, top: Value, r: Value) -> Value:
    """The law nearest to p in KL with r for each kept class and no other above r: min(r, a·p), a so that all sum to 1."""
    m, places = parameters["n_classes"], parameters["places"]
    others = (1.0 - top) * ops.maximum(p, SMALLEST_OTHER)
    rest = ops.maximum(1.0 - ops.sum(top) * r, 0.0)
    q = others * (rest / ops.maximum(ops.sum(others), SMALLEST_SUM))

    def cap(_q: Value, others: Value, rest: Value, r: Value) -> Value:
        # With the classes above each place at r the factor would be this; the solution is the largest of these.
        below = ops.maximum(ops.cumsum(ops.sort(others)), SMALLEST_SUM)
        factor = ops.max((rest - (m - 1.0 - places) * r) / below)
        return ops.minimum(factor * others, r)

    q = ops.where_rows(ops.max(q) - r, cap, q, others, rest, r)
    return ops.where(top > 0.0, r, q)


def scaled_gaps(ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """β·(z − max z), not below ``-MAX_GAP``."""
    return ops.maximum(parameters["scale"] * (logits - ops.max(logits)), -MAX_GAP)


def nearest_scale(ops: Ops, p: Value, gaps: Value) -> Value:
    """The s with the lowest KL(p, softmax(s·gaps)) + ‖p − softmax(s·gaps)‖²."""
    mean = ops.sum(p * gaps)

    def loss(log_scale: Value) -> Value:
        u = ops.exp(log_scale) * gaps
        e = ops.exp(u)
        total = ops.sum(e)
        error = e / total - p
        return ops.log(total) - ops.exp(log_scale) * mean + ops.sum(error * error)

    zero = mean * 0.0
    best, lowest = zero + LOG_SCALES[0], loss(zero + LOG_SCALES[0])
    for log_scale in LOG_SCALES[1:]:
        value = loss(zero + log_scale)
        best, lowest = ops.where(value < lowest, zero + log_scale, best), ops.minimum(value, lowest)
    step = LOG_SCALES[1] - LOG_SCALES[0]
    for _ in range(HALVINGS):
        step /= 2
        center = best
        for side in (center - step, center + step):
            value = loss(side)
            best, lowest = ops.where(value < lowest, side, best), ops.minimum(value, lowest)
    return ops.exp(best)


def scale_with_confidence(ops: Ops, gaps: Value, r: Value) -> Value:
    """The s with which softmax(s·gaps) has the largest probability r, by bisection."""
    low, high = r * 0.0 - MAX_LOG_SCALE, r * 0.0 + MAX_LOG_SCALE
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        is_under = r * ops.sum(ops.exp(ops.exp(middle) * gaps)) > 1.0
        low, high = ops.where(is_under, middle, low), ops.where(is_under, high, middle)
    return ops.exp(0.5 * (low + high))
