"""Risk control beside MAPIE on the same samples: the same guarantee, and the share of samples that is certified.

Writes mapie.csv and README.md beside this file; README.md also has the tables of the other scripts.

    python experiments/decide/mapie_table.py --trials 200
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mapie.risk_control import BinaryClassificationController
from populations import Population, confidence_models, positive_models
from simulate import CONFIDENCE, TARGETS, chosen, limit, target_of, true_risk

from rhocal.evaluation.rows import write_rows

if TYPE_CHECKING:
    from rhocal.numerics.special import Vector

HERE = Path(__file__).parent
SIZES = (1000, 10_000)
MAPIE_RISKS = {"error": "precision", "precision": "precision", "recall": "recall", "fpr": "fpr"}
"""Errors among accepted samples are 1 − precision of the question whether a prediction is right."""


def mapie_threshold(scores: Vector, events: Vector, risk: str, target: float, method: str) -> float | None:
    """The best threshold of MAPIE's default grid."""
    positives = 1 - events if risk == "error" else events
    level = 1 - target if risk == "error" else target
    # Fixed-sequence testing follows the order of the list: the most conservative threshold comes first.
    grid = np.linspace(0, 0.99, 100)
    if method == "fixed_sequence" and risk != "recall":
        grid = grid[::-1]
    controller = BinaryClassificationController(
        lambda x: np.stack([1 - x[:, 0], x[:, 0]], axis=1), MAPIE_RISKS[risk], level, CONFIDENCE,
        list_predict_params=grid, fwer_method=method,
    )  # fmt: skip
    controller.calibrate(scores[:, None], positives.astype(int))
    best = controller.best_predict_param
    return None if best is None else float(best)


def cells(trials: int) -> list[dict[str, Any]]:
    confident, binary = confidence_models(TARGETS["error"]), positive_models()
    tasks: list[tuple[Population, Any]] = [(population, "error") for population in confident[:4]]
    tasks += [(population, risk) for risk in ("fpr", "precision", "recall") for population in binary]
    rows = []
    for population, risk in tasks:
        for n in SIZES:
            rows += cell(population, risk, n, trials)
            print(*rows[-3:], sep="\n")
    return rows


def cell(population: Population, risk: Any, n: int, trials: int) -> list[dict[str, Any]]:
    target = target_of(risk, population)
    found: dict[str, list[float | None]] = {"rhocal": [], "MAPIE, default": [], "MAPIE, fixed sequence": []}
    for trial in range(trials):
        rng = np.random.default_rng([n, trial])
        scores, events = population.draw(rng, n)
        result = chosen(rng, scores, events, risk, target, None)
        found["rhocal"].append(None if result is None else result[0])
        for name, method in (("MAPIE, default", "bonferroni_holm"), ("MAPIE, fixed sequence", "fixed_sequence")):
            found[name].append(mapie_threshold(scores, events, risk, target, method))
    return [
        {
            "risk": risk, "target": target, "population": population.name, "n": n, "library": name, "trials": trials,
            "certified": float(np.mean([t is not None for t in thresholds])),
            "share": float(np.mean([useful_share(population, risk, t) for t in thresholds])),
            "false": float(np.mean(
                [t is not None and true_risk(population, risk, t) > limit(risk, target) for t in thresholds]
            )),
        }
        for name, thresholds in found.items()
    ]  # fmt: skip


def useful_share(population: Population, risk: str, threshold: float | None) -> float:
    """Share of samples that are automated; of the positive class, those found (of recall, those not raised); 0 without any."""
    if threshold is None:
        return 0.0
    accepted = float(population.accepted(threshold).mean())
    return 1 - accepted if risk == "recall" else accepted


def table(rows: list[dict[str, Any]], names: list[str], columns: list[str]) -> str:
    head = "| " + " | ".join(names + columns) + " |\n|" + "---|" * len(names + columns)
    return "\n".join([head, *("| " + " | ".join(str(row[name]) for name in names + columns) + " |" for row in rows)])


