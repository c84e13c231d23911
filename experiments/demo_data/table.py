"""A classifier of a table with rare positives, trained with balanced class weights: the binary classifier of the demo.

    python experiments/demo_data/table.py

The table is generated: a payment has twelve numeric columns, and one payment in 25 is fraud, by a rule with noise.
Balanced class weights are the usual remedy for rare positives. They help a model to rank, and they make its probabilities far
too high: the model is trained as if half of the payments were fraud.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from shipped_sets import SHIPPED, write_sets
from sklearn.ensemble import HistGradientBoostingClassifier

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_TRAIN, N_HELD_OUT, SHARE_OF_POSITIVES, SEED = 20_000, 10_000, 0.04, 0


def payments(n: int, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Columns and labels. The log-odds of fraud are a sum of steps, a product and a wave of five columns."""
    x = rng.normal(size=(n, 12))
    log_odds = 1.6 * (x[:, 0] > 1) + 1.1 * x[:, 1] * (x[:, 2] > 0) + 1.2 * np.sin(2 * x[:, 3]) + 0.5 * x[:, 4]
    low, high = -20.0, 20.0
    for _ in range(60):  # the intercept that gives the share of positives
        middle = (low + high) / 2
        share = (1 / (1 + np.exp(-(log_odds + middle)))).mean()
        low, high = (middle, high) if share < SHARE_OF_POSITIVES else (low, middle)
    return x, (rng.random(n) < 1 / (1 + np.exp(-(log_odds + low)))).astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=SHIPPED / "table.npz")
    args = parser.parse_args()
    x, y = payments(N_TRAIN + N_HELD_OUT, np.random.default_rng(SEED))
    model = HistGradientBoostingClassifier(max_iter=100, class_weight="balanced", random_state=SEED)
    model.fit(x[:N_TRAIN], y[:N_TRAIN])
    log_odds = model.decision_function(x[N_TRAIN:])
    logits = np.stack([-log_odds / 2, log_odds / 2], axis=1)
    write_sets(args.output, logits, y[N_TRAIN:], ["legitimate", "fraud"], seed=SEED)


if __name__ == "__main__":
    main()
