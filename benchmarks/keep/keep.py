"""What keeping the decision costs: the decision-keeping cascades beside `field` and the free cascade.

    make keep

For every file a random half (or its own calibration and test split) is calibrated on and the rest measured. `rows.csv` holds a
line for each method, file and seed; `README.md` is rendered from it. What has a line is not run again. With `--prototype`, a
folder, the prototype in it is measured beside them; its values are printed and not kept.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core

import numpy as np

import rhocal
from rhocal.data.files import read, write_text
from rhocal.data.predictions import Predictions
from rhocal.errors import DecisionWarning
from rhocal.evaluation.compare import file_sources, splits
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import N_BINS, BinSums, perfect_error

if TYPE_CHECKING:
    from numpy.typing import NDArray

HERE = Path(__file__).parent
METHODS = ("temperature", "field", "cascade", "cascade-order", "cascade-top", "cascade-scale")
KEPT = METHODS[3:]
SUITES = {"logits": "Networks", "tabular": "Tables", "llm": "Language models (multiple choice)"}
FIELDS = ("suite", "file", "split", "method", "nll", "brier", "ece", "floor", "accuracy", "flips", "warned", "seconds")


def measured(probs: NDArray[Any], data: Predictions) -> dict[str, Any]:
    """Metrics of probabilities, and how many samples have another class than the network's."""
    calibrated = Predictions.from_arrays(np.log(np.maximum(probs.astype(np.float64), 1e-12)), data.labels)
    scored = Scored.from_predictions(calibrated)
    assert data.labels is not None
    own = probs[np.arange(len(probs)), data.labels].astype(np.float64)
    hits = (probs.argmax(axis=1) == data.labels).astype(np.float64)
    flips = int((probs.argmax(axis=1) != data.logits.argmax(axis=1)).sum())
    return {
        "nll": -np.log(np.maximum(own, 1e-12)).mean(),
        "brier": ((probs.astype(np.float64) ** 2).sum(axis=1) - 2 * own + 1).mean(),
        "ece": BinSums.of(scored.confidence, hits, n_bins=N_BINS, weights=scored.weights).error(1),
        "floor": perfect_error(scored.confidence, np.ones(len(hits)), N_BINS),
        "accuracy": hits.mean(),
        "flips": flips,
    }


def file_rows(path: Path, n_seeds: int, done: set[tuple[str, ...]], prototype: Path | None) -> list[dict[str, Any]]:
    rows = []
    for split in splits(*file_sources(read(path)), n_seeds=n_seeds):
        calibration, test = split.calibration.predictions, split.test.predictions
        for method in METHODS:
            key = {"suite": path.parent.name, "file": path.stem, "split": split.name, "method": method}
            if tuple(key.values()) in done:
                continue
            start = time.perf_counter()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                cal = rhocal.calibrator(method).fit(calibration.logits, calibration.labels)
            seconds = time.perf_counter() - start
            cost = [one for one in caught if issubclass(one.category, DecisionWarning) and "costs" in str(one.message)]
            values = measured(cal.predict_proba(test.logits), test)
            single = cal.predict_proba(test.logits.astype(np.float32)).argmax(axis=1)
            if method in KEPT:
                values["flips"] += int((single != test.logits.astype(np.float32).argmax(axis=1)).sum())
            rows.append({**key, **values, "warned": int(bool(cost)), "seconds": seconds})
        if prototype is not None:
            show_prototype(prototype, path, calibration, test)
    return rows


def show_prototype(folder: Path, path: Path, calibration: Predictions, test: Predictions) -> None:
    """Measure a prototype (`keep.py` beside `cascade.py`) on the same split."""
    sys.path.insert(0, str(folder))
    import importlib  # noqa: PLC0415

    module = importlib.import_module("keep")
    model = module.Keep().fit(calibration.logits, calibration.labels)
    free = model.cascade.predict_proba(test.logits)
    for model.family in ("order", "top", "scale"):
        values = measured(model.fit_confidence(calibration.logits).keep(free, test.logits), test)
        text = " ".join(f"{name}={value:.5f}" for name, value in values.items())
        print(f"prototype {path.parent.name} {path.stem} {model.family} {text}", flush=True)


def table(rows: list[dict[str, Any]]) -> str:
    """Means over the files."""
    have = {(row["file"], row["method"]) for row in rows}
    names = [
        name for name in sorted({row["file"] for row in rows}) if all((name, method) in have for method in METHODS)
    ]
    lines = [
        f"Mean over {len(names)} files.",
        "",
        "| method | NLL | Brier | ECE | ECE − floor | accuracy | changed samples | warnings | fit s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        own = [[row for row in rows if (row["file"], row["method"]) == (name, method)] for name in names]
        mean = {key: np.mean([np.mean([float(row[key]) for row in part]) for part in own]) for key in FIELDS[4:]}
        flips = sum(int(row["flips"]) for part in own for row in part)
        warned = sum(any(int(row["warned"]) for row in part) for part in own)
        cells = (mean["nll"], mean["brier"], mean["ece"], mean["ece"] - mean["floor"], mean["accuracy"])
        text = " | ".join(f"{cell:.4f}" for cell in cells)
        lines.append(f"| {method} | {text} | {flips:,} | {warned or ''} | {mean['seconds']:.2f} |")
    return "\n".join(lines)


def warned_table(rows: list[dict[str, Any]]) -> str:
    """Files on which a fit of cascade-top said what keeping the decision costs."""
    lines = ["| file | NLL of cascade | of cascade-top | of cascade-order |", "|---|---|---|---|"]
    for name in sorted({row["file"] for row in rows if int(row["warned"]) and row["method"] == "cascade-top"}):
        nll = {
            method: np.mean([float(row["nll"]) for row in rows if (row["file"], row["method"]) == (name, method)])
            for method in ("cascade", "cascade-top", "cascade-order")
        }
        lines.append(f"| {name} | " + " | ".join(f"{value:.4f}" for value in nll.values()) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of logits, tabular and llm")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="0 renders the page and runs nothing")
    parser.add_argument("--prototype", type=Path, help="folder of a prototype to measure beside")
    args = parser.parse_args()
    target = HERE / "rows.csv"
    rows: list[dict[str, Any]] = []
    if target.exists():
        with target.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    done = {tuple(row[key] for key in FIELDS[:4]) for row in rows}
    paths = [path for suite in SUITES for path in (args.data / suite).glob("*.npz") if args.jobs]
    paths.sort(key=lambda path: path.stat().st_size)
    with ProcessPoolExecutor(max(args.jobs, 1)) as pool:
        work = partial(file_rows, n_seeds=args.seeds, done=done, prototype=args.prototype)
        for path, new in zip(paths, pool.map(work, paths), strict=True):
            rows += [
                {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()}
                for row in new
            ]
            rows.sort(key=lambda row: (row["suite"], row["file"], row["split"], METHODS.index(row["method"])))
            with target.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            print(f"{path.stem}: {len(new)} new rows", flush=True)
    text = (HERE / "template.md").read_text(encoding="utf-8")
    tables = [f"## {title}\n\n{table(part)}" for suite, title in SUITES.items() if (part := suite_rows(rows, suite))]
    text = text.replace("{TABLES}", "\n\n".join(tables)).replace("{WARNED}", warned_table(rows))
    write_text(HERE / "README.md", text)


def suite_rows(rows: list[dict[str, Any]], suite: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["suite"] == suite]


if __name__ == "__main__":
    main()
