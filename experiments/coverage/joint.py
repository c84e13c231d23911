"""The joint null, the sentences of the verdict, and the power of the combined test. Writes rows and joint.md beside this file.

    python experiments/coverage/joint.py --parts null sentences small power --trials 400

Each model has a row of its own; models whose rows exist are skipped (``--again`` measures them anew).
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from joint_models import ALTERNATIVES, ASIDE, BUILDING, SMALL, SMALL_SIZES, SPOKEN_OF, Model
from other_tests import other_p_values

import rhocal
from rhocal.evaluation.evaluate import DrawnTests
from rhocal.evaluation.rows import write_rows
from rhocal.evaluation.samples import Samples
from rhocal.metrics.inference.calibration_tests import combine, outcomes
from rhocal.metrics.inference.floor import floors
from rhocal.metrics.inference.intervals import intervals
from rhocal.metrics.inference.joint_null import joint_null
from rhocal.metrics.inference.statistics import statistics
from rhocal.metrics.inference.verdict import verdict
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import equal_width

if TYPE_CHECKING:
    from rhocal.numerics.special import Vector

HERE = Path(__file__).parent
N_DRAWS = 499
TOLERANCE = 0.02
ZERO = 1e-3
"""A true difference below a tenth of a point is no direction: a sentence that names one is wrong."""


def null_rows(model: Model, trials: int) -> list[dict[str, Any]]:
    """How often each test rejects a perfect model at 5 %."""
    rng = np.random.default_rng([1, *model.name.encode()])
    rejected: dict[str, list[bool]] = {}
    for k in range(trials):
        p, y, _ = model.sample(rng)
        weights, design = model.design(rng, p)
        scored = design.apply(Scored.from_arrays(p, y, weights, "probs"))
        found = statistics(joint_null(scored, N_DRAWS, k))
        values = {name: test.p_value for name, test in outcomes(scored, found).items()}
        for name, value in (values | {"combined": combine(found).p_value}).items():
            rejected.setdefault(name, []).append(value <= 0.05)
    held = "yes" if model in ASIDE else "no"
    return [
        {
            "model": model.name,
            "aside": held,
            "n": model.n,
            "test": name,
            "rejected": float(np.mean(flags)),
            "trials": trials,
        }
        for name, flags in rejected.items()
    ]


# Sentences ---------------------------------------------------------------------------------------------------------------


class Truth:
    """What is true of a model, from many samples with the true probabilities instead of labels."""

    def __init__(self, model: Model, n: int = 400_000) -> None:
        p, _, q = model.sample(np.random.default_rng(0), n)
        rows, top = np.arange(n), p.argmax(axis=1)
        self.n_classes = p.shape[1]
        self.confidence, self.residual = p[rows, top], q[rows, top] - p[rows, top]
        self.class_gaps = (q - p).mean(axis=0)
        positive = p[:, 1], (q - p)[:, 1]
        self.error = _ece(*positive) if self.n_classes == 2 else _ece(self.confidence, self.residual)

    @property
    def is_beyond(self) -> bool:
        return max(self.error, np.abs(self.class_gaps).max()) > TOLERANCE

    def region(self, low: float, high: float) -> float:
        inside = (self.confidence > low) & (self.confidence <= high)
        return float(self.residual[inside].mean()) if inside.any() else 0.0


def _ece(confidence: Vector, residual: Vector) -> float:
    return float(np.abs(np.bincount(equal_width(confidence, 10), residual, 10)).sum() / len(confidence))


def claims(evaluation: Any, truth: Truth) -> list[tuple[str, bool]]:
    """Every claim of a verdict, and whether it is wrong."""
    text, found = evaluation.verdict, []
    if evaluation.state != "undecided":
        found.append((evaluation.state, truth.is_beyond != (evaluation.state == "beyond")))
    gap = float(truth.residual.mean())
    words = re.findall(r"(over|under)-confident by", text)
    found += [("direction", not (gap < -ZERO if word == "over" else gap > ZERO)) for word in words]
    for name, size in re.findall(r"class (\d+) gets too (much|little) probability", text):
        of_class = truth.class_gaps[int(name)]
        found.append(("class", not (of_class < -ZERO if size == "much" else of_class > ZERO)))
    for word, low, high in re.findall(r"(over|under)-confident at confidence ([\d.]+) to ([\d.]+)", text):
        there = truth.region(float(low), float(high))
        found.append(("region", not (there < -ZERO if word == "over" else there > ZERO)))
    if "not perfectly" in text or ("indistinguishable" not in text and evaluation.distinguishable):
        found.append(("miscalibrated", truth.error < ZERO and np.abs(truth.class_gaps).max() < ZERO))
    return found


def sentence_rows(model: Model, trials: int) -> list[dict[str, Any]]:
    """How often each claim is made, and how often it is wrong, of all evaluations."""
    rng, truth = np.random.default_rng([2, *model.name.encode()]), Truth(model)
    made: dict[str, list[bool]] = {}
    for k in range(trials):
        p, y, _ = model.sample(rng)
        evaluation = rhocal.evaluate(p, y, metrics=["ece"], tolerance=TOLERANCE, seed=k)
        seen: dict[str, bool] = {}
        for claim, is_wrong in claims(evaluation, truth):
            seen[claim] = seen.get(claim, False) or is_wrong
        for claim, is_wrong in seen.items():
            made.setdefault(claim, []).append(is_wrong)
    return [
        {"model": model.name, "n": model.n, "true_error": truth.error, "claim": claim, "made": len(flags) / trials,
         "wrong": sum(flags) / trials, "trials": trials}
        for claim, flags in made.items()
    ]  # fmt: skip


# Small samples -----------------------------------------------------------------------------------------------------------


def small_rows(model: Model, trials: int) -> list[dict[str, Any]]:
    """How often the state is *beyond*, how often it would be by the intervals alone, and how often the test rejects."""
    return [_small_row(model, n, trials) for n in SMALL_SIZES]


def _small_row(model: Model, n: int, trials: int) -> dict[str, Any]:
    rng = np.random.default_rng([4, n, *model.name.encode()])
    beyond, alone, rejected = np.zeros((3, trials), bool)
    for k in range(trials):
        p, y, q = model.sample(rng, n)
        scored = Scored.from_arrays(p, y, None, "probs")
        drawn = DrawnTests.from_samples(Samples(scored, p.shape[1]), N_DRAWS, k)
        ece = floors(scored, ["ece"], nulls=drawn.nulls(["ece"]))["ece"]
        evidence = drawn.evidence(ece, intervals(scored, ["ece"])["ece"])
        found = verdict(evidence, TOLERANCE)
        beyond[k], rejected[k] = found.state == "beyond", found.distinguishable
        alone[k] = verdict(evidence, TOLERANCE, p_value=0.0).state == "beyond"
    flags = {"beyond": beyond, "intervals": alone, "rejected": rejected}
    shares = {name: float(np.mean(seen)) for name, seen in flags.items()}
    perfect = "yes" if np.array_equal(p, q) else "no"
    return {"model": model.name, "perfect": perfect, "n": n, **shares, "trials": trials}


# Power -------------------------------------------------------------------------------------------------------------------


def power_rows(model: Model, trials: int) -> list[dict[str, Any]]:
    """How often each test rejects at 5 %: ours, the tests of earlier versions, and those of other authors."""
    rng = np.random.default_rng([3, *model.name.encode()])
    rejected: dict[str, list[bool]] = {}
    for k in range(trials):
        p, y, _ = model.sample(rng)
        scored = Scored.from_arrays(p, y, None, "probs")
        null = joint_null(scored, N_DRAWS, k)
        found = statistics(null)
        values = {"combined": combine(found).p_value} | other_p_values(scored, p, y, null)
        values |= {f"ours: {name}": test.p_value for name, test in outcomes(scored, found).items()}
        for name, value in values.items():
            rejected.setdefault(name, []).append(value <= 0.05)
    return [
        {"model": model.name, "n": model.n, "test": name, "power": float(np.mean(flags)), "trials": trials}
        for name, flags in rejected.items()
    ]


# Rows and the page -------------------------------------------------------------------------------------------------------

PARTS = {
    "null": (null_rows, [*BUILDING, *ASIDE]),
    "sentences": (sentence_rows, SPOKEN_OF),
    "small": (small_rows, SMALL),
    "power": (power_rows, ALTERNATIVES),
}
PEERS = ("Cox", "Hosmer–Lemeshow", "smooth ECE", "T-Cal", "CORP")


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def null_table(rows: list[dict[str, Any]]) -> str:
    tests = [name for name in dict.fromkeys(row["test"] for row in rows) if name != "combined"]
    lines = ["| model | n | kept aside | combined | " + " | ".join(tests) + " |", "|" + " --- |" * (len(tests) + 4)]
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = {row["test"]: row for row in rows if row["model"] == model}
        first = mine["combined"]
        cells = [f"{float(mine[t]['rejected']):.3f}" if t in mine else "–" for t in ["combined", *tests]]
        lines.append(f"| {model} | {int(first['n']):,} | {first['aside']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def sentence_table(rows: list[dict[str, Any]]) -> str:
    lines = ["| model | n | true error | claim | made | wrong |", "|" + " --- |" * 6]
    lines += [
        f"| {r['model']} | {int(r['n']):,} | {float(r['true_error']):.3f} | {r['claim']} | {float(r['made']):.3f} "
        f"| {float(r['wrong']):.3f} |"
        for r in rows
    ]
    return "\n".join(lines)


def small_table(rows: list[dict[str, Any]]) -> str:
    lines = ["| model | perfect | n | beyond | intervals alone | combined test rejects |", "|" + " --- |" * 6]
    lines += [
        f"| {r['model']} | {r['perfect']} | {int(r['n']):,} | {float(r['beyond']):.3f} | {float(r['intervals']):.3f} "
        f"| {float(r['rejected']):.3f} |"
        for r in rows
    ]
    perfect = [r for r in rows if r["perfect"] == "yes"]
    means = (float(np.mean([float(r[share]) for r in perfect])) for share in ("beyond", "intervals", "rejected"))
    return "\n".join([*lines, "| *mean of perfect models* | yes | | " + " | ".join(f"{m:.3f}" for m in means) + " |"])


def power_table(rows: list[dict[str, Any]]) -> str:
    tests = ["combined", "earlier versions", *PEERS]
    lines = ["| alternative | n | " + " | ".join(tests) + " | best − combined |", "|" + " --- |" * (len(tests) + 3)]
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = {row["test"]: float(row["power"]) for row in rows if row["model"] == model}
        n = next(row["n"] for row in rows if row["model"] == model)
        best = max(mine[name] for name in PEERS)
        cells = [f"{mine[name]:.2f}" for name in tests]
        lines.append(f"| {model} | {int(n):,} | " + " | ".join(cells) + f" | {best - mine['combined']:+.2f} |")
    return "\n".join(lines)


def write_page() -> None:
    rows = {part: read(HERE / f"joint_{part}.csv") for part in PARTS}
    tables = {"null": null_table, "sentences": sentence_table, "small": small_table, "power": power_table}
    text = (HERE / "joint_template.md").read_text(encoding="utf-8")
    for part, table in tables.items():
        text = text.replace(f"{{{part}}}", table(rows[part]) if rows[part] else "(not measured)")
        trials = sorted({int(row["trials"]) for row in rows[part]})
        text = text.replace(f"{{{part} trials}}", " or ".join(f"{t:,}" for t in trials) or "no")
    (HERE / "joint.md").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--models", nargs="*", help="only these")
    parser.add_argument("--again", action="store_true", help="measure models anew whose rows exist")
    options = parser.parse_args()
    for part in options.parts:
        measure, models = PARTS[part]
        path = HERE / f"joint_{part}.csv"
        order = [model.name for model in models]
        for model in models:
            known = {row["model"] for row in read(path)}
            if (options.models and model.name not in options.models) or (model.name in known and not options.again):
                continue
            new = measure(model, options.trials)
            kept = [row for row in read(path) if row["model"] != model.name]
            write_rows(path, sorted([*kept, *new], key=lambda row: order.index(row["model"])))
            print(part, model.name, flush=True)
    write_page()


if __name__ == "__main__":
    main()
