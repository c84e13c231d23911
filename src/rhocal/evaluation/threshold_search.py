"""The search for a threshold whose risk is certified: its candidates, in all samples and in each segment of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError
from rhocal.evaluation.decision import SegmentRisk
from rhocal.evaluation.question import sample_losses
from rhocal.metrics.inference.risk_control import (
    AT_LEAST,
    Candidates,
    certify,
    count_candidates,
    mean_bound,
    more_samples,
    rank_thresholds,
    risk_bounds,
    together,
)

if TYPE_CHECKING:
    from rhocal.evaluation.question import Question, SampleScores
    from rhocal.numerics.special import Vector


@dataclass(frozen=True, eq=False)
class ThresholdSearch:
    """The candidates of a question, and what was certified of them."""

    candidates: Candidates
    index: int | None
    bounds: Vector
    low: float
    high: float
    n_samples: float
    segments: dict[Any, Candidates] = field(default_factory=dict)
    """The same candidates in every segment."""

    def unscaled(self, loss: Any) -> Any:
        """A loss between 0 and 1 in the unit of the costs."""
        return self.low + (self.high - self.low) * loss


@dataclass(frozen=True)
class Nearest:
    """The threshold that is nearest to a certificate."""

    n_more: int | None = None
    """About how many more samples it would take."""
    risk: float | None = None
    coverage: float = 0.0

    def or_better(self, search: ThresholdSearch, question: Question, confidence: float, n_samples: float) -> Nearest:
        """The nearer of this and of another search. ``n_samples`` are all samples; the search may see a part of them."""
        limit = (question.limit - search.low) / (search.high - search.low)
        n_more, best = more_samples(search.candidates, limit, 1 - confidence, n_samples)
        if best is None:
            values = search.bounds if np.isfinite(search.bounds).any() else search.candidates.risk
            values = np.where(search.candidates.accepted > 0, values, np.nan)
            best = int(np.nanargmin(values)) if np.isfinite(values).any() else None
        if best is None:
            return self
        risk = float(search.unscaled(search.candidates.risk[best]))
        if self.risk is not None:
            mine, other = (np.inf if n is None else n for n in (self.n_more, n_more))
            if (mine, self.risk) <= (other, risk):
                return self
        return Nearest(n_more, risk, float(search.candidates.accepted[best] / n_samples))


def search_thresholds(
    samples: SampleScores, question: Question, reference: SampleScores | None, confidence: float
) -> ThresholdSearch:
    """Certify a threshold that answers a question; thresholds are ranks of the reference, else of the samples."""
    losses, subjects, low, high = sample_losses(samples, question)
    limit = (question.limit - low) / (high - low)
    ranked = samples if reference is None or not len(reference.score) else reference
    thresholds = rank_thresholds(ranked.score, ranked.weights)
    candidates = count_candidates(
        samples.score, losses, samples.weights, question.risk, thresholds, subjects=subjects, target=limit
    )
    total, expected = float(samples.weights.sum()), None
    if ranked is not samples:
        above = count_candidates(ranked.score, ranked.score, ranked.weights, "error", thresholds).accepted
        expected = above / ranked.weights.sum() * total
    parts: dict[Any, Candidates] = {}
    if samples.segments is not None:
        parts = _segment_candidates(samples, question, thresholds, limit)
        smallest = min(float(part.weights.sum()) for part in samples.by_segment().values())
        expected = None if expected is None else expected * smallest / total
    index = certify(together(parts.values(), candidates), limit, confidence, question.risk, expected).index
    if question.risk == "cost":
        bounds = np.full(len(candidates.thresholds), np.nan)
        if index is not None:
            inside = samples.score >= candidates.thresholds[index]
            bounds[index] = mean_bound(losses[inside], samples.weights[inside], confidence)
    else:
        bounds = risk_bounds(candidates, confidence)
    return ThresholdSearch(candidates, index, bounds, low, high, total, parts)


def _segment_candidates(
    samples: SampleScores, question: Question, thresholds: Vector, limit: float
) -> dict[Any, Candidates]:
    """The counts of every segment at the same thresholds."""
    parts = {}
    for name, part in samples.by_segment().items():
        try:
            losses, subjects, _, _ = sample_losses(part, question)
        except InputError as error:
            raise InputError(f"segment {name!s}: {error}") from error
        parts[name] = count_candidates(
            part.score, losses, part.weights, question.risk, thresholds, subjects=subjects, target=limit
        )
    return parts


def segment_rows(samples: SampleScores, question: Question, search: ThresholdSearch) -> tuple[SegmentRisk, ...]:
    """What is certified in each segment, or could be if it were alone."""
    if not search.segments:
        return ()
    rows, flip = [], question.risk in AT_LEAST
    limit = (question.limit - search.low) / (search.high - search.low)
    for name, part in samples.by_segment().items():
        candidates, k, n = search.segments[name], search.index, float(part.weights.sum())
        alone = certify(candidates, limit, question.confidence, question.risk).index is not None
        if k is None or not candidates.trials[k]:
            rows.append(SegmentRisk(name, int(n), alone, 0, None, None))
            continue
        risk = float(search.unscaled(candidates.risk[k]))
        bound = None if question.risk == "cost" else float(risk_bounds(candidates, question.confidence)[k])
        if flip:
            risk, bound = 1 - risk, None if bound is None else 1 - bound
        rows.append(SegmentRisk(name, int(n), alone, int(candidates.accepted[k]), risk, bound))
    return tuple(rows)
