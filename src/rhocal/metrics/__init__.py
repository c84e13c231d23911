"""What a report shows. Every metric takes probabilities unless ``kind="logits"`` is said.

(Calibrators take logits by default, metrics take probabilities: what each is mostly given. Logits handed to a metric by
mistake are an error, not a wrong figure.)

>>> round(ece([[0.05, 0.95], [0.0, 1.0]], [1, 0]), 12)
0.475
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError
from rhocal.metrics import binned, scores
from rhocal.metrics.binned import N_BINS, EqualWidth
from rhocal.metrics.scores import Scored, WeightedMean
from rhocal.predictions import Kind, predictions
from rhocal.special import Vector, log_softmax

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.predictions import Predictions

Sums = WeightedMean | EqualWidth


@dataclass(frozen=True)
class Metric:
    """A line of the table."""

    title: str
    better: str
    """``lower`` or ``higher``."""
    value: Callable[[Scored], float]
    sums: Callable[[Scored], Sums] | None
    """Sums of a batch that add and know their value; None where the definition does not allow it."""


def _mean(per_sample: Callable[[Scored], Vector]) -> Callable[[Scored], Sums]:
    return lambda scored: WeightedMean.of(per_sample(scored), scored.weights)


def _metric(title: str, sums: Callable[[Scored], Sums], better: str = "lower") -> Metric:
    return Metric(title, better, lambda scored: sums(scored).value, sums)


METRICS: dict[str, Metric] = {
    "accuracy": _metric("Accuracy", _mean(scores.accuracy_per_sample), "higher"),
    "ece": _metric("ECE", lambda scored: EqualWidth.of(scored, power=1)),
    "mce": _metric("MCE", lambda scored: EqualWidth.of(scored, power=np.inf)),
    "adaptive_ece": Metric("AdaECE", "lower", binned.equal_mass_error, None),
    "nll": _metric("NLL", _mean(scores.nll_per_sample)),
    "brier": _metric("Brier", _mean(scores.brier_per_sample)),
    "top_brier": _metric("Top Brier", _mean(scores.top_brier_per_sample)),
}
"""Every metric of one set of predictions, with its options at their defaults."""


def figures(data: Predictions) -> dict[str, float]:
    """Every metric of the table, from one pass over the logits."""
    scored = Scored.of(data)
    return {name: metric.value(scored) for name, metric in METRICS.items()}


def _scored(probs: Any, labels: Any, sample_weight: Any, kind: Kind) -> Scored:
    if labels is None:
        raise InputError("labels are missing; a metric needs one label for each sample")
    return Scored.of(predictions(probs, labels, sample_weight=sample_weight, kind=kind, name=kind))


def _bins(n_bins: Any) -> int:
    if not (isinstance(n_bins, int | np.integer) and n_bins >= 1):
        raise InputError(f"n_bins must be a whole number of at least 1; got {n_bins!r}")
    return int(n_bins)


def accuracy(probs: Any, labels: Any, *, sample_weight: Any = None, kind: Kind = "probs") -> float:
    """Share of samples whose top class is right."""
    return METRICS["accuracy"].value(_scored(probs, labels, sample_weight, kind))


def nll(probs: Any, labels: Any, *, sample_weight: Any = None, kind: Kind = "probs") -> float:
    """Negative log-likelihood, −mean log p_y."""
    return METRICS["nll"].value(_scored(probs, labels, sample_weight, kind))


def brier(probs: Any, labels: Any, *, sample_weight: Any = None, kind: Kind = "probs") -> float:
    """Multiclass Brier score, mean of Σ_j (p_j − y_j)²; between 0 and 2."""
    return METRICS["brier"].value(_scored(probs, labels, sample_weight, kind))


def top_brier(probs: Any, labels: Any, *, sample_weight: Any = None, kind: Kind = "probs") -> float:
    """Brier score of the top label, mean of (correct − confidence)²."""
    return METRICS["top_brier"].value(_scored(probs, labels, sample_weight, kind))


def ece(probs: Any, labels: Any, *, n_bins: int = N_BINS, sample_weight: Any = None, kind: Kind = "probs") -> float:
    """Expected calibration error over bins of equal width."""
    return EqualWidth.of(_scored(probs, labels, sample_weight, kind), power=1, n_bins=_bins(n_bins)).value


def mce(probs: Any, labels: Any, *, n_bins: int = N_BINS, sample_weight: Any = None, kind: Kind = "probs") -> float:
    """Maximum calibration error: the largest gap of any bin of equal width that holds a sample."""
    return EqualWidth.of(_scored(probs, labels, sample_weight, kind), power=np.inf, n_bins=_bins(n_bins)).value


def adaptive_ece(
    probs: Any, labels: Any, *, n_bins: int = N_BINS, sample_weight: Any = None, kind: Kind = "probs"
) -> float:
    """Expected calibration error over bins of equal mass (AdaECE)."""
    return binned.equal_mass_error(_scored(probs, labels, sample_weight, kind), n_bins=_bins(n_bins))


def kl_to_uncalibrated(
    probs: Any, base: Any, *, sample_weight: Any = None, kind: Kind = "probs", reduction: str = "samples"
) -> float:
    """Divergence KL(g‖s) from the calibrated distribution g to the uncalibrated s, mean over samples.

    ``reduction="mean"`` divides by the number of classes too, which is what fits the paper's tables.
    """
    if reduction not in {"samples", "mean"}:
        raise InputError(f"reduction is samples or mean; got {reduction!r}")
    g = predictions(probs, sample_weight=sample_weight, kind=kind, name=kind)
    s = predictions(base, kind=kind, name="base")
    if g.logits.shape != s.logits.shape:
        raise InputError(f"{kind} and base differ in shape: {g.logits.shape} and {s.logits.shape}")
    log_g, log_s = log_softmax(g.logits.astype(np.float64)), log_softmax(s.logits.astype(np.float64))
    per_sample = np.einsum("ij,ij->i", np.exp(log_g), log_g - log_s)
    weights = np.ones(len(per_sample)) if g.weights is None else g.weights
    return WeightedMean.of(per_sample, weights).value / (g.n_classes if reduction == "mean" else 1)


__all__ = [
    "METRICS",
    "accuracy",
    "adaptive_ece",
    "brier",
    "ece",
    "figures",
    "kl_to_uncalibrated",
    "mce",
    "nll",
    "top_brier",
]
