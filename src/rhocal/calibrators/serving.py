"""A fitted calibrator prepared for requests of one or a few rows: what ``predict_proba`` gives, without its overhead."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.map import unchanged
from rhocal.calibrators.scalar_formula import ScalarFormula
from rhocal.data.logit_sizes import MAX_SINGLE_LOGIT
from rhocal.numerics import kernels
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.profile.sample_features import LogitFeatures

if TYPE_CHECKING:
    from rhocal.calibrators.base import Calibrator
    from rhocal.calibrators.map import Map
    from rhocal.numerics.special import Floats, Vector

MAX_ROWS = 64
"""Rows of a request; more take ``predict_proba``, which shares them among threads."""


class RowScales:
    """The scales of a few rows by a scale map, without the checks and the overhead of a fit's border."""

    def __init__(self, map_: Map) -> None:
        self.map_, self.n_classes = map_, map_.n_classes
        self.is_possible = (
            kernels.is_enabled and map_.scale is not None and map_.formula is unchanged and map_.kind == "logits"
        )
        self.formula = ScalarFormula.from_map(map_) if self.is_possible else None

    def of(self, logits: Any) -> tuple[Vector, Vector] | None:
        """The scale and the largest entry of every row; None where the rows need more than that.

        These are rows of another type or size than the compiled passes take, with masks, or with numbers that are not finite.
        """
        n = len(logits) if self.is_possible and logits.ndim == 2 else 0
        if not 0 < n <= MAX_ROWS or logits.shape[1] != self.n_classes or not kernels.supports_matrix(logits):
            return None
        column, (top, total) = np.empty(n, np.intp), np.empty((2, n))
        least = kernels.scan_into(logits, column, top, total)
        highest = float(top[0]) if n == 1 else float(top.max())
        is_plain = least > -MAX_SINGLE_LOGIT and highest < MAX_SINGLE_LOGIT and highest - least < self.map_.mask_gap
        if not is_plain or not np.isfinite(total).all():  # a sum is finite only if every term is
            return None
        scale = self.formula.scale(logits, top, total) if self.formula is not None and n == 1 else None
        return (self._by_formula(logits) if scale is None else scale), top

    def _by_formula(self, logits: Floats) -> Vector:
        assert self.map_.scale is not None
        scale = np.ravel(self.map_.scale(NUMPY, self.map_.parameters, LogitFeatures(NUMPY, logits)))
        scale = np.minimum(scale.astype(np.float64), np.finfo(logits.dtype).max)
        return scale if len(scale) == len(logits) else np.repeat(scale, len(logits))


class CompiledCalibrator:
    """Logits in, calibrated probabilities out; ``Calibrator.compiled`` makes it.

    It keeps the map of the moment: another fit of the calibrator does not change it. Rows of float32 or float64 with one number
    for each class take the short way of scale maps. Everything else goes through ``predict_proba``, with its results and
    errors: other methods, containers and types, masked classes, and logits that are not finite.
    """

    def __init__(self, calibrator: Calibrator) -> None:
        self.calibrator = copy(calibrator)
        self.rows = RowScales(calibrator.map_)
        self.is_short = self.rows.is_possible and calibrator.is_portable

    def __call__(self, logits: Any) -> Any:
        """Calibrated probabilities, as ``predict_proba`` gives them."""
        scales = self.rows.of(logits) if self.is_short and type(logits) is np.ndarray else None
        if scales is None:
            return self.calibrator.predict_proba(logits)
        return kernels.softmax(logits, scales[0])

    def __reduce__(self) -> Any:
        return CompiledCalibrator, (self.calibrator,)
