"""The amplitude of the logits during training (paper, Fig. 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rhocal.reporting.plots.style import MARKS, new_axes, plain, style, without_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.numerics.special import Vector
    from rhocal.reporting.curves import Amplitudes

AMPLITUDE = "amplitude ‖z‖₂ / m"


def amplitude_over_epochs(runs: Sequence[Amplitudes], *, ax: Any = None) -> Any:
    """The mean amplitude after each epoch, one line for each run."""
    ax = without_frame(new_axes(ax))
    for k, run in enumerate(runs):
        ax.plot(run.epoch, run.mean, marker=MARKS[k % len(MARKS)], markersize=3, label=plain(run.name), **style(k))
    ax.set(xlabel="epoch", ylabel=f"mean {AMPLITUDE}")
    ax.legend(fontsize=8, frameon=False)
    return ax


def amplitude_histogram(runs: Sequence[Amplitudes], *, ax: Any = None) -> Any:
    """The distribution of amplitudes after the last epoch."""
    return _histograms({run.name: (run.amplitude_share, run.amplitude_edges) for run in runs}, AMPLITUDE, ax)


def confidence_histogram(runs: Sequence[Amplitudes], *, ax: Any = None) -> Any:
    """The distribution of confidences after the last epoch."""
    shares = {run.name: (run.confidence_share, run.confidence_edges) for run in runs}
    ax = _histograms(shares, "confidence", ax)
    ax.set_xlim(0, 1)
    return ax


def _histograms(runs: Mapping[str, tuple[Vector, Vector]], label: str, ax: Any) -> Any:
    ax = without_frame(new_axes(ax))
    for k, (name, (share, edges)) in enumerate(runs.items()):
        ax.stairs(share, edges, label=plain(name), linewidth=1.6, **style(k))
    ax.set(xlabel=label, ylabel="share of samples")
    ax.legend(fontsize=8, frameon=False)
    return ax
