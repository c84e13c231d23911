"""What experiments share: the networks, the rows of candidates on every split of every network, and tables of means."""

from __future__ import annotations

import argparse
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core

import numpy as np

from rhocal.data.files import read
from rhocal.evaluation.compare import compare, file_sources, splits
from rhocal.evaluation.rows import write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rhocal.calibrators import Calibrator

TWELVE = [
    *(f"cifar100_{name}" for name in ("resnet20", "resnet56", "vgg16_bn", "mobilenetv2_x1_0", "repvgg_a2")),
    *(f"cifar100_{name}" for name in ("shufflenetv2_x2_0", "vgglike_playground")),
    *(f"cifar10_{name}" for name in ("resnet56", "resnet110_ce", "vgg16_bn", "densenet40_ce")),
    "fashionmnist_densenet",
]
"""Image classifiers of CIFAR-10, CIFAR-100 and Fashion-MNIST that results are quoted for."""

Rows = list[dict[str, Any]]


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The options that every experiment takes."""
    options = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--logits", type=Path, default=Path("../shared/data/logits"), help="folder of .npz files")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options.add_argument("--render", action="store_true", help="only write README.md again, from rows.csv")
    return options


def network_rows(path: Path, candidates: Callable[[], dict[str, Calibrator]], n_seeds: int) -> Rows:
    """Every candidate on every split of one network."""
    warnings.simplefilter("ignore")
    work = ((split, candidates()) for split in splits(*file_sources(read(path)), n_seeds=n_seeds))
    return [row.flat() for row in compare(path.stem, work)]


def measure(candidates: Callable[[], dict[str, Calibrator]], args: argparse.Namespace, output: Path) -> None:
    """Write the rows of all candidates on all networks."""
    paths = sorted(args.logits.glob("*.npz"), key=lambda path: -path.stat().st_size)
    work = partial(network_rows, candidates=candidates, n_seeds=args.seeds)
    rows: Rows = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for path, new in zip(paths, pool.map(work, paths), strict=True):
            rows += new
            print(f"{len(rows):5} rows, {path.stem}", flush=True)
    rows.sort(key=lambda row: (row["network"], row["split"]))
    write_rows(output, rows)


def means(rows: Rows, method: str, metric: str, networks: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Mean over splits of one method on every network."""
    cells = [[r[metric] for r in rows if (r["network"], r["method"]) == (name, method)] for name in networks]
    return np.array([np.mean(cell) for cell in cells])


def table(rows: Rows, networks: Sequence[str], beside: str = "temperature") -> str:
    """Every method with its mean figures, its ECE over another's, and its worst NLL over temperature's."""
    columns = ("ece", "adaptive_ece", "nll", "brier")
    head = ["", "ECE", "AdaECE", "NLL", "Brier", f"ECE / {beside}'s", "worst NLL / temperature's", "fit s"]
    lines = [head, ["---"] * len(head)]
    for method in dict.fromkeys(row["method"] for row in rows):
        figures = {metric: means(rows, method, metric, networks) for metric in columns}
        ratio = figures["ece"].mean() / means(rows, beside, "ece", networks).mean()
        worst = (figures["nll"] / means(rows, "temperature", "nll", networks)).max()
        seconds = means(rows, method, "seconds", networks).mean()
        cells = [f"{values.mean():.4f}" for values in figures.values()]
        lines.append([method, *cells, f"{ratio:.3f}", f"{worst:.4f}", f"{seconds:.2f}"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
