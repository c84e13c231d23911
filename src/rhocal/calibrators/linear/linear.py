"""Linear maps of logits: r = W x + b, with x the logits or a function of them."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.linear.linear_problem import FEW_PARAMETERS
from rhocal.calibrators.map import Map, unchanged
from rhocal.calibrators.options import Fitted
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.errors import InputError
from rhocal.numerics import kernels
from rhocal.numerics.masks import masked_mean
from rhocal.numerics.numpy_ops import NUMPY, NumpyOps
from rhocal.numerics.special import Floats, Vector, row_max
from rhocal.numerics.threads import over_blocks
from rhocal.objectives import NLL

if TYPE_CHECKING:
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.ops import Formula, Ops, Parameters, Value
    from rhocal.objectives import Objective
    from rhocal.profile.profile import Profile

MAX_SEARCHED_CLASSES = 200
"""Largest number of classes for a full matrix whose ridge is searched: with 5,000 samples and 200 classes matrix and dirichlet
take 4 and 8 seconds, and both grow at least with the square."""

MAX_MATRIX_BYTES = 4 << 30
"""Memory that a fit of a full matrix may take: the matrix, its gradient and the steps that L-BFGS remembers."""

MATRICES_IN_A_FIT = 28


MIN_SINGLE_ENTRIES = 1 << 18
"""From so many logits on the rounding errors of single precision average out: NLL is computed in it."""


class LinearCalibrator(Calibrator):
    """W x + b with x a function of a sample's logits; W is a matrix, or a vector that stands for its diagonal."""

    keeps_decision = False
    weight_ = Fitted[Vector](shape="classes | classes classes")
    bias_ = Fitted[Vector](shape="classes")


def linear_map(features: Formula, weight: Vector, bias: Vector, **parameters: Any) -> Map:
    """W x + b of the features x; of a vector W its entries are the diagonal."""
    numbers = {**parameters, "weight": weight.T, "bias": bias, "is_matrix": weight.ndim == 2}
    return Map(partial(linear, features), numbers, is_wide=True, is_neutral_mean=features in {centered, unchanged})


def centered(ops: Ops, _parameters: Parameters, logits: Value) -> Value:
    """The logits minus the mean of their row: a shift of all logits of a sample changes nothing."""
    shifted = logits - ops.max(logits)
    return shifted - ops.mean(shifted)


def neutral_where_masked(ops: Ops, parameters: Parameters, logits: Value, x: Value) -> Value:
    """Features x with the mean of the others in place of those of masked classes: they change no other class."""
    if parameters["mask_gap"] == math.inf:
        return x
    masked = logits * 0.5 - ops.max(logits) * 0.5 <= -0.75 * parameters["mask_gap"]  # they are read at twice the gap
    return ops.where(masked, ops.mean_where_not(masked, x), x)


def is_single(data: Predictions, target: Objective, *, is_matrix: bool) -> bool:
    """Whether a map is fitted in single precision: half of the memory and of the time. Newton steps need double."""
    n_parameters = data.n_classes * (data.n_classes + 1 if is_matrix else 2)
    is_large = data.logits.size >= MIN_SINGLE_ENTRIES and n_parameters > FEW_PARAMETERS
    return is_large and isinstance(target, NLL) and data.masked is None and (is_matrix or kernels.is_enabled)


def block_features(formula: Formula, parameters: dict[str, Any], data: Predictions, dtype: Any) -> Floats:
    """The features of logits for a fit, block by block, from rows with the maximum 0: single precision keeps its digits."""
    ops = NumpyOps(np, dtype)
    out = np.empty(data.logits.shape, dtype)

    def work(rows: slice) -> None:
        logits = data.logits[rows]
        out[rows] = formula(ops, parameters, (logits - row_max(logits).astype(logits.dtype)[:, None]).astype(dtype))

    over_blocks(out.shape, work)
    return out


def class_logits(data: Predictions, target: Objective | None = None) -> Floats:
    """The logits for a fit, with the mean of the others in place of masks; ``centered`` if there are two classes."""
    if target is not None and data.logits.itemsize < 8 and is_single(data, target, is_matrix=False):
        return data.logits.astype(np.float32)
    logits = data.logits.astype(np.float64)
    if (masked := data.masked) is not None:
        logits = np.where(masked, masked_mean(logits, masked)[:, None], logits)
    return np.asarray(centered(NUMPY, {}, logits)) if data.n_classes == 2 else logits


def linear(features: Formula, ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """The formula of ``linear_map``."""
    x, weight = features(ops, parameters, logits), parameters["weight"]
    return (ops.matmul(x, weight) if parameters["is_matrix"] else x * weight) + parameters["bias"]


def nll_scale(profile: Profile) -> float:
    """The scale of temperature scaling; 1 where the logits say nothing."""
    return float(np.exp(ScaleSearch.from_profile(profile).log_scale)) if profile.spread > 0 else 1.0


def check_size(n_classes: int, method: str, instead: str, max_classes: int) -> None:
    """Full matrices are for a limited number of classes."""
    if n_classes > max_classes:
        raise InputError(
            f"{method} learns a full matrix, {n_classes}² = {n_classes**2:,} numbers for {n_classes} classes, and is "
            f"limited to {max_classes:,} classes; use {instead}, which learns {2 * n_classes:,}"
        )


def max_classes_in_memory() -> int:
    """Classes whose full matrix can be fitted in ``MAX_MATRIX_BYTES``."""
    return int((MAX_MATRIX_BYTES / (8 * MATRICES_IN_A_FIT)) ** 0.5)
