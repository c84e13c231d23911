"""Detect a shift between the calibration set and production, and estimate accuracy without labels.

Averaged thresholded confidence (Garg et al., *Leveraging Unlabeled Data to Predict Out-of-Distribution Performance*, 2022): on
labelled data find the threshold above which as many samples lie as are right; the share of production above it estimates
its accuracy. Difference of confidences (Guillory et al. 2021): accuracy changes as much as the mean confidence does. The second
is right if the model is as calibrated as before; the first allows for growing over-confidence, and is too low if there is
none. Error bars cover sampling error, not a violation of these assumptions: where the two disagree, label some samples.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.scale.features import SEEN
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError, ShiftWarning, warn
from rhocal.metrics.inference.bootstrap import BLOCK_COUNTS
from rhocal.metrics.inference.class_figures import Estimate
from rhocal.metrics.inference.defaults import N_REPLICATES
from rhocal.metrics.inference.p_values import equals_p
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.numerics.special import softmax
from rhocal.profile.sample_features import LogitFeatures

if TYPE_CHECKING:
    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

MAX_SHARE_OUTSIDE = 0.05
"""Share of production outside the range of the calibration set above which a warning is given; 1 % without a shift."""


@dataclass(frozen=True)
class Shift:
    """What differs between the calibration set and production."""

    n_calibration: int
    n_production: int
    accuracy_calibration: float
    confidence_calibration: float
    confidence_production: float
    ks_distance: float
    """The largest difference between the two distributions of confidence."""
    p_value: float
    """Probability of such a distance if nothing had changed (Kolmogorov–Smirnov)."""
    accuracy_atc: Estimate
    """By averaged thresholded confidence."""
    accuracy_doc: Estimate
    """By difference of confidences."""
    outside: dict[str, float]
    """Share of production outside the central 99 % of the calibration set: confidence, norm and margin of the logits."""

    @property
    def verdict(self) -> str:
        """In words."""
        if self.p_value > 0.05:
            return (
                f"no shift of confidence is detected (Kolmogorov–Smirnov p {equals_p(self.p_value)}); accuracy on the "
                f"calibration set was {100 * self.accuracy_calibration:.1f} %, estimated in production {self._estimated}"
            )
        moved = 100 * (self.confidence_production - self.confidence_calibration)
        how = f"{'rose' if moved > 0 else 'fell'} by {abs(moved):.1f} points" if abs(moved) >= 0.05 else "kept its mean"
        return (
            f"production differs from the calibration set: confidence {how} (largest difference between the distributions "
            f"{self.ks_distance:.3f}); accuracy was {100 * self.accuracy_calibration:.1f} %, estimated now {self._estimated}"
        )

    @property
    def _estimated(self) -> str:
        atc, doc = self.accuracy_atc, self.accuracy_doc
        return (
            f"{100 * doc.low:.1f} to {100 * doc.high:.1f} % from the change of confidence, {100 * atc.low:.1f} to "
            f"{100 * atc.high:.1f} % from a threshold of confidence; only labels can tell"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries and numbers."""
        return asdict(self) | {"verdict": self.verdict}


def shift(
    calibration_logits: Any,
    calibration_labels: Any,
    production_logits: Any,
    *,
    kind: Kind = "logits",
    classes: Any = None,
    positive: Any = None,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
) -> Shift:
    """Compare production, without labels, with the labelled set that the calibrator was fitted on.

    Give both as calibrated logits (``cal.transform``) to ask about the calibrated model. Warns where production lies outside
    the range of the calibration set, where no calibrator has learned anything. ``classes`` and ``positive`` are those of
    ``rhocal.evaluate``. Samples are assumed to be independent.
    """
    if calibration_labels is None:
        raise InputError("calibration_labels are missing; accuracy is estimated from a set whose labels are known")
    spec = InputSpec(kind, classes, positive=positive)
    calibration = Predictions.from_arrays(calibration_logits, calibration_labels, name="calibration_logits", spec=spec)
    if positive is not None:  # production has no labels that name the classes
        spec = InputSpec(kind, calibration.classes, positive=positive)
    production = Predictions.from_arrays(production_logits, name="production_logits", spec=spec)
    if calibration.n_classes != production.n_classes:
        raise InputError(
            f"production_logits have {production.n_classes} classes, calibration_logits {calibration.n_classes}; "
            "they must be the same"
        )
    before, after = _features(calibration), _features(production)
    outside = {name: _outside(before[name], after[name]) for name in before}
    _warn(outside)
    assert calibration.labels is not None
    correct = (calibration.logits.argmax(axis=1) == calibration.labels).astype(np.float64)
    distance = ks_distance(before["confidence"], after["confidence"])
    atc, doc = estimated_accuracy(before["confidence"], correct, after["confidence"], n_replicates, seed)
    return Shift(
        calibration.n_samples,
        production.n_samples,
        float(correct.mean()),
        float(before["confidence"].mean()),
        float(after["confidence"].mean()),
        distance,
        ks_p_value(distance, calibration.n_samples, production.n_samples),
        atc,
        doc,
        outside,
    )


