"""Venn–Abers prediction: two isotonic regressions, with the new sample as a miss and as a hit."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.binary.binary_map import FINEST, ORDERED_BOUNDS, BinaryMap, FittedBinaryMap, Outcomes
from rhocal.calibrators.binary.formulas import class_scores, one_sided, top_score
from rhocal.calibrators.binary.one_vs_rest import ONE_VS_REST, SCOPES, BinaryCalibrator, Scope
from rhocal.calibrators.options import Fitted
from rhocal.calibrators.scoring import validated_scores
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.numerics.special import Vector, expit
from rhocal.numerics.tables import padded, row_starts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rhocal.data.predictions import Kind
    from rhocal.numerics.ops import Ops, Parameters, Value

NOISE, MAX_NOISE = 1e-12, 2e-6
"""Scores that differ by less, in log-odds and relatively, are the same: backends round them differently. Where all scores of
the fit lie apart, as shares of votes do, the limit is larger, because single precision rounds them too."""


@dataclass(frozen=True)
class Interval(BinaryMap):
    """p₀ and p₁ at the scores of the calibration set.

    A new miss belongs to the nearest score below it (it would be pooled with that one anyway), a new hit to the nearest
    above it; beyond all scores they stand alone.
    """

    rounds_scores = False  # a noise of theirs is allowed for
    scores: Vector
    low: Vector
    high: Vector

    @classmethod
    def tables(cls, arrays: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
        scores, low, high = arrays["scores"], arrays["low"], arrays["high"]
        table = padded(scores, np.inf)
        width = len(table) // len(scores)
        aside = np.zeros((len(scores), 1))
        return {
            "width": width,
            "noise": float(np.clip(np.nanmin(gaps(scores), initial=np.inf) / 4, NOISE, MAX_NOISE)),
            "scores": table,
            "score_starts": row_starts(len(scores), width),
            "bound_starts": row_starts(len(scores), width + 1),
            "low": padded(np.hstack([aside, low]), 0.0, width + 1),
            "high": padded(high, 1.0, width + 1),
        }

    @staticmethod
    def formula(ops: Ops, parameters: Parameters, score: Value) -> Value:
        """The probability at every score."""
        p0, p1 = bounds(ops, parameters, score)
        return p1 / (1.0 - p0 + p1)


def gaps(scores: Vector) -> Vector:
    """Between neighbors, relative to the larger score plus 1; NaN between those that are the same."""
    with np.errstate(invalid="ignore"):  # between infinite scores
        apart = np.diff(scores) / (np.abs(scores[..., 1:]) + 1)
    return np.where(apart > NOISE, apart, np.nan)


def bounds(ops: Ops, parameters: Parameters, score: Value) -> tuple[Value, Value]:
    """p₀ ≤ p₁ at every score."""
    noise = (ops.abs(score) + 1.0) * parameters["noise"]
    table = parameters["scores"], parameters["score_starts"], parameters["width"]
    below = ops.locate(*table, score + noise, count_equal=True) + parameters["bound_starts"]
    above = ops.locate(*table, score - noise) + parameters["bound_starts"]
    return ops.take(parameters["low"], below), ops.take(parameters["high"], above)


@dataclass(eq=False, repr=False)
class VennAbers(BinaryCalibrator):
    """Inductive Venn–Abers prediction for each class (Vovk, Petej & Fedorova 2015). It may change the predicted class.

    The new sample is added to the calibration set with weight 1, once as a miss and once as a hit, and isotonic regression
    gives it p₀ and p₁. One of the two is perfectly calibrated if samples are exchangeable. The probability returned is
    p₁ / (1 − p₀ + p₁), which is never 0 or 1.

    Parameters
    ----------
    scope
        ``"one-vs-rest"``: a map for each class, rows normalized. ``"top"`` or ``"top-capped"``: one for the confidence.

    Attributes
    ----------
    scores_, low_, high_
        p₀ and p₁ at the log-odds of the calibration set, filled up with NaN.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits(name="table")
    >>> calibrator = rhocal.VennAbers().fit(logits, labels)
    >>> low, high = calibrator.interval(logits)
    >>> bool((low <= high).all())
    True
    """

    name = "venn-abers"
    map = Interval
    score_kind = "log-odds"
    reads_probs = True  # scores that differ by ``NOISE`` are one
    has_monotone_bounds = True

    _: KW_ONLY
    scope: Scope = ONE_VS_REST

    scores_ = Fitted[Vector](
        shape="maps scores | maps", allows_nan=True, minimum=-np.inf, maximum=np.inf, increasing=True
    )
    low_ = Fitted[Vector](shape="maps scores | maps", allows_nan=True, minimum=0, maximum=1)
    high_ = Fitted[Vector](shape="maps scores | maps", allows_nan=True, minimum=0, maximum=1)
    constraints = (*BinaryCalibrator.constraints, ORDERED_BOUNDS)

    def _fit_map(self, data: Outcomes) -> FittedBinaryMap:
        # With fractional weights a sum of hits may exceed that of weights by a rounding error.
        high = np.minimum(with_a_hit(data.weight, data.hits), 1.0)
        low = 1 - np.minimum(with_a_hit(data.weight[::-1], (data.weight - data.hits)[::-1]), 1.0)[::-1]
        coarse_high, coarse_low = np.floor(high / FINEST), np.floor(low / FINEST)
        kept = np.append(coarse_high[1:] != coarse_high[:-1], True)
        kept |= np.append(True, coarse_low[1:] != coarse_low[:-1])
        if len(kept) > 1:  # the nearest two tell how far apart all scores lie
            kept[np.argmin(np.nan_to_num(gaps(data.score), nan=np.inf)) + np.arange(2)] = True
        return FittedBinaryMap(Interval(data.score[kept], low[kept], high[kept]))

    def interval(
        self, logits: Any, *, kind: Kind | None = None, class_axis: int = -1
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """p₀ and p₁ of every class, each of shape (n_samples, n_classes), before rows are normalized.

        With one map for the confidence: of the predicted class, shape (n_samples,). A class that never occurred in the tune
        set has no interval: both are its probability.
        """
        parameters, of_top = self.map_.parameters, SCOPES[self.scope_] != ONE_VS_REST
        z = validated_scores(self, logits, kind, class_axis).precise_logits().astype(np.float64)
        score = (top_score if of_top else class_scores)(NUMPY, parameters, z)
        is_mirrored = not of_top and len(self.one_sided_) == 1
        score = score[:, 1:] if is_mirrored else score
        low = high = expit(score)
        if "scores" in parameters:
            low, high = bounds(NUMPY, parameters, score)
        if "missing" in parameters:
            p = one_sided(NUMPY, parameters["factor"], expit(score))
            low, high = (np.where(parameters["missing"], p, bound) for bound in (low, high))
        if of_top:
            return low[:, 0], high[:, 0]
        return (np.hstack([1 - high, low]), np.hstack([1 - low, high])) if is_mirrored else (low, high)


def with_a_hit(weight: Vector, hits: Vector) -> Vector:
    """The isotonic regression at every score when one more hit is added there.

    Isotonic regression of the scores left of it, and of those right of it, are the lower hulls of two parts of the
    cumulative sum diagram. The score itself with the new hit is a block between them. It swallows the hull's next piece
    on the right while that is lower, on the left while that is higher. All scores walk at the same time.
    """
    w, s = np.append(0, np.cumsum(weight)), np.append(0, np.cumsum(hits))
    last = len(weight)
    after, before = next_corners(w, s), last - next_corners(w[-1] - w[::-1], s[::-1])[::-1]
    i, j = np.arange(last), np.arange(1, last + 1)
    mean = np.empty(last)
    active = np.arange(last)
    while len(active):
        a, b = i[active], j[active]
        now = (s[b] - s[a] + 1) / (w[b] - w[a] + 1)
        mean[active] = now
        right = (b < last) & (_slope(w, s, b, after[b]) < now)
        left = (a > 0) & (_slope(w, s, before[a], a) > now)
        j[active[right]], i[active[left]] = after[b[right]], before[a[left]]
        active = active[right | left]
    return mean


def next_corners(w: Vector, s: Vector) -> NDArray[np.intp]:
    """For every point k of the diagram the next corner of the lower hull of the points from k on; the last is its own.

    Points inside a straight run are never corners of another point's hull. So only the ends of runs go through the
    classical scan from the right; the others walk along the corners of the end of their run, all at the same time. A class
    with few hits has few runs: the scan over all classes is linear in the number of samples, not in samples × classes.
    """
    last = len(w) - 1
    slopes = np.diff(s) / np.diff(w)
    ends = np.append(0, np.append(np.flatnonzero(slopes[1:] != slopes[:-1]) + 1, last))
    after = np.full(last + 1, last)
    after[ends] = ends[_scan(w[ends].tolist(), s[ends].tolist())]
    inner = np.setdiff1d(np.arange(last), ends, assume_unique=True)
    at = ends[np.searchsorted(ends, inner)]
    active = np.arange(len(inner))
    while len(active):
        k, e = inner[active], at[active]
        lower = (e < last) & (_slope(w, s, e, after[e]) <= _slope(w, s, k, e))
        active = active[lower]
        at[active] = after[at[active]]
    after[inner] = at
    return after


def _scan(x: list[float], y: list[float]) -> list[int]:
    """For every point the next corner of the lower hull of the points from it on."""
    stack = [len(x) - 1]
    corner = stack * len(x)
    for k in range(len(x) - 2, -1, -1):
        while len(stack) > 1:
            b, c = stack[-1], stack[-2]
            if (y[b] - y[k]) * (x[c] - x[b]) < (y[c] - y[b]) * (x[b] - x[k]):
                break
            stack.pop()
        corner[k] = stack[-1]
        stack.append(k)
    return corner


def _slope(w: Vector, s: Vector, a: NDArray[np.intp], b: NDArray[np.intp]) -> Vector:
    """Slope between points; 0 from a point to itself, which no caller uses."""
    width = w[b] - w[a]
    return (s[b] - s[a]) / np.where(width > 0, width, 1)
