"""Ranking by confidence, and selective prediction: answering only where the confidence is high.

Samples of equal confidence are tied: a metric of the ranking is the mean over all their orders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rhocal.metrics.scored import Scored
    from rhocal.metrics.sums import Sketch
    from rhocal.numerics.bins import BinSums
    from rhocal.numerics.special import Vector

COVERAGE_RISK = 0.05
"""The error rate at which coverage is reported."""


@dataclass(frozen=True)
class RejectionCurve:
    """Accuracy on the samples that are left when the least confident share is rejected. A rejection splits no ties."""

    rejected: Vector
    """Share of samples rejected, from 0 up."""
    accuracy: Vector
    """Accuracy on the others."""
    confidence: Vector
    """Everything below this confidence is rejected."""


def rejection_curve(ranked: BinSums) -> RejectionCurve:
    """One point for every distinct confidence."""
    kept = np.cumsum(ranked.weight[::-1])[::-1]
    right = np.cumsum(ranked.correct[::-1])[::-1]
    return RejectionCurve(1 - kept / kept[0], right / kept, ranked.mean)


def aurc(ranked: BinSums) -> float:
    """Area under the risk–coverage curve: the error rate among the most confident share, averaged over all shares."""
    # ∫ errors(t)/t dt over the weight t, most confident first; inside a tie errors grow evenly. Over a tie of weight a with
    # e errors that starts at weight A with E errors: e + (E − A e/a)·log((A + a)/A), because errors(t) = E + (t − A) e/a.
    a, e = ranked.weight[::-1], (ranked.weight - ranked.correct)[::-1]
    after = np.cumsum(a)
    before, errors = after - a, np.cumsum(e) - e
    before[0] = errors[0] = 0.0
    growth = np.log(after[1:] / before[1:])
    return float((e.sum() + (errors[1:] - before[1:] * e[1:] / a[1:]) @ growth) / after[-1])


def aurc_bound(sketch: Sketch) -> float:
    """In a cell of weight a with e errors, errors(t) is off by at most e(1 − e/a), and a rate by at most 1."""
    a, e = sketch.ranked.weight[::-1], (sketch.ranked.weight - sketch.ranked.correct)[::-1]
    before = np.cumsum(a) - a
    off = e * (1 - e / a)
    rate = np.minimum(off / np.where(before > 0, before, np.where(off > 0, off, 1)), 1)
    return float(a @ rate / a.sum())


def e_aurc(ranked: BinSums) -> float:
    """AURC above that of a perfect ranking with the same accuracy, r + (1 − r)·log(1 − r) for an error rate r."""
    right = float(ranked.correct.sum() / ranked.weight.sum())
    best = 1 - right + (right * np.log(right) if right > 0 else 0.0)
    return max(aurc(ranked) - float(best), 0.0)


def auroc(ranked: BinSums) -> float:
    """Probability that a right sample is more confident than a wrong one, ties half; NaN if all are right or all wrong."""
    right, wrong = ranked.correct, np.maximum(ranked.weight - ranked.correct, 0)
    if not (right.sum() > 0 and wrong.sum() > 0):
        return float("nan")
    below = np.cumsum(wrong) - wrong
    return float(right @ (below + wrong / 2) / (right.sum() * wrong.sum()))


def auroc_bound(sketch: Sketch) -> float:
    """Pairs inside a cell count half, and may count 0 or 1."""
    right, wrong = sketch.ranked.correct, sketch.ranked.weight - sketch.ranked.correct
    return float(right @ wrong / 2 / (right.sum() * wrong.sum()))


def coverage_at_risk(ranked: BinSums, *, risk: float = COVERAGE_RISK) -> float:
    """The largest share of samples, the most confident ones, whose error rate is at most ``risk``."""
    curve = rejection_curve(ranked)
    allowed = 1 - curve.accuracy <= risk + 1e-12
    return float((1 - curve.rejected[allowed]).max()) if allowed.any() else 0.0


def coverage_bound(sketch: Sketch, *, risk: float = COVERAGE_RISK) -> float:
    """A threshold inside a cell does best if the right samples of the cell are above its wrong ones.

    With weight A and errors E above the cell, the risk stays allowed until t samples with E + (t − A − right) ≤ risk·t.
    """
    a, right = sketch.ranked.weight[::-1], sketch.ranked.correct[::-1]
    before = np.cumsum(a) - a
    errors = np.cumsum(a - right) - (a - right)
    clean = before + right
    reach = np.minimum((clean - errors) / max(1 - risk, 1e-12), before + a)
    best = np.where(errors <= risk * clean + 1e-9, np.maximum(reach, clean), 0).max() / a.sum()
    return float(max(best - coverage_at_risk(sketch.ranked, risk=risk), 0.0))


ROUNDING = 1e-9
"""Entropies that are nearer to the threshold are equal to it: they do not depend on the order of a sum."""


def avu(scored: Scored, *, threshold: float | None = None) -> float:
    """Accuracy versus uncertainty: share of samples that are right and certain, or wrong and uncertain.

    Uncertain is an entropy above ``threshold``; unless given, the middle between the mean entropies of right and wrong samples.
    """
    w, right, entropy = scored.weights, scored.correct > 0, scored.entropy
    if threshold is None:
        means = [float(w[side] @ entropy[side] / w[side].sum()) for side in (right, ~right) if w[side].sum() > 0]
        threshold = sum(means) / len(means)
    certain = entropy <= threshold + ROUNDING  # where all entropies are equal, so is the middle
    return float(w @ (right == certain) / w.sum())