def _features(data: Predictions) -> dict[str, Vector]:
    sample = LogitFeatures(NUMPY, data.logits)
    top = softmax(data.logits.astype(np.float64)).max(axis=1)
    return {"confidence": np.asarray(top), "norm": sample.norm(2.0, center=True)[:, 0], "margin": sample.margin()[:, 0]}


def _outside(calibration: Vector, production: Vector) -> float:
    low, high = np.quantile(calibration, [SEEN, 1 - SEEN])
    return float(np.mean((production < low) | (production > high)))


def _warn(outside: dict[str, float]) -> None:
    far = {name: share for name, share in outside.items() if share > MAX_SHARE_OUTSIDE}
    if far:
        parts = ", ".join(f"{100 * share:.0f} % by {name}" for name, share in far.items())
        warn(
            f"production leaves the range of the calibration set ({parts}; {200 * SEEN:.0f} % is expected): a "
            "calibrator learned nothing there. Collect labels for such samples and fit again",
            ShiftWarning,
        )


def ks_distance(a: Vector, b: Vector) -> float:
    """The largest difference between two empirical distribution functions.

    >>> ks_distance(np.array([0.1, 0.2]), np.array([0.3, 0.4]))
    1.0
    """
    both = np.concatenate([a, b])
    below = [np.searchsorted(np.sort(x), both, side="right") / len(x) for x in (a, b)]
    return float(np.abs(below[0] - below[1]).max())


def ks_p_value(distance: float, n: int, m: int) -> float:
    """Of the two-sample test, by Kolmogorov's series with Stephens' correction for finite samples."""
    size = math.sqrt(n * m / (n + m))
    x = (size + 0.12 + 0.11 / size) * distance
    if x < 0.2:  # the series alternates without end near 0, where the chance is 1 to twelve digits
        return 1.0
    return min(1.0, max(0.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 101))))


def estimated_accuracy(
    calibration: Vector, correct: Vector, production: Vector, n_replicates: int, seed: int
) -> tuple[Estimate, Estimate]:
    """By averaged thresholded confidence and by difference of confidences, with errors from resampling both sets."""
    order = np.lexsort((correct, calibration))
    calibration, correct = calibration[order], correct[order]
    production = np.sort(production)
    rng = np.random.default_rng(seed)
    n, m = len(calibration), len(production)
    atc, doc = np.empty(n_replicates), np.empty(n_replicates)
    step = max(1, BLOCK_COUNTS // max(n, m))
    for start in range(0, n_replicates, step):
        rows = slice(start, min(start + step, n_replicates))
        some = rows.stop - start
        left, right = (_resampled(rng, size, some) for size in (n, m))
        atc[rows] = [_atc(calibration, float(a @ correct), a, production, b) for a, b in zip(left, right, strict=True)]
        doc[rows] = left @ (correct - calibration) / n + right @ production / m
    values = (
        _atc(calibration, float(correct.sum()), np.ones(n), production, np.ones(m)),
        float(np.clip(correct.mean() - calibration.mean() + production.mean(), 0, 1)),
    )
    limits = [np.clip(np.quantile(drawn, [0.025, 0.975]), 0, 1) for drawn in (atc, doc)]
    return (
        Estimate(values[0], float(limits[0][0]), float(limits[0][1])),
        Estimate(values[1], float(limits[1][0]), float(limits[1][1])),
    )


def _resampled(rng: np.random.Generator, n: int, some: int) -> Vector:
    drawn = rng.integers(0, n, (some, n)) + np.arange(some)[:, None] * n
    return np.bincount(drawn.ravel(), minlength=some * n).reshape(some, n).astype(np.float64)


def _atc(calibration: Vector, n_right: float, calibration_counts: Vector, production: Vector, counts: Vector) -> float:
    """Share of production above the confidence that leaves as much of the calibration set above it as is right; both sorted.

    A tie at the threshold is shared out: of the samples exactly there, the same part counts as of the calibration set.
    """
    wrong = calibration_counts.sum() - n_right
    below = np.cumsum(calibration_counts)
    at = min(int(np.searchsorted(below, wrong, side="right")), len(calibration) - 1)
    threshold = calibration[at]
    first, last = (int(np.searchsorted(calibration, threshold, side=side)) for side in ("left", "right"))
    before = below[first - 1] if first else 0.0
    tied = below[last - 1] - before
    part = (tied - (wrong - before)) / tied if tied > 0 else 0.0
    lo, hi = (int(np.searchsorted(production, threshold, side=side)) for side in ("left", "right"))
    return float((counts[hi:].sum() + part * counts[lo:hi].sum()) / counts.sum())
