"""Figures of streams: sums of every block, under as many calibrators as wanted, from one pass."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.blocks import SLICE_ENTRIES
from rhocal.data.predictions import predictions
from rhocal.data.reader import Reader, told_of
from rhocal.data.sampling import check_columns
from rhocal.data.streams import with_block_context
from rhocal.errors import InputError, SuspiciousInputWarning
from rhocal.metrics import CORE, METRICS, Scored
from rhocal.numerics.bins import N_BINS, PerfectSums
from rhocal.numerics.threads import in_threads, row_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.data.reader import BlockReader as Source
    from rhocal.data.sampling import Half
    from rhocal.data.stored import Chunk
    from rhocal.data.streams import Stream

SumsOf = dict[Any, dict[str, Any]]
"""Calibrator → metric → state."""
Figures = tuple[dict[Any, dict[str, float]], dict[str, float]]
"""Calibrator → metric → value, and bounds of the error of those that are sketched."""


@dataclass(frozen=True)
class Count:
    """How many samples; sums of two batches add, if they have the same classes."""

    value: int
    n_classes: int
    where: str = ""
    """The first block."""

    def __add__(self, other: Count) -> Count:
        check_columns([(self.where, self.n_classes), (other.where, other.n_classes)])
        return replace(self, value=self.value + other.value)


FLOOR, COUNT = "ece_floor", "n_samples"
EXTRAS: dict[str, Callable[[Scored], Any]] = {
    FLOOR: lambda samples: PerfectSums.of(samples.confidence, samples.weights, N_BINS),
    COUNT: lambda samples: Count(len(samples.confidence), samples.source.n_classes),
}
"""Beside the metrics: the ECE of a perfectly calibrated model with the same confidences, and the number of samples."""


@dataclass(frozen=True)
class Job:
    """Calibrators to measure (None: uncalibrated), on all rows or on a half of them."""

    calibrators: Mapping[Any, Calibrator | None]
    half: Half | None = None


def figures(
    stream: Stream,
    calibrators: Mapping[Any, Calibrator | None],
    spec: Mapping[str, Any] | None = None,
    step: Callable[[Chunk], None] | None = None,
    names: Iterable[str] = tuple(CORE),
) -> Figures:
    """Metrics of a stream under several calibrators (None: uncalibrated), and bounds of the error of those sketched."""
    return figures_on(Reader(stream, step), [Job(calibrators)], spec, names)


def figures_on(
    source: Source, jobs: Sequence[Job], spec: Mapping[str, Any] | None = None, names: Iterable[str] = tuple(CORE)
) -> Figures:
    """The same, whoever reads, for several sets of calibrators at once."""
    names = tuple(names)
    check_names(names)
    total = source.reduce(chunk_sums, added, list(jobs), told_of(source, spec), {*names, COUNT})
    if not total:
        raise InputError("the stream has no samples")
    values = {who: {name: sums[name].value for name in names} for who, sums in total.items()}
    sketched = [name for name in names if name not in EXTRAS and METRICS[name].streams == "sketch"]
    return values, {name: max(sums[name].error for sums in total.values()) for name in sketched}


def chunk_sums(k: int, chunk: Chunk, jobs: Sequence[Job], spec: Mapping[str, Any], names: Collection[str]) -> SumsOf:
    """The sums of a block, its samples counted; an error says which block it was."""

    def work(chunk: Chunk) -> SumsOf:
        total: SumsOf = {}
        for job in jobs:
            logits, labels, weight = chunk.logits, chunk.labels, chunk.sample_weight
            if job.half is not None:
                rows = job.half(k)
                logits, labels = np.asarray(logits)[rows], np.asarray(labels)[rows]
                weight = None if weight is None else np.asarray(weight)[rows]
            found = block_sums(logits, labels, job.calibrators, spec, names, weight)
            for states in found.values():
                states[COUNT] = replace(states[COUNT], where=chunk.where)
            total = added(total, found)
        return total

    return with_block_context(chunk, work)


def block_sums(
    logits: Any,
    labels: Any,
    calibrators: Mapping[Any, Calibrator | None],
    spec: Mapping[str, Any],
    names: Collection[str] = tuple(CORE),
    sample_weight: Any = None,
) -> SumsOf:
    """The sums of one block: calibrator → metric → state. States of blocks add."""
    ignored = spec.get("ignore_index")

    def part(rows: slice) -> SumsOf:
        if ignored is not None and (np.asarray(labels[rows]) == ignored).all():
            return {}
        weight = None if sample_weight is None else sample_weight[rows]
        if weight is not None and not np.any(weight):
            return {}
        data = predictions(logits[rows], labels[rows], sample_weight=weight, **spec)
        found = {}
        for who, cal in calibrators.items():
            samples = Scored.from_predictions(apply_calibrator(cal, data))
            found[who] = {name: _state(name, samples) for name in names}
        return found

    total: SumsOf = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SuspiciousInputWarning)
        for found in in_threads(part, list(row_blocks(len(labels), np.shape(logits)[-1], SLICE_ENTRIES))):
            total = added(total, found)
    return total


def apply_calibrator(calibrator: Calibrator | None, data: Predictions) -> Predictions:
    """Predictions under a calibrator; None leaves them as they are."""
    if calibrator is None:
        return data
    return replace(data, scores=calibrator.transform_checked(data.logits), kind="logits")


def check_names(names: Iterable[str]) -> None:
    """Metrics that exist and can be added up."""
    for name in names:
        if name in EXTRAS:
            continue
        if name not in METRICS:
            raise InputError(f"there is no metric {name!r}; `rhocal metrics` lists them")
        if METRICS[name].streams == "no":
            raise InputError(f"{name} cannot be added up over blocks: {METRICS[name].no_sums_reason}")


def _state(name: str, samples: Scored) -> Any:
    if name in EXTRAS:
        return EXTRAS[name](samples)
    metric = METRICS[name]
    make = metric.sums if metric.sums is not None else metric.sketch
    assert make is not None
    return make(samples)


def added(mine: SumsOf, more: SumsOf) -> SumsOf:
    """The sums of both."""
    total = {who: dict(sums) for who, sums in mine.items()}
    for who, sums in more.items():
        old = total.setdefault(who, {})
        for name, state in sums.items():
            old[name] = old[name] + state if name in old else state
    return total


def measure(
    logits: Any,
    labels: Any = None,
    *,
    calibrator: Calibrator | None = None,
    metrics: Iterable[str] = tuple(CORE),
    **spec: Any,
) -> dict[str, float]:
    """Metrics of a ``rhocal.stream``, or of Dask arrays with their labels, added up block by block.

    ``calibrator`` is applied first, if given; ``spec`` is ``kind``, ``classes`` and ``ignore_index``. Metrics of rank
    (``adaptive_ece``) come from a sketch in fixed memory.
    """
    if type(logits).__module__.split(".")[0] == "dask":
        from rhocal.dask import Blocks  # noqa: PLC0415 - Dask is there if its arrays are

        return figures_on(Blocks.of(logits, labels), [Job({"": calibrator})], spec, metrics)[0][""]
    if type(logits).__module__ != "rhocal.data.streams":
        raise InputError("measure takes a rhocal.stream or Dask arrays; of arrays in memory use rhocal.metrics")
    return figures(logits, {"": calibrator}, spec, names=metrics)[0][""]