def page() -> str:
    simulated, compared = _read(HERE / "simulation.csv"), _read(HERE / "mapie.csv")
    keys = ["risk", "target", "population", "n"]
    first = [
        {
            **row,
            "false": f"{float(row['false']):.4f}",
            "certified": f"{float(row['certified']):.3f}",
            "share": _share(row),
        }
        for row in simulated
    ]
    second = []
    for at in range(0, len(compared), 3):
        row = {key: compared[at][key] for key in keys}
        for one in compared[at : at + 3]:
            row[one["library"]] = f"{float(one['share']):.3f} ({float(one['false']):.3f})"
        second.append(row)
    text = (HERE / "template.md").read_text(encoding="utf-8")
    return text.format(
        simulated=table(first, [*keys, "ranks"], ["false", "certified", "share"]),
        worst=max(float(row["false"]) for row in simulated),
        trials=f"{int(simulated[0]['trials']):,}",
        compared=table(second, keys, ["rhocal", "MAPIE, default", "MAPIE, fixed sequence"]),
        mapie_trials=compared[0]["trials"],
        **set_tables(),
        **interval_table(),
        **dependence_tables(),
    )


def set_tables() -> dict[str, str]:
    """The coverage of prediction sets, and the sizes beside MAPIE's."""
    rows, compared = _read(HERE / "sets.csv"), _read(HERE / "mapie_sets.csv")
    keys = ["population", "score", "n"]
    coverage = []
    for row in rows:
        per_class = row["per_class"] == "True"
        coverage.append({
            **row,
            "of": "each class" if per_class else "all",
            "coverage": f"{float(row['coverage']):.4f}",
            "lowest class": f"{float(row['lowest']):.4f}" if per_class else "–",
            "upper bound": f"{float(row['bound']):.4f}",
            "classes in a set": f"{float(row['size']):.2f}",
        })  # fmt: skip
    beside: dict[tuple[str, ...], dict[str, str]] = {}
    for row in compared:
        cell = beside.setdefault(tuple(row[key] for key in keys), {key: row[key] for key in keys})
        cell[row["library"]] = f"{float(row['size']):.2f} ({float(row['coverage']):.3f})"
    libraries = ["rhocal", "MAPIE", "MAPIE, randomized"]
    return {
        "sets": table(coverage, [*keys, "of"], ["coverage", "lowest class", "upper bound", "classes in a set"]),
        "set_trials": f"{int(rows[0]['trials']):,}",
        "compared_sets": table([dict.fromkeys(libraries, "–") | row for row in beside.values()], keys, libraries),
        "mapie_set_trials": max(compared, key=lambda row: int(row["trials"]))["trials"],
    }


def interval_table() -> dict[str, str]:
    """The coverage of intervals of probabilities."""
    rows = _read(HERE / "intervals.csv")
    cells = [
        {
            **row,
            "coverage": f"{float(row['coverage']):.3f}",
            "error": f"{float(row['error']):.3f}",
            "lowest": f"{float(row['lowest']):.3f}" if row["lowest"] else "–",
            "width": f"{float(row['width']):.3f}",
        }
        for row in rows
    ]
    columns = ["coverage", "error", "lowest", "width"]
    return {"intervals": table(cells, ["method", "truth", "n", "classes", "holds", "trials"], columns)}


def dependence_tables() -> dict[str, str]:
    """Thresholds of tied classes, segments, clusters, and bets on clusters."""
    names = ("classes", "segments", "clusters", "cluster_bets")
    classes, segments, clusters, bets = (_read(HERE / f"{name}.csv") for name in names)
    keys = ["risk", "target", "population", "n", "clusters", "trials"]
    for row in clusters:
        row["false if ignored"] = row["false_ignored"]
        row.update({name: f"{float(row[name]):.4f}" for name in ("false", "certified", "false if ignored")})
    for row in classes + segments:
        row["share"] = _share(row)
        row.update({name: f"{float(row[name]):.4f}" for name in ("tied", "false", "certified") if name in row})
    design = ["clusters", "size", "correlation", "errors", "trials"]
    return {
        "classes": table(classes, ["population", "tied", "n", "trials"], ["false", "certified", "share"]),
        "segments": table(segments, ["population", "n", "trials"], ["false", "certified", "share"]),
        "clusters": table(clusters, keys, ["false", "certified", "false if ignored"]),
        "bets": table(bets, design, ["one of each", "bets"]),
    }


def _read(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _share(row: dict[str, Any]) -> str:
    share = float(row["share"] or "nan")
    return "–" if np.isnan(share) else f"{share:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--render", action="store_true", help="only write README.md again")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if not args.render:
        write_rows(HERE / "mapie.csv", cells(args.trials))
    (HERE / "README.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
