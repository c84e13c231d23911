"""What objectives see of a sample: seven numbers, and how they move with its scale or with its logits.

An objective is a function of these numbers; a family of calibrators moves them through scales or through logits. So each
objective is written once and serves every family.

==============  ==============================================
log_label       log p_y, the log-probability of the label
mean_log        mean_j log p_j, the mean log-probability of all classes
confidence      the largest probability
entropy         −Σ p log p
sum_squares     Σ p²
kl_to_base      KL(g‖s), from the calibrated g to the original s
kl_from_base    KL(s‖g)
==============  ==============================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rhocal.numerics.caching import cached_property
from rhocal.numerics.special import Floats, Vector, dots, smooth_maximum

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from numpy.typing import NDArray

    from rhocal.profile.passes import Curve
    from rhocal.profile.profile import Profile


WITH_SECOND = frozenset({"entropy", "kl_to_base"})
"""Statistics whose slope in the scale takes L″."""


class HasCurve(Protocol):
    """A profile, or its table."""

    def curve(self, scale: Vector, order: int = 2) -> Curve:
        """L and its derivatives up to an order, at every sample's scale."""


@dataclass(frozen=True)
class Facts:
    """What an objective reads besides the statistics. ``weights`` sum to 1."""

    correct: Vector
    weights: Vector
    n_classes: int
    clusters: NDArray[np.intp] | None = None
    """The number of the cluster of every sample; None if samples are independent, or if it does not matter."""


@dataclass(frozen=True)
class ScaleStatistics:
    """Statistics of samples whose logits are multiplied by a scale, and their derivative in that scale."""

    values: dict[str, Vector]
    slopes: dict[str, Vector]


def of_scale(
    profile: Profile, curves: HasCurve, scale: Vector, needs: Collection[str], kappa: float = 0.0
) -> ScaleStatistics:
    """Statistics at one scale for each sample, from L, L′ and L″.

    The plain maximum is smooth here, because a scale never changes the top class; ``kappa`` > 0 smooths it over the two
    largest probabilities all the same, as the paper writes it.
    """
    at = curves.curve(scale, order=1 if WITH_SECOND.isdisjoint(needs) else 2)
    values: dict[str, Vector] = {}
    slopes: dict[str, Vector] = {}
    if "log_label" in needs:
        values["log_label"] = scale * profile.label_gap - at.value
        slopes["log_label"] = profile.label_gap - at.first
    if "mean_log" in needs:  # linear in the scale but for L, as the label's
        values["mean_log"] = scale * profile.mean_gap - at.value
        slopes["mean_log"] = profile.mean_gap - at.first
    if "confidence" in needs:  # the logits are shifted so that the largest is 0
        values["confidence"] = np.exp(-at.value)
        slopes["confidence"] = -values["confidence"] * at.first
        if kappa > 0:
            _smooth(values, slopes, profile.runner_up_gap, scale, kappa)
    if "entropy" in needs:
        values["entropy"] = at.value - scale * at.first
        slopes["entropy"] = -scale * at.second
    if "sum_squares" in needs:
        double = curves.curve(2 * scale, order=1)
        values["sum_squares"] = np.exp(double.value - 2 * at.value)
        slopes["sum_squares"] = 2 * values["sum_squares"] * (double.first - at.first)
    if "kl_to_base" in needs:
        values["kl_to_base"] = (scale - 1) * at.first - at.value + profile.base.value
        slopes["kl_to_base"] = (scale - 1) * at.second
    if "kl_from_base" in needs:
        values["kl_from_base"] = at.value - profile.base.value + (1 - scale) * profile.base.first
        slopes["kl_from_base"] = at.first - profile.base.first
    return ScaleStatistics(values, slopes)


def nll_by_scale(
    profile: Profile, curves: HasCurve | None = None
) -> Callable[[float], tuple[float, float, float, float, float]]:
    """Log scale → NLL and its first three derivatives in the *scale*, in which it is convex, and the scale.

    ``curves`` is where they are read from, if it is not the profile itself.
    """
    w, n = profile.weights, len(profile.weights)

    def fun(log_scale: float) -> tuple[float, float, float, float, float]:
        scale = float(np.exp(log_scale))
        at = (curves or profile).curve(np.full(n, scale), order=3)
        label_slope, value, slope, second, third = dots((profile.label_gap, *at.orders), w).tolist()
        return value - scale * label_slope, slope - label_slope, second, third, scale

    return fun


