"""How many calibration samples does a method need? ECE and NLL on a fixed test half for 100 to 10,000 samples.

    python experiments/learning_curve/learning_curve.py --logits ../shared/data/logits

`rows.csv` holds a line for each method, size, network and seed; `README.md` is made from it.
"""

from __future__ import annotations

import argparse
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core

import numpy as np

import rhocal
from rhocal.data.files import read, write_text
from rhocal.data.predictions import Predictions
from rhocal.evaluation.compare import CalibrationSplit, compare, random_split
from rhocal.evaluation.rows import write_rows

HERE = Path(__file__).parent
METHODS = ("identity", "temperature", "rho-norm", "field")
SIZES = (100, 200, 500, 1000, 2000, 5000, 10_000)
NETWORKS = (
    "cifar100_resnet56", "cifar100_vgg16_bn", "cifar10_resnet56", "cifar10_vgg16_bn", "fashionmnist_densenet",
    "svhn_disiji_logp", "imdb_cleanlab_cv_logp", "emotion6_Mistral-7B-v0.1_task",
)  # fmt: skip


def network_rows(name: str, folder: Path, n_seeds: int) -> list[dict[str, Any]]:
    warnings.simplefilter("ignore")
    one = read(folder / f"{name}.npz").calibration_set()
    whole = Predictions.from_arrays(one.scores, one.labels)
    rows: list[dict[str, Any]] = []
    for seed in range(n_seeds):
        split = random_split(whole, seed)
        calibration, test = split.calibration.predictions, split.test.predictions
        for size in (size for size in SIZES if size <= calibration.n_samples):
            part = CalibrationSplit.from_predictions(split.name, calibration.take(np.arange(size)), test)
            methods = {method: rhocal.calibrator(method) for method in METHODS}
            rows += [{"size": size, **row.flat()} for row in compare(name, [(part, methods)])]
    return rows


def table(rows: list[dict[str, Any]], metric: str, networks: list[str], sizes: list[int]) -> str:
    lines = ["| method | " + " | ".join(f"{size:,}" for size in sizes) + " |", "|---" * (1 + len(sizes)) + "|"]
    for method in METHODS:
        cells = []
        for size in sizes:
            chosen = [
                r[metric] for r in rows if (r["method"], r["size"]) == (method, size) and r["network"] in networks
            ]
            cells.append(f"{np.mean(chosen):.4f}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    worst = []
    for size in sizes:
        ratios = []
        for network in networks:
            nll = {
                method: np.mean(
                    [r["nll"] for r in rows if (r["method"], r["size"], r["network"]) == (method, size, network)]
                )
                for method in ("field", "temperature")
            }
            ratios.append(nll["field"] / nll["temperature"])
        worst.append(f"{max(ratios):.4f}")
    if metric == "nll":
        lines.append("| *field / temperature, worst network* | " + " | ".join(worst) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logits", type=Path, default=Path("../shared/data/logits"), help="folder of .npz files")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(args.jobs) as pool:
        work = partial(network_rows, folder=args.logits, n_seeds=args.seeds)
        for name, new in zip(NETWORKS, pool.map(work, NETWORKS), strict=True):
            rows += new
            print(f"{name}: {len(new)} rows", flush=True)
    write_rows(HERE / "rows.csv", rows)
    large = [name for name in NETWORKS if any(r["network"] == name and r["size"] == SIZES[-1] for r in rows)]
    text = [
        "# How many calibration samples does a method need?",
        "",
        "`make learning-curve` writes this page: means over networks and 5 seeds, on one test half for all sizes.",
    ]
    for metric, title in (("ece", "ECE"), ("nll", "NLL")):
        text += ["", f"## {title}, {len(NETWORKS)} networks", "", table(rows, metric, list(NETWORKS), list(SIZES[:-1]))]
        text += ["", f"{title}, the {len(large)} networks with 10,000 calibration samples:", ""]
        text += [table(rows, metric, large, list(SIZES))]
    write_text(HERE / "README.md", "\n".join(text) + "\n")


if __name__ == "__main__":
    main()
