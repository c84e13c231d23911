"""Position bias of options: a test, and one offset for each position.

A language model may prefer an option because it stands first. If the scores are right but for one scale, the label minus the
probability has mean 0 at every position; the test compares its sums with their variance over samples, or clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.compose.exchangeability import MIN_RELATIVE_VARIANCE
from rhocal.calibrators.cross_validation import N_FOLDS
from rhocal.calibrators.folds import Folds
from rhocal.calibrators.guard import TEMPERATURE, fit_without_warnings
from rhocal.calibrators.linear.prior_shift import PriorShift
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Floats, Vector

SIGNIFICANCE = 0.01
"""Of the test: one log of options without a position bias in a hundred is corrected for one."""

RIDGE = 1.0
"""Pull of offsets toward 0, in log-odds: the weight of that many samples at each position."""

MAX_STEPS = 50
TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class PositionOffsets:
    """What is added to the logit of each position, with the evidence for it."""

    p_value: float
    offsets: Vector | None
    """None where no position bias is detected."""

    @classmethod
    def from_predictions(cls, data: Predictions) -> PositionOffsets:
        """Test, and fit offsets where the test shows a bias."""
        probs, present = scaled_probs(data)
        p_value = position_test(probs, present, data)
        return cls(p_value, fit_offsets(data) if p_value < SIGNIFICANCE else None)

    def shift(self, data: Predictions) -> PriorShift:
        """The offsets as a calibrator."""
        assert self.offsets is not None
        return PriorShift.from_bias(data.classes, self.offsets)

    @property
    def row(self) -> dict[str, Any]:
        """The evidence."""
        return {
            "debias": "position",
            "p_value": self.p_value,
            "offsets": None if self.offsets is None else self.offsets.tolist(),
        }


def scaled_probs(data: Predictions) -> tuple[Vector, NDArray[np.bool_]]:
    """Probabilities after temperature scaling, and which options a question has."""
    probs = fit_without_warnings(TEMPERATURE, data).map_.probs(data).astype(np.float64)
    masked = data.masked
    return probs, np.ones(probs.shape, bool) if masked is None else ~masked


def position_test(probs: Vector, present: NDArray[np.bool_], data: Predictions) -> float:
    """The p-value of equal positions, χ² of the sums of label − probability; clusters are units."""
    assert data.labels is not None
    weights = data.counts
    residual = (data.labels[:, None] == np.arange(probs.shape[1])) - np.where(present, probs, 0.0)
    rows = weights[:, None] * residual
    if data.clusters is not None:
        sums = np.zeros((int(data.clusters.max()) + 1, rows.shape[1]))
        np.add.at(sums, data.clusters, rows)
        rows = sums
    total = rows.sum(axis=0)
    variances, vectors = np.linalg.eigh(rows.T @ rows)
    kept = variances > MIN_RELATIVE_VARIANCE * variances[-1]
    if not variances[-1] > 0:
        return 1.0
    return chi_square_tail(float(((vectors.T @ total)[kept] ** 2 / variances[kept]).sum()), int(kept.sum()))


def chi_square_tail(statistic: float, n_free: int) -> float:
    """The probability of a larger χ², by the cube of a normal number (Wilson and Hilferty 1931)."""
    variance = 2 / (9 * n_free)
    z = ((statistic / n_free) ** (1 / 3) - (1 - variance)) / math.sqrt(variance)
    return 0.5 * math.erfc(z / math.sqrt(2))


def fit_offsets(data: Predictions) -> Vector:
    """The offset of each position, in units of the logits: b / s of the softmax of s·z + b with the lowest NLL."""
    assert data.labels is not None
    logits, masked = data.logits.astype(np.float64), data.masked
    logits = logits - logits.max(axis=1, keepdims=True)
    if masked is not None:
        logits = np.where(masked, 0.0, logits)
    m = data.n_classes
    weights = data.counts
    scale = 1 / float(fit_without_warnings(TEMPERATURE, data).temperature_)  # type: ignore[attr-defined]
    is_label = data.labels[:, None] == np.arange(m)
    x = np.r_[0.0, np.zeros(m)]
    penalty = np.r_[0.0, np.full(m, RIDGE)]
    for _ in range(MAX_STEPS):
        log_scale, bias = x[0], x[1:]
        z = scale * np.exp(log_scale) * logits
        u = z + bias if masked is None else np.where(masked, -np.inf, z + bias)
        probs = np.exp(u - u.max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)
        residual = weights[:, None] * (probs - is_label)
        gradient = np.r_[(residual * z).sum(), residual.sum(axis=0)] + penalty * x
        centered = z - (probs * z).sum(axis=1, keepdims=True)
        weighted = weights[:, None] * probs
        hessian = np.empty((m + 1, m + 1))
        hessian[1:, 1:] = np.diag(weighted.sum(axis=0)) - weighted.T @ probs
        hessian[0, 1:] = hessian[1:, 0] = (weighted * centered).sum(axis=0)
        hessian[0, 0] = (weighted * centered**2).sum()  # Gauss and Newton: positive, and exact in b
        step = np.linalg.solve(hessian + np.diag(penalty) + 1e-9 * np.trace(hessian) / m * np.eye(m + 1), gradient)
        step *= min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-300))
        x = x - step
        if float(gradient @ step) < TOLERANCE * float(weights.sum()):
            break
    offsets: Vector = (x[1:] - x[1:].mean()) / (scale * math.exp(x[0]))
    return offsets


def held_out_shifted(data: Predictions) -> Floats | None:
    """Logits with offsets that were fitted without the fold of the sample; None if there are no folds."""
    folds = Folds.from_profile(Profile.from_predictions(data), N_FOLDS, by_label=False)
    if not folds:
        return None
    out = np.array(data.logits)
    for fold in folds:
        out[fold.outside] += fit_offsets(data.take(fold.inside)).astype(out.dtype)
    return out


def shifted_predictions(data: Predictions, logits: Floats) -> Predictions:
    """The samples with other logits; options that a question does not have stay absent."""
    masked = data.masked
    if masked is not None:
        logits = np.where(masked, data.logits, logits)
    return replace(data, kind="logits", scores=logits, mask_gap=None).prepared()
