"""Scale calibrators on top-k data, with bounds that hold however the rest is spread over its classes."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.top_k import SMALLEST_LOG, TopK
from rhocal.errors import InputError, RhocalWarning
from rhocal.profile.top_k import profile_top_k

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator, ScaleCalibrator
    from rhocal.numerics.special import Vector


def calibrate_top_k(calibrator: ScaleCalibrator, data: TopK) -> tuple[Vector, Vector, Vector]:
    """Calibrated probabilities of the k best, the rest spread by a power law, and bounds of the top class's for any spread.

    Examples
    --------
    >>> import numpy as np
    >>> import rhocal
    >>> data = rhocal.TopK.from_arrays(np.log([[0.6, 0.2], [0.5, 0.4]]), [[7, 2], [0, 9]], n_classes=1000)
    >>> calibrator = rhocal.TemperatureScaling().fit(*rhocal.demo_logits())
    >>> probs, low, high = rhocal.calibrate_top_k(calibrator, data)
    >>> bool(((low <= probs[:, 0]) & (probs[:, 0] <= high)).all())
    True
    """
    scale = calibrator.map_.scales(profile_top_k(data, np.zeros(data.n_samples, np.intp)))  # labels do not matter
    best = np.exp(scale[:, None] * (data.log_probs - data.log_probs[:, :1]))
    known = best.sum(axis=1)
    values, counts = data.tail
    rest = (counts * np.exp(scale[:, None] * (values - data.log_probs[:, :1]))).sum(axis=1)
    low, high = rest_bounds(data.log_probs[:, -1], data.rest, data.n_rest, scale)
    shift = np.exp(-scale * data.log_probs[:, 0])
    return best / (known + rest)[:, None], 1 / (known + high * shift), 1 / (known + low * shift)


N_EXPECTATIONS = 3
"""Steps that find the temperature under which labels of the rest are expected."""


def fit_top_k(
    calibrator: Calibrator, data: TopK, labels: Any, sample_weight: Any = None, ignore_index: int | None = None
) -> None:
    """Fit a method that scales on the k best classes.

    Where labels are classes of the rest, their ranks are not observed: expectation and maximization alternate, with one
    temperature for all samples.
    """
    from rhocal.calibrators.base import fit_validated  # noqa: PLC0415 - it imports this module
    from rhocal.calibrators.scale.temperature import TemperatureScaling  # noqa: PLC0415 - it imports this module

    method, scale = as_scale(calibrator), 1.0
    in_rest = ~(data.indices == np.asarray(labels).reshape(-1, 1)).any(axis=1)
    for _ in range(N_EXPECTATIONS if in_rest.any() else 0):
        profile = profile_top_k(data, labels, sample_weight, ignore_index=ignore_index, rest_scale=scale)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RhocalWarning)  # the last fit warns
            scale = 1 / float(fit_validated(TemperatureScaling(), profile).temperature_)
    method.fit_profile(profile_top_k(data, labels, sample_weight, ignore_index=ignore_index, rest_scale=scale))


def apply_top_k(calibrator: Calibrator, data: TopK) -> TopK:
    """The same classes with calibrated probabilities, and the calibrated total of the rest."""
    if data.n_classes != len(calibrator.classes_):
        raise InputError(
            f"the samples have {data.n_classes:,} classes (n_classes), but the calibrator was fitted with "
            f"{len(calibrator.classes_):,}"
        )
    log_probs = np.log(np.maximum(calibrate_top_k(as_scale(calibrator), data)[0], 1e-300))
    rest = np.maximum(1 - np.exp(log_probs).sum(axis=1), np.exp(SMALLEST_LOG))
    return TopK(log_probs, data.indices, np.log(rest), data.n_classes)


def as_scale(calibrator: Calibrator) -> ScaleCalibrator:
    """The calibrator, if it multiplies all logits of a sample by one number."""
    from rhocal.calibrators.base import ScaleCalibrator  # noqa: PLC0415 - it imports this module

    if not isinstance(calibrator, ScaleCalibrator):
        raise InputError(
            f"{calibrator.label} needs the logits of all classes; the k best are enough for methods that multiply the logits "
            "of a sample by a number: temperature, rho-norm, field, smart, pts"
        )
    return calibrator


def rest_bounds(least: Vector, rest: Vector, n_rest: int, scale: Vector) -> tuple[Vector, Vector]:
    """Between which values Σ p_j^σ over the rest lies, whatever its spread.

    p^σ is concave for σ ≤ 1: even is the largest, and as uneven as may be the smallest: as many classes as possible at the
    k-th best probability, one with what is left. For σ > 1 it is the other way round.

    >>> low, high = rest_bounds(np.log([0.1]), np.log([0.25]), 100, np.array([0.5]))
    >>> low.round(4).tolist(), high.round(4).tolist()  # 2·√.1 + √.05 and 100·√.0025
    ([0.8561], [5.0])
    """
    times = np.exp(rest - least)  # the total in units of the k-th best, which may underflow
    full = np.minimum(np.floor(times), n_rest)
    uneven = np.exp(scale * least) * (full + np.maximum(times - full, 0) ** scale)
    even = np.exp(scale * rest + (1 - scale) * np.log(n_rest))
    return np.minimum(uneven, even), np.maximum(uneven, even)
