"""Evaluate calibration: metrics with intervals and floors, tests and a verdict, for all samples and for groups.

>>> import rhocal
>>> print(rhocal.evaluate(*rhocal.demo_logits("test"), kind="logits").verdict)
over-confident by 3.3 points: mean confidence 86.0 %, accuracy 82.7 % (ECE 0.033, floor ...)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.sources import as_source
from rhocal.data.spec import InputSpec, Kind
from rhocal.errors import InputError
from rhocal.evaluation.evaluation import Evaluation, Group, MetricValue
from rhocal.evaluation.samples import Samples, score
from rhocal.metrics.inference.calibration_tests import SIMULATED_TESTS, outcomes
from rhocal.metrics.inference.defaults import N_REPLICATES, SIGNIFICANCE_LEVEL
from rhocal.metrics.inference.floor import SIMULATED_METRICS, Floor, floors
from rhocal.metrics.inference.intervals import intervals
from rhocal.metrics.inference.null import CumulativeDifferences, simulate_nulls
from rhocal.metrics.inference.paired import holm
from rhocal.metrics.inference.verdict import detect_miscalibration, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.metrics.inference.ece_interval import Interval
    from rhocal.metrics.scored import Scored

UNCALIBRATED = "uncalibrated"
"""How results call the scores before any calibrator."""

DEFAULT_METRICS = ("accuracy", "ece", "adaptive_ece", "nll", "brier")
"""The metrics of an evaluation unless others are named."""

N_DRAWS_PER_GROUP = 40
"""Draws per group where a p-value must stay small after Holm's correction: twice the 1/.05 that it needs at least."""


def evaluate(
    probs: Any,
    labels: Any = None,
    *,
    groups: Any = None,
    sample_weight: Any = None,
    kind: Kind = "probs",
    classes: Any = None,
    positive: Any = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Evaluation:
    """Evaluate calibration: metrics with intervals, floors and p-values, tests, and a verdict.

    ``classes`` names the label of each column; columns of a data frame are matched with labels by name.
    ``positive`` is the positive class of two, by name or column number: that of scores of shape (n_samples,).
    ``groups`` names the group of each sample (domain, site, …), or is ``"predicted"`` for one group for each predicted class.
    (Not the true class: among samples of one true class even a perfect model is not calibrated.) Of Dask arrays and of a
    ``rhocal.stream``, which brings its labels, eight numbers of a sample are kept.
    """
    source = as_source(probs, labels, sample_weight, spec=InputSpec(kind, classes, positive=positive))
    if groups is not None and not source.resident:
        raise InputError("groups: blocks carry none; evaluate each group by itself, or arrays in memory")
    samples = score(source, {UNCALIBRATED: None}, metrics)[UNCALIBRATED]
    return infer(samples, metrics, groups=groups, n_replicates=n_replicates, seed=seed)


def infer(
    samples: Samples,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    groups: Any = None,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Evaluation:
    """The evaluation of samples: value, interval and floor of each metric, tests and a verdict."""
    scored, names = samples.scored, list(dict.fromkeys(["ece", *metrics]))
    simulated = dict.fromkeys([*SIMULATED_TESTS, *(name for name in names if name in SIMULATED_METRICS)])
    nulls = simulate_nulls(CumulativeDifferences.from_scored(scored), list(simulated), n_replicates, seed)
    by_metric = floors(scored, names, nulls=nulls, moments=samples.moments, n_replicates=n_replicates, seed=seed)
    ranges = intervals(scored, names, n_replicates=n_replicates, seed=seed)
    tests = outcomes(scored, nulls)
    return Evaluation(
        scored.n_samples,
        samples.n_classes,
        scored.accuracy,
        scored.mean_confidence,
        tuple(_metric_value(by_metric[name], ranges[name]) for name in metrics),
        tests,
        verdict(scored, by_metric["ece"], ranges["ece"], tests),
        detect_miscalibration(tests)[0],
        () if groups is None else by_group(scored, groups, n_replicates, seed),
    )


def by_group(scored: Scored, groups: Any, n_replicates: int, seed: int) -> tuple[Group, ...]:
    """Evaluate every group by itself, with Holm's correction of the p-values; worst first."""
    names, codes = np.unique(_group_names(scored.source, groups), return_inverse=True)
    parts = []
    for code, name in enumerate(names):
        rows = np.flatnonzero(codes == code)
        if scored.weights[rows].any():
            parts.append((str(name), scored.take(rows), len(rows)))
    results = [_evaluate_group(part, len(parts), n_replicates, seed) for _, part, _ in parts]
    adjusted = holm([ece.p_value for ece, _, _ in results])
    evaluated = [
        Group(name, n, part.accuracy, part.mean_confidence, replace(_metric_value(ece, limits), p_value=p), text)
        for (name, part, n), (ece, limits, text), p in zip(parts, results, adjusted, strict=True)
    ]
    return tuple(sorted(evaluated, key=lambda group: (group.ece.p_value > SIGNIFICANCE_LEVEL, -group.ece.excess)))


def _evaluate_group(part: Scored, n_groups: int, n_replicates: int, seed: int) -> tuple[Floor, Interval, str]:
    """The floor, interval and verdict of one group.

    After Holm's correction a p-value below .05 must be below .05 / n_groups before; where the first
    p-value is small, the floor is drawn as often as that takes.
    """
    path = CumulativeDifferences.from_scored(part)
    drawn = simulate_nulls(path, list(SIMULATED_TESTS), n_replicates, seed)
    if drawn["ece"].p_value < 10 / n_replicates and n_replicates < N_DRAWS_PER_GROUP * n_groups:
        drawn |= simulate_nulls(path, ["ece"], N_DRAWS_PER_GROUP * n_groups, seed + 1)
    ece, limits = Floor.from_null("ece", drawn["ece"]), intervals(part, ["ece"])["ece"]
    return ece, limits, verdict(part, ece, limits, outcomes(part, drawn))


def _group_names(data: Predictions, groups: Any) -> NDArray[Any]:
    if isinstance(groups, str):
        if groups != "predicted":
            raise InputError(f"groups must hold one name for each sample, or be 'predicted'; got {groups!r}")
        return np.asarray(data.classes[data.logits.argmax(axis=1)])
    names = np.asarray(groups)
    if names.shape != (data.n_samples,):
        raise InputError(f"groups must hold one name for each of the {data.n_samples} samples; got shape {names.shape}")
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
    )
