"""How often the risk of any class is above its target where each predicted class has a threshold, and classes are tied.

Writes classes.csv beside this file. Probabilities are multiples of 0.25, so that in many samples two classes are equally
probable: the first is decided.

    python experiments/decide/simulate_classes.py --trials 2000
"""

from __future__ import annotations

import argparse
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from rhocal.evaluation.decide import _per_class
from rhocal.evaluation.question import Question, SampleScores
from rhocal.evaluation.rows import write_rows
from rhocal.numerics.special import row_argmax, row_max

if TYPE_CHECKING:
    from rhocal.numerics.special import Floats

HERE = Path(__file__).parent
SIZES = (200, 1000, 10_000)
TARGET, CONFIDENCE, STEP, N_ROWS = 0.1, 0.95, 0.25, 20_000


def tied_probs(n_classes: int, concentration: float) -> Floats:
    """Rows of multiples of ``STEP`` with a sum of 1."""
    rng = np.random.default_rng(25)
    p = rng.dirichlet(np.full(n_classes, concentration), N_ROWS)
    cuts = np.round(np.cumsum(p, axis=1) / STEP)
    return np.diff(cuts, axis=1, prepend=0.0) * STEP


def models() -> dict[str, tuple[Floats, Floats]]:
    """Probabilities of a model, and the true ones."""
    three, ten = tied_probs(3, 0.4), tied_probs(10, 0.05)
    flat = np.full_like(three, TARGET * 1.001 / 2)
    flat[np.arange(N_ROWS), row_argmax(three)] = 1 - TARGET * 1.001
    worse = 0.95 * three + 0.05 / 3
    return {
        "3 classes": (three, three), "3 classes, flat": (three, flat), "3 classes, over-confident": (three, worse),
        "10 classes": (0.98 * ten + 0.02 / 10, 0.98 * ten + 0.02 / 10),
    }  # fmt: skip


def cell(name: str, probs: Floats, truth: Floats, n: int, trials: int) -> dict[str, Any]:
    n_classes = probs.shape[1]
    predicted, score = row_argmax(probs), np.asarray(row_max(probs), np.float64)
    wrong, levels = 1 - truth[np.arange(N_ROWS), predicted], np.cumsum(truth, axis=1)
    tied = float(((probs == probs.max(axis=1, keepdims=True)).sum(axis=1) > 1).mean())
    question = Question("error", TARGET, CONFIDENCE, "per-class")
    n_false, n_certified, shares = 0, 0, []
    for trial in range(trials):
        rng = np.random.default_rng([zlib.crc32(name.encode()), n, trial])
        rows = rng.integers(0, N_ROWS, n)
        labels = np.minimum((levels[rows] < rng.random((n, 1))).sum(axis=1), n_classes - 1)
        samples = SampleScores(score[rows], predicted[rows], labels, np.ones(n), np.arange(n_classes), None)
        policy = _per_class(samples, question, None).policy
        if policy is None:
            continue
        accepted = score >= policy.thresholds[predicted]
        risks = [wrong[accepted & (predicted == c)] for c in range(n_classes)]
        n_certified += 1
        n_false += any(len(risk) and risk.mean() > TARGET for risk in risks)
        shares.append(accepted.mean())
    return {
        "population": name, "tied": tied, "target": TARGET, "n": n, "trials": trials, "false": n_false / trials,
        "certified": n_certified / trials, "share": float(np.mean(shares)) if shares else float("nan"),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    args = parser.parse_args()
    rows = []
    for n in SIZES:
        for name, (probs, truth) in models().items():
            rows.append(cell(name, probs, truth, n, args.trials))
            print(rows[-1], flush=True)
            write_rows(HERE / "classes.csv", rows)


if __name__ == "__main__":
    main()
