"""The coverage of prediction sets, of all samples and of each class.

Writes sets.csv beside this file. A cell is one score on one population at one sample size. The limits are those of the library,
and the coverage that a limit has in the population is exact.

    python experiments/decide/simulate_sets.py --trials 2000
"""

from __future__ import annotations

import argparse
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from set_populations import SetPopulation, set_populations

from rhocal.calibrators.policies.prediction_sets import SET_SCORES, SetRule, SetScore, with_slack
from rhocal.evaluation.rows import write_rows
from rhocal.metrics.inference.conformal import conformal_limit, samples_for

if TYPE_CHECKING:
    from rhocal.numerics.special import Floats, Vector

HERE = Path(__file__).parent
SIZES = (200, 1000, 10_000)
COVERAGE = 0.9


class Scores:
    """The scores of a population in order, for some of the classes."""

    def __init__(self, scores: Vector, truth: Floats) -> None:
        order = np.argsort(scores, axis=None, kind="stable")
        self.values, weight = scores.ravel()[order], truth.ravel()[order]
        self.mass = np.cumsum(weight) / weight.sum()

    def draw(self, rng: np.random.Generator, n: int) -> Vector:
        """Scores of the labels of independent samples."""
        return self.values[np.minimum(np.searchsorted(self.mass, rng.random(n)), len(self.values) - 1)]

    def below(self, limit: float) -> tuple[float, int]:
        """The share of labels whose score is at most a limit, and how many classes of all samples are."""
        count = int(np.searchsorted(self.values, limit, side="right"))
        return (float(self.mass[count - 1]) if count else 0.0), count


def cell(population: SetPopulation, score: SetScore, n: int, trials: int, *, per_class: bool) -> dict[str, Any]:
    n_rows, m = population.probs.shape
    table = SetRule(score, COVERAGE, np.zeros(m)).scores(population.probs)
    parts = [slice(c, c + 1) for c in range(m)] if per_class else [slice(0, m)]
    scores = [Scores(table[:, part], population.truth[:, part]) for part in parts]
    shares = np.array([population.truth[:, part].sum() / n_rows for part in parts])
    key = zlib.crc32(f"{population.name}{score}{per_class}".encode())
    covered, sizes = np.ones((trials, len(parts))), np.full((trials, len(parts)), float(n_rows))
    has_limit = np.zeros((trials, len(parts)), bool)
    for trial in range(trials):
        rng = np.random.default_rng([key, n, trial])
        counts = rng.multinomial(n, shares / shares.sum())
        for k, one in enumerate(scores):
            drawn = one.draw(rng, int(counts[k]))
            limit = conformal_limit(drawn, np.ones(len(drawn)), COVERAGE)
            if limit is not None:
                has_limit[trial, k] = True
                covered[trial, k], sizes[trial, k] = one.below(with_slack(limit, score))
    # Of sets per class: the class whose mean coverage is lowest, among trials in which it has enough samples.
    means = [covered[has_limit[:, k], k].mean() for k in range(len(parts)) if has_limit[:, k].sum() >= trials / 2]
    n_smallest = int(n * shares.min()) if per_class else n
    return {
        "population": population.name, "score": score, "per_class": per_class, "n": n, "trials": trials,
        "coverage": float(np.mean(covered @ shares / shares.sum())), "lowest": float(min(means)) if means else float("nan"),
        "bound": COVERAGE + 1 / (n + 1) if not per_class else COVERAGE + 1 / (max(n_smallest, samples_for(COVERAGE)) + 1),
        "error": float(covered.std() / np.sqrt(trials)) if not per_class else float("nan"),
        "size": float(sizes.sum(axis=1).mean() / n_rows),
    }  # fmt: skip


def tasks() -> list[tuple[SetPopulation, SetScore, int, bool]]:
    return [
        (population, score, n, per_class)
        for population in set_populations()
        for score in SET_SCORES
        for n in SIZES
        for per_class in (False, True)
        if not per_class or n >= 50 * population.probs.shape[1]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    args = parser.parse_args()
    rows = []
    for population, score, n, per_class in tasks():
        rows.append(cell(population, score, n, args.trials, per_class=per_class))
        print(
            {key: round(value, 4) if isinstance(value, float) else value for key, value in rows[-1].items()}, flush=True
        )
    write_rows(HERE / "sets.csv", rows)


if __name__ == "__main__":
    main()
