"""How often the risk of a certified threshold is above its target.

Writes simulation.csv beside this file. A cell of the table is one risk on one population at one sample size.

    python experiments/decide/simulate.py --trials 2000
"""

from __future__ import annotations

import argparse
import os
import zlib
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from populations import Population, confidence_models, positive_models

from rhocal.evaluation.rows import write_rows
from rhocal.metrics.inference.risk_control import AT_LEAST, certify, count_candidates, rank_thresholds

if TYPE_CHECKING:
    from rhocal.metrics.inference.risk_control import Risk
    from rhocal.numerics.special import Vector

HERE = Path(__file__).parent
SIZES = (200, 1000, 10_000)
CONFIDENCE = 0.95
TARGETS = {"error": 0.05, "fpr": 0.05, "fnr": 0.2, "precision": 0.7, "recall": 0.8, "cost": 0.05}
RARE_PRECISION = 0.3
"""Of 1 % positives, whose precision reaches 0.7 for hardly any."""
COSTS = (0.0, 0.4, 1.0)
"""An error costs .4 or 1, equally often."""


def target_of(risk: str, population: Population) -> float:
    """The target of a cell."""
    return RARE_PRECISION if risk == "precision" and population.name.startswith("1 %") else TARGETS[risk]


def limit(risk: str, target: float) -> float:
    """The largest risk that is allowed."""
    return 1 - target if risk in AT_LEAST else target


def true_risk(population: Population, risk: str, threshold: float) -> float:
    """On endlessly many samples, as a loss."""
    if risk == "error":
        return population.rate(threshold)
    if risk == "cost":
        return population.rate(threshold) * (COSTS[1] + COSTS[2]) / 2
    if risk == "fpr":
        return population.share_above(threshold, of_events=False)
    if risk == "precision":
        return 1 - population.rate(threshold)
    return 1 - population.share_above(threshold, of_events=True)


def chosen(
    rng: np.random.Generator, scores: Vector, events: Vector, risk: Risk, target: float, reference: Vector | None
) -> tuple[float, float] | None:
    """The certified threshold and the share of samples at or above it."""
    losses, subjects = events, None
    if risk == "fpr":
        subjects = events == 0
    elif risk in {"fnr", "recall"}:
        subjects = events == 1
    elif risk == "precision":
        losses = 1 - events
    elif risk == "cost":
        losses = events * np.where(rng.random(len(events)) < 0.5, COSTS[1], COSTS[2])
    thresholds = rank_thresholds(scores if reference is None else reference)
    found = count_candidates(
        scores, losses, np.ones(len(scores)), risk, thresholds, subjects=subjects, target=limit(risk, target)
    )
    expected = None
    if reference is not None:
        expected = (reference[None, :] >= thresholds[:, None]).mean(axis=1) * len(scores)
    index = certify(found, limit(risk, target), CONFIDENCE, risk, expected).index
    return None if index is None else (float(found.thresholds[index]), float(found.accepted[index] / len(scores)))


def cell(task: tuple[Population, Risk, int, str], trials: int) -> dict[str, Any]:
    population, risk, n, ranks = task
    target = target_of(risk, population)
    shares, n_false = [], 0
    for trial in range(trials):
        rng = np.random.default_rng([zlib.crc32(f"{population.name}{risk}{ranks}".encode()), n, trial])
        reference = population.draw(rng, n)[0] if ranks == "of others" else None
        result = chosen(rng, *population.draw(rng, n), risk, target, reference)
        shares.append(np.nan if result is None else result[1])
        n_false += result is not None and true_risk(population, risk, result[0]) > limit(risk, target)
    certified = np.isfinite(shares)
    return {
        "risk": risk, "target": target, "population": population.name, "n": n, "ranks": ranks, "trials": trials,
        "false": n_false / trials, "certified": float(certified.mean()),
        "share": float(np.mean(np.array(shares)[certified])) if certified.any() else float("nan"),
    }  # fmt: skip


def tasks() -> list[tuple[Population, Any, int, str]]:
    cells: list[tuple[Population, Any, int, str]] = []
    for n in SIZES:
        for ranks in ("own", "of others"):
            cells += [(population, "error", n, ranks) for population in confidence_models(TARGETS["error"])]
            flat_cost = TARGETS["cost"] / ((COSTS[1] + COSTS[2]) / 2)
            cells += [(population, "cost", n, ranks) for population in confidence_models(flat_cost)]
        for risk in ("fpr", "fnr", "precision", "recall"):
            cells += [(population, risk, n, "own") for population in positive_models()]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    with ProcessPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(partial(cell, trials=args.trials), tasks()))
    write_rows(HERE / "simulation.csv", rows)
    for row in rows:
        print({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()})
    print("largest share of false certificates:", max(row["false"] for row in rows))


if __name__ == "__main__":
    main()
