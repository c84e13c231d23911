"""How much the number of samples that would decide a verdict varies, and how many verdicts as many samples decide.

Writes needed.csv and needed.md.

    python experiments/coverage/needed.py
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from joint_models import Model, class_bias, over, perfect, temperature, two

import rhocal
from rhocal.errors import RhocalWarning
from rhocal.evaluation.rows import write_rows

HERE = Path(__file__).parent
N_SAMPLES = 200
"""Sets of samples whose verdict is asked for; the seeds of fresh sets of other sizes follow."""
N_FRESH = 100
TIMES = (0.5, 1, 2)
"""The median of the stated numbers, times these, is the size of fresh sets."""
MODELS = [
    perfect("perfect, ten classes", 1000, lambda r, n: r.dirichlet(np.ones(10), n)),
    perfect("perfect, two classes", 300, lambda r, n: two(r.random(n))),
    perfect("perfect, two classes, 2 % positive", 100, lambda r, n: two(r.beta(0.4, 19.6, n))),
    Model("over-confident by .01, two classes", 300, over(0.01)),
    Model("one class of ten, logit + 0.1", 1000, class_bias(0.1)),
    Model("over-confident by .04, two classes", 300, over(0.04)),
    Model("logits × 1.5, five classes", 50, temperature(5, 1.5)),
    Model("logits × 2, five classes", 50, temperature(5, 2)),
]


def evaluated(model: Model, seed: int, n: int | None = None) -> rhocal.Evaluation:
    """The evaluation of one set of samples."""
    probs, labels, _ = model.sample(np.random.default_rng(seed), n)
    return rhocal.evaluate(probs, labels, metrics=["ece"], seed=seed, classes=list(range(probs.shape[1])))


def measure(model: Model) -> dict[str, Any]:
    """What was stated where the verdict was undecided, and the share of fresh verdicts that are decided."""
    found = [evaluated(model, seed) for seed in range(N_SAMPLES)]
    stated = [np.inf if one.n_needed is None else one.n_needed for one in found if one.state == "undecided"]
    low, median, high = np.quantile(stated, [0.05, 0.5, 0.95], method="nearest")
    decided = {}
    for times in TIMES:
        fresh = [evaluated(model, N_SAMPLES + seed, round(times * median)).state for seed in range(N_FRESH)]
        decided[f"decided_{times:g}"] = sum(state != "undecided" for state in fresh) / N_FRESH
    return {
        "model": model.name, "n": model.n, "undecided": len(stated) / N_SAMPLES,
        "low": low, "median": median, "high": high, "hopeless": float(np.mean(np.isinf(stated))), **decided,
    }  # fmt: skip


def shown(number: float) -> str:
    return "far more" if np.isinf(number) else f"{number:,.0f}"


def main() -> None:
    warnings.simplefilter("ignore", RhocalWarning)
    rows = [measure(model) for model in MODELS]
    write_rows(HERE / "needed.csv", rows)
    head = ["model", "n", "undecided", "median", "5 to 95 %", "only far more", *(f"decided at {t:g}×" for t in TIMES)]
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for row in rows:
        cells = [row["model"], f"{row['n']:,}", f"{row['undecided']:.2f}", shown(row["median"])]
        cells += [f"{shown(row['low'])} to {shown(row['high'])}", f"{row['hopeless']:.2f}"]
        cells += [f"{row[f'decided_{times:g}']:.2f}" for times in TIMES]
        lines.append(f"| {' | '.join(cells)} |")
    text = (HERE / "needed_template.md").read_text(encoding="utf-8").replace("{table}", "\n".join(lines))
    (HERE / "needed.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
