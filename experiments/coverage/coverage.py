"""Whether intervals hold the truth as often as they say, and p-values are uniform when nothing is wrong.

Samples are drawn from models whose true figures are known (models.py). Writes rows and README.md beside this file.

    python experiments/coverage/coverage.py --parts ece held_back p_values bootstrap
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from models import HELD_BACK, MODELS, OTHERS, Model

from rhocal.evaluation.rows import write_rows
from rhocal.metrics.inference.bootstrap import bootstrap
from rhocal.metrics.inference.calibration_tests import TITLES, outcomes
from rhocal.metrics.inference.ece_interval import BinMoments, ece_interval, tail_probabilities
from rhocal.metrics.inference.intervals import wilson
from rhocal.metrics.inference.joint_null import joint_null
from rhocal.metrics.inference.statistics import statistics
from rhocal.numerics.bins import N_BINS, equal_mass, equal_width

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

HERE = Path(__file__).parent
SIZES = (500, 2000, 10_000)
BOOTSTRAPS = 400
LEVEL = 0.95
WHOLE = 10
"""Trials of a cell in which the whole interval is found, for its width; in the others only whether it holds the truth."""


def binned_coverage(model: Model, truth: dict[str, float], n: int, trials: int) -> list[dict[str, Any]]:
    """Of the intervals of ECE and AdaECE. An interval holds θ if the test that it turns around does not reject θ."""
    rng = np.random.default_rng([n, *model.name.encode()])
    tally: dict[str, list[tuple[bool, bool]]] = {"ece": [], "adaptive_ece": []}
    widths: dict[str, list[float]] = {name: [] for name in tally}
    for k in range(trials):
        sample = model.draw(rng, n)
        for name, misses in tally.items():
            bins = (equal_width if name == "ece" else equal_mass)(sample.confidence, N_BINS)
            chance, upper, lower = tail_probabilities(
                *BinMoments.of(sample, bins, N_BINS).normal_sums, np.array([truth[name]]), LEVEL
            )
            misses.append((bool(chance[0] > 1 - upper[0]), bool(chance[0] < lower[0])))
            if k < WHOLE:
                interval = ece_interval(sample, bins, N_BINS, LEVEL)
                widths[name].append(interval.high - interval.low)
    rows = []
    for name, misses in tally.items():
        above, below = np.mean(misses, axis=0)
        rows.append(
            {
                "model": model.name, "n": n, "metric": name, "method": "inverted", "truth": truth[name],
                "coverage": 1 - above - below, "interval_above": above, "interval_below": below,
                "width": float(np.mean(widths[name])), "trials": trials,
            }
        )  # fmt: skip
    return rows


def trial(sample: Scored, seed: int, *, with_bootstrap: bool) -> Iterator[tuple[str, str, float, float]]:
    """metric, method, low, high."""
    interval = wilson(float(sample.correct.mean()), len(sample.correct), 0.95)
    yield "accuracy", "wilson", interval.low, interval.high
    if with_bootstrap:
        names = ["ece", "accuracy", "nll", "brier"]
        for name, replicates in bootstrap(sample, names, n_replicates=BOOTSTRAPS, seed=seed).items():
            for method in ("percentile", "bca"):
                interval = replicates.interval(method)
                yield name, method, interval.low, interval.high


def coverage(model: Model, n: int, trials: int, bootstraps: int) -> list[dict[str, Any]]:
    truth = model.truth()
    tally: dict[tuple[str, str], list[tuple[bool, bool, float]]] = {}
    rng = np.random.default_rng([n, len(model.name)])
    for k in range(trials):
        for metric, method, low, high in trial(model.draw(rng, n), k, with_bootstrap=k < bootstraps):
            tally.setdefault((metric, method), []).append((truth[metric] < low, truth[metric] > high, high - low))
    rows = []
    for (metric, method), misses in tally.items():
        below, above, width = np.mean(misses, axis=0)
        rows.append(
            {
                "model": model.name, "n": n, "metric": metric, "method": method, "truth": truth[metric],
                "coverage": 1 - below - above, "interval_above": below, "interval_below": above, "width": width,
                "trials": len(misses),
            }
        )  # fmt: skip
    return rows


def p_values(n: int, trials: int) -> list[dict[str, Any]]:
    """Of a perfect model, so they should be uniform."""
    rng = np.random.default_rng(n)
    by_test: dict[str, list[float]] = {}
    for k in range(trials):
        sample = MODELS[0].draw(rng, n)
        tests = outcomes(sample, statistics(joint_null(sample, 199, k)))
        for name, test in tests.items():
            by_test.setdefault(name, []).append(test.p_value)
    rows = []
    for name, values in by_test.items():
        distance = uniform_distance(np.array(values))
        rows.append(
            {
                "test": name, "n": n, "trials": len(values), "ks_distance": distance,
                "ks_p_value": kolmogorov(distance * math.sqrt(len(values))),
                "rejected_at_05": float(np.mean(np.array(values) <= 0.05)),
                "rejected_at_01": float(np.mean(np.array(values) <= 0.01)),
            }
        )  # fmt: skip
    return rows


def uniform_distance(values: Vector) -> float:
    ordered, n = np.sort(values), len(values)
    steps = np.arange(n + 1) / n
    return float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))


def kolmogorov(x: float) -> float:
    """Chance that the largest distance, times sqrt(n), is above x."""
    return min(1.0, max(0.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * k**2 * x**2) for k in range(1, 101))))


def table(rows: list[dict[str, Any]], chosen: list[tuple[str, str]]) -> str:
    lines = ["| model | n | " + " | ".join(f"{metric} {method}" for metric, method in chosen) + " |"]
    lines.append("|" + " --- |" * (len(chosen) + 2))
    for model in dict.fromkeys(row["model"] for row in rows):
        for n in SIZES:
            mine = {(r["metric"], r["method"]): r for r in rows if r["model"] == model and r["n"] == n}
            cells = [f"{mine[key]['coverage']:.3f} ({mine[key]['width']:.3f})" for key in chosen]
            lines.append(f"| {model} | {n:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def p_table(rows: list[dict[str, Any]]) -> str:
    lines = ["| test | n | KS distance from uniform | its p-value | rejected at 5 % | at 1 % |", "|" + " --- |" * 6]
    lines += [
        f"| {TITLES[r['test']]} | {r['n']:,} | {r['ks_distance']:.3f} | {r['ks_p_value']:.2f} "
        f"| {r['rejected_at_05']:.3f} | {r['rejected_at_01']:.3f} |"
        for r in rows
    ]
    return "\n".join(lines)


def pooled(rows: list[dict[str, Any]], chosen: list[tuple[str, str]]) -> str:
    """The mean over all models; they have as many trials each."""
    lines = []
    for n in SIZES:
        mine = [[r for r in rows if r["n"] == n and (r["metric"], r["method"]) == key] for key in chosen]
        cells = [f"{np.mean([r['coverage'] for r in cell]):.3f}" for cell in mine]
        lines.append(f"| *all models* | {n:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def span(rows: list[dict[str, Any]], metric: str) -> str:
    coverages = [r["coverage"] for r in rows if r["metric"] == metric]
    return f"{min(coverages):.3f} to {max(coverages):.3f}"


def read(path: Path) -> list[dict[str, Any]]:
    texts = ("model", "metric", "method", "test")
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {name: value if name in texts else int(value) if name in {"n", "trials"} else float(value)
             for name, value in row.items()}
            for row in csv.DictReader(file)
        ]  # fmt: skip


def write_readme() -> None:
    ece, held_back, boot, null_rows = (read(HERE / f"{name}.csv") for name in PARTS)
    inverted = [("ece", "inverted"), ("adaptive_ece", "inverted")]
    means = [("accuracy", "wilson")]
    means += [(name, method) for name in ("accuracy", "nll", "brier") for method in ("percentile", "bca")]
    text = (HERE / "template.md").read_text(encoding="utf-8")
    for place, value in {
        "{binned}": table(ece, inverted),
        "{held_back}": table(held_back, inverted),
        "{bootstrap}": table(boot, [("ece", "percentile"), ("ece", "bca")]),
        "{means}": table(boot, means) + "\n" + pooled(boot, means),
        "{p_values}": p_table(null_rows),
        "{trials}": f"{max(row['trials'] for row in ece):,}",
        "{other_trials}": f"{min(row['trials'] for row in ece):,}",
        "{held_back_trials}": f"{held_back[0]['trials']:,}",
        "{bootstrap_trials}": f"{min(row['trials'] for row in boot):,}",
        "{p_trials}": f"{null_rows[0]['trials']:,}",
        **{f"{{ece span {metric}}}": span(ece, metric) for metric, _ in inverted},
        **{f"{{held_back span {metric}}}": span(held_back, metric) for metric, _ in inverted},
    }.items():
        text = text.replace(place, value)
    (HERE / "README.md").write_text(text, encoding="utf-8")


PARTS = ("ece", "held_back", "bootstrap", "p_values")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="for the five main models; others have half as many")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=["ece", "held_back", "p_values"])
    options = parser.parse_args()
    trials = options.trials
    cells = {
        "ece": [(model, trials) for model in MODELS] + [(model, trials // 2) for model in OTHERS],
        "held_back": [(model, trials // 2) for model in HELD_BACK],
    }
    for part in options.parts:
        rows: list[dict[str, Any]] = []
        if part == "p_values":
            rows = [row for n in SIZES for row in p_values(n, trials // 2)]
        for model, how_often in cells.get(part, []):
            truth = model.binned_errors()
            for n in SIZES:
                rows += binned_coverage(model, truth, n, how_often)
                print(model.name, n, flush=True)
        if part == "bootstrap":
            rows = [row for model in MODELS for n in SIZES for row in coverage(model, n, trials // 2, trials * 3 // 20)]
        write_rows(HERE / f"{part}.csv", rows)
    write_readme()


if __name__ == "__main__":
    main()
