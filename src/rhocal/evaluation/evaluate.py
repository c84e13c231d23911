"""Evaluate calibration: metrics with intervals and floors, tests and a verdict, for all samples and for groups.

>>> import rhocal
>>> print(rhocal.evaluate(*rhocal.demo_logits("test"), kind="logits").verdict)
over-confident by 14.5 points: mean confidence 89.1 %, accuracy 74.6 % (ECE 0.145, floor 0.008 ± 0.004); ...
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.language_models.logs import EvaluationLog
from rhocal.data.sources import as_source
from rhocal.data.spec import InputSpec, Kind
from rhocal.data.top_k import TopK, refuse_for_top_k
from rhocal.errors import InputError, counted
from rhocal.evaluation.evaluation import Evaluation, Group, MetricValue
from rhocal.evaluation.samples import Samples, samples_top_k, score
from rhocal.metrics.inference.calibration_tests import combine, outcomes
from rhocal.metrics.inference.class_figures import class_figures, positive_figures
from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL, N_REPLICATES, SIGNIFICANCE_LEVEL
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.inference.floor import SIMULATED_METRICS, Floor, floors
from rhocal.metrics.inference.intervals import intervals
from rhocal.metrics.inference.joint_null import draws_for, joint_null
from rhocal.metrics.inference.null import path_nulls
from rhocal.metrics.inference.paired import holm
from rhocal.metrics.inference.statistics import statistics
from rhocal.metrics.inference.verdict import TOLERANCE, evidence_of, verdict
from rhocal.numerics.bins import N_BINS, bin_totals
from rhocal.numerics.caching import cached_property
from rhocal.profile.top_k import labeled_top_k

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.metrics.inference.calibration_tests import CombinedTest, Outcome
    from rhocal.metrics.inference.class_figures import ClassFigures, PositiveFigures
    from rhocal.metrics.inference.ece_interval import Interval
    from rhocal.metrics.inference.joint_null import JointNull
    from rhocal.metrics.inference.null import NullDistribution
    from rhocal.metrics.inference.verdict import Evidence, Verdict
    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

UNCALIBRATED = "uncalibrated"
"""How results call the scores before any calibrator."""

DEFAULT_METRICS = ("accuracy", "ece", "adaptive_ece", "nll", "brier")
"""The metrics of an evaluation unless others are named."""

N_DRAWS_PER_GROUP = 200
"""Draws per group where a p-value must stay small after Holm's correction: ten times the 1/.05 that it needs at least, because
the combined p-value of several tests is larger than the smallest of them."""
MAX_CLASSES = 20
"""Classes of an evaluation, those with the most certain differences."""
MAX_GROUP_ENTRIES = 1 << 25
"""Sums over classes and bins of all draws of a group in memory."""


def evaluate(
    probs: Any,
    labels: Any = None,
    *,
    groups: Any = None,
    sample_weight: Any = None,
    weight_kind: str | None = None,
    clusters: Any = None,
    kind: Kind = "probs",
    classes: Any = None,
    positive: Any = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    tolerance: float = TOLERANCE,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Evaluation:
    """Evaluate calibration: metrics with intervals, floors and p-values, tests, and a verdict.

    Parameters
    ----------
    probs, labels
        Probabilities of shape (n_samples, n_classes) and the true classes. Columns of a data frame are matched with labels by
        name. Of Dask arrays and of a ``rhocal.stream``, which brings its labels, eight numbers of a sample are kept. A log of
        ``rhocal.read_log`` brings its labels, kind and clusters; of answers the confidence is the probability of being right.
    groups
        The group of each sample (domain, site, …), or ``"predicted"`` for one group for each predicted class. (Not the true
        class: among samples of one true class even a perfect model is not calibrated.)
    sample_weight
        Weights of shape (n_samples,).
    weight_kind
        ``frequency`` (a weight of k stands for k samples) or ``importance`` (weights correct a selection). If it is not stated,
        weights are frequencies, with a warning if they are not whole numbers.
    clusters
        The cluster of each sample (patient, session), where samples are not independent.
    kind
        ``probs``, ``logits`` or ``log_probs``; it is never inferred.
    classes
        The label of each column.
    positive
        The positive class of two, by name or column number: that of scores of shape (n_samples,).
    metrics
        Names of metrics; ``rhocal metrics`` lists them.
    tolerance
        The calibration error that is tolerated, .02 for two points. The verdict states whether the error is shown to be within
        it, shown to be beyond it, or whether there are too few samples to tell.
    n_replicates, seed
        Draws behind intervals, floors and tests; with fewer than 39 the tests can hardly reject at 5 %.

    Returns
    -------
    Evaluation
        Prints as a table, and has ``verdict``, ``state``, ``to_frame``, ``to_dict`` and ``to_json``.

    Examples
    --------
    >>> import rhocal
    >>> evaluation = rhocal.evaluate(*rhocal.demo_logits("test"), kind="logits")
    >>> evaluation.state, round(evaluation["ece"].value, 3)
    ('beyond', 0.145)
    """
    check_tolerance(tolerance)
    check_whole(seed, "seed")
    check_whole(n_replicates, "n_replicates", at_least=1)
    metrics = (metrics,) if isinstance(metrics, str) else metrics
    if isinstance(probs, TopK):
        refuse_for_top_k(kind=kind == "logits", positive=positive is not None)
        labeled = labeled_top_k(probs, labels, sample_weight, classes)
        samples = samples_top_k(labeled, metrics).with_design(SamplingDesign(weight_kind, clusters))
        groups = labeled.predicted if isinstance(groups, str) and groups == "predicted" else groups
        return infer(samples, metrics, groups=groups, tolerance=tolerance, n_replicates=n_replicates, seed=seed)
    spec = InputSpec(kind, classes, positive=positive)
    if isinstance(probs, EvaluationLog):
        log, probs = probs, probs.scores
        labels = log.labels if labels is None else labels
        clusters = log.question_id if clusters is None and log.is_repeated else clusters
        of_answers = not log.holds_options
        spec = replace(spec, kind=log.kind, positive=1 if of_answers else positive, of_answers=of_answers)
    source = as_source(probs, labels, sample_weight, spec=spec)
    if groups is not None and not source.resident:
        raise InputError("groups: blocks carry none; evaluate each group by itself, or arrays in memory")
    if clusters is not None and not source.resident:
        raise InputError("clusters: blocks carry none; evaluate arrays in memory")
    design = SamplingDesign(weight_kind, clusters)
    samples = score(source, {UNCALIBRATED: None}, metrics)[UNCALIBRATED].with_design(design)
    return infer(samples, metrics, groups=groups, tolerance=tolerance, n_replicates=n_replicates, seed=seed)


def check_tolerance(tolerance: Any, name: str = "tolerance") -> None:
    """Raise an error unless it is a share of samples."""
    if not isinstance(tolerance, int | float | np.number) or not 0 < tolerance < 1:
        got = tolerance if isinstance(tolerance, np.number) else repr(tolerance)
        raise InputError(f"{name} must lie between 0 and 1 (0.02 for two points); got {got}")


def check_whole(value: Any, name: str, at_least: int = 0) -> None:
    """Raise an error unless it is a whole number that is large enough."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < at_least:
        raise InputError(f"{name} must be a whole number, at least {at_least}; got {value!r}")


