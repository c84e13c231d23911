"""The amplitude of the logits during training (paper, Fig. 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.predictions import Predictions
from rhocal.errors import InputError
from rhocal.metrics.spread import amplitudes as per_sample
from rhocal.numerics.bins import N_BINS
from rhocal.numerics.special import top_probability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.numerics.special import Vector

N_AMPLITUDE_BINS = 40


@dataclass(frozen=True)
class Amplitudes:
    """One run of training."""

    name: str
    epoch: Vector
    mean: Vector
    """Mean of ‖z‖₂ / m over the samples, after each epoch."""
    confidence: Vector
    """Mean confidence, after each epoch."""
    amplitude_edges: Vector
    amplitude_share: Vector
    """Histogram of ‖z‖₂ / m after the last epoch."""
    confidence_edges: Vector
    confidence_share: Vector
    """Histogram of confidence after the last epoch."""


def amplitudes(
    name: str, logits_by_epoch: Sequence[Any], *, epochs: Sequence[float] | None = None, n_bins: int = N_BINS
) -> Amplitudes:
    """From the logits of the same samples after each epoch."""
    if not len(logits_by_epoch):
        raise InputError("logits_by_epoch is empty; give one table of logits for each epoch")
    epoch = np.arange(1, len(logits_by_epoch) + 1) if epochs is None else np.asarray(epochs)
    if len(epoch) != len(logits_by_epoch):
        raise InputError(f"epochs has {len(epoch)} entries, logits_by_epoch {len(logits_by_epoch)}; give one for each")
    tables = [Predictions.from_arrays(logits, name="logits_by_epoch").logits for logits in logits_by_epoch]
    sizes = [per_sample(table, center=False) for table in tables]
    confidences = [top_probability(table) for table in tables]
    counts, edges = np.histogram(sizes[-1], N_AMPLITUDE_BINS)
    shares, levels = np.histogram(confidences[-1], n_bins, (0.0, 1.0))
    return Amplitudes(
        name,
        epoch.astype(np.float64),
        np.array([size.mean() for size in sizes]),
        np.array([c.mean() for c in confidences]),
        edges,
        counts / counts.sum(),
        levels,
        shares / shares.sum(),
    )
