"""Whether intervals hold the truth as often as they say, and p-values are uniform when nothing is wrong.

Samples are drawn from models whose true figures are known. Writes rows and README.md beside this file.

    python experiments/coverage/coverage.py --trials 1000
"""

from __future__ import annotations

import argparse
import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.bins import equal_mass, equal_width
from rhocal.compare import write_rows
from rhocal.metrics.binned import N_BINS
from rhocal.metrics.bootstrap import PER_SAMPLE, bootstrap
from rhocal.metrics.calibration_tests import DRAWN, TITLES, outcomes
from rhocal.metrics.inverted import ece_interval
from rhocal.metrics.null import Walk, nulls
from rhocal.metrics.scored import Scored
from rhocal.metrics.uncertainty import wilson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rhocal.special import Vector

HERE = Path(__file__).parent
SIZES = (500, 2000, 10_000)
OTHER_CLASSES = 9
BOOTSTRAPS = 400


@dataclass(frozen=True)
class Model:
    """Where confidences come from, and how often a sample of each confidence is right."""

    name: str
    accuracy: Callable[[Vector], Vector]
    beta: tuple[float, float] = (2.2, 0.7)
    """Confidences are .1 + .9·Beta; these have mean .78."""

    def draw(self, rng: np.random.Generator, n: int) -> Scored:
        """Samples of a ten-class model: what is not the top class is shared equally."""
        c = confidences(rng, n, self.beta)
        return scored(c, (rng.random(n) < self.accuracy(c)).astype(np.float64))

    def truth(self) -> dict[str, float]:
        """The figures on endlessly many samples: expectations over the label, at two million confidences."""
        c = confidences(np.random.default_rng(2026), 2_000_000, self.beta)
        right = self.accuracy(c)
        known = {
            name: float(np.mean(right * of(scored(c, np.ones_like(c))) + (1 - right) * of(scored(c, np.zeros_like(c)))))
            for name, of in PER_SAMPLE.items()
        }
        for name, bins in (("ece", equal_width(c, N_BINS)), ("adaptive_ece", equal_mass(c, N_BINS))):
            known[name] = float(np.abs(np.bincount(bins, right - c, N_BINS)).sum() / len(c))
        return known


def confidences(rng: np.random.Generator, n: int, beta: tuple[float, float]) -> Vector:
    return np.minimum(0.1 + 0.9 * rng.beta(*beta, n), 1 - 1e-6)


def scored(c: Vector, correct: Vector) -> Scored:
    other = (1 - c) / OTHER_CLASSES
    log_label = np.log(np.where(correct > 0, c, other))
    return Scored(c, correct, log_label, c**2 + OTHER_CLASSES * other**2, np.ones(len(c)))


MODELS = [
    Model("perfect", lambda c: c),
    Model("over-confident by .01", lambda c: np.maximum(c - 0.01, 0)),
    Model("over-confident by .05", lambda c: np.maximum(c - 0.05, 0)),
    Model("tilted", lambda c: np.clip(c - 0.0235 * np.tanh(8 * (c - 0.75)), 0, 1)),
    Model("one bin", lambda c: np.where(c > 0.9, c - 0.03, c)),
]


SURE, UNSURE = (6.0, 0.5), (1.5, 1.5)
HELD_BACK = [
    Model("sure, perfect", lambda c: c, SURE),
    Model("sure, over-confident by .02", lambda c: np.maximum(c - 0.02, 0), SURE),
    Model("unsure, perfect", lambda c: c, UNSURE),
    Model("unsure, under-confident by .03", lambda c: np.minimum(c + 0.03, 1), UNSURE),
    Model("unsure, wavy", lambda c: np.clip(c + 0.04 * np.sin(8 * c), 0, 1), UNSURE),
]
"""Looked at once, after the interval was settled on MODELS."""


def trial(sample: Scored, seed: int, *, with_bootstrap: bool) -> Iterator[tuple[str, str, float, float]]:
    """metric, method, low, high."""
    for name, bins in (
        ("ece", equal_width(sample.confidence, N_BINS)),
        ("adaptive_ece", equal_mass(sample.confidence, N_BINS)),
    ):
        found = ece_interval(sample, bins, N_BINS, 0.95)
        yield name, "inverted", found.low, found.high
    found = wilson(float(sample.correct.mean()), len(sample.correct), 0.95)
    yield "accuracy", "wilson", found.low, found.high
    if with_bootstrap:
        names = ["ece", "accuracy", "nll", "brier"]
        for name, replicates in bootstrap(sample, names, n_replicates=BOOTSTRAPS, seed=seed).items():
            for method in ("percentile", "bca"):
                found = replicates.interval(method)
                yield name, method, found.low, found.high


