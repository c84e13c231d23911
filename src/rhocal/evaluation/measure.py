"""Metric values of a source, for any number of calibrators, from one pass: every block gives sums, and sums add."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.scoring import calibrated_logits
from rhocal.calibrators.summary import SLICE_ENTRIES
from rhocal.data.sources import as_source
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError
from rhocal.evaluation.best import SampleNumbers
from rhocal.metrics import CORE, METRICS, Scored
from rhocal.metrics.inference.ece_interval import BinMoments
from rhocal.metrics.sums import MetricSums
from rhocal.numerics.bins import N_BINS, PerfectSums, equal_width

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.data.sampling import Half
    from rhocal.data.sources import Source
    from rhocal.numerics.special import Vector

BlockSums = dict[Any, dict[str, Any]]
"""Calibrator → metric → state. States of two blocks add."""


@dataclass(frozen=True)
class ExactValue:
    """The value of a metric on all samples at once; it does not add."""

    value: float


FLOOR, COUNT, DEBIASED, SAMPLES = "ece_floor", "n_samples", "ece_debiased", "samples"
EXTRAS: dict[str, Callable[[Scored], Any]] = {
    FLOOR: lambda samples: PerfectSums.of(samples.confidence, samples.weights, N_BINS),
    COUNT: lambda samples: MetricSums(samples.n_samples, float),
    DEBIASED: lambda samples: BinMoments.of(samples, equal_width(samples.confidence, N_BINS), N_BINS),
    SAMPLES: SampleNumbers.of,
}
"""Values beside the metrics: the ECE of a perfectly calibrated model with the same confidences, the number of samples, the
debiased ECE, and numbers of samples for paired differences."""


@dataclass(frozen=True)
class Measurement:
    """Calibrators to measure (None: uncalibrated), on all rows or on one half of them."""

    calibrators: Mapping[Any, Calibrator | None]
    half: Half | None = None


@dataclass(frozen=True)
class MetricValues:
    """The values of a source."""

    values: dict[Any, dict[str, Any]]
    """Calibrator → metric → value."""
    error_bounds: dict[str, float]
    """How far sketched metrics can be from their exact values."""


def measure(
    logits: Any,
    labels: Any = None,
    *,
    calibrator: Calibrator | None = None,
    metrics: Iterable[str] = tuple(CORE),
    sample_weight: Any = None,
    **spec: Any,
) -> dict[str, float]:
    """Metric values of a ``rhocal.stream``, of Dask arrays or of arrays, without intervals; see ``evaluate`` for these.

    Streams and Dask arrays are measured block by block in fixed memory; metrics of rank (``adaptive_ece``) then come from a
    sketch.

    Parameters
    ----------
    logits, labels
        Scores of shape (n_samples, n_classes) and the true classes; a ``rhocal.stream`` brings its labels.
    calibrator
        Applied first, if given.
    metrics
        Names of metrics; ``rhocal metrics`` lists them.
    sample_weight
        Weights of shape (n_samples,).
    spec
        ``kind``, ``classes`` and ``ignore_index``.

    Returns
    -------
    dict
        Metric → value.

    Examples
    --------
    >>> import rhocal
    >>> values = rhocal.measure(*rhocal.demo_logits("test"), metrics=["ece", "accuracy"])
    >>> {name: round(value, 3) for name, value in values.items()}
    {'ece': 0.145, 'accuracy': 0.746}
    """
    source = as_source(logits, labels, sample_weight, spec=InputSpec(**spec))
    metrics = (metrics,) if isinstance(metrics, str) else metrics
    return measure_source(source, [Measurement({"": calibrator})], metrics).values[""]


def measure_source(
    source: Source, measurements: Sequence[Measurement], metrics: Iterable[str] = tuple(CORE)
) -> MetricValues:
    """Metric values for several sets of calibrators. Of a resident source they are exact, else they add over blocks."""
    names = tuple(metrics)
    check_metrics(names, must_add=not source.resident)
    work = partial(block_sums, measurements=list(measurements), names={*names, COUNT}, exact=source.resident)
    total = source.reduce(work, add_sums)
    if not total:
        raise InputError("the source has no samples in these rows")
    values = {key: {name: sums[name].value for name in names} for key, sums in total.items()}
    bounds = {
        name: max(sums[name].error for sums in total.values())
        for name in names
        if not source.resident and name not in EXTRAS and METRICS[name].streams == "sketch"
    }
    return MetricValues(values, bounds)


def block_sums(
    data: Predictions, measurements: Sequence[Measurement], names: Collection[str], *, exact: bool = False
) -> BlockSums:
    """The sums of one block; ``exact`` gives values that do not add, for a source of one block."""
    total: BlockSums = {}
    for measurement in measurements:
        part = rows_in_half(data, measurement.half)
        if part is None:
            continue
        sums = partial(_sums, calibrators=measurement.calibrators, names=names, exact=exact)
        for more in [sums(part)] if exact else part.over_row_blocks(sums, SLICE_ENTRIES):
            total = add_sums(total, more)
    return total


def rows_in_half(data: Predictions, half: Half | None) -> Predictions | None:
    """The samples of a block that lie in a half; None if there are none, or all have weight 0."""
    if half is None:
        return data
    chosen = half(data.block)
    rows = np.flatnonzero(chosen if data.rows is None else chosen[data.rows])
    part = data.take(rows)
    return part if len(rows) and (part.weights is None or part.weights.any()) else None


def _sums(
    data: Predictions, calibrators: Mapping[Any, Calibrator | None], names: Collection[str], *, exact: bool
) -> BlockSums:
    if data.weights is not None and not data.weights.any():
        return {}
    total = {}
    for key, calibrator in calibrators.items():
        by_row_blocks = exact and BY_ROW_BLOCKS.issuperset(names)
        samples = (
            score_rows(calibrator, data)
            if by_row_blocks
            else Scored.from_predictions(apply_calibrator(calibrator, data))
        )
        total[key] = {name: _state(name, samples, exact=exact) for name in names}
    return total


SCORED_NUMBERS = ("confidence", "correct", "log_label", "sum_squares")
"""Numbers of a sample that every core metric follows from, beside its weight."""

BY_ROW_BLOCKS = frozenset({*CORE, *EXTRAS})
"""Values that follow from these numbers: no array of all probabilities is needed, whatever the precision of the logits."""


def score_rows(calibrator: Calibrator | None, data: Predictions) -> Scored:
    """The numbers of resident rows, which are widened and calibrated row block by row block."""

    def numbers(part: Predictions) -> Vector:
        scored = Scored.from_predictions(apply_calibrator(calibrator, part))
        return np.stack([getattr(scored, name) for name in SCORED_NUMBERS])

    columns = np.concatenate(data.over_row_blocks(numbers, SLICE_ENTRIES), axis=1)
    fields: dict[str, Any] = dict(zip(SCORED_NUMBERS, columns, strict=True))
    return Scored(**fields) if data.weights is None else Scored(**fields, weights=data.weights)


def _state(name: str, samples: Scored, *, exact: bool) -> Any:
    if name in EXTRAS:
        return EXTRAS[name](samples)
    metric = METRICS[name]
    if exact:
        return ExactValue(metric.value(samples))
    factory = metric.sums or metric.sketch
    assert factory is not None
    return factory(samples)


def apply_calibrator(calibrator: Calibrator | None, data: Predictions) -> Predictions:
    """Predictions after a calibrator; None leaves them uncalibrated."""
    if calibrator is None:
        return data
    return replace(data, scores=calibrated_logits(calibrator, data), kind="logits")


def check_metrics(names: Iterable[str], *, must_add: bool = True) -> None:
    """Raise an error for metrics that do not exist, or that cannot be added over blocks where they must."""
    for name in names:
        if name in EXTRAS:
            continue
        if name not in METRICS:
            raise InputError(f"there is no metric {name!r}; there are {', '.join(METRICS)}")
        if must_add and METRICS[name].streams == "no":
            raise InputError(f"{name} cannot be added up over blocks: {METRICS[name].no_sums_reason}")


def add_sums(mine: BlockSums, more: BlockSums) -> BlockSums:
    """The sums of both."""
    total = {key: dict(sums) for key, sums in mine.items()}
    for key, sums in more.items():
        known = total.setdefault(key, {})
        for name, state in sums.items():
            known[name] = known[name] + state if name in known else state
    return total
