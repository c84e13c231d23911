"""Scale calibrators on top-k data, with bounds that hold however the rest is spread over its classes."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rhocal.data.top_k import SMALLEST_LOG, TopK
from rhocal.errors import InputError, RhocalWarning, SuspiciousInputWarning, warn
from rhocal.profile.top_k import labeled_top_k, profile_labeled_top_k, profile_top_k

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator, ScaleCalibrator
    from rhocal.numerics.special import Vector
    from rhocal.profile.top_k import LabeledTopK, TopKPasses


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
    scale = scales_top_k(calibrator, data)
    best, rest = _scaled(data, scale)
    known = np.exp(best).sum(axis=1)
    top = data.log_probs[:, 0]
    low, high = (
        rest_bounds(data.log_probs[:, -1] - top, total - top, data.n_rest, scale)[k]
        for k, total in enumerate(_rest_range(data))
    )
    probs = np.exp(best) / (known + np.exp(rest))[:, None]
    return probs, 1 / (known + high), 1 / (known + low)


def _rest_range(data: TopK) -> tuple[Vector, Vector]:
    """The least and the largest log of the total of the rest that its error leaves open."""
    if not data.rest_error:
        return data.rest, data.rest
    total, even = np.exp(data.rest), data.log_probs[:, -1] + np.log(data.n_rest)
    least = np.log(np.maximum(total - data.rest_error, np.exp(SMALLEST_LOG)))
    most = np.minimum(np.log(total + data.rest_error), even)
    return np.minimum(least, data.rest), np.maximum(most, data.rest)


def scales_top_k(calibrator: ScaleCalibrator, data: TopK) -> Vector:
    """The scale of every sample, from its best classes if the calibrator was fitted on such data."""
    is_cut = calibrator.n_best_ is not None
    profile = profile_top_k(data, np.zeros(data.n_samples, np.intp), is_cut=is_cut)  # labels do not matter
    if is_cut:  # also of the best alone, which is known and no more
        k = data.log_probs.shape[1]
        profile = replace(profile, n_best=k, passes=replace(cast("TopKPasses", profile.passes), n_best=k))
    scales = calibrator.map_.scales(profile)
    if not is_cut and data.n_rest > 1 and any(name == "mean" or name.startswith("norm") for name in profile.kept):
        warn(
            f"{calibrator.label} reads the norm or mean of all logits, which the k best do not determine: they are estimated. "
            "A calibrator that is fitted on TopK data with k of at least 2 reads the k best alone",
            SuspiciousInputWarning,
        )
    return scales


def _scaled(data: TopK, scale: Vector) -> tuple[Vector, Vector]:
    """Scaled log-probabilities of the k best and of the total of the rest, relative to the best."""
    values, counts = data.tail
    tail = scale[:, None] * _gaps(values - data.log_probs[:, :1]) + np.log(counts)
    peak = tail.max(axis=1)
    return scale[:, None] * _gaps(data.log_probs - data.log_probs[:, :1]), peak + np.log(
        np.exp(tail - peak[:, None]).sum(axis=1)
    )


def _gaps(values: Vector) -> Vector:
    """Differences of log-probabilities, 0 where they are rounding errors: the scale of equal logits may be huge."""
    return np.where(np.abs(values) < ROUNDING, 0.0, values)


ROUNDING = 1e-12
"""A difference of log-probabilities that may come from the sums that they were computed with."""

N_EXPECTATIONS = 3
"""Steps that find the temperature under which labels of the rest are expected."""


def fit_top_k(
    calibrator: Calibrator,
    data: TopK,
    labels: Any,
    sample_weight: Any = None,
    classes: Any = None,
    ignore_index: int | None = None,
    clusters: Any = None,
) -> None:
    """Fit a method that scales on the k best classes. ``clusters`` is the cluster of each sample."""
    fit_labeled_top_k(calibrator, labeled_top_k(data, labels, sample_weight, classes, ignore_index, clusters))


def fit_labeled_top_k(calibrator: Calibrator, labeled: LabeledTopK) -> None:
    """The same for samples that are validated.

    Where labels are classes of the rest, their ranks are not observed: expectation and maximization alternate, with one
    temperature for all samples.
    """
    from rhocal.calibrators.clusters import design_effect  # noqa: PLC0415 - it imports this module
    from rhocal.calibrators.scale.temperature import TemperatureScaling  # noqa: PLC0415 - it imports this module
    from rhocal.calibrators.validated_fit import fit_validated  # noqa: PLC0415 - it imports this module

    method, scale = as_scale(calibrator), 1.0
    profile_at = partial(profile_labeled_top_k, labeled)
    in_rest = ~(labeled.data.indices == labeled.labels[:, None]).any(axis=1)
    for _ in range(N_EXPECTATIONS if in_rest.any() else 0):
        profile = profile_at(rest_scale=scale)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RhocalWarning)  # the last fit warns
            scale = 1 / float(fit_validated(TemperatureScaling(), profile).temperature_)
    profile = profile_at(rest_scale=scale)
    method.fit_profile(replace(profile, total_weight=profile.total_weight / design_effect(profile)))


def apply_top_k(calibrator: Calibrator, data: TopK) -> TopK:
    """The same classes with calibrated probabilities, and the calibrated total of the rest."""
    if data.n_classes != len(calibrator.classes_):
        raise InputError(
            f"the samples have {data.n_classes:,} classes (n_classes), but the calibrator was fitted with "
            f"{len(calibrator.classes_):,}"
        )
    best, rest = _scaled(data, scales_top_k(as_scale(calibrator), data))
    total = np.log(np.exp(best).sum(axis=1) + np.exp(rest))  # at least that of the best, 0
    return TopK(best - total[:, None], data.indices, rest - total, data.n_classes)


def as_scale(calibrator: Calibrator) -> ScaleCalibrator:
    """The calibrator, if it multiplies all logits of a sample by one number."""
    from rhocal.calibrators.scale.scale import ScaleCalibrator  # noqa: PLC0415 - it imports this module

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
    uneven = np.exp(scale * _gaps(least)) * (full + np.maximum(times - full, 0) ** scale)
    even = np.exp(scale * _gaps(rest - np.log(n_rest)) + np.log(n_rest))
    return np.minimum(uneven, even), np.maximum(uneven, even)
