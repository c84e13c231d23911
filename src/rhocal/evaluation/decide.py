"""Decide: a threshold on calibrated probabilities whose risk is certified on samples that fitted nothing.

>>> import rhocal
>>> cal = rhocal.TemperatureScaling().fit(*rhocal.demo_logits("cal"))
>>> decision = rhocal.decide(cal, *rhocal.demo_logits("test"), target=0.05)
>>> print(decision.verdict)
automate ... % of samples (...): probability of the predicted class at least 0...; errors ... at most 5 % with 95 % confidence
>>> cal.policy_ = decision.policy
>>> cal.decide(rhocal.demo_logits("test")[0][:2]).action.tolist()
['...', '...']
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from rhocal.calibrators.policy import NEVER, Certificate, Policy
from rhocal.data.labels import positive_column
from rhocal.data.sources import as_source
from rhocal.data.spec import InputSpec, Kind
from rhocal.errors import InputError
from rhocal.evaluation.decision import ClassThreshold, Decision, RiskCurve
from rhocal.metrics.inference.risk_control import (
    AT_LEAST,
    FIXED_DENOMINATOR,
    FROM_BELOW,
    RISKS,
    Candidates,
    Risk,
    certify,
    check_level,
    count_candidates,
    mean_bound,
    more_samples,
    rank_thresholds,
    risk_bounds,
)
from rhocal.metrics.inference.units import are_counts
from rhocal.numerics.special import binomial_upper, row_argmax, row_max, softmax

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.data.sources import Source
    from rhocal.numerics.special import Vector

Score = Literal["confidence", "per-class", "positive"]
SCORES: tuple[Score, ...] = get_args(Score)
OF_POSITIVE = (*FIXED_DENOMINATOR, "precision")
"""Risks of decisions about a positive class."""
INTERVAL = 0.95
CONFIDENCE = 0.95
"""Of a certificate, unless another is given."""


def decide(
    calibrator: Calibrator | None,
    logits: Any,
    labels: Any = None,
    *,
    target: float,
    risk: Risk = "error",
    confidence: float = CONFIDENCE,
    score: Score | None = None,
    costs: Any = None,
    otherwise: str = "review",
    reference: Any = None,
    sample_weight: Any = None,
    kind: Kind | None = None,
    classes: Any = None,
    positive: Any = None,
    ignore_index: int | None = None,
) -> Decision:
    """The threshold that automates the most samples at a risk that is certified to be at most ``target``.

    Parameters
    ----------
    calibrator
        Fitted on other samples than these: those that certify must not have fitted it. None: the scores as they are.
    logits, labels
        Held-out samples, assumed to be independent draws from what the policy will be used on. Also a ``rhocal.stream``.
    target
        The largest risk; of ``precision`` and ``recall`` the smallest value.
    risk
        ``error`` (errors among automated samples), ``fpr``, ``fnr``, ``precision``, ``recall`` (of the positive class of two),
        ``cost`` (mean cost of automated samples, with ``costs``).
    confidence
        The probability that the promise holds, over the draw of these samples.
    score
        What the threshold is on: ``confidence`` (of the predicted class), ``per-class`` (a threshold for each predicted class,
        each with its own certified error rate), ``positive`` (the probability of the positive class).
    costs
        Cost of deciding column j for a sample of class i, (n_classes, n_classes).
    otherwise
        The action for other samples: ``review`` or ``abstain``.
    reference
        Scores of other samples, such as those of the fit, in the form of ``logits``. The thresholds that are tested are taken
        from their ranks, and the guarantee holds for any distribution; see ``rhocal.metrics.inference.risk_control``.
    sample_weight
        Whole numbers: a weight of k stands for k samples.
    """
    spec = InputSpec(
        kind or ("logits" if calibrator is None else calibrator.kind_),
        classes if classes is not None or calibrator is None else calibrator.classes_,
        ignore_index,
        positive=positive,
    )
    source = as_source(logits, labels, sample_weight, spec=spec)
    other = None if reference is None else as_source(reference, spec=spec, needs_labels=False)
    question = Question(risk, target, confidence, score, costs, otherwise, positive)
    return decide_source(calibrator, source, question, other)


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

    def __post_init__(self) -> None:
        if self.risk not in RISKS:
            raise InputError(f"risk is one of {', '.join(RISKS)}; got {self.risk!r}")
        check_level(self.confidence, "confidence", "0.95 for 95 %")
        if self.risk != "cost":
            check_level(self.target, "target", "0.02 for 2 % errors")
        if self.score is not None and self.score not in SCORES:
            raise InputError(f"score is one of {', '.join(SCORES)}; got {self.score!r}")
        if (self.rule == "positive") != (self.risk in OF_POSITIVE):
            able = "positive" if self.risk in OF_POSITIVE else "confidence or per-class"
            raise InputError(f"risk {self.risk} is decided by a threshold on score {able}; got score {self.score}")
        if (self.costs is None) == (self.risk == "cost"):
            raise InputError("costs: a table of costs belongs to risk cost, and only to it")
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


def decide_source(
    calibrator: Calibrator | None, source: Source, question: Question, reference: Source | None = None
) -> Decision:
    """The same for sources."""
    samples = SampleScores.concat(list(source.map(partial(score_block, calibrator=calibrator, question=question))))
    other = None
    if reference is not None:
        other = SampleScores.concat(list(reference.map(partial(score_block, calibrator=calibrator, question=question))))
    return _per_class(samples, question, other) if question.rule == "per-class" else _single(samples, question, other)


@dataclass(frozen=True, eq=False)
class CertifiedTargets:
    """The risk–coverage curve of the error rate, and its point for each of several targets."""

    curve: RiskCurve
    indices: tuple[int | None, ...]
    """None where a target is not certified. Each target is certified by itself."""


def certified_targets(
    calibrator: Calibrator | None, data: Predictions, targets: Sequence[float], confidence: float = CONFIDENCE
) -> CertifiedTargets:
    """Thresholds on the confidence whose error rate is at most each of the targets."""
    samples = score_block(data, calibrator, Question("error", targets[0], confidence))
    losses = (samples.predicted != samples.labels).astype(np.float64)
    thresholds = rank_thresholds(samples.score, samples.weights)
    candidates = count_candidates(samples.score, losses, samples.weights, "error", thresholds)
    coverage = candidates.accepted / samples.weights.sum()
    curve = RiskCurve(thresholds, coverage, candidates.risk, risk_bounds(candidates, confidence))
    return CertifiedTargets(curve, tuple(certify(candidates, target, confidence, "error").index for target in targets))


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

    @classmethod
    def concat(cls, parts: Sequence[SampleScores]) -> SampleScores:
        """The samples of several blocks."""
        names = ("score", "predicted", "labels", "weights")
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return replace(parts[0], **columns)

    def take(self, rows: NDArray[np.bool_]) -> SampleScores:
        """Some of the samples."""
        labels = self.labels[rows] if len(self.labels) else self.labels
        return replace(
            self, score=self.score[rows], predicted=self.predicted[rows], labels=labels, weights=self.weights[rows]
        )


def in_order(data: Predictions, calibrator: Calibrator | None) -> Predictions:
    """The samples with the classes in the order of the calibrator."""
    return data if calibrator is None else data.in_order_of(calibrator.classes_)[0]


def score_block(data: Predictions, calibrator: Calibrator | None, question: Question) -> SampleScores:
    """The scores of a block."""
    data = in_order(data, calibrator)
    classes = data.classes
    probs = softmax(data.logits) if calibrator is None else calibrator.map_.probs(data)
    probs = probs.astype(np.float64)
    weights = np.ones(data.n_samples) if data.weights is None else data.weights
    if not are_counts(weights):
        raise InputError(
            "sample_weight: a guarantee counts samples, so weights must be whole numbers; leave weights out, or draw samples "
            "in proportion to them"
        )
    positive = None
    if question.rule == "positive":
        if len(classes) != 2:
            raise InputError(
                f"risk {question.risk} is that of the positive class of two; there are {len(classes)} classes. Use risk error"
            )
        stated = next(
            (
                one
                for one in (data.positive, question.positive, getattr(calibrator, "positive_", None))
                if one is not None
            ),
            None,
        )
        positive = 1 if stated is None else positive_column(stated, classes)
    labels = np.zeros(0, np.intp) if data.labels is None else data.labels
    score = np.asarray(row_max(probs) if positive is None else probs[:, positive], np.float64)
    return SampleScores(score, row_argmax(probs), labels, weights, classes, positive)


def _losses(samples: SampleScores, question: Question) -> tuple[Vector, NDArray[np.bool_] | None, float, float]:
    """Losses between 0 and 1, the samples of the class whose rate it is, and what a loss of 0 and of 1 stands for."""
    if question.risk == "cost":
        table = cost_table(question.costs, len(samples.classes))[:, : len(samples.classes)]
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


def cost_table(costs: Any, n_classes: int) -> Vector:
    """Validated costs, one row for each class, one column for each decision; a last column may be the cost of a review."""
    table = np.asarray(costs, np.float64)
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


@dataclass(frozen=True, eq=False)
class _Search:
    """The candidates of a question, and what was certified of them."""

    candidates: Candidates
    index: int | None
    bounds: Vector
    low: float
    high: float
    n_samples: float

    def unscaled(self, loss: Any) -> Any:
        """A loss between 0 and 1 in the unit of the costs."""
        return self.low + (self.high - self.low) * loss


def _search(samples: SampleScores, question: Question, reference: SampleScores | None, confidence: float) -> _Search:
    losses, subjects, low, high = _losses(samples, question)
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
    index = certify(candidates, limit, confidence, question.risk, expected).index
    if question.risk == "cost":
        bounds = np.full(len(candidates.thresholds), np.nan)
        if index is not None:
            inside = samples.score >= candidates.thresholds[index]
            bounds[index] = mean_bound(losses[inside], samples.weights[inside], confidence)
    else:
        bounds = risk_bounds(candidates, confidence)
    return _Search(candidates, index, bounds, low, high, total)


def _single(samples: SampleScores, question: Question, reference: SampleScores | None) -> Decision:
    """One threshold for all samples."""
    found = _search(samples, question, reference, question.confidence)
    candidates, k = found.candidates, found.index
    policy = None
    if k is not None:
        risk, bound = found.unscaled(candidates.risk[k]), found.unscaled(found.bounds[k])
        certificate = _certificate(question, found.n_samples, candidates.accepted[k], risk, bound)
        policy = Policy(
            question.rule,
            candidates.thresholds[k : k + 1].copy(),
            samples.positive,
            otherwise=question.otherwise,
            certificate=certificate,
        )
    return _decision(samples, question, found, policy, ())


def _per_class(samples: SampleScores, question: Question, reference: SampleScores | None) -> Decision:
    """A threshold for each predicted class; all are certified together (Bonferroni)."""
    n_classes = len(samples.classes)
    confidence = 1 - (1 - question.confidence) / n_classes
    thresholds, rows = np.full(n_classes, NEVER), []
    for c in range(n_classes):
        mine = samples.take(samples.predicted == c)
        n, threshold, accepted, errors = float(mine.weights.sum()), NEVER, 0.0, 0.0
        if n:
            other = None if reference is None else reference.take(reference.predicted == c)
            found = _search(mine, question, other, confidence)
            if found.index is not None:
                threshold = thresholds[c] = found.candidates.thresholds[found.index]
                accepted, errors = found.candidates.accepted[found.index], found.candidates.losses[found.index]
        bound = float(binomial_upper(np.array(errors), np.array(accepted), confidence))
        observed = errors / accepted if accepted else float("nan")
        rows.append(ClassThreshold(samples.classes[c], int(n), float(threshold), int(accepted), float(observed), bound))
    whole = _search(samples, replace(question, score="confidence"), reference, question.confidence)
    n_accepted = sum(row.n_automated for row in rows)
    policy = None
    if n_accepted:
        errors = sum(row.n_automated * row.observed for row in rows if row.n_automated)
        bound = max(row.bound for row in rows if row.n_automated)
        certificate = _certificate(question, whole.n_samples, n_accepted, errors / n_accepted, bound)
        policy = Policy("per-class", thresholds, otherwise=question.otherwise, certificate=certificate)
    return _decision(samples, question, whole, policy, tuple(rows))


def _certificate(question: Question, n: float, accepted: float, observed: float, bound: float) -> Certificate:
    flip = question.risk in AT_LEAST
    low = 1 - float(binomial_upper(np.array(n - accepted), np.array(n), (1 + INTERVAL) / 2))
    high = float(binomial_upper(np.array(accepted), np.array(n), (1 + INTERVAL) / 2))
    return Certificate(
        question.risk,
        float(question.target),
        float(question.confidence),
        int(n),
        int(accepted),
        float(1 - observed if flip else observed),
        float(1 - bound if flip else bound),
        float(accepted / n),
        low,
        high,
    )


def _decision(
    samples: SampleScores, question: Question, found: _Search, policy: Policy | None, rows: tuple[ClassThreshold, ...]
) -> Decision:
    """The answer, with the curve over all thresholds."""
    candidates, flip = found.candidates, question.risk in AT_LEAST
    risk, bound = found.unscaled(candidates.risk), found.unscaled(found.bounds)
    coverage = candidates.accepted / found.n_samples
    allowed = (candidates.trials > 0) & (risk <= question.limit + 1e-12)
    better = np.min if question.risk in FROM_BELOW else np.max
    known = float(better(coverage[allowed])) if allowed.any() else None
    best = n_more = None
    if policy is None:
        limit = (question.limit - found.low) / (found.high - found.low)
        n_more, best = more_samples(candidates, limit, 1 - question.confidence, found.n_samples)
        best = _best(found) if best is None else best
    order = np.argsort(-candidates.thresholds, kind="stable")
    curve = RiskCurve(*(values[order] for values in (
        candidates.thresholds, coverage, 1 - risk if flip else risk, 1 - bound if flip else bound,
    )))  # fmt: skip
    at_best = None if best is None else (float(curve.risk[order.argsort()[best]]), float(coverage[best]))
    return Decision(
        question.risk, float(question.target), question.confidence, question.rule, int(found.n_samples), policy, curve, known,
        at_best, n_more, rows, None if samples.positive is None else samples.classes[samples.positive],
    )  # fmt: skip


def _best(found: _Search) -> int | None:
    """The candidate with the smallest risk that can be shown."""
    values = (
        found.bounds
        if np.isfinite(found.bounds).any()
        else np.where(found.candidates.trials > 0, found.candidates.risk, np.nan)
    )
    return int(np.nanargmin(values)) if np.isfinite(values).any() else None