def coverage(model: Model, n: int, trials: int, bootstraps: int) -> list[dict[str, Any]]:
    truth = model.truth()
    tally: dict[tuple[str, str], list[tuple[bool, bool, float]]] = {}
    rng = np.random.default_rng([n, len(model.name)])
    for k in range(trials):
        for metric, method, low, high in trial(model.draw(rng, n), k, with_bootstrap=k < bootstraps):
            tally.setdefault((metric, method), []).append((truth[metric] < low, truth[metric] > high, high - low))
    rows = []
    for (metric, method), seen in tally.items():
        below, above, width = np.mean(seen, axis=0)
        rows.append(
            {
                "model": model.name, "n": n, "metric": metric, "method": method, "truth": truth[metric],
                "coverage": 1 - below - above, "interval_above": below, "interval_below": above, "width": width,
                "trials": len(seen),
            }
        )  # fmt: skip
    return rows


def p_values(n: int, trials: int) -> list[dict[str, Any]]:
    """Of a perfect model, so they should be uniform."""
    rng = np.random.default_rng(n)
    seen: dict[str, list[float]] = {}
    for k in range(trials):
        sample = MODELS[0].draw(rng, n)
        found = outcomes(sample, nulls(Walk.of(sample), list(DRAWN), 199, k))
        for name, test in found.items():
            seen.setdefault(name, []).append(test.p_value)
    rows = []
    for name, values in seen.items():
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


def span(rows: list[dict[str, Any]], metric: str, models: list[str]) -> str:
    found = [r["coverage"] for r in rows if (r["metric"], r["method"]) == (metric, "inverted") and r["model"] in models]
    return f"{min(found):.3f} to {max(found):.3f}"


def read(path: Path) -> list[dict[str, Any]]:
    texts = ("model", "metric", "method", "test")
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {name: value if name in texts else int(value) if name in {"n", "trials"} else float(value)
             for name, value in row.items()}
            for row in csv.DictReader(file)
        ]  # fmt: skip


def write_readme() -> None:
    rows, held_back, nulls_rows = (read(HERE / f"{name}.csv") for name in ("coverage", "held_back", "p_values"))
    binned = [("ece", "inverted"), ("adaptive_ece", "inverted"), ("ece", "percentile"), ("ece", "bca")]
    means = [("accuracy", "wilson")]
    means += [(name, method) for name in ("accuracy", "nll", "brier") for method in ("percentile", "bca")]
    text = (HERE / "template.md").read_text(encoding="utf-8")
    trials = sorted({row["trials"] for row in rows})
    names = [model.name for model in MODELS]
    spans = {
        f"{{{metric} {what}}}": span(rows, metric, models)
        for metric in ("ece", "adaptive_ece")
        for what, models in (("shifted", names[:3]), ("tilted", names[3:4]), ("one", names[4:]))
    }
    for place, value in {
        "{binned}": table(rows, binned),
        "{held_back}": table(held_back, binned[:2]),
        "{means}": table(rows, means) + "\n" + pooled(rows, means),
        "{p_values}": p_table(nulls_rows),
        "{trials}": f"{trials[-1]:,}",
        "{bootstrap_trials}": f"{trials[0]:,}",
        "{held_back span}": span(held_back, "ece", [m.name for m in HELD_BACK if "perfect" not in m.name]),
        **spans,
    }.items():
        text = text.replace(place, value)
    (HERE / "README.md").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--parts", nargs="*", default=["p_values.csv", "coverage.csv", "held_back.csv"])
    parser.add_argument("--only-readme", action="store_true", help="write the page again from the rows that are there")
    options = parser.parse_args()
    if not options.only_readme:
        if "p_values.csv" in options.parts:
            write_rows(HERE / "p_values.csv", [row for n in SIZES for row in p_values(n, options.trials)])
        parts = [("coverage.csv", MODELS, options.trials, options.trials * 3 // 10)]
        parts += [("held_back.csv", HELD_BACK, options.trials // 2, 0)]
        for name, models, trials, bootstraps in parts:
            if name in options.parts:
                rows = []
                for model in models:
                    for n in SIZES:
                        rows += coverage(model, n, trials, bootstraps)
                        print(model.name, n, flush=True)
                write_rows(HERE / name, rows)
    write_readme()


if __name__ == "__main__":
    main()
