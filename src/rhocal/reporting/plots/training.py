"""The amplitude of the logits during training (paper, Fig. 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rhocal.reporting.plots.style import MARKS, canvas, plain, quiet, style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.reporting.curves import Amplitudes

AMPLITUDE = "amplitude ‖z‖₂ / m"


def amplitude_over_epochs(runs: Sequence[Amplitudes], *, ax: Any = None) -> Any:
    """The mean amplitude after each epoch, one line for each run."""
    ax = quiet(canvas(ax))
    for k, run in enumerate(runs):
        ax.plot(run.epoch, run.mean, marker=MARKS[k % len(MARKS)], markersize=3, label=plain(run.name), **style(k))
    ax.set(xlabel="epoch", ylabel=f"mean {AMPLITUDE}")
    ax.legend(fontsize=8, frameon=False)
    return ax


def amplitude_histogram(runs: Sequence[Amplitudes], *, ax: Any = None) -> Any:
    """How amplitudes are spread after the last epoch."""
    ax = quiet(canvas(ax))
    for k, run in enumerate(runs):
        ax.stairs(run.amplitude_share, run.amplitude_edges, label=plain(run.name), linewidth=1.6, **style(k))
    ax.set(xlabel=AMPLITUDE, ylabel="share of samples")
    ax.legend(fontsize=8, frameon=False)
    return ax


def confidence_histogram(runs: Sequence[Amplitudes], *, ax: Any = None) -> Any:
    """How confidences are spread after the last epoch."""
    ax = quiet(canvas(ax))
    for k, run in enumerate(runs):
        ax.stairs(run.confidence_share, run.confidence_edges, label=plain(run.name), linewidth=1.6, **style(k))
    ax.set(xlim=(0, 1), xlabel="confidence", ylabel="share of samples")
    ax.legend(fontsize=8, frameon=False)
    return ax
