"""The sums of a monitor: confidence and correctness in bins, over all samples, decayed, and over a window."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from rhocal.evaluation.monitor_state import SUM_NAMES
from rhocal.numerics.bins import N_BINS, BinSums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.numerics.special import Vector

    Sums = dict[str, list[float]]

N_WINDOW_PARTS = 10
"""A rolling window is forgotten in so many steps."""
N_RECENT = (1000, 300, 100)
"""Samples before an alarm that it may quote."""
MIN_DEVIATIONS = 3.0
"""Standard errors from which a mean gap counts as one."""


def empty(n_bins: int = N_BINS) -> Sums:
    """Sums of no samples."""
    return {name: [0.0] * n_bins for name in SUM_NAMES}


def add_up(kept: Sums, confidence: Vector, correct: Vector, weights: Vector, old: float = 1) -> None:
    """Add samples to sums, which fade first by a factor."""
    sums = BinSums.of(confidence, correct, n_bins=N_BINS, weights=weights)
    for name, values in asdict(sums).items():
        kept[name] = (old * np.array(kept[name]) + values).tolist()


def total_of(parts: Sequence[Sums]) -> Sums:
    """Sums of all parts together."""
    whole = empty()
    return {name: np.sum([whole[name], *(part[name] for part in parts)], axis=0).tolist() for name in whole}


def values_of(kept: Sums) -> dict[str, float | None]:
    """Accuracy, confidence and calibration error of sums."""
    sums = BinSums(**{name: np.array(values) for name, values in kept.items()})
    weight = float(sums.weight.sum())
    if not weight:
        return {"weight": 0.0, "accuracy": None, "confidence": None, "ece": None}
    return {
        "weight": weight,
        "accuracy": float(sums.correct.sum()) / weight,
        "confidence": float(sums.confidence.sum()) / weight,
        "ece": sums.error(1),
    }


def confidence_sentence(total: Sums, rolling: Sequence[Sums], confidence: Vector, correct: Vector) -> str:
    """What is wrong with the confidence, as of an alarm: sums of earlier samples, and the samples until the alarm.

    Quoted are means over all samples or over some of the latest, whichever show a gap most clearly; where none does, the gap
    changes its sign with the confidence, and the ECE shows it.
    """
    whole = len(confidence)
    windows = [([total], whole), (rolling[-2:], whole), (rolling[-1:], whole), ([], whole)]
    windows += [([], n) for n in N_RECENT if n < whole]
    means = []
    for earlier, last in windows:
        sums = total_of(earlier)
        add_up(sums, confidence[whole - last :], correct[whole - last :], np.ones(last))
        values = values_of(sums)
        n, confident, right, ece = (values[name] or 0.0 for name in ("weight", "confidence", "accuracy", "ece"))
        spread = math.sqrt(max(confident * (1 - confident), 1e-4) / n)  # of a calibrated model
        means.append(((confident - right) / spread, n, confident, right, ece))
    deviations, n, confident, right, ece = max(means, key=lambda mean: abs(mean[0]))
    has_gap = abs(deviations) >= MIN_DEVIATIONS
    if not has_gap:
        _, n, confident, right, ece = means[0]
    over = f"mean confidence {100 * confident:.1f} %, accuracy {100 * right:.1f} % over {n:,.0f} samples"
    if not has_gap:
        return f"the confidence in the predicted class is off, but not on average: {over}, ECE {100 * ece:.1f} %"
    return f"the confidence in the predicted class is too {'high' if deviations > 0 else 'low'}: {over}"
