"""Plots that compare methods: risk and coverage, classes, Pareto front, learning curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.metrics import METRICS
from rhocal.reporting.plots.style import BLUE, COLORS, GRAY, LINES, MARKS, new_axes, plain, style, without_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.reporting.curves import ClassHeat, LearningCurve, NetBenefit, Pareto, RiskCoverage


def risk_coverage(methods: Mapping[str, RiskCoverage], *, ax: Any = None) -> Any:
    """The error rate among the most confident share, one line for each method."""
    ax = without_frame(new_axes(ax))
    for k, (name, curve) in enumerate(methods.items()):
        ax.plot(curve.coverage, curve.risk, label=f"{plain(name)} ({curve.area:.4f})", linewidth=1.8, **style(k))
    ax.set(xlim=(0, 1), xlabel="coverage: share answered, most confident first", ylabel="risk: error rate among them")
    ax.set_ylim(bottom=0)
    ax.legend(title="method (AURC)", fontsize=8, frameon=False)
    return ax


def net_benefit(methods: Mapping[str, NetBenefit], *, ax: Any = None) -> Any:
    """The net benefit of decisions over thresholds of probability, one line with its band for each method."""
    ax = without_frame(new_axes(ax))
    for k, (name, curve) in enumerate(methods.items()):
        (line,) = ax.plot(curve.threshold, curve.benefit, label=plain(name), linewidth=1.8, **style(k))
        ax.fill_between(curve.threshold, curve.low, curve.high, color=line.get_color(), alpha=0.15, linewidth=0)
    everyone = next(iter(methods.values()))
    ax.plot(everyone.threshold, everyone.all_positive, color="0.5", linewidth=1.2, linestyle="--", label="all positive")
    ax.axhline(0, color="0.5", linewidth=1.2, linestyle=":", label="none positive")
    top = max(float(np.nanmax(curve.high)) for curve in methods.values())
    ax.set(xlim=(0, 1), ylim=(-0.25 * top, 1.1 * top))
    ax.set(xlabel="threshold on the probability of the positive class", ylabel="net benefit, true positives a sample")
    ax.legend(fontsize=8, frameon=False)
    return ax


def class_heat(curve: ClassHeat, *, ax: Any = None) -> Any:
    """Frequency − probability by class and bin: blue where a class is more frequent than its probability, brown where less."""
    ax = new_axes(ax, (5.4, 0.9 + 0.2 * len(curve.classes)))
    reach = max(float(np.nanmax(np.abs(curve.gap))), 1e-6)
    # Brown to blue-green differs in lightness from its middle on both sides; the sign in the cell is for gray print.
    picture = ax.imshow(
        curve.gap, cmap="BrBG", vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest",
        extent=(0, 1, len(curve.classes) - 0.5, -0.5),
    )  # fmt: skip
    n_bins = curve.gap.shape[1]
    for row, column in np.argwhere(np.abs(np.nan_to_num(curve.gap)) > reach / 4):
        sign = "+" if curve.gap[row, column] > 0 else "−"
        ax.text((column + 0.5) / n_bins, row, sign, ha="center", va="center", fontsize=7)
    labels = [f"{plain(name)} ({error:.3f})" for name, error in zip(curve.classes, curve.error, strict=True)]
    ax.set_yticks(range(len(labels)), labels, fontsize=7)
    ax.set(xlabel="probability of the class", ylabel="class (ECE)")
    ax.figure.colorbar(picture, ax=ax, label="frequency − probability")
    return ax


def pareto(curve: Pareto, *, ax: Any = None) -> Any:
    """Two metrics of all methods; those that no other method beats in both are filled and connected."""
    ax = without_frame(new_axes(ax, (6.4, 3.8)))
    best = np.array(curve.best)
    order = np.argsort(curve.x[best])
    ax.step(curve.x[best][order], curve.y[best][order], where="post", color=GRAY, linestyle=":", zorder=1)
    # Good methods are close together, where names would overlap: numbers, best first, and a legend.
    for k, at in enumerate(np.argsort(curve.y, kind="stable"), start=1):
        x, y, name, winner = curve.x[at], curve.y[at], plain(curve.methods[at]), best[at]
        face = BLUE if winner else "white"
        ax.plot(x, y, "o" if winner else "s", color=BLUE, markerfacecolor=face, markersize=6, label=f"{k}  {name}")
        ax.annotate(str(k), (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), fontsize=7, frameon=False, handletextpad=0.2)
    ax.set(xlabel=f"{title(curve.x_metric)} (lower is better)", ylabel=f"{title(curve.y_metric)} (lower is better)")
    if (curve.y > 0).all():
        ax.set_yscale("log")
    return ax


def learning_curve(curve: LearningCurve, *, ax: Any = None) -> Any:
    """A metric over the size of the calibration set, with standard errors."""
    ax = without_frame(new_axes(ax))
    for k, name in enumerate(curve.methods):
        ax.errorbar(
            curve.size, curve.mean[k], np.nan_to_num(curve.error[k]), marker=MARKS[k % len(MARKS)], markersize=4,
            color=COLORS[k % len(COLORS)], linestyle=LINES[k % len(LINES)], capsize=2, label=plain(name),
        )  # fmt: skip
    ax.set(xscale="log", xlabel="calibration samples", ylabel=title(curve.metric))
    ax.legend(fontsize=8, frameon=False)
    return ax


def title(metric: str) -> str:
    """The title of a metric."""
    return METRICS[metric].title if metric in METRICS else metric
