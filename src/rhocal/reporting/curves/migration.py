"""The distribution of calibrated confidence for each bin of raw confidence (paper, Fig. 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError
from rhocal.metrics.metric import validate_options
from rhocal.numerics.bins import N_BINS, equal_width
from rhocal.numerics.special import top_probability

if TYPE_CHECKING:
    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Migration:
    """For every bin of raw confidence that holds a sample, quantiles of the calibrated confidence."""

    low: Vector
    high: Vector
    n_samples: Vector
    raw: Vector
    """Mean raw confidence."""
    quantiles: Vector
    """5, 25, 50, 75 and 95 % of the calibrated confidence; shape (bins, 5)."""
    shares: Vector
    """Shares of the samples of a bin in the bins after calibration: shape (bins, n_bins), rows sum to 1."""


def migration(raw: Any, calibrated: Any, *, n_bins: int = N_BINS, kind: Kind = "probs") -> Migration:
    """Compare two sets of predictions for the same samples."""
    validate_options({"n_bins": n_bins})
    before, after = (
        top_probability(Predictions.from_arrays(values, name=name, spec=InputSpec(kind)).logits)
        for values, name in ((raw, "raw"), (calibrated, "calibrated"))
    )
    if len(before) != len(after):
        raise InputError(f"raw has {len(before)} samples, calibrated {len(after)}; they must be the same samples")
    bins, moved = equal_width(before, n_bins), equal_width(after, n_bins)
    present = np.unique(bins)
    table = np.zeros((n_bins, n_bins))
    np.add.at(table, (bins, moved), 1)
    table = table[present]
    return Migration(
        present / n_bins,
        (present + 1) / n_bins,
        table.sum(axis=1),
        np.array([before[bins == b].mean() for b in present]),
        np.array([np.quantile(after[bins == b], QUANTILES) for b in present]),
        table / table.sum(axis=1, keepdims=True),
    )
