"""Reliability diagrams and confidence histograms (paper, Fig. 3)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.metrics.inference.p_values import equals_p, least_of_draws
from rhocal.reporting.plots.style import (
    BLUE,
    GRAY,
    RED,
    SKY,
    new_axes,
    new_axes_grid,
    plain,
    unit_square,
    without_frame,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.reporting.curves import CumulativeGap, Histogram, Reliability, SmoothReliability

CONFIDENCE, ACCURACY = "confidence", "accuracy"


def reliability(curve: Reliability, *, ax: Any = None, counts: bool = True) -> Any:
    """Accuracy in bins of confidence: gaps hatched, 95 % of perfectly calibrated models gray, bootstrap intervals."""
    names = (
        (f"probability of {curve.of_class}", f"share of {curve.of_class}") if curve.of_class else (CONFIDENCE, ACCURACY)
    )
    ax = unit_square(new_axes(ax), *names)
    left, width = curve.low, np.maximum(curve.high - curve.low, 0.004)
    ax.bar(
        left, curve.accuracy, width, align="edge", color=SKY, edgecolor=BLUE, linewidth=0.8, zorder=2, label=names[1]
    )
    ax.bar(
        left, curve.confidence - curve.accuracy, width, bottom=curve.accuracy, align="edge", facecolor="none",
        edgecolor=RED, hatch="////", linewidth=0.8, zorder=3, label=f"gap to {names[0].split()[0]}",
    )  # fmt: skip
    for k in range(len(left)):
        ax.fill_between(
            [left[k], left[k] + width[k]], curve.band_low[k], curve.band_high[k], color=GRAY, alpha=0.25, linewidth=0,
            zorder=4, label="if calibrated, 95 %" if k == 0 else None,
        )  # fmt: skip
    error = np.abs(np.array([curve.accuracy - curve.interval_low, curve.interval_high - curve.accuracy]))
    ax.errorbar(
        left + width / 2, curve.accuracy, error, fmt="o", markersize=3.5, color="black", linewidth=1, zorder=5,
        label="bootstrap, 95 %",
    )  # fmt: skip
    if counts:
        for k, n in enumerate(curve.weight):
            middle, text = left[k] + width[k] / 2, {"ha": "center", "va": "bottom", "fontsize": 6, "rotation": 90}
            ax.text(middle, 0.015, short_count(n), **text, zorder=6)
    ax.text(0.03, 0.97, f"{'ECE' if curve.scheme == 'width' else 'AdaECE'} {curve.ece:.4f}", va="top", zorder=6)
    return ax


def short_count(n: float) -> str:
    """A count in about four characters.

    >>> [short_count(n) for n in (7, 950, 6400, 1_250_000)]
    ['7', '950', '6.4k', '1.2M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.{0 if n >= 100 * size else 1}f}{letter}"
    return f"{n:.0f}"


def cumulative(curve: CumulativeGap, *, ax: Any = None) -> Any:
    """Cumulative correct − confidence over the samples in order of confidence; 95 % of perfectly calibrated models gray."""
    ax = without_frame(new_axes(ax))
    what = f"probability of {curve.of_class}" if curve.of_class else CONFIDENCE
    p_value = equals_p(curve.kuiper_p_value, least_of_draws(curve.n_draws))
    ax.axhspan(-curve.band, curve.band, color=GRAY, alpha=0.2, linewidth=0, label="if calibrated, 95 %")
    ax.axhline(0, color=GRAY, linewidth=0.8)
    ax.plot(
        curve.share,
        curve.gap,
        color=BLUE,
        linewidth=1.8,
        label=f"Kuiper {curve.kuiper:.4f}, p {p_value}",
    )
    ax.set(xlim=(0, 1), xlabel=f"share of samples, lowest {what} first")
    ax.set_ylabel(f"cumulative {'label' if curve.of_class else 'correct'} − {what.split()[0]}")
    ax.legend(fontsize=8, frameon=False)
    return ax


def histogram(curve: Histogram, *, ax: Any = None) -> Any:
    """The share of samples by confidence, with mean confidence and accuracy."""
    ax = without_frame(new_axes(ax))
    ax.bar(curve.edges[:-1], curve.share, np.diff(curve.edges), align="edge", color=SKY, edgecolor=BLUE, linewidth=0.8)
    ax.axvline(curve.mean_confidence, color=RED, linestyle="--", label=f"confidence {curve.mean_confidence:.3f}")
    ax.axvline(curve.mean_accuracy, color="black", linestyle="-", label=f"accuracy {curve.mean_accuracy:.3f}")
    ax.set(xlim=(0, 1), xlabel=CONFIDENCE, ylabel="share of samples")
    ax.legend(loc="upper left", fontsize=8, frameon=False)
    return ax


def smooth(curve: SmoothReliability, *, ax: Any = None) -> Any:
    """The smooth curve with its bootstrap band, and the density of the samples below it."""
    ax = unit_square(new_axes(ax), CONFIDENCE, ACCURACY)
    ax.fill_between(
        curve.confidence, curve.low, curve.high, color=BLUE, alpha=0.25, linewidth=0, label="bootstrap, 95 %"
    )
    ax.plot(curve.confidence, curve.accuracy, color=BLUE, linewidth=2, label=curve.smoother)
    height = 0.15 * curve.density / max(float(curve.density.max()), 1e-12)
    ax.fill_between(curve.confidence, 0, height, color=GRAY, alpha=0.35, linewidth=0, label="density")
    ax.text(0.03, 0.97, f"error {curve.error:.4f}", va="top")
    return ax


def grid(methods: Mapping[str, tuple[Histogram, Reliability]], *, axes: Any = None, columns: int = 3) -> Any:
    """Histogram above reliability diagram, for each method (paper, Fig. 3)."""
    columns = min(columns, len(methods))
    rows = math.ceil(len(methods) / columns)
    axes = new_axes_grid(axes, 2 * rows, columns, (2.7 * columns, 4.3 * rows))
    for k, (name, (bars, curve)) in enumerate(methods.items()):
        row, column = divmod(k, columns)
        histogram(bars, ax=axes[2 * row, column]).set_title(plain(name), fontsize=10)
        axes[2 * row, column].get_legend().remove()
        reliability(curve, ax=axes[2 * row + 1, column], counts=False)
    for k in range(len(methods), rows * columns):
        for part in (0, 1):
            axes[2 * (k // columns) + part, k % columns].set_visible(False)
    return axes
