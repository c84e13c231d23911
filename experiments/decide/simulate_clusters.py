"""How often a certified risk is exceeded where samples depend on each other, and what bets on clusters would gain.

Writes clusters.csv and cluster_bets.csv beside this file. A sample of a cluster shares the fate of the others with a
probability of 0.7. Half of the clusters have one sample, with a score in the upper half, the others nine, with scores in the
lower half: every cluster counts once, so that the risk of the population is exact.

    python experiments/decide/simulate_clusters.py --trials 2000
"""

from __future__ import annotations

import argparse
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from populations import Population, confidence_models, positive_models
from simulate import chosen, limit, true_risk

from rhocal.data.predictions import Predictions
from rhocal.evaluation.clusters import draw_one_of_each
from rhocal.evaluation.rows import write_rows
from rhocal.metrics.inference.risk_control import stakes
from rhocal.numerics.special import binomial_cdf, expit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.metrics.inference.risk_control import Risk
    from rhocal.numerics.special import Vector

HERE = Path(__file__).parent
SIZES = (200, 1000, 10_000)
"""Samples; there are a fifth as many clusters."""
LARGE, SHARED = 9, 0.7
TARGETS: dict[Risk, float] = {"error": 0.1, "cost": 0.1, "fpr": 0.1, "fnr": 0.3, "precision": 0.6, "recall": 0.7}


def draw(rng: np.random.Generator, population: Population, n: int) -> tuple[Vector, Vector, NDArray[np.intp]]:
    """Scores, events and clusters of about n samples."""
    n_clusters, half = n // 5, len(population.scores) // 2
    is_large = rng.random(n_clusters) < 0.5
    clusters = np.repeat(np.arange(n_clusters), np.where(is_large, LARGE, 1))
    index = rng.integers(0, half, len(clusters)) + half * is_large[clusters]
    level = np.where(rng.random(len(clusters)) < SHARED, rng.random(n_clusters)[clusters], rng.random(len(clusters)))
    events = (level < population.event[index]).astype(np.float64)
    return population.scores[index], events, clusters.astype(np.intp)


def one_of_each(scores: Vector, events: Vector, clusters: NDArray[np.intp]) -> tuple[Vector, Vector]:
    """What the library certifies on."""
    p = np.clip(scores, 1e-12, 1 - 1e-12)
    logits = np.stack([np.zeros(len(p)), np.log(p / (1 - p))], axis=1)
    kept = draw_one_of_each(Predictions.from_arrays(logits, events.astype(int)), clusters)
    assert kept.labels is not None
    return expit(kept.logits[:, 1].astype(np.float64)), kept.labels.astype(np.float64)


def cells(population: Population, risks: tuple[Risk, ...], n: int, trials: int) -> list[dict[str, Any]]:
    """The rows of some risks, which share the draws."""
    counts = {risk: np.zeros(4) for risk in risks}
    for trial in range(trials):
        rng = np.random.default_rng([zlib.crc32(population.name.encode()), n, trial])
        scores, events, clusters = draw(rng, population, n)
        single = one_of_each(scores, events, clusters)
        for risk in risks:
            for place, sample in ((0, single), (2, (scores, events))):
                result = chosen(rng, *sample, risk, TARGETS[risk], None)
                if result is not None:
                    counts[risk][place] += true_risk(population, risk, result[0]) > limit(risk, TARGETS[risk])
                    counts[risk][place + 1] += 1
    return [
        {
            "risk": risk, "target": TARGETS[risk], "population": population.name, "n": n, "clusters": n // 5, "trials": trials,
            **dict(zip(("false", "certified", "false_ignored", "certified_ignored"), found / trials, strict=True)),
        }
        for risk, found in counts.items()
    ]  # fmt: skip


def bet_rows(trials: int, target: float = 0.05) -> list[dict[str, Any]]:
    """How often errors of at most the target are certified: one sample of each cluster, or a bet on the means of clusters."""
    rows = []
    for n, rates in ((100, (0.05, 0.02)), (300, (0.05, 0.02)), (1000, (0.05, 0.035))):
        for size, correlation in ((5, 0.1), (5, 0.3), (5, 0.6), (20, 0.1), (20, 0.3), (20, 0.6)):
            for rate in rates:
                rng = np.random.default_rng([n, size, int(100 * correlation), int(1000 * rate)])
                spread = 1 / correlation - 1
                means = rng.binomial(size, rng.beta(rate * spread, (1 - rate) * spread, (trials, n))) / size
                errors = (rng.random((trials, n)) < means).sum(axis=1)
                wealth = [np.cumsum(np.log1p(stake * (target - means)), axis=1) for stake in stakes(target)]
                largest = (np.logaddexp.reduce(wealth, axis=0) - np.log(len(wealth))).max(axis=1)
                rows.append({
                    "clusters": n, "size": size, "correlation": correlation, "errors": rate, "target": target, "trials": trials,
                    "one of each": float((binomial_cdf(errors, np.full(trials, n), target) <= 0.05).mean()),
                    "bets": float((largest >= np.log(20)).mean()),
                })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    args = parser.parse_args()
    write_rows(HERE / "cluster_bets.csv", bet_rows(min(args.trials, 1000)))
    rows: list[dict[str, Any]] = []
    confident = confidence_models(TARGETS["error"])
    flat_cost = confidence_models(TARGETS["cost"] / 0.7)[-1]
    tasks: list[tuple[Population, tuple[Risk, ...]]] = [
        (confident[-1], ("error",)), (flat_cost, ("cost",)), (confident[1], ("error", "cost")),
        *((population, ("fpr", "fnr", "precision", "recall")) for population in positive_models()[:2]),
    ]  # fmt: skip
    for n in SIZES:
        for population, risks in tasks:
            rows += cells(population, risks, n, args.trials)
            print(*rows[-len(risks) :], sep="\n", flush=True)
            write_rows(HERE / "clusters.csv", rows)


if __name__ == "__main__":
    main()
