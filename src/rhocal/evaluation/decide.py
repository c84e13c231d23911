"""Decide: a threshold on calibrated probabilities whose risk is certified on samples that fitted nothing.

>>> import rhocal
>>> cal = rhocal.TemperatureScaling().fit(*rhocal.demo_logits("cal", "cifar10"))
>>> decision = rhocal.decide(cal, *rhocal.demo_logits("test", "cifar10"), target=0.05)
>>> print(decision.verdict)
automate ... % of samples (...): probability of the predicted class at least 0...; errors ... at most 5 % with 95 % confidence
>>> cal.policy_ = decision.policy
>>> cal.decide(rhocal.demo_logits("test", "cifar10")[0][:2]).action.tolist()
['...', '...']
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.fit_spec import check_calibrator, named_positive, spec_of_fit
from rhocal.calibrators.policies.policy import NEVER, Certificate, Policy
from rhocal.data.labels.per_sample import sample_groups
from rhocal.data.sources import as_source
from rhocal.errors import InputError
from rhocal.evaluation.clusters import one_of_each_cluster
from rhocal.evaluation.decision import ClassThreshold, Decision, RiskCurve
from rhocal.evaluation.question import (
    CONFIDENCE,
    Question,
    SampleScores,
    Score,
    costs_of_fit,
    score_block,
)
from rhocal.evaluation.threshold_search import Nearest, ThresholdSearch, search_thresholds, segment_rows
from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL
from rhocal.metrics.inference.risk_control import (
    AT_LEAST,
    FROM_BELOW,
    Risk,
    certify,
    count_candidates,
    rank_thresholds,
    risk_bounds,
)
from rhocal.numerics.special import binomial_upper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.data.sources import Source
    from rhocal.data.spec import Kind


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
    segments: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    clusters: Any = None,
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
        Cost of deciding class j for a sample of class i, (n_classes, n_classes), in the order of ``classes``; unless these are
        stated, in that of ``calibrator.classes_``, whatever the order of named columns. Without a calibrator: of the columns.
        Of a data frame whose rows and columns are named, names decide.
    otherwise
        The action for other samples: ``review`` or ``abstain``.
    reference
        Scores of other samples, such as those of the fit, in the form of ``logits``. The thresholds that are tested are taken
        from their ranks, and the guarantee holds for any distribution; see ``rhocal.metrics.inference.risk_control``.
    segments
        The part of the population that each sample belongs to (region, device). The risk is then certified in every segment,
        with one threshold for all: it is above the target in some segment with a probability of at most 1 − ``confidence``.
    sample_weight
        Whole numbers: a weight of k stands for k samples.
    groups
        The domain of each sample, for calibrators that know domains (``multi-domain``); give it to ``cal.decide`` too.
    clusters
        The cluster of each sample (question, patient), where samples of a cluster depend on each other: one of each cluster,
        drawn by content, certifies; every cluster counts once, whatever its size. In memory only.
    positive
        Whose risk it is: the positive class of two, by name or by its number among ``classes``. Default: that of the
        calibrator's fit, else the second. Without a calibrator it is also the class that a single column is scores of; with
        one that is as in its fit.
    kind, classes, ignore_index
        What the scores are; by default as the calibrator was fitted.

    Returns
    -------
    Decision
        With a ``verdict`` in words and a ``policy`` for ``calibrator.policy_``.

    Examples
    --------
    >>> import rhocal
    >>> cal = rhocal.RhoNormScaling().fit(*rhocal.demo_logits("cal"))
    >>> rhocal.decide(cal, *rhocal.demo_logits("test"), target=0.05).verdict[:24]
    'automate 44 % of samples'
    """
    check_calibrator(calibrator, logits, "decide", may_be_none=True)
    spec = spec_of_fit(calibrator, kind=kind, classes=classes, ignore_index=ignore_index, positive=positive)
    if calibrator is not None:
        calibrator.check_groups(groups)
    if groups is not None and segments is not None:
        raise InputError(
            "segments: this calibrator reads groups, whose risks can be certified: give segments=groups alone"
        )
    if segments is not None and hasattr(labels, "__len__"):  # the source calls them groups
        shapes = np.shape(labels), np.shape(segments)  # flat labels are allowed beside segments of the samples' shape
        segments = sample_groups(segments, max(shapes, key=len), "logits", "segments").reshape(shapes[1])
    source = as_source(logits, labels, sample_weight, groups if segments is None else segments, spec=spec)
    source = one_of_each_cluster(source, clusters, calibrator)
    if reference is not None:
        check_calibrator(calibrator, reference, "decide", may_be_none=True)
    other = None if reference is None else as_source(reference, spec=spec, needs_labels=False)
    whose = named_positive(positive, calibrator, classes)
    table = costs_of_fit(costs, calibrator, classes)
    question = Question(risk, target, confidence, score, table, otherwise, whose, segments is not None)
    return decide_source(calibrator, source, question, other)


