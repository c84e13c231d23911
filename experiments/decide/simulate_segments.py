"""How often the risk of any segment is above the target, where one threshold is certified for every segment.

Writes segments.csv beside this file. 50, 30 and 20 % of the samples are of three segments, the smallest of which may be unlike
the others. As in ``simulate.py`` populations are tables of scores whose risks are known.

    python experiments/decide/simulate_segments.py
"""

from __future__ import annotations

import argparse
import os
import zlib
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from populations import Population, confidence_models

from rhocal.evaluation.decide import _single
from rhocal.evaluation.question import Question, SampleScores
from rhocal.evaluation.rows import write_rows

HERE = Path(__file__).parent
TRIALS = {200: 2000, 1000: 2000, 10_000: 2000}
"""Of each number of samples."""
TARGET, CONFIDENCE = 0.1, 0.95
SHARES = (0.5, 0.3, 0.2)


def models() -> dict[str, list[Population]]:
    """The populations of the three segments."""
    known = {model.name: model for model in confidence_models(TARGET)}
    return {
        f"{last} in the smallest": [known["calibrated"], known["calibrated"], known[last]]
        for last in ("calibrated", "tied", "overconfident", "flat")
    }


def cell(name: str, populations: list[Population], n: int, trials: int) -> dict[str, Any]:
    question = Question("error", TARGET, CONFIDENCE, by_segment=True)
    n_false, n_certified, shares = 0, 0, []
    for trial in range(trials):
        rng = np.random.default_rng([zlib.crc32(name.encode()), n, trial])
        segment = rng.choice(len(SHARES), n, p=SHARES)
        score, error = np.empty(n), np.empty(n)
        for k, population in enumerate(populations):
            score[segment == k], error[segment == k] = population.draw(rng, int((segment == k).sum()))
        zeros = np.zeros(n, np.intp)
        samples = SampleScores(
            score, zeros, error.astype(np.intp), np.ones(n), np.arange(2), None, segments=segment.astype(str)
        )
        policy = _single(samples, question, None).policy
        if policy is None:
            continue
        threshold = float(policy.thresholds[0])
        n_certified += 1
        n_false += any(population.rate(threshold) > TARGET for population in populations)
        shares.append(sum(s * p.accepted(threshold).mean() for s, p in zip(SHARES, populations, strict=True)))
    return {
        "population": name, "target": TARGET, "n": n, "trials": trials, "false": n_false / trials,
        "certified": n_certified / trials, "share": float(np.mean(shares)) if shares else float("nan"),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the trials")
    args = parser.parse_args()
    rows = []
    for n, trials in TRIALS.items():
        for name, populations in models().items():
            rows.append(cell(name, populations, n, round(args.share * trials)))
            print(rows[-1], flush=True)
            write_rows(HERE / "segments.csv", rows)


if __name__ == "__main__":
    main()
