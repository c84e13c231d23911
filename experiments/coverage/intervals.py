"""How often intervals of NLL and Brier scores contain the true value, also with few errors.

Writes intervals.csv and intervals.md beside this file.

    python experiments/coverage/intervals.py --trials 500
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from models import MODELS, NEAR_ONE, OTHERS, Model

from rhocal.evaluation.rows import write_rows
from rhocal.metrics.inference.intervals import intervals

HERE = Path(__file__).parent
SIZES = (200, 1000)
METRICS = ("nll", "brier", "top_brier")
FEW_ERRORS = [
    Model("accuracy .995, perfect", lambda c: c, values=(0.995,)),
    Model("accuracy .999, perfect", lambda c: c, values=(0.999,)),
    Model("accuracy .995, confidence .999", lambda c: c - 0.004, values=(0.999,)),
    Model("accuracy .999, confidence .9999", lambda c: c - 0.0009, values=(0.9999,)),
    Model("near one, perfect", lambda c: c, NEAR_ONE),
    Model("near one, over-confident by .01", lambda c: c - 0.01, NEAR_ONE),
    Model("nearer one, perfect", lambda c: c, (200.0, 0.9)),
]
HELD_BACK = [
    Model("accuracy .99, two values", lambda c: c, values=(0.985, 0.995)),
    Model("accuracy .97, confidence .999", lambda c: c - 0.029, values=(0.999,)),
    Model("errors at low confidence only", lambda c: np.where(c < 0.9, 0.5, 0.9999), (20.0, 0.6)),
    Model("accuracy .3, perfect", lambda c: c, values=(0.2, 0.3, 0.4)),
    Model("accuracy .05, confidence .9", lambda c: 0 * c + 0.05, values=(0.9,)),
]


def measure(model: Model, truth: dict[str, float], n: int, trials: int) -> list[dict[str, Any]]:
    """Coverage and mean width for each metric."""
    rng = np.random.default_rng([n, *model.name.encode()])
    found = [intervals(model.draw(rng, n), METRICS, seed=k) for k in range(trials)]
    return [
        {
            "model": model.name, "n": n, "metric": name, "truth": truth[name], "trials": trials,
            "coverage": float(np.mean([f[name].low <= truth[name] <= f[name].high for f in found])),
            "width": float(np.mean([f[name].high - f[name].low for f in found])),
        }
        for name in METRICS
    ]  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """In Markdown."""
    lines = ["| model | n | " + " | ".join(METRICS) + " |", "|" + " --- |" * (2 + len(METRICS))]
    for key in dict.fromkeys((row["model"], row["n"]) for row in rows):
        cells = [f"{r['coverage']:.3f} ({r['width']:.4f})" for r in rows if (r["model"], r["n"]) == key]
        lines.append(f"| {key[0]} | {key[1]:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    trials = parser.parse_args().trials
    parts = {
        "{few_errors}": FEW_ERRORS, "{others}": [*MODELS[:3], *OTHERS[:3]], "{held_back}": HELD_BACK,
    }  # fmt: skip
    text = (HERE / "intervals_template.md").read_text(encoding="utf-8").replace("{trials}", f"{trials:,}")
    everything: list[dict[str, Any]] = []
    for place, models in parts.items():
        rows = [
            row
            for model in models
            for truth in [model.truth()]
            for n in SIZES
            for row in measure(model, truth, n, trials)
        ]
        everything += rows
        text = text.replace(place, table(rows))
    write_rows(HERE / "intervals.csv", everything)
    (HERE / "intervals.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
