"""Tests of other authors and of earlier versions, each with its own null distribution; for the power table.

Cox: likelihood ratio of logit recalibration. Hosmer–Lemeshow: χ² of ten bins of equal mass. T-Cal type: debiased squared
errors over dyadic numbers of bins. CORP: the miscalibration part of the Brier score under isotonic regression. All but Cox and
Hosmer–Lemeshow are compared with drawn labels. Of two classes they see the positive one, else the top label.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import isotonic_regression

from rhocal.metrics.inference.null import NullDistribution, path_nulls
from rhocal.metrics.inference.paired import holm
from rhocal.metrics.inference.statistics import Cells
from rhocal.metrics.smooth import spiegelhalter_z, standardized_residual

if TYPE_CHECKING:
    from rhocal.metrics.inference.joint_null import JointNull
    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector


def other_p_values(scored: Scored, probs: Vector, labels: Vector, null: JointNull) -> dict[str, float]:
    is_binary = null.positive is not None
    path, paths = (null.positive, null.positive_paths) if is_binary else (null.top, null.top_paths)
    assert path is not None
    assert paths is not None
    if is_binary:
        p, y = probs[:, 1], (labels == 1).astype(float)
    else:
        p, y = scored.confidence, scored.correct
    cells = Cells(path)
    d = cells.differences(paths)
    return {
        "Cox": cox(p, y),
        "Hosmer–Lemeshow": hosmer_lemeshow(p, y),
        "smooth ECE": _drawn(cells.smooth(d)),
        "T-Cal": _drawn(t_cal(cells, d)),
        "CORP": _drawn(np.array([corp(cells, row) for row in d])),
        "earlier versions": earlier(scored, null),
    }


def _drawn(values: Vector) -> float:
    return NullDistribution(float(values[0]), values[1:]).p_value


def cox(p: Vector, y: Vector) -> float:
    """Likelihood ratio of a + b·logit against the logit, χ² with two degrees of freedom."""
    p = np.clip(p, 1e-12, 1 - 1e-12)
    z = np.log(p / (1 - p))
    basis = np.stack([np.ones_like(z), z], axis=1)
    beta = np.array([0.0, 1.0])
    for _ in range(30):
        q = 1 / (1 + np.exp(-basis @ beta))
        hessian = basis.T @ (basis * (q * (1 - q))[:, None]) + 1e-9 * np.eye(2)
        step = np.linalg.solve(hessian, basis.T @ (y - q))
        beta = beta + step * min(1.0, 2 / max(np.abs(step).max(), 1e-12))
    q = np.clip(1 / (1 + np.exp(-basis @ beta)), 1e-15, 1 - 1e-15)
    ratio = 2 * float((y * np.log(q / p) + (1 - y) * np.log((1 - q) / (1 - p))).sum())
    return math.exp(-max(ratio, 0) / 2)


def hosmer_lemeshow(p: Vector, y: Vector, n_bins: int = 10) -> float:
    """χ² of ten bins of equal mass with as many degrees of freedom: the model was not fitted on these samples."""
    groups = np.array_split(np.argsort(p, kind="stable"), n_bins)
    total = sum(((y[g] - p[g]).sum()) ** 2 / max((p[g] * (1 - p[g])).sum(), 1e-12) for g in groups)
    half, x = n_bins // 2, total / 2
    return float(min(1.0, math.exp(-x) * sum(x**k / math.factorial(k) for k in range(half))))


def t_cal(cells: Cells, d: Vector) -> Vector:
    """The largest of debiased squared calibration errors over 2, 4, … 64 bins of equal mass, each in standard deviations."""
    statistics = []
    for n in (2, 4, 8, 16, 32, 64):
        starts = cells.mass_starts(n)
        weight = np.add.reduceat(cells.weight, starts)
        squares = np.add.reduceat(d, starts, axis=1) ** 2 - np.add.reduceat(cells.variance, starts)
        value = (squares / weight).sum(axis=1)
        statistics.append((value - value[1:].mean()) / max(float(value[1:].std()), 1e-12))
    return np.max(statistics, axis=0)


def corp(cells: Cells, d: Vector) -> float:
    """Brier score minus that of the isotonic recalibration (pool adjacent violators)."""
    observed = cells.center + d / cells.weight
    fitted = isotonic_regression(observed, weights=cells.weight).x
    return float(cells.weight @ ((observed - cells.center) ** 2 - (observed - fitted) ** 2))


def earlier(scored: Scored, null: JointNull) -> float:
    """Five tests of the top label with Holm's correction, two of them normal: the verdict of versions up to 0.1."""
    drawn = path_nulls(null.top, null.top_paths, ["ece", "ks", "skce"])
    normal = (spiegelhalter_z(scored).value, standardized_residual(scored, np.ones(len(scored.confidence))).value)
    values = [null.p_value for null in drawn.values()] + [math.erfc(abs(z) / math.sqrt(2)) for z in normal]
    return min(holm(values))
