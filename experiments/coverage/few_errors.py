"""How often the interval of ECE contains the true value where samples have few errors, all at one confidence.

The number of errors is binomial, so every outcome is computed and none is drawn. Writes few_errors.csv and few_errors.md.

    python experiments/coverage/few_errors.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from models import scored
from scipy.stats import binom

from rhocal.evaluation.rows import write_rows
from rhocal.metrics.inference.ece_interval import ece_interval
from rhocal.numerics.bins import N_BINS, equal_width

HERE = Path(__file__).parent
CASES = [
    (0.9, 0.88), (0.9, 0.85), (0.95, 0.95), (0.99, 0.99), (0.99, 0.98), (0.99, 0.97), (0.999, 0.999), (0.999, 0.997),
    (0.999, 0.99), (0.9999, 0.999),
]  # fmt: skip
"""Confidence and accuracy."""
SIZES = (100, 300, 1000, 3000)
MIN_CHANCE = 1e-5
"""Of a number of errors, to be computed."""


def measure(confidence: float, accuracy: float, n: int) -> dict[str, Any]:
    """The probability that the interval contains the true ECE, and that the ECE is above it."""
    truth, covered, above, total = abs(confidence - accuracy), 0.0, 0.0, 0.0
    for errors in range(n + 1):
        chance = float(binom.pmf(errors, n, 1 - accuracy))
        if chance < MIN_CHANCE:
            continue
        sample = scored(np.full(n, confidence), (np.arange(n) >= errors).astype(float))
        found = ece_interval(sample, equal_width(sample.confidence, N_BINS), N_BINS, 0.95)
        total += chance
        covered += chance * (found.low <= truth + 1e-12 and truth <= found.high + 1e-12)
        above += chance * (truth > found.high + 1e-12)
    return {
        "confidence": confidence, "accuracy": accuracy, "n": n, "expected_errors": n * (1 - accuracy),
        "coverage": covered / total, "above": above / total,
    }  # fmt: skip


def main() -> None:
    rows = [measure(*case, n) for case in CASES for n in SIZES]
    write_rows(HERE / "few_errors.csv", rows)
    lines = ["| confidence | accuracy | " + " | ".join(f"n = {n:,}" for n in SIZES) + " |", "|" + " --- |" * 6]
    for confidence, accuracy in CASES:
        own = [row for row in rows if (row["confidence"], row["accuracy"]) == (confidence, accuracy)]
        cells = [f"{row['coverage']:.3f} ({row['above']:.3f})" for row in own]
        lines.append(f"| {confidence:g} | {accuracy:g} | " + " | ".join(cells) + " |")
    text = (HERE / "few_errors_template.md").read_text(encoding="utf-8").replace("{table}", "\n".join(lines))
    (HERE / "few_errors.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
