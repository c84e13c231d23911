"""How often variational lower bounds exceed the truth, and intervals of RMSCE contain it.

Writes bounds.csv and bounds.md beside this file.

    python experiments/coverage/bounds.py --trials 500
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from models import HELD_BACK, MODELS, OTHERS, Model

from rhocal.evaluation.rows import write_rows
from rhocal.metrics.binned import debiased_rmsce
from rhocal.metrics.inference.l2_interval import rmsce_interval
from rhocal.metrics.inference.variational import THRESHOLDS, bounds_of
from rhocal.numerics.bins import N_BINS, equal_width

if TYPE_CHECKING:
    from rhocal.numerics.special import Vector

HERE = Path(__file__).parent
SIZES = (200, 1000, 5000)
BOUNDS = ("ece", "brier", "decision_loss")


def truth(model: Model) -> dict[str, float]:
    """What the bounds are below, and the RMSCE over bins."""
    c, right = model.typical()
    bins = equal_width(c, N_BINS)
    weight, gap = np.bincount(bins, minlength=N_BINS), np.bincount(bins, right - c, N_BINS)
    held = weight > 0
    return {
        "ece": float(np.abs(right - c).mean()),
        "brier": float(((right - c) ** 2).mean()),
        "decision_loss": max(decision_loss(c, right, t) for t in THRESHOLDS),
        "rmsce": float(np.sqrt((gap[held] ** 2 / weight[held]).sum() / len(c))),
    }


def decision_loss(c: Vector, right: Vector, threshold: float) -> float:
    acts = (right >= threshold).astype(np.float64) - (c >= threshold)
    return float((acts * (right - threshold)).mean())


def measure(model: Model, true: dict[str, float], n: int, trials: int) -> dict[str, Any]:
    """Error rates and means of one model and size."""
    rng = np.random.default_rng([n, *model.name.encode()])
    samples = [model.draw(rng, n) for _ in range(trials)]
    bounds = [bounds_of(sample, seed=k) for k, sample in enumerate(samples)]
    row: dict[str, Any] = {"model": model.name, "n": n, "trials": trials}
    for name in BOUNDS:
        found = [getattr(bound, name) for bound in bounds]
        row[f"{name}_truth"] = true[name]
        row[f"{name}_mean"] = float(np.mean([one.estimate for one in found]))
        row[f"{name}_low"] = float(np.mean([one.low for one in found]))
        row[f"{name}_exceeded"] = float(np.mean([one.low > true[name] + 1e-12 for one in found]))
    intervals = [rmsce_interval(sample, debiased_rmsce(sample).value, 0.95) for sample in samples]
    row["rmsce_truth"] = true["rmsce"]
    row["rmsce_coverage"] = float(np.mean([one.low <= true["rmsce"] + 1e-12 <= one.high + 2e-12 for one in intervals]))
    row["rmsce_width"] = float(np.mean([one.high - one.low for one in intervals]))
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """In Markdown."""
    lines = ["| model | n | true error | bound | exceeded | decision loss, exceeded | RMSCE | coverage (width) |"]
    lines.append("|" + " --- |" * 8)
    for row in rows:
        cells = [row["model"], f"{row['n']:,}", f"{row['ece_truth']:.4f}", f"{row['ece_low']:.4f}"]
        cells += [f"{row['ece_exceeded']:.3f}", f"{row['decision_loss_exceeded']:.3f}", f"{row['rmsce_truth']:.4f}"]
        lines.append("| " + " | ".join([*cells, f"{row['rmsce_coverage']:.3f} ({row['rmsce_width']:.4f})"]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    trials = parser.parse_args().trials
    parts = {"{others}": [*MODELS, *OTHERS], "{held_back}": HELD_BACK}
    text = (HERE / "bounds_template.md").read_text(encoding="utf-8").replace("{trials}", f"{trials:,}")
    everything: list[dict[str, Any]] = []
    for place, models in parts.items():
        rows = [measure(model, true, n, trials) for model in models for true in [truth(model)] for n in SIZES]
        everything += rows
        text = text.replace(place, table(rows))
    write_rows(HERE / "bounds.csv", everything)
    (HERE / "bounds.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
