"""Scale calibrators on top-k data, with bounds that hold however the rest is spread over its classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.profile.top_k import profile_top_k

if TYPE_CHECKING:
    from rhocal.calibrators import ScaleCalibrator
    from rhocal.data.top_k import TopK
    from rhocal.numerics.special import Vector


def calibrate_top_k(calibrator: ScaleCalibrator, data: TopK) -> tuple[Vector, Vector, Vector]:
    """Calibrated probabilities of the k best, the rest spread evenly, and bounds of the top class's for any spread."""
    scale = calibrator.map_.scales(profile_top_k(data, np.zeros(data.n_samples, np.intp)))  # labels do not matter
    best = np.exp(scale[:, None] * (data.log_probs - data.log_probs[:, :1]))
    known = best.sum(axis=1)
    even = np.exp(scale * data.rest + (1 - scale) * np.log(data.n_rest))
    low, high = rest_bounds(data.log_probs[:, -1], data.rest, data.n_rest, scale)
    shift = np.exp(-scale * data.log_probs[:, 0])
    return best / (known + even * shift)[:, None], 1 / (known + high * shift), 1 / (known + low * shift)


def rest_bounds(least: Vector, rest: Vector, n_rest: int, scale: Vector) -> tuple[Vector, Vector]:
    """Between which values Σ p_j^σ over the rest lies, whatever its spread.

    p^σ is concave for σ ≤ 1: even is the largest, and as uneven as may be the smallest: as many classes as possible at the
    k-th best probability, one with what is left. For σ > 1 it is the other way round.

    >>> low, high = rest_bounds(np.log([0.1]), np.log([0.25]), 100, np.array([0.5]))
    >>> low.round(4).tolist(), high.round(4).tolist()  # 2·√.1 + √.05 and 100·√.0025
    ([0.8561], [5.0])
    """
    cap, total = np.exp(least), np.exp(rest)
    full = np.minimum(np.floor(total / cap), n_rest)
    uneven = full * cap**scale + np.maximum(total - full * cap, 0) ** scale
    even = n_rest * (total / n_rest) ** scale
    return np.minimum(uneven, even), np.maximum(uneven, even)
