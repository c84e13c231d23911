"""From probabilities and labels to an evaluation: metrics, intervals, floors, tests, a verdict; for slices too.

>>> import rhocal
>>> print(rhocal.evaluate(*rhocal.demo_logits("test"), kind="logits").verdict)
over-confident by 3.3 points: mean confidence 86.0 %, accuracy 82.7 % (ECE 0.033, floor ...)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.predictions import Kind, predictions
from rhocal.errors import InputError
from rhocal.evaluation.evaluation import Evaluation, Group, MetricValue
from rhocal.metrics.inference.calibration_tests import SIMULATED_TESTS, outcomes
from rhocal.metrics.inference.defaults import N_REPLICATES, SIGNIFICANCE_LEVEL
from rhocal.metrics.inference.floor import SIMULATED_METRICS, Floor, floors
from rhocal.metrics.inference.intervals import intervals
from rhocal.metrics.inference.null import CumulativeDifferences, simulate_nulls
from rhocal.metrics.inference.paired import holm
from rhocal.metrics.inference.verdict import detect_miscalibration, verdict
from rhocal.metrics.scored import Scored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.metrics.inference.ece_interval import Interval
    from rhocal.metrics.inference.null import NullDistribution

SHOWN = ("accuracy", "ece", "adaptive_ece", "nll", "brier")
"""What an evaluation holds unless other metrics are asked for."""

FINE = 40
"""Draws for each group, where a p-value must stand Holm's correction: twice the 1/.05 it needs at least."""


def evaluate(
    probs: Any,
    labels: Any = None,
    *,
    groups: Any = None,
    sample_weight: Any = None,
    kind: Kind = "probs",
    metrics: Sequence[str] = SHOWN,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Evaluation:
    """Measure calibration, with intervals, floors, tests and a verdict.

    ``groups`` names the group of each sample (domain, site, …), or is ``"predicted"`` for one group for each predicted class.
    (Not the true class: among samples of one true class even a perfect model is not calibrated.) Dask arrays and a
    ``rhocal.stream``, which brings its labels, are measured where their blocks are: eight numbers of a sample are kept.
    """
    if type(probs).__module__.split(".")[0] == "dask" or type(probs).__module__ == "rhocal.data.streams":
        from rhocal.evaluation.evaluate_streams import evaluate_blocks  # noqa: PLC0415 - they came, so they are there

        if groups is not None:
            raise InputError("groups: blocks carry none; evaluate each group by itself, or arrays in memory")
        return evaluate_blocks(
            probs, labels, sample_weight, kind=kind, metrics=metrics, n_replicates=n_replicates, seed=seed
        )
    if labels is None:
        raise InputError("labels are missing; an evaluation needs one label for each sample")
    data = predictions(probs, labels, sample_weight=sample_weight, kind=kind, name=kind)
    return evaluate_checked(data, groups=groups, metrics=metrics, n_replicates=n_replicates, seed=seed)


def evaluate_checked(
    data: Predictions,
    *,
    groups: Any = None,
    metrics: Sequence[str] = SHOWN,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Evaluation:
    """The same for data that has passed the border."""
    names = list(dict.fromkeys(["ece", *metrics]))
    scored = Scored.from_predictions(data)
    walked = dict.fromkeys([*SIMULATED_TESTS, *(name for name in names if name in SIMULATED_METRICS)])
    drawn = simulate_nulls(CumulativeDifferences.from_scored(scored), list(walked), n_replicates, seed)
    found = floors(data, names, drawn=drawn, n_replicates=n_replicates, seed=seed)
    whole = assembled(scored, data.n_classes, metrics, found, drawn, n_replicates=n_replicates, seed=seed)
    return whole if groups is None else replace(whole, groups=by_group(data, scored, groups, n_replicates, seed))


def assembled(
    scored: Scored,
    n_classes: int,
    metrics: Sequence[str],
    found: Mapping[str, Floor],
    drawn: Mapping[str, NullDistribution],
    *,
    n_replicates: int,
    seed: int,
) -> Evaluation:
    """The evaluation of samples whose floors are known (that of the ECE among them)."""
    names = list(dict.fromkeys(["ece", *metrics]))
    ranges = intervals(scored, names, n_replicates=n_replicates, seed=seed)
    tested = outcomes(scored, drawn)
    return Evaluation(
        scored.n_samples,
        n_classes,
        *_accuracy_and_confidence(scored),
        tuple(_metric_value(found[name], ranges[name]) for name in metrics),
        tested,
        verdict(scored, found["ece"], ranges["ece"], tested),
        detect_miscalibration(tested)[0],
        (),
    )


def by_group(data: Predictions, scored: Scored, groups: Any, n_replicates: int, seed: int) -> tuple[Group, ...]:
    """Every group by itself, p-values corrected for having looked at all; worst first."""
    names = _group_names(data, groups)
    each, codes = np.unique(names, return_inverse=True)
    found = []
    for code, name in enumerate(each):
        rows = np.flatnonzero(codes == code)
        if scored.weights[rows].any():
            found.append((str(name), scored.take(rows), len(rows)))
    measured = [(name, n, part, _measure(part, len(found), n_replicates, seed)) for name, part, n in found]
    adjusted = holm([ece.p_value for *_, (ece, _, _) in measured])
    listed = [
        Group(name, n, *_accuracy_and_confidence(part), replace(_metric_value(ece, limits), p_value=p), text)
        for (name, n, part, (ece, limits, text)), p in zip(measured, adjusted, strict=True)
    ]
    return tuple(sorted(listed, key=lambda group: (group.ece.p_value > SIGNIFICANCE_LEVEL, -group.ece.excess)))


def _measure(part: Scored, n_groups: int, n_replicates: int, seed: int) -> tuple[Floor, Interval, str]:
    """The floor, interval and verdict of one group.

    After Holm's correction a p-value below .05 must be below .05 / n_groups before; where a first look says it may be, the
    floor is drawn as often as that takes.
    """
    walk = CumulativeDifferences.from_scored(part)
    drawn = simulate_nulls(walk, list(SIMULATED_TESTS), n_replicates, seed)
    if drawn["ece"].p_value < 10 / n_replicates and n_replicates < FINE * n_groups:
        drawn |= simulate_nulls(walk, ["ece"], FINE * n_groups, seed + 1)
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


def _accuracy_and_confidence(scored: Scored) -> tuple[float, float]:
    total = scored.weights.sum()
    return float(scored.weights @ scored.correct / total), float(scored.weights @ scored.confidence / total)


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
    )
