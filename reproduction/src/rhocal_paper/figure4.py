"""Figure 4: where the samples of each bin of raw confidence go when vector scaling is fitted on SCE, with and without KL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rhocal.numerics.special import top_probability
from rhocal.reporting import curves, plots
from rhocal.reporting.plots.style import new_axes_grid
from rhocal_paper.figure2 import rank_correlation
from rhocal_paper.grid import IN_DIRECTION, NOT, REPRODUCED
from rhocal_paper.table3 import FAR, SPOKEN, WAYS, vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.evaluation.compare import CalibrationSplit
    from rhocal.reporting.curves import Migration

OBJECTIVES = {"sce": "SCE", "sce+kl": "SCE + KL"}


@dataclass(frozen=True)
class Moved:
    """Samples after one fit."""

    way: str
    objective: str
    curve: Migration
    spread: float
    """Mean over samples of the width, from 5 % to 95 %, of where its raw bin went."""
    correlation: float
    """Rank correlation of confidence before and after."""
    accuracy: float


def panels(split: CalibrationSplit) -> list[Moved]:
    """Both objectives in every way of Table 3."""
    calibration, test = split.calibration.predictions, split.test.predictions
    raw = test.logits
    found = []
    for way in WAYS:
        for objective in OBJECTIVES:
            after = vector(0, way, objective).fit(calibration.logits, calibration.labels).transform(raw)
            curve = curves.migration(raw, after, kind="logits")
            width = curve.quantiles[:, -1] - curve.quantiles[:, 0]
            found.append(
                Moved(
                    way, objective, curve, float(width @ curve.n_samples / curve.n_samples.sum()),
                    rank_correlation(top_probability(raw), top_probability(after)),
                    float((after.argmax(axis=1) == test.labels).mean()),
                )
            )  # fmt: skip
    return found


def rows(found: Sequence[Moved], network: str) -> list[dict[str, Any]]:
    """Tidy: a row for each fit and bin of raw confidence."""
    names = ("q05", "q25", "q50", "q75", "q95")
    return [
        {
            "network": network, "way": moved.way, "objective": moved.objective, "low": float(moved.curve.low[k]),
            "n": int(moved.curve.n_samples[k]), "raw": float(moved.curve.raw[k]),
            **dict(zip(names, map(float, moved.curve.quantiles[k]), strict=True)),
        }
        for moved in found
        for k in range(len(moved.curve.low))
    ]  # fmt: skip


def verdicts(found: Sequence[Moved], network: str) -> list[dict[str, str]]:
    """SCE alone scatters the samples of a bin; KL keeps them together."""
    lines = []
    for way in WAYS:
        alone, repaired = (next(m for m in found if (m.way, m.objective) == (way, o)) for o in OBJECTIVES)
        ratio = alone.spread / repaired.spread
        verdict = REPRODUCED if ratio > FAR else IN_DIRECTION if ratio > 1 else NOT
        told = "; ".join(
            f"{OBJECTIVES[m.objective]}: 90 % of a raw bin within {m.spread:.3f}, rank correlation {m.correlation:.2f}, "
            f"accuracy {m.accuracy:.3f}"
            for m in (alone, repaired)
        )
        claim = f"SCE alone scatters the samples of a bin, KL keeps them together ({SPOKEN[way]})"
        lines.append({"network": network, "claim": claim, "verdict": verdict, "reason": told})
    return lines


def draw(found: Sequence[Moved]) -> Any:
    """A column for each way: SCE above, SCE + KL below."""
    axes = new_axes_grid(None, len(OBJECTIVES), len(WAYS), (3.5 * len(WAYS), 3.6 * len(OBJECTIVES)))
    for moved in found:
        row, column = list(OBJECTIVES).index(moved.objective), list(WAYS).index(moved.way)
        title = f"{OBJECTIVES[moved.objective]}, {SPOKEN[moved.way]}"
        plots.migration(moved.curve, ax=axes[row, column]).set_title(title, fontsize=9)
    return axes
