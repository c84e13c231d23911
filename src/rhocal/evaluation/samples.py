"""Samples as an evaluation reads them: with all probabilities while they are in memory, else eight numbers each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.summary import SLICE_ENTRIES
from rhocal.errors import InputError
from rhocal.evaluation.measure import apply_calibrator
from rhocal.metrics import METRICS, Scored
from rhocal.metrics.inference.bootstrap import MEANS
from rhocal.metrics.inference.floor import SIMULATED_METRICS, check_names, label_moments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.data.sources import Source
    from rhocal.numerics.special import Vector

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

    @classmethod
    def from_predictions(cls, data: Predictions) -> Samples:
        """The samples of validated predictions with labels."""
        return cls(Scored.from_predictions(data), data.n_classes)

    def values(self, names: Iterable[str]) -> dict[str, float]:
        """Metrics without intervals."""
        return {name: METRICS[name].value(self.scored) for name in names}


def score(source: Source, calibrators: Mapping[str, Calibrator | None], metrics: Iterable[str]) -> dict[str, Samples]:
    """The samples of a source after several calibrators (None: uncalibrated), from one pass.

    ``metrics`` are those that will be evaluated. If the source is not resident, eight numbers of a sample are kept, and
    only ``STREAMED_METRICS`` can be evaluated.
    """
    check_streamed(metrics, source)
    if source.resident:
        data = source.predictions
        return {name: Samples.from_predictions(apply_calibrator(cal, data)) for name, cal in calibrators.items()}
    blocks = list(source.map(partial(score_block, calibrators=dict(calibrators))))
    columns = np.concatenate([block.numbers for block in blocks], axis=2)
    return {
        name: Samples(Scored(**dict(zip(KEPT, part, strict=False))), blocks[0].n_classes, part[len(KEPT) :])
        for name, part in zip(calibrators, columns, strict=True)
    }


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
    """The numbers of the samples of a block: calibrators × numbers × samples."""

    n_classes: int
    numbers: Vector


def score_block(data: Predictions, calibrators: Mapping[str, Calibrator | None]) -> BlockNumbers:
    """The numbers that are kept of a block, for every calibrator."""

    def numbers(part: Predictions) -> Vector:
        return np.stack([_numbers(apply_calibrator(calibrator, part)) for calibrator in calibrators.values()])

    parts = data.over_row_blocks(numbers, SLICE_ENTRIES)
    return BlockNumbers(data.n_classes, np.concatenate(parts, axis=2))


def _numbers(data: Predictions) -> Vector:
    scored = Scored.from_predictions(data)
    return np.vstack([*(getattr(scored, name) for name in KEPT), label_moments(data.logits)])
