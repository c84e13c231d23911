"""How often the interval of a calibrated probability holds the true one, where the family is right.

Writes intervals.csv beside this file, a row after each cell.

    python experiments/decide/simulate_intervals.py
"""

from __future__ import annotations

import argparse
import os
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import rhocal
from rhocal.evaluation.rows import write_rows
from rhocal.numerics.special import softmax

if TYPE_CHECKING:
    from rhocal.numerics.special import Floats

HERE = Path(__file__).parent
LEVEL = 0.95
N_POINTS = 30
N_REPLICATES = 50
CELLS = (
    ("temperature", 200, 3, 2000), ("temperature", 1000, 3, 2000), ("platt", 200, 2, 2000),
    ("platt", 1000, 2, 300), ("vector", 500, 3, 2000), ("isotonic", 500, 2, 300),
)  # fmt: skip
"""Method, samples, classes and trials; a trial takes up to a quarter of a second."""


def truth(method: str, logits: Floats) -> Floats:
    """True probabilities that a member of the family gives."""
    if method == "vector":
        return softmax(logits * np.array([0.5, 0.6, 0.7]) + np.array([-0.3, 0.0, 0.3]))
    if method == "temperature":
        return softmax(logits / 1.7)
    log_odds = 0.6 * (logits[:, 1] - logits[:, 0]) - 0.3
    return softmax(np.stack([0 * log_odds, log_odds], axis=1))


def cell(method: str, n: int, m: int, trials: int) -> dict[str, Any]:
    points = 2 * np.random.default_rng(1).normal(size=(N_POINTS, m))
    probs, covered, width = truth(method, points), [], []
    for trial in range(trials):
        rng = np.random.default_rng([zlib.crc32(method.encode()), n, trial])
        logits = 2 * rng.normal(size=(n, m))
        labels = np.minimum((np.cumsum(truth(method, logits), axis=1) < rng.random((n, 1))).sum(axis=1), m - 1)
        calibrator = rhocal.calibrator(method).fit(logits, labels, classes=np.arange(m))
        replicates = rhocal.bootstrap(calibrator, logits, labels, n_replicates=N_REPLICATES, seed=trial)
        low, high = replicates.predict_interval(points, level=LEVEL)
        covered.append(((low <= probs) & (probs <= high)).mean())
        width.append((high - low).mean())
    error = float(np.std(covered) / np.sqrt(trials))
    return {
        "method": method, "n": n, "classes": m, "trials": trials, "coverage": float(np.mean(covered)), "error": error,
        "width": float(np.mean(width)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-trials", type=int, default=2000)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for method, n, m, trials in CELLS:
        rows.append(cell(method, n, m, min(trials, args.max_trials)))
        print(rows[-1], flush=True)
        write_rows(HERE / "intervals.csv", rows)


if __name__ == "__main__":
    main()
