"""Sample sizes: how many samples the floor test needs to detect an ECE of x with 80 % power.

The alternative is over-confident by x everywhere: its accuracy is c − x at confidence c, so that its true ECE is x. Where some
confidences are below x their accuracy is 0, and the others are over-confident by so much more that the ECE is x. The sums of
bins are treated as normal, so the power at a size follows from the same few thousand draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError
from rhocal.metrics.inference.defaults import SIGNIFICANCE_LEVEL
from rhocal.numerics.bins import N_BINS, equal_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.numerics.special import Vector

POWER = 0.8
EXCESSES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1)
MAX_SAMPLES = 100_000_000
N_DRAWS = 4000
N_CONFIDENCES = 20_000
CONCENTRATION = 2.0
"""a + b of the Beta distribution of confidences that is assumed if only an accuracy is known. It matches the variance of
image classifiers after temperature scaling (1.8 on CIFAR-100 and ImageNet, 3.0 on CIFAR-10)."""


@dataclass(frozen=True)
class RequiredSize:
    """The sample size at which an ECE of ``excess`` is detected."""

    excess: float
    n_samples: int
    """0 if not even 100,000,000 samples are enough."""
    floor: float
    """The mean ECE of a perfect model at that size."""


def samples_needed(
    confidence: Any,
    excesses: Sequence[float] = EXCESSES,
    *,
    power: float = POWER,
    level: float = SIGNIFICANCE_LEVEL,
    design_effect: float = 1.0,
    sample_weight: Any = None,
    n_bins: int = N_BINS,
) -> list[RequiredSize]:
    """The sample sizes at which the floor test detects true ECEs of ``excesses`` with this ``power``.

    Samples are assumed to be independent. ``design_effect`` is the number of samples over the effective number, where they are
    weighted or clustered: an evaluation with ``clusters`` reports the latter. ``sample_weight`` are weights of the confidences.
    An excess of the mean confidence or more is impossible: an error, or left out if ``excesses`` are not stated.

    >>> [needed.n_samples for needed in samples_needed(typical_confidences(0.8), [0.02, 0.05])]
    [..., ...]
    """
    c = np.asarray(confidence, np.float64)
    if c.ndim != 1 or not len(c) or not ((c >= 0) & (c <= 1)).all():
        raise InputError("confidence must hold numbers between 0 and 1, one for each sample")
    w = np.ones(len(c)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if w.shape != c.shape or not ((w >= 0) & np.isfinite(w)).all() or not w.sum() > 0:
        raise InputError("sample_weight must hold a number for each confidence, none negative and not all 0")
    for name, value in (("power", power), ("level", level), *(("excess", x) for x in excesses)):
        if not 0 < value < 1:
            raise InputError(f"{name} must lie between 0 and 1; got {value!r}")
    if not design_effect >= 1:
        raise InputError(f"design_effect must be at least 1; got {design_effect!r}")
    mean = float(w @ c / w.sum())
    possible = [x for x in excesses if x < mean]
    for x in excesses:
        if not x < mean and (excesses is not EXCESSES or not possible):
            raise InputError(
                f"an over-confidence of {x:g} is impossible where the mean confidence is {mean:.4g}, and accuracy at least 0; "
                f"excesses must be smaller than {mean:.4g}"
            )
    sizes = [_needed(c[w > 0], w[w > 0] / w.sum(), x, power, level, n_bins) for x in possible]
    return [replace(size, n_samples=int(np.ceil(size.n_samples * design_effect))) for size in sizes]


def _needed(confidence: Vector, shares: Vector, excess: float, power: float, level: float, n_bins: int) -> RequiredSize:
    noise = np.random.default_rng(0).standard_normal((N_DRAWS, n_bins))
    bins = equal_width(confidence, n_bins)
    right = np.maximum(confidence - _shift(confidence, shares, excess), 0)
    perfect, variance, shift = (
        np.bincount(bins, shares * values, n_bins)
        for values in (confidence * (1 - confidence), right * (1 - right), right - confidence)
    )

    def floor(n: float) -> Vector:
        return np.asarray(np.abs(noise * np.sqrt(perfect / n)).sum(axis=1))

    def power_at(n: float) -> float:
        threshold = np.quantile(floor(n), 1 - level)
        return float(np.mean(np.abs(shift + noise * np.sqrt(variance / n)).sum(axis=1) > threshold))

    low, high = 1.0, 2.0
    while power_at(high) < power:
        low, high = high, 2 * high
        if high > MAX_SAMPLES:
            return RequiredSize(excess, 0, 0.0)
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power_at(middle) >= power else (middle, high)
    return RequiredSize(excess, int(np.ceil(high)), float(floor(high).mean()))


def _shift(confidence: Vector, shares: Vector, excess: float) -> float:
    """How much confidences are above accuracies, where those are not below 0, so that the mean difference is ``excess``."""
    low, high = excess, 1.0
    if confidence.min() >= excess:
        return excess
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if shares @ np.minimum(confidence, middle) < excess else (low, middle)
    return high


def typical_confidences(accuracy: float) -> Vector:
    """Confidences of a calibrated model with this accuracy: a Beta distribution with that mean."""
    if not 0 < accuracy < 1:
        raise InputError(f"accuracy must lie between 0 and 1; got {accuracy!r}")
    a, b = accuracy * CONCENTRATION, (1 - accuracy) * CONCENTRATION
    return np.random.default_rng(0).beta(a, b, N_CONFIDENCES)
