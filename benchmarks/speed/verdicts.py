"""Time an evaluation with every test beside one with the tests of the top label only, as earlier versions had it.

    python benchmarks/speed/verdicts.py

prints processor seconds of both (the smallest of a few runs in turn) and their ratio: 1,000,000 × 10 and 5,000 × 100.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from rhocal.data.predictions import Predictions
from rhocal.evaluation.evaluate import DEFAULT_METRICS, infer
from rhocal.evaluation.samples import Samples
from rhocal.metrics.inference.floor import floors
from rhocal.metrics.inference.intervals import intervals
from rhocal.metrics.inference.null import CumulativeDifferences, path_nulls

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = {(1_000_000, 10): 2, (5_000, 100): 7}
"""Samples and classes, and how often each is measured."""
N_DRAWS = 1000
"""Of the earlier tests."""


def earlier(data: Predictions) -> None:
    """Metrics with floors and intervals, and the tests of the top label."""
    samples = Samples.from_predictions(data)
    path = CumulativeDifferences.from_scored(samples.scored)
    nulls = path_nulls(path, path.with_simulated(N_DRAWS, 0), ["ece", "ks", "skce", "adaptive_ece"])
    floors(samples.scored, DEFAULT_METRICS, nulls=nulls)
    intervals(samples.scored, DEFAULT_METRICS)


def now(data: Predictions) -> None:
    """The same with every test, the verdict and the figures of classes."""
    infer(Samples.from_predictions(data), DEFAULT_METRICS)


def seconds(work: Callable[[Predictions], None], logits: object, labels: object) -> float:
    data = Predictions.from_arrays(logits, labels)
    start = time.process_time()
    work(data)
    return time.process_time() - start


def main() -> None:
    for (n, m), repetitions in SIZES.items():
        rng = np.random.default_rng(0)
        logits = rng.normal(0, 2, (n, m)).astype(np.float32)
        probs = np.exp(logits - logits.max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)
        labels = np.minimum((probs.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1), m - 1)
        found = [(seconds(earlier, logits, labels), seconds(now, logits, labels)) for _ in range(repetitions)]
        before, after = np.min(found, axis=0)
        print(
            f"{n:,} × {m}: {before:.2f} s before, {after:.2f} s with every test, ratio {after / before:.1f}", flush=True
        )


if __name__ == "__main__":
    main()
