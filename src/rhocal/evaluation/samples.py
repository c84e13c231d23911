"""Samples as an evaluation reads them: with all probabilities while they are in memory, else eight numbers each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.summary import SLICE_ENTRIES
from rhocal.data.sampling import sampling_keys
from rhocal.data.scores import suspect_labels
from rhocal.errors import InputError
from rhocal.evaluation.measure import apply_calibrator
from rhocal.metrics import METRICS, Scored
from rhocal.metrics.inference.bootstrap import MEANS
from rhocal.metrics.inference.floor import SIMULATED_METRICS, check_names, label_moments
from rhocal.metrics.inference.joint_null import MAX_DRAWN_ENTRIES, MAX_DRAWN_SAMPLES
from rhocal.metrics.top_k import score_top_k, top_k_moments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.data.sources import Source
    from rhocal.metrics.inference.design import SamplingDesign
    from rhocal.numerics.special import Vector
    from rhocal.profile.top_k import LabeledTopK

KEPT = ("confidence", "correct", "log_label", "sum_squares", "weights")
"""Numbers that are kept of a sample, beside its ``label_moments``."""

STREAMED_METRICS = (*SIMULATED_METRICS, *MEANS)
"""Metrics whose floor and interval follow from these numbers."""


@dataclass(frozen=True, eq=False)
class Samples:
    """The samples of a source after one calibrator: enough for intervals, floors, tests and paired differences."""

    scored: Scored
    n_classes: int
    moments: Vector | None = None
    """The ``label_moments`` of samples whose probabilities are not in memory."""
    rows: Predictions | None = None
    """Of a stream: the probabilities that were kept for class-level tests; all, or those of a random subsample."""
    index: NDArray[np.intp] | None = None
    """The samples that ``rows`` are of."""

    n_effective: float | None = None
    """The effective sample size, where weights are not counts or samples depend on each other."""
    counts: Vector | None = None
    """How many samples each one stands for, where weights are those of the effective sample size."""

    def with_design(self, design: SamplingDesign) -> Samples:
        """The samples with weights that sum to the effective sample size."""
        design.check_weights(self.scored.weights)
        if design.is_simple:
            return self
        scored = design.apply(self.scored, self.with_probs)
        counts = design.counts(self.scored.weights)
        return replace(self, scored=scored, n_effective=float(scored.weights.sum()), counts=counts)

    @property
    def with_probs(self) -> Scored | None:
        """Of a stream: the samples whose probabilities were kept."""
        if self.rows is None or self.index is None or not len(self.index):
            return None
        return Scored.from_predictions(replace(self.rows, weights=self.scored.weights[self.index]))

    @classmethod
    def from_predictions(cls, data: Predictions) -> Samples:
        """The samples of validated predictions with labels."""
        return cls(Scored.from_predictions(data), data.n_classes)

    def values(self, names: Iterable[str]) -> dict[str, float]:
        """Metrics without intervals."""
        return {name: METRICS[name].value(self.scored) for name in names}


def samples_top_k(labeled: LabeledTopK, metrics: Iterable[str]) -> Samples:
    """The samples of top-k data, of which no probabilities are kept; only ``STREAMED_METRICS`` can be evaluated."""
    check_names(metrics := list(metrics))
    others = [name for name in metrics if name not in STREAMED_METRICS]
    if others:
        raise InputError(
            f"{others[0]} needs the probability of every class; of the k best there are {', '.join(STREAMED_METRICS)}"
        )
    return Samples(score_top_k(labeled), labeled.data.n_classes, top_k_moments(labeled.data))


def pair_with_design(a: Samples, b: Samples, design: SamplingDesign) -> tuple[Scored, Scored]:
    """Two sets of predictions for the same samples, with the same weights that sum to the effective sample size."""
    return design.apply_to_pair(a.scored, b.scored, (a.with_probs, b.with_probs))


def score(source: Source, calibrators: Mapping[str, Calibrator | None], metrics: Iterable[str]) -> dict[str, Samples]:
    """The samples of a source after several calibrators (None: uncalibrated), from one pass.

    ``metrics`` are those that will be evaluated. If the source is not resident, eight numbers of a sample are kept, and
    only ``STREAMED_METRICS`` can be evaluated.
    """
    samples = _score(source, calibrators, metrics)
    for name, calibrator in calibrators.items():
        if calibrator is None:
            scored = samples[name].scored
            if scored.has_probs and scored.source.of_answers:
                continue  # a model may be wrong more often than not
            suspect_labels(scored.accuracy, float(scored.weights.sum()), samples[name].n_classes)
    return samples


def _score(source: Source, calibrators: Mapping[str, Calibrator | None], metrics: Iterable[str]) -> dict[str, Samples]:
    check_streamed(metrics, source)
    if source.resident:
        data = source.predictions
        return {name: Samples.from_predictions(apply_calibrator(cal, data)) for name, cal in calibrators.items()}
    limit = initial_threshold(source.n_rows)
    blocks: list[BlockNumbers] = []
    for block in source.map(partial(score_block, calibrators=dict(calibrators), limit=limit)):
        blocks.append(block)
        limit = _prune(blocks, limit)
    columns = np.concatenate([block.numbers for block in blocks], axis=2)
    index = _kept_index(blocks)
    return {
        name: Samples(
            Scored(**dict(zip(KEPT, part, strict=False))),
            blocks[0].n_classes,
            part[len(KEPT) :],
            type(blocks[0].rows[k]).concat([block.rows[k] for block in blocks]),
            index,
        )
        for k, (name, part) in enumerate(zip(calibrators, columns, strict=True))
    }


def initial_threshold(n_rows: int | None) -> float:
    """The share of rows whose probabilities are kept, before the number of classes is known."""
    return 1.0 if n_rows is None else min(1.0, MAX_DRAWN_SAMPLES / max(n_rows, 1))


def _prune(blocks: list[BlockNumbers], limit: float) -> float:
    """Halve the share of rows that are kept until they fit the memory."""
    while sum(len(block.keys) for block in blocks) * blocks[0].n_classes > MAX_DRAWN_ENTRIES:
        limit /= 2
        blocks[:] = [block.below(limit) for block in blocks]
    blocks[-1] = blocks[-1].below(limit)
    return limit


def _kept_index(blocks: list[BlockNumbers]) -> NDArray[np.intp]:
    starts = np.cumsum([0, *(block.numbers.shape[2] for block in blocks)])
    return np.concatenate([block.kept + start for block, start in zip(blocks, starts, strict=False)])


def check_streamed(metrics: Iterable[str], source: Source) -> None:
    """Raise an error for metrics that do not exist, or that need probabilities that are not in memory."""
    names = list(metrics)
    check_names(names)
    others = [name for name in names if name not in STREAMED_METRICS]
    if others and not source.resident:
        raise InputError(
            f"{others[0]} needs all probabilities at once for its floor; block by block there are "
            f"{', '.join(STREAMED_METRICS)}"
        )


@dataclass(frozen=True)
class BlockNumbers:
    """The numbers of the samples of a block: calibrators × numbers × samples, and all probabilities of some of them."""

    n_classes: int
    numbers: Vector
    rows: list[Predictions]
    """For every calibrator, the samples ``kept``."""
    kept: NDArray[np.intp]
    keys: Vector
    """The random numbers that decide which samples are kept."""

    def below(self, limit: float) -> BlockNumbers:
        """The samples whose random number is below the limit."""
        inside = self.keys < limit
        if inside.all():
            return self
        rows = [part.take(np.flatnonzero(inside)) for part in self.rows]
        return replace(self, rows=rows, kept=self.kept[inside], keys=self.keys[inside])


def score_block(data: Predictions, calibrators: Mapping[str, Calibrator | None], limit: float = 1.0) -> BlockNumbers:
    """The numbers that are kept of a block, for every calibrator."""
    rows = np.arange(data.n_samples) if data.rows is None else data.rows
    keys = sampling_keys(data.block, int(rows.max()) + 1)[rows]
    kept = np.flatnonzero(keys < limit)

    def work(part: Predictions) -> tuple[Vector, list[Predictions]]:
        views = [apply_calibrator(calibrator, part) for calibrator in calibrators.values()]
        own = part.rows if part.rows is not None else np.arange(part.n_samples)
        chosen = np.flatnonzero(keys[np.searchsorted(rows, own)] < limit)
        return np.stack([_numbers(view) for view in views]), [_plain(view.take(chosen)) for view in views]

    parts = data.over_row_blocks(work, SLICE_ENTRIES)
    all_parts = [type(data).concat([views[k] for _, views in parts]) for k in range(len(calibrators))]
    return BlockNumbers(
        data.n_classes, np.concatenate([numbers for numbers, _ in parts], axis=2), all_parts, kept, keys[kept]
    )


def _plain(data: Predictions) -> Predictions:
    """Logits and labels in memory of their own, nothing else."""
    return replace(
        data, scores=np.array(data.logits), kind="logits", weights=None, groups=None, rows=None, stored_labels=None
    )


def _numbers(data: Predictions) -> Vector:
    scored = Scored.from_predictions(data)
    return np.vstack([*(getattr(scored, name) for name in KEPT), label_moments(data.logits)])
