"""Time the null draws of binned metrics beside a plain loop that bins every draw anew.

    python benchmarks/speed/floors.py

prints the median seconds of 1,000 draws on 10,000 samples, and how many times as long the loop takes.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from rhocal import metrics
from rhocal.metrics.inference.null import CumulativeDifferences, path_nulls
from rhocal.metrics.scored import Scored

if TYPE_CHECKING:
    from collections.abc import Callable

N_SAMPLES, N_CLASSES, N_DRAWS, N_LOOP_DRAWS, N_REPETITIONS = 10_000, 10, 1000, 20, 5


def median_seconds(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(N_REPETITIONS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(N_CLASSES, 0.3), N_SAMPLES)
    cumulative = probs.cumsum(axis=1)
    labels = (cumulative > rng.random((N_SAMPLES, 1))).argmax(axis=1)
    differences = CumulativeDifferences.from_scored(Scored.from_arrays(probs, labels, None, "probs"))

    def loop() -> None:
        for _ in range(N_LOOP_DRAWS):
            drawn = (cumulative > rng.random((N_SAMPLES, 1))).argmax(axis=1)
            for name in ("ece", "adaptive_ece", "mce"):
                getattr(metrics, name)(probs, drawn)

    ours = median_seconds(
        lambda: path_nulls(differences, differences.with_simulated(N_DRAWS, 0), ["ece", "adaptive_ece", "mce"])
    )
    theirs = median_seconds(loop) * N_DRAWS / N_LOOP_DRAWS
    print(
        f"{N_DRAWS:,} draws on {N_SAMPLES:,} samples: {ours:.2f} s; a loop over draws takes {theirs / ours:.0f} times as long"
    )


if __name__ == "__main__":
    main()