def decide_source(
    calibrator: Calibrator | None, source: Source, question: Question, reference: Source | None = None
) -> Decision:
    """The same for sources."""
    samples = SampleScores.concat(list(source.map(partial(score_block, calibrator=calibrator, question=question))))
    other = None
    if reference is not None:
        other = SampleScores.concat(list(reference.map(partial(score_block, calibrator=calibrator, question=question))))
    if samples.of_answers and question.risk == "error":
        return _answers(samples, question, other)
    return _per_class(samples, question, other) if question.rule == "per-class" else _single(samples, question, other)


@dataclass(frozen=True, eq=False)
class CertifiedTargets:
    """The risk–coverage curve of the error rate, and its point for each of several targets."""

    curve: RiskCurve
    indices: tuple[int | None, ...]
    """None where a target is not certified. Each target is certified by itself."""


def certified_targets(calibrator: Calibrator | None, data: Predictions, targets: Sequence[float]) -> CertifiedTargets:
    """Thresholds on the confidence whose error rate is at most each of the targets."""
    samples = score_block(data, calibrator, Question("error", targets[0], CONFIDENCE))
    losses = (samples.predicted != samples.labels).astype(np.float64)
    thresholds = rank_thresholds(samples.score, samples.weights)
    candidates = count_candidates(samples.score, losses, samples.weights, "error", thresholds)
    coverage = candidates.accepted / samples.weights.sum()
    curve = RiskCurve(thresholds, coverage, candidates.risk, risk_bounds(candidates, CONFIDENCE))
    return CertifiedTargets(curve, tuple(certify(candidates, target, CONFIDENCE, "error").index for target in targets))


def _single(samples: SampleScores, question: Question, reference: SampleScores | None) -> Decision:
    """One threshold for all samples."""
    search = search_thresholds(samples, question, reference, question.confidence)
    candidates, k = search.candidates, search.index
    policy = None
    if k is not None:
        risk, bound = search.unscaled(candidates.risk[k]), search.unscaled(search.bounds[k])
        certificate = _certificate(question, search.n_samples, candidates.accepted[k], risk, bound)
        policy = Policy(
            question.rule,
            candidates.thresholds[k : k + 1].copy(),
            samples.positive,
            otherwise=question.otherwise,
            certificate=certificate,
        )
    nearest = Nearest()
    if policy is None:
        nearest = nearest.or_better(search, question, question.confidence, search.n_samples)
    return _decision(samples, question, search, policy, (), nearest)


def _answers(samples: SampleScores, question: Question, reference: SampleScores | None) -> Decision:
    """A threshold on the probability that an answer is right; one that is surely wrong is not accepted.

    Shares are of all answers, errors are those among accepted ones.
    """
    if question.rule == "per-class":
        raise InputError("score per-class is for predicted classes; answers have one threshold: leave score out")
    n_all, parts = float(samples.weights.sum()), (samples, reference)
    accepted, other = (None if part is None else part.take(part.predicted == 1) for part in parts)
    assert accepted is not None
    if not accepted.weights.any():
        accepted = samples  # none is more likely right than wrong: nothing is certified below
    search = replace(search_thresholds(accepted, question, other, question.confidence), n_samples=n_all)
    candidates, k = search.candidates, search.index
    policy = None
    if k is not None and accepted is not samples:
        certificate = _certificate(question, n_all, candidates.accepted[k], candidates.risk[k], search.bounds[k])
        thresholds = np.array([NEVER, candidates.thresholds[k]])
        policy = Policy("per-class", thresholds, otherwise=question.otherwise, certificate=certificate)
    nearest = Nearest()
    if policy is None:
        nearest = nearest.or_better(search, question, question.confidence, n_all)
    return replace(_decision(accepted, question, search, policy, (), nearest), score="answers")