def infer(
    samples: Samples,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    groups: Any = None,
    tolerance: float = TOLERANCE,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Evaluation:
    """The evaluation of samples: value, interval and floor of each metric, tests and a verdict."""
    scored, names = samples.scored, list(dict.fromkeys(["ece", *metrics]))
    drawn = DrawnTests.from_samples(samples, draws_for(n_replicates), seed)
    nulls = drawn.nulls([name for name in names if name in SIMULATED_METRICS])
    by_metric = floors(scored, names, nulls=nulls, moments=samples.moments, n_replicates=n_replicates, seed=seed)
    ranges = intervals(scored, names, n_replicates=n_replicates, seed=seed)
    conclusion = verdict(drawn.evidence(by_metric["ece"], ranges["ece"]), tolerance)
    return Evaluation(
        scored.n_samples,
        samples.n_classes,
        scored.accuracy,
        scored.mean_confidence,
        tuple(_metric_value(by_metric[name], ranges[name]) for name in metrics),
        drawn.outcomes,
        conclusion.text,
        conclusion.distinguishable,
        conclusion.p_value,
        conclusion.driver,
        conclusion.state,
        tolerance,
        conclusion.error,
        conclusion.n_needed,
        drawn.combined.n_draws,
        () if groups is None else by_group(samples, groups, n_replicates, seed, tolerance),
        *drawn.class_figures(conclusion),
        samples.n_effective,
        drawn.rows is not None and drawn.rows.of_answers,
        None if drawn.rows is None else drawn.rows.score_column,
        _counted(samples),
    )


def _counted(samples: Samples) -> float | None:
    """How many samples the weights count; None if they are not counts, or as many as there are rows."""
    if samples.n_effective is not None or not samples.scored.weighted:
        return None
    total = float(samples.scored.weights.sum())
    return None if total == samples.scored.n_samples else total


@dataclass(frozen=True)
class DrawnTests:
    """The tests of samples, and the draws behind them."""

    scored: Scored
    rows: Predictions | None
    null: JointNull
    statistics: Mapping[str, Vector]
    counts: Vector | None = None
    """Of ``Samples``."""
    index: NDArray[np.intp] | None = None

    @classmethod
    def from_samples(cls, samples: Samples, n_draws: int, seed: int) -> DrawnTests:
        """Draw labels and compute every statistic."""
        null = joint_null(samples.scored, n_draws, seed, rows=samples.rows, index=samples.index)
        rows = samples.scored.source if samples.scored.has_probs else samples.rows
        return cls(samples.scored, rows, null, statistics(null), samples.counts, samples.index)

    @cached_property
    def outcomes(self) -> dict[str, Outcome]:
        """Statistic and p-value of every test."""
        return outcomes(self.scored, self.statistics)

    @cached_property
    def combined(self) -> CombinedTest:
        """The tests together."""
        return combine(self.statistics)

    def nulls(self, names: Sequence[str]) -> dict[str, NullDistribution]:
        """The null distributions of metrics of the top label."""
        return path_nulls(self.null.top, self.null.top_paths, names)

    def class_figures(self, conclusion: Verdict) -> tuple[tuple[ClassFigures, ...], PositiveFigures | None]:
        """The figures of the classes that differ most, and of the positive class of two."""
        if self.rows is None:
            return (), None
        names, n_labels = self.rows.classes, self.n_labels
        classes = tuple(class_figures(gap, names[gap.column], n_labels) for gap in conclusion.gaps[:MAX_CLASSES])
        path = self.null.positive
        return classes, None if path is None else positive_figures(path, conclusion, classes[0])

    @property
    def n_labels(self) -> Vector | None:
        """Samples of each class; None where weights are counts, whose sums are known."""
        if self.rows is None or self.rows.labels is None or self.counts is None:
            return None
        counts = self.counts if self.index is None else self.counts[self.index]
        return bin_totals(self.rows.labels, counts, self.rows.n_classes)

    def evidence(self, ece: Floor, interval: Interval) -> Evidence:
        """What a verdict is formed from."""
        n = None if self.counts is None else float(self.counts.sum())
        return evidence_of(self.scored, ece, interval, self.outcomes, self.combined, self.null, self.rows, n)


def by_group(
    samples: Samples, groups: Any, n_replicates: int, seed: int, tolerance: float = TOLERANCE
) -> tuple[Group, ...]:
    """Evaluate every group by itself, with Holm's correction of the p-values; worst first."""
    scored, counts = samples.scored, samples.counts
    names, codes = np.unique(_group_names(scored, groups), return_inverse=True)
    parts = []
    for code, name in enumerate(names):
        rows = np.flatnonzero(codes == code)
        if scored.weights[rows].any():
            own = None if counts is None else counts[rows]
            parts.append((str(name), Samples(scored.take(rows), samples.n_classes, counts=own)))
    results = [_evaluate_group(part, len(parts), n_replicates, seed) for _, part in parts]
    adjusted = holm([drawn.combined.p_value for drawn, _, _ in results])
    of_ece = holm([ece.p_value for _, ece, _ in results])
    level = 1 - (1 - CONFIDENCE_LEVEL) / len(parts)
    evaluated = []
    for (name, group), (drawn, ece, limits), p, p_ece in zip(parts, results, adjusted, of_ece, strict=True):
        part, n = group.scored, group.scored.n_samples
        conclusion = verdict(drawn.evidence(ece, limits), tolerance, p_value=p, level=level)
        value = replace(_metric_value(ece, limits), p_value=p_ece)
        evaluated.append(
            Group(name, n, part.accuracy, part.mean_confidence, value, conclusion.text, p, conclusion.state)
        )
    return tuple(sorted(evaluated, key=lambda group: (group.p_value > SIGNIFICANCE_LEVEL, -group.ece.excess)))


def _evaluate_group(
    samples: Samples, n_groups: int, n_replicates: int, seed: int
) -> tuple[DrawnTests, Floor, Interval]:
    """The tests, floor and interval of one group.

    After Holm's correction a p-value below .05 must be below .05 / n_groups before; where the first p-value is small, labels
    are drawn as often as that takes.
    """
    drawn = DrawnTests.from_samples(samples, draws_for(n_replicates), seed)
    enough = min(N_DRAWS_PER_GROUP * n_groups, MAX_GROUP_ENTRIES // (samples.n_classes * N_BINS))
    if drawn.combined.p_value < 0.05 and drawn.combined.n_draws < enough:
        drawn = DrawnTests.from_samples(samples, enough, seed + 1)
    ece = Floor.from_null("ece", drawn.nulls(["ece"])["ece"])
    return drawn, ece, intervals(samples.scored, ["ece"])["ece"]


def _group_names(scored: Scored, groups: Any) -> NDArray[Any]:
    if isinstance(groups, str):
        if groups != "predicted":
            raise InputError(f"groups must hold one name for each sample, or be 'predicted'; got {groups!r}")
        data = scored.source
        return np.asarray(data.classes[data.logits.argmax(axis=1)])
    names = np.asarray(groups)
    if names.shape != (scored.n_samples,):
        raise InputError(
            f"groups must hold one name for each of the {counted(scored.n_samples, 'sample')}; got shape {names.shape}"
        )
    if names.dtype.kind == "O":
        names = names.astype(str)
    return names


def _metric_value(floor: Floor, interval: Interval) -> MetricValue:
    return MetricValue(
        floor.metric,
        floor.value,
        interval.low,
        interval.high,
        floor.mean,
        floor.low,
        floor.high,
        floor.excess,
        floor.p_value,
        interval.reason,
        floor.n_draws,
    )
