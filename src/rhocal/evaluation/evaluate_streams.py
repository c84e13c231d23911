"""Evaluations of blocks: intervals, floors, tests and a verdict from eight numbers of a sample, whatever the classes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.blocks import SLICE_ENTRIES
from rhocal.data.blocks import n_columns
from rhocal.data.predictions import predictions
from rhocal.data.reader import Reader, told_of
from rhocal.data.sampling import check_columns
from rhocal.data.streams import with_block_context
from rhocal.errors import InputError, SuspiciousInputWarning
from rhocal.evaluation.evaluate import assembled
from rhocal.evaluation.measure import apply_calibrator
from rhocal.metrics import METRICS, Scored
from rhocal.metrics.inference.bootstrap import MEANS
from rhocal.metrics.inference.calibration_tests import SIMULATED_TESTS
from rhocal.metrics.inference.floor import SIMULATED_METRICS, Floor, Moments, check_names, label_moments
from rhocal.metrics.inference.null import CumulativeDifferences, simulate_nulls
from rhocal.numerics.threads import in_threads, row_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Kind, Predictions
    from rhocal.data.reader import BlockReader as Source
    from rhocal.data.stored import Chunk
    from rhocal.evaluation.evaluation import Evaluation
    from rhocal.numerics.special import Vector

KEPT = ("confidence", "correct", "log_label", "sum_squares", "weights")
"""Of every sample, beside its ``label_moments``."""

N_NUMBERS = len(KEPT) + 3
"""With these."""

ABLE = (*SIMULATED_METRICS, *MEANS)
"""Metrics whose floor and interval are known from these numbers."""


def evaluate_blocks(
    probs: Any,
    labels: Any,
    sample_weight: Any,
    *,
    kind: Kind,
    metrics: Sequence[str],
    n_replicates: int,
    seed: int,
) -> Evaluation:
    """The evaluation of Dask arrays, or of a stream."""
    if type(probs).__module__ == "rhocal.data.streams":
        if labels is not None or sample_weight is not None:
            raise InputError("labels, sample_weight: the blocks of a stream bring their own; leave them out")
        source: Source = Reader(probs)
    else:
        from rhocal.dask import Blocks  # noqa: PLC0415 - Dask is there if its arrays are

        if labels is None:
            raise InputError("labels are missing; an evaluation needs one label for each sample")
        source = Blocks.of(probs, labels, sample_weight)
    return evaluate_on(source, {"kind": kind}, metrics, n_replicates=n_replicates, seed=seed)


def evaluate_on(
    source: Source, spec: Mapping[str, Any], names: Sequence[str], *, n_replicates: int, seed: int
) -> Evaluation:
    """The same, whoever reads."""
    samples = samples_on(source, {"": None}, spec, names)
    return samples[""].evaluation(names, n_replicates=n_replicates, seed=seed)


@dataclass(frozen=True)
class Samples:
    """What is kept of the samples of a stream: enough for intervals, floors, tests and paired differences."""

    scored: Scored
    moments: Moments
    n_classes: int

    @classmethod
    def of(cls, columns: Vector, n_classes: int) -> Samples:
        """From the rows that ``numbers`` gives."""
        scored = Scored(**dict(zip(KEPT, columns, strict=False)))
        return cls(scored, Moments.from_label_moments(scored, *columns[len(KEPT) :]), n_classes)

    def evaluation(self, names: Sequence[str], *, n_replicates: int, seed: int) -> Evaluation:
        """Metrics, intervals, floors, tests, a verdict."""
        scored = self.scored
        walked = dict.fromkeys([*SIMULATED_TESTS, "ece", *(name for name in names if name in SIMULATED_METRICS)])
        drawn = simulate_nulls(CumulativeDifferences.from_scored(scored), list(walked), n_replicates, seed)
        values = {name: METRICS[name].value(scored) for name in dict.fromkeys(("ece", *names))}
        floors = {
            name: replace(Floor.from_null(name, drawn[name]), value=value)
            if name in SIMULATED_METRICS
            else Floor.from_moments(name, value, *getattr(self.moments, name))
            for name, value in values.items()
        }
        return assembled(scored, self.n_classes, names, floors, drawn, n_replicates=n_replicates, seed=seed)


def samples_on(
    source: Source, calibrators: Mapping[str, Calibrator | None], spec: Mapping[str, Any], names: Sequence[str]
) -> dict[str, Samples]:
    """The samples of a stream under several calibrators (None: uncalibrated), from one pass over its blocks."""
    check_names(names)
    for name in names:
        if name not in ABLE:
            raise InputError(
                f"{name} needs all probabilities at once for its floor; of blocks there are {', '.join(ABLE)}"
            )
    found = dict(source.each(numbers, told_of(source, spec), dict(calibrators)))
    blocks = [found[k] for k in sorted(found)]
    check_columns([(where, n_classes) for where, n_classes, _ in blocks])
    if not any(part.size for *_, part in blocks):
        raise InputError("the stream has no samples")
    columns = np.concatenate([part for *_, part in blocks], axis=2)
    return {who: Samples.of(part, blocks[0][1]) for who, part in zip(calibrators, columns, strict=True)}


def numbers(
    _k: int, chunk: Chunk, spec: Mapping[str, Any], calibrators: Mapping[str, Calibrator | None]
) -> tuple[str, int, Vector]:
    """Where a block lies, how many classes it has, and the numbers of its samples, as rows, for every calibrator."""
    ignored = spec.get("ignore_index")

    def part(rows: slice) -> Vector:
        weight = None if chunk.sample_weight is None else chunk.sample_weight[rows]
        if (ignored is not None and (np.asarray(chunk.labels[rows]) == ignored).all()) or (
            weight is not None and not np.any(weight)
        ):
            return np.empty((len(calibrators), N_NUMBERS, 0))
        data = predictions(chunk.logits[rows], chunk.labels[rows], sample_weight=weight, **spec)
        return np.stack([_numbers(apply_calibrator(cal, data)) for cal in calibrators.values()])

    def work(chunk: Chunk) -> Vector:
        slices = list(row_blocks(len(chunk.labels), n_columns(chunk.logits), SLICE_ENTRIES))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SuspiciousInputWarning)
            return np.concatenate(in_threads(part, slices), axis=2)

    return chunk.where, n_columns(chunk.logits), with_block_context(chunk, work)


def _numbers(data: Predictions) -> Vector:
    scored = Scored.from_predictions(data)
    return np.vstack([*(getattr(scored, name) for name in KEPT), label_moments(data.logits)])
