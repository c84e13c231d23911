"""Plots of a fitted map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError
from rhocal.reporting.plots.style import BLUE, GRAY, RED, SKY, new_axes, unit_square, without_frame

if TYPE_CHECKING:
    from rhocal.reporting.curves import AlphaCurve, ConfidenceMap, Migration, RhoGrid, TemperatureMap

AXES = {"amplitude": "amplitude ‖z‖₂ (rows of mean zero)", "margin": "margin of the top class"}


def temperature(curve: TemperatureMap, *, against: str = "amplitude", ax: Any = None) -> Any:
    """The temperature of samples against the ``amplitude`` or ``margin`` of their logits."""
    if against not in AXES:
        raise InputError(f"against is one of {', '.join(AXES)}; got {against!r}")
    ax = without_frame(new_axes(ax))
    ax.plot(getattr(curve, against), curve.temperature, "o", markersize=2.5, color=BLUE, alpha=0.7)
    ax.set(xlabel=AXES[against], ylabel="temperature")
    return ax


def confidence_map(curve: ConfidenceMap, *, ax: Any = None) -> Any:
    """Calibrated against raw confidence; samples whose decision changed are crosses."""
    ax = unit_square(new_axes(ax), "confidence before", "confidence after")
    kept = curve.kept
    ax.plot(curve.raw[kept], curve.calibrated[kept], "o", markersize=2.5, color=BLUE, alpha=0.7, label="decision kept")
    if not kept.all():
        ax.plot(curve.raw[~kept], curve.calibrated[~kept], "x", markersize=5, color=RED, label="decision changed")
    ax.text(0.03, 0.97, f"{100 * curve.share_kept:.1f} % of decisions kept", va="top", fontsize=9)
    return ax


def rho_grid(curve: RhoGrid, *, ax: Any = None) -> Any:
    """ECE on the calibration set over ρ; the chosen one is marked."""
    ax = without_frame(new_axes(ax))
    ax.plot(curve.rho, curve.ece, "o-", color=BLUE)
    _mark(ax, curve.rho, curve.ece, curve.chosen)
    ax.set(xlabel="ρ", ylabel="ECE on the calibration set")
    return ax


def alpha_curve(curve: AlphaCurve, *, ax: Any = None) -> Any:
    """ECE on the calibration set over the weight of the KL term."""
    ax = without_frame(new_axes(ax))
    positions = np.arange(len(curve.alpha))  # from 0 over powers of ten: evenly spaced reads best
    ax.plot(positions, curve.ece, "s-", color=BLUE)
    _mark(ax, positions, curve.ece, float(positions[curve.alpha == curve.chosen][0]))
    ax.set_xticks(positions, [f"{alpha:g}" for alpha in curve.alpha])
    ax.set(xlabel="α, weight of the KL term", ylabel="ECE on the calibration set")
    return ax


def _mark(ax: Any, x: Any, y: Any, chosen: float) -> None:
    at = int(np.argmin(np.abs(x - chosen)))
    ax.plot(x[at], y[at], "o", markersize=13, markerfacecolor="none", markeredgecolor=RED, markeredgewidth=2)


def migration(curve: Migration, *, ax: Any = None) -> Any:
    """For every bin of raw confidence, quantiles of calibrated confidence: 5, 25, 50, 75, 95 % (paper, Fig. 4)."""
    ax = unit_square(new_axes(ax), "confidence before", "confidence after")
    middle, width = (curve.low + curve.high) / 2, curve.high - curve.low
    q = curve.quantiles
    ax.vlines(middle, q[:, 0], q[:, 4], color=BLUE, linewidth=1)
    ax.bar(middle, q[:, 3] - q[:, 1], 0.6 * width, bottom=q[:, 1], color=SKY, edgecolor=BLUE, linewidth=0.8, zorder=2)
    ax.hlines(q[:, 2], middle - 0.3 * width, middle + 0.3 * width, color="black", linewidth=2, zorder=3)
    ax.plot(middle, curve.raw, "_", color=GRAY, markersize=9, zorder=1)
    return ax
