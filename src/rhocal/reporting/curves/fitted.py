"""The map of a fitted calibrator: temperature against logits, calibrated against raw confidence, and its trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators import ScaleCalibrator
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.numerics.special import row_argmax, top_probability
from rhocal.profile.sample_features import LogitFeatures

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator
    from rhocal.data.spec import Kind
    from rhocal.numerics.special import Floats, Vector

N_POINTS = 400
"""Samples shown, evenly spaced in the order of the horizontal axis."""


@dataclass(frozen=True)
class TemperatureMap:
    """The temperature of some samples. Amplitude and margin are those of rows with mean zero."""

    amplitude: Vector
    margin: Vector
    temperature: Vector


@dataclass(frozen=True)
class ConfidenceMap:
    """Confidence before and after, of some samples."""

    raw: Vector
    calibrated: Vector
    kept: NDArray[np.bool_]
    """Whether the predicted class is still the same."""
    share_kept: float
    """Of all samples."""


@dataclass(frozen=True)
class RhoGrid:
    """The values of ρ tried."""

    rho: Vector
    ece: Vector
    objective: Vector
    chosen: float


@dataclass(frozen=True)
class AlphaCurve:
    """The weights of the KL term tried, each with the ρ that was best for it."""

    alpha: Vector
    ece: Vector
    chosen: float


def temperature_map(
    cal: Calibrator, logits: Any, *, n_points: int = N_POINTS, kind: Kind | None = None
) -> TemperatureMap:
    """Temperature against amplitude and margin, for calibrators that scale a sample's logits; ``kind`` as in the fit."""
    if not isinstance(cal, ScaleCalibrator):
        raise InputError(f"{cal.label} has no temperature per sample; use one that scales logits: rho-norm, field, …")
    data = Predictions.from_arrays(logits, spec=InputSpec(kind or cal.kind_))
    return temperature_map_from_predictions(cal, data, n_points)


def temperature_map_from_predictions(
    cal: ScaleCalibrator, data: Predictions, n_points: int = N_POINTS
) -> TemperatureMap:
    """The same for validated predictions."""
    sample = LogitFeatures(NUMPY, data.logits)
    norm, margin = sample.norm(2.0, center=True)[:, 0], sample.margin()[:, 0]
    rows = _evenly_spaced(norm, margin, n_points)
    scale = cal.map_.scales(data.take(rows))
    return TemperatureMap(norm[rows], margin[rows], 1 / scale)


def confidence_map(
    cal: Calibrator, logits: Any, *, groups: Any = None, n_points: int = N_POINTS, kind: Kind | None = None
) -> ConfidenceMap:
    """Calibrated against raw confidence, and whether decisions are kept; ``kind`` as in the fit unless given."""
    data = Predictions.from_arrays(logits, groups=groups, spec=InputSpec(kind or cal.kind_))
    return confidence_map_from_logits(data.logits, cal.map_.logits(data), n_points)


def confidence_map_from_logits(before: Floats, after: Floats, n_points: int = N_POINTS) -> ConfidenceMap:
    """The same from raw and calibrated logits."""
    kept = row_argmax(before) == row_argmax(after)
    raw, calibrated = (top_probability(z) for z in (before, after))
    rows = _evenly_spaced(raw, calibrated, n_points)
    return ConfidenceMap(raw[rows], calibrated[rows], kept[rows], float(kept.mean()))


def _evenly_spaced(x: Vector, y: Vector, n_points: int) -> NDArray[np.intp]:
    """Rows evenly spaced in the order of x; they do not depend on the order of the samples."""
    order = np.lexsort((y, x))
    return order[np.unique(np.linspace(0, len(order) - 1, min(n_points, len(order))).astype(np.intp))]


def rho_grid(cal: Calibrator) -> RhoGrid:
    """ECE on the calibration set over the grid of ρ, at the α that was chosen."""
    fitted: Any = cal
    rows = sorted(
        (row for row in _trials(cal, "rho") if row["alpha"] == fitted.alpha_), key=lambda row: float(row["rho"])
    )
    rho, ece, objective = (np.array([row[key] for row in rows]) for key in ("rho", "ece", "objective"))
    return RhoGrid(rho, ece, objective, fitted.rho_)


def alpha_curve(cal: Calibrator) -> AlphaCurve:
    """ECE on the calibration set over α; fit with ``alpha="auto"`` to have more than one."""
    rows = _trials(cal, "alpha")
    alphas = sorted({row["alpha"] for row in rows})
    best = [min(row["ece"] for row in rows if row["alpha"] == alpha) for alpha in alphas]
    fitted: Any = cal
    return AlphaCurve(np.array(alphas), np.array(best), fitted.alpha_)


def _trials(cal: Calibrator, key: str) -> list[Any]:
    rows = [row for row in cal.solution_.trials if key in row and "ece" in row]
    if not rows:
        raise InputError(f"{cal.label} tried no {key}; fit rho-norm with rho='grid' or alpha='auto'")
    return rows