def _per_class(samples: SampleScores, question: Question, reference: SampleScores | None) -> Decision:
    """A threshold for each predicted class; all are certified together (Bonferroni)."""
    n_classes = len(samples.classes)
    confidence = 1 - (1 - question.confidence) / n_classes
    thresholds, rows, searches = np.full(n_classes, NEVER), [], []
    for c in range(n_classes):
        mine = samples.take(samples.predicted == c)
        n, threshold, accepted, errors = float(mine.weights.sum()), NEVER, 0.0, 0.0
        if n:
            other = None if reference is None else reference.take(reference.predicted == c)
            search = search_thresholds(mine, question, other, confidence)
            searches.append(search)
            if search.index is not None:
                threshold = thresholds[c] = search.candidates.thresholds[search.index]
                accepted, errors = search.candidates.accepted[search.index], search.candidates.losses[search.index]
        bound = float(binomial_upper(np.array(errors), np.array(accepted), confidence))
        observed = errors / accepted if accepted else float("nan")
        rows.append(ClassThreshold(samples.classes[c], int(n), float(threshold), int(accepted), float(observed), bound))
    whole = search_thresholds(samples, replace(question, score="confidence"), reference, question.confidence)
    n_accepted = sum(row.n_automated for row in rows)
    policy = None
    if n_accepted:
        errors = sum(row.n_automated * row.observed for row in rows if row.n_automated)
        bound = max(row.bound for row in rows if row.n_automated)
        certificate = _certificate(question, whole.n_samples, n_accepted, errors / n_accepted, bound)
        policy = Policy("per-class", thresholds, otherwise=question.otherwise, certificate=certificate)
    nearest = Nearest()
    for search in searches if policy is None else []:
        nearest = nearest.or_better(search, question, confidence, whole.n_samples)
    return _decision(samples, question, whole, policy, tuple(rows), nearest)


def _certificate(question: Question, n: float, accepted: float, observed: float, bound: float) -> Certificate:
    flip = question.risk in AT_LEAST
    low = 1 - float(binomial_upper(np.array(n - accepted), np.array(n), (1 + CONFIDENCE_LEVEL) / 2))
    high = float(binomial_upper(np.array(accepted), np.array(n), (1 + CONFIDENCE_LEVEL) / 2))
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
    samples: SampleScores,
    question: Question,
    search: ThresholdSearch,
    policy: Policy | None,
    rows: tuple[ClassThreshold, ...],
    nearest: Nearest,
) -> Decision:
    """The answer, with the curve over all thresholds."""
    candidates, flip = search.candidates, question.risk in AT_LEAST
    risk, bound = search.unscaled(candidates.risk), search.unscaled(search.bounds)
    coverage = candidates.accepted / search.n_samples
    allowed = (candidates.accepted > 0) & (risk <= question.limit + 1e-12)
    better = np.min if question.risk in FROM_BELOW else np.max
    known = float(better(coverage[allowed])) if allowed.any() else None
    order = np.argsort(-candidates.thresholds, kind="stable")
    curve = RiskCurve(*(values[order] for values in (
        candidates.thresholds, coverage, 1 - risk if flip else risk, 1 - bound if flip else bound,
    )))  # fmt: skip
    at_best = None
    if policy is None and nearest.risk is not None:
        at_best = (1 - nearest.risk if flip else nearest.risk, nearest.coverage)
    n_more = None if policy is not None else nearest.n_more
    return Decision(
        question.risk, float(question.target), question.confidence, question.rule, int(search.n_samples), policy, curve, known,
        at_best, n_more, rows, None if samples.positive is None else samples.classes[samples.positive],
        segment_rows(samples, question, search), _constant(samples, question), len(samples.classes) == 2,
    )  # fmt: skip


def _constant(samples: SampleScores, question: Question) -> tuple[Any, float] | None:
    """The most frequent class, and the errors of deciding it always; None where another risk is certified."""
    if question.risk != "error" or question.rule != "confidence" or samples.of_answers:
        return None
    counts = np.bincount(samples.labels, samples.weights, minlength=len(samples.classes))
    return samples.classes[counts.argmax()], float(1 - counts.max() / counts.sum())
