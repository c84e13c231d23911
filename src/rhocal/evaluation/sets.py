"""Prediction sets on top of a calibrator: the classes that a sample may have, with a stated coverage.

>>> import rhocal
>>> cal = rhocal.TemperatureScaling().fit(*rhocal.demo_logits("cal"))
>>> found = rhocal.decide_sets(cal, *rhocal.demo_logits("test"), coverage=0.9)
>>> print(found.verdict)
sets with 90 % coverage (lac): 1... classes on average (median 1), ... % of sets are a single class, ... % are empty
>>> cal.policy_ = found.policy
>>> cal.decide(rhocal.demo_logits("test")[0][:2]).sets.shape
(2, 10)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.fit_spec import check_calibrator, spec_of_fit
from rhocal.calibrators.policies.policy import Policy
from rhocal.calibrators.policies.prediction_sets import (
    ALWAYS,
    N_FREE,
    PENALTY,
    SetEvidence,
    SetRule,
    SetScore,
    with_slack,
)
from rhocal.data.arguments import check_finite, check_flag, check_level, check_whole
from rhocal.data.sources import as_source
from rhocal.errors import FewSamplesWarning, InputError, warn
from rhocal.evaluation.clusters import one_of_each_cluster
from rhocal.evaluation.question import counts_of, in_order
from rhocal.evaluation.set_decision import ClassCoverage, SetDecision
from rhocal.metrics.inference.conformal import conformal_limit, coverage_range, samples_for
from rhocal.numerics.special import softmax

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.data.sources import Source
    from rhocal.data.spec import Kind
    from rhocal.numerics.special import Floats, Vector

MAX_NAMED = 5
"""Classes with too few samples that a warning names."""


@dataclass(frozen=True)
class SetQuestion:
    """Which sets are to be found."""

    coverage: float
    score: SetScore = "lac"
    per_class: bool = False
    penalty: float = PENALTY
    n_free: int = N_FREE
    otherwise: str = "review"

    def __post_init__(self) -> None:
        check_level(self.coverage, "coverage", "0.9 for 90 %")
        check_flag(self.per_class, "per_class")
        check_finite(self.penalty, "penalty", "a number")
        check_whole(self.n_free, "n_free", 0)
        self.rule(np.zeros(2))

    def rule(self, limits: Vector) -> SetRule:
        """The rule with these limits."""
        return SetRule(self.score, float(self.coverage), limits, bool(self.per_class), float(self.penalty), self.n_free)


def decide_sets(
    calibrator: Calibrator | None,
    logits: Any,
    labels: Any = None,
    *,
    coverage: float,
    score: SetScore = "lac",
    per_class: bool = False,
    penalty: float = PENALTY,
    n_free: int = N_FREE,
    otherwise: str = "review",
    sample_weight: Any = None,
    groups: Any = None,
    clusters: Any = None,
    kind: Kind | None = None,
    classes: Any = None,
    ignore_index: int | None = None,
) -> SetDecision:
    """Sets of classes that hold the class of a new sample with a probability of at least ``coverage``.

    The policy of the result also decides: the most probable class of the set, automated if it is the only one.

    Parameters
    ----------
    calibrator
        Fitted on other samples than these. None: the scores as they are.
    logits, labels
        Held-out samples, assumed to be exchangeable with those that the sets will be used on: independent draws from the same
        distribution, say. Also a ``rhocal.stream``, which is read twice.
    coverage
        The smallest probability that the set holds the class of a sample, over the draw of these samples and of the new one.
    score
        ``lac`` (the smallest sets on average), ``aps`` (sets that adapt to a sample and are never empty) or ``raps`` (the same
        without large sets); see ``rhocal.calibrators.policies.prediction_sets``. No score is randomized.
    per_class
        Whether the coverage holds for the samples of each class (a limit for each class), not for all together. A class
        with too few samples is in every set.
    penalty, n_free
        Of ``raps``: what each rank beyond the first ``n_free`` adds to the score. Choose both before you look at these samples.
    otherwise
        The action for samples whose set is not a single class: ``review`` or ``abstain``.
    sample_weight
        Whole numbers: a weight of k stands for k samples.
    groups
        The domain of each sample, for calibrators that know domains (``multi-domain``); give it to ``cal.decide`` too.
    clusters
        The cluster of each sample (question, patient), where samples of a cluster depend on each other: one of each cluster,
        drawn by content, sets the limits; every cluster counts once, whatever its size. In memory only.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling().fit(logits, labels)
    >>> decision = rhocal.decide_sets(calibrator, *rhocal.demo_logits("test"), coverage=0.9)
    >>> round(decision.evidence.mean_size, 1)
    1.7
    """
    check_calibrator(calibrator, logits, "decide_sets", may_be_none=True)
    spec = spec_of_fit(calibrator, kind=kind, classes=classes, ignore_index=ignore_index)
    if calibrator is not None:
        calibrator.check_groups(groups)
    question = SetQuestion(coverage, score, per_class, penalty, n_free, otherwise)
    source = as_source(logits, labels, sample_weight, groups, spec=spec)
    return decide_sets_of_source(calibrator, one_of_each_cluster(source, clusters, calibrator), question)


def decide_sets_of_source(calibrator: Calibrator | None, source: Source, question: SetQuestion) -> SetDecision:
    """The same for a source."""
    if not source.resident and not source.is_rereadable:
        raise InputError(
            "prediction sets read the samples twice, and an iterator gives them once; give files or a list of blocks"
        )
    first = list(source.map(partial(label_scores, calibrator=calibrator, question=question)))
    classes = first[0][0]
    scores, labels, weights = (np.concatenate(parts) for parts in zip(*(part[1:] for part in first), strict=True))
    limits = _limits(scores, labels, weights, classes, question)
    rule = question.rule(limits)
    again = replace(source, progress=None)
    sizes = np.concatenate(list(again.map(partial(set_sizes, calibrator=calibrator, rule=rule))))
    covered = scores <= limits[labels]
    n = int(weights.sum())
    low, high = coverage_range(n, question.coverage, float(weights @ covered))
    evidence = SetEvidence(
        n,
        low,
        high,
        float(weights @ covered / n),
        float(weights @ sizes / n),
        _median(sizes, weights),
        float(weights @ (sizes == 0) / n),
        float(weights @ (sizes == 1) / n),
    )
    rows = []
    for c, name in enumerate(classes):
        mine = labels == c
        count = float(weights[mine].sum())
        of_class = (float(weights[mine] @ values[mine] / count) if count else None for values in (covered, sizes))
        rows.append(ClassCoverage(name, int(count), float(limits[c]), *of_class))
    policy = Policy("sets", otherwise=question.otherwise, sets=replace(rule, evidence=evidence))
    policy.check(len(classes))
    return SetDecision(policy, evidence, tuple(rows))


def _limits(
    scores: Vector, labels: NDArray[np.intp], weights: Vector, classes: NDArray[Any], question: SetQuestion
) -> Vector:
    """The limit of each class."""
    n, needed = int(weights.sum()), samples_for(question.coverage)
    if not question.per_class:
        limit = conformal_limit(scores, weights, question.coverage)
        if limit is None:
            raise InputError(
                f"coverage {question.coverage:g} needs at least {needed:,} samples, and there are {n:,}: a set would hold "
                "every class. Use more samples or a smaller coverage"
            )
        return np.full(len(classes), with_slack(limit, question.score))
    limits, few = np.full(len(classes), ALWAYS), []
    for c, name in enumerate(classes):
        mine = labels == c
        limit = conformal_limit(scores[mine], weights[mine], question.coverage)
        if limit is None:
            few.append(f"{name!s} ({int(weights[mine].sum())} samples)")
        else:
            limits[c] = with_slack(limit, question.score)
    if len(few) == len(classes):
        raise InputError(
            f"coverage {question.coverage:g} of each class needs at least {needed:,} samples of a class, and no class has as "
            "many: a set would hold every class. Use more samples, a smaller coverage, or the coverage of all classes together"
        )
    if few:
        more = f" and {len(few) - MAX_NAMED:,} more" if len(few) > MAX_NAMED else ""
        warn(
            f"coverage {question.coverage:g} needs at least {needed:,} samples of a class. {len(few):,} of {len(classes):,} "
            f"classes have fewer and are in every set: {', '.join(few[:MAX_NAMED])}{more}",
            FewSamplesWarning,
        )
    return limits


def _probs(data: Predictions, calibrator: Calibrator | None) -> Floats:
    return softmax(data.logits) if calibrator is None else calibrator.map_.probs(data)


def label_scores(
    data: Predictions, calibrator: Calibrator | None, question: SetQuestion
) -> tuple[NDArray[Any], Vector, NDArray[np.intp], Vector]:
    """The classes, and of each sample of a block the score of its label, the label and the weight."""
    data = in_order(data, calibrator)
    assert data.labels is not None
    weights = counts_of(data)
    rule = question.rule(np.zeros(data.n_classes))
    scores = rule.scores(_probs(data, calibrator))[np.arange(data.n_samples), data.labels]
    return data.classes, scores, data.labels, weights


def set_sizes(data: Predictions, calibrator: Calibrator | None, rule: SetRule) -> Vector:
    """The number of classes in the set of each sample."""
    probs = _probs(in_order(data, calibrator), calibrator)
    return np.asarray((rule.scores(probs) <= rule.limits).sum(axis=1), np.float64)


def _median(values: Vector, weights: Vector) -> float:
    order = np.argsort(values, kind="stable")
    return float(values[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)])
