"""The two pictures of the comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "rhocal"  # the same rows give the same file
import matplotlib.pyplot as plt  # noqa: E402 - after the backend is chosen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

SMALLEST = 1e-4
"""ECE above its floor is drawn from here on, on a logarithmic axis."""

FAR = 1.16
"""Methods whose NLL is more than this times the lowest are drawn at the right edge, with an arrow."""


def points(lines: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """NLL and ECE above its floor of every method."""
    return {line["method"]: (line["nll"], max(line["ece"] - line["ece_floor"], SMALLEST)) for line in lines}


def pareto_front(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Methods that no other beats on both figures, by NLL."""
    positions = points(lines)
    front = [
        name
        for name, (x, y) in positions.items()
        if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in positions.values())
    ]
    return sorted(front, key=lambda name: positions[name])


def neighbors(positions: Mapping[str, tuple[float, float]], width: float) -> list[list[str]]:
    """Methods whose points would print their names over each other, together; others alone."""
    groups: list[list[str]] = []
    for name in sorted(positions, key=lambda name: positions[name]):
        x, y = positions[name]
        for group in groups:
            a, b = positions[group[0]]
            if abs(x - a) < 0.06 * width and abs(np.log(y / b)) < 0.06:
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def pareto(lines: Sequence[Mapping[str, Any]], path: Path) -> None:
    """ECE above its floor against NLL; the front is what no other method beats on both."""
    positions, front = points(lines), pareto_front(lines)
    lowest = min(x for x, _ in positions.values())
    edge = min(max(x for x, _ in positions.values()), FAR * lowest)
    figure, axis = plt.subplots(figsize=(9, 6), layout="constrained")
    above: list[tuple[float, float]] = []
    for names in neighbors(positions, edge - lowest):
        for name in names:
            on = name in front
            at = min(positions[name][0], edge), positions[name][1]
            axis.plot(*at, "o" if on else "x", color="black" if on else "0.45", markersize=7 if on else 5)
        x, y = positions[names[0]]
        right = x > lowest + 0.85 * (edge - lowest)
        # a name goes below its point where the one before it would run into it
        below = any(x - a < 0.25 * (edge - lowest) and abs(np.log(y / b)) < 0.06 for a, b in above)
        if not below:
            above.append((x, y))
        axis.annotate(
            ", ".join(names) + (f" → {x:.2f}" if x > edge else ""),
            (min(x, edge), y),
            xytext=(-5 if right else 5, -10 if below else 4),
            ha="right" if right else "left",
            textcoords="offset points",
            fontsize=7.5,
            color="black" if names[0] in front else "0.3",
        )
    line = np.array([positions[name] for name in front])
    axis.step(line[:, 0], line[:, 1], where="post", color="black", linewidth=0.8)
    axis.set(xlabel="NLL, mean over networks", ylabel="ECE above its floor, mean over networks", yscale="log")
    axis.set_xlim(lowest - 0.03 * (edge - lowest), edge + 0.06 * (edge - lowest))
    axis.set_title("Lower left is better; circles: no other method is better on both", fontsize=10)
    axis.grid(visible=True, which="both", alpha=0.2)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def rank_plot(rankings: Mapping[str, Sequence[Mapping[str, Any]]], distance: float, path: Path) -> None:
    """Mean ranks, best on top; the band holds those that do not differ significantly from the best."""
    n_methods = len(next(iter(rankings.values())))
    figure, axes = plt.subplots(1, len(rankings), figsize=(9, 0.2 * n_methods + 0.9), layout="constrained")
    for axis, (title, order) in zip(np.atleast_1d(axes), rankings.items(), strict=True):
        ranks = [line["mean_rank"] for line in order]
        level = [rank - ranks[0] <= distance for rank in ranks]
        axis.axvspan(ranks[0], ranks[0] + distance, color="0.9")
        axis.scatter(ranks, range(n_methods), c=["black" if same else "0.55" for same in level], s=18, zorder=3)
        axis.set_yticks(range(n_methods), [line["method"] for line in order], fontsize=7.5)
        axis.set(xlabel=f"mean rank by {title}", ylim=(n_methods - 0.4, -0.6))
        axis.grid(visible=True, axis="x", alpha=0.25)
    figure.suptitle(f"Band: within the critical difference ({distance:.1f}) of the best", fontsize=10)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