def _smooth(values: dict[str, Vector], slopes: dict[str, Vector], gap: Vector, scale: Vector, kappa: float) -> None:
    """κ log(exp(p₁/κ) + exp(p₂/κ)) = p₁ + κ log(1 + exp(−δ/κ)) with δ = p₁ − p₂ = p₁ (1 − exp(scale·gap))."""
    p, d_p = values["confidence"], slopes["confidence"]
    ratio = np.exp(scale * gap)
    delta, d_delta = p * (1 - ratio), d_p * (1 - ratio) - p * gap * ratio
    values["confidence"] = p + kappa * np.log1p(np.exp(-delta / kappa))
    slopes["confidence"] = d_p - d_delta / (1 + np.exp(np.minimum(delta / kappa, 700)))


@dataclass(frozen=True)
class LogitStatistics:
    """Statistics of arbitrary logits; ``pull`` turns slopes in the statistics into a slope in every logit."""

    values: dict[str, Vector]
    correct: Vector
    vjp: Callable[[Mapping[str, Vector]], Floats]


def of_logits(
    logits: Floats, labels: NDArray[np.intp], base_log_probs: Floats, needs: Collection[str], kappa: float
) -> LogitStatistics:
    """Statistics of logits that any map produced. The maximum is smoothed with ``kappa``: the top class may change."""
    log_p = (logits - logits.max(axis=1, keepdims=True)).astype(np.float64, copy=False)
    p = np.exp(log_p)  # one exponential for both: this is where fits spend their time
    total = p.sum(axis=1, keepdims=True)
    p /= total
    log_p -= np.log(total)
    at = _Softmax(log_p, p, labels, base_log_probs, kappa)
    samples = np.arange(len(labels))

    def vjp(slopes: Mapping[str, Vector]) -> Floats:
        # A function f of p has df/dr_j = p_j f_j − p_j Σ_k p_k f_k: add up p_j f_j of all statistics, project once.
        weighted = np.zeros_like(log_p)
        for name, slope in slopes.items():
            if name == "log_label":
                weighted[samples, labels] += slope
            else:
                weighted += slope[:, None] * _WEIGHTED_SLOPES[name](at)
        weighted -= at.p * weighted.sum(axis=1, keepdims=True)
        return weighted

    values = {name: _VALUES[name](at) for name in needs}
    return LogitStatistics(values, (logits.argmax(axis=1) == labels).astype(np.float64), vjp)


@dataclass(frozen=True)
class _Softmax:
    """Probabilities of a set of logits, and what they are compared with."""

    log_p: Vector
    p: Vector
    labels: NDArray[np.intp]
    base: Floats
    """Log-probabilities of the uncalibrated distribution."""
    kappa: float

    @cached_property
    def top(self) -> tuple[Vector, Vector]:
        """The smooth maximum and its slopes."""
        return smooth_maximum(self.p, self.kappa)


_VALUES: dict[str, Callable[[_Softmax], Vector]] = {
    "log_label": lambda at: at.log_p[np.arange(len(at.labels)), at.labels],
    "mean_log": lambda at: at.log_p.mean(axis=1),
    "confidence": lambda at: at.top[0],
    "entropy": lambda at: -np.einsum("ij,ij->i", at.p, at.log_p),
    "sum_squares": lambda at: np.einsum("ij,ij->i", at.p, at.p),
    "kl_to_base": lambda at: np.einsum("ij,ij->i", at.p, at.log_p - at.base),
    "kl_from_base": lambda at: np.einsum("ij,ij->i", np.exp(at.base), at.base - at.log_p),
}

# p_j · ∂statistic/∂p_j (constants that the projection removes are left out); that of log_label is 1 at the label, 0 elsewhere
_WEIGHTED_SLOPES: dict[str, Callable[[_Softmax], Floats]] = {
    "mean_log": lambda at: np.full_like(at.p, 1 / at.p.shape[1]),
    "confidence": lambda at: at.p * at.top[1],
    "entropy": lambda at: -at.p * at.log_p,
    "sum_squares": lambda at: 2 * at.p**2,
    "kl_to_base": lambda at: at.p * (at.log_p - at.base),
    "kl_from_base": lambda at: -np.exp(at.base),
}
