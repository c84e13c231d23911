"""Choose the defaults of ``RhoNormScaling()`` on evidence, and write that evidence down.

    python experiments/defaults/defaults.py --logits ../shared/data/logits

Every candidate is fitted on 5 random halves of every network (or on the network's own tune split) and measured on the
rest. Rows go to ``rows.csv``, the table to ``README.md``, both beside this file.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core

import numpy as np

from rhocal import RhoNormScaling, TemperatureScaling
from rhocal.data.files import read, write_text
from rhocal.evaluation.compare import compare, file_sources, splits
from rhocal.evaluation.rows import read_rows, write_rows

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator

HERE = Path(__file__).parent

TWELVE = [
    *(f"cifar100_{name}" for name in ("resnet20", "resnet56", "vgg16_bn", "mobilenetv2_x1_0", "repvgg_a2")),
    *(f"cifar100_{name}" for name in ("shufflenetv2_x2_0", "vgglike_playground")),
    *(f"cifar10_{name}" for name in ("resnet56", "resnet110_ce", "vgg16_bn", "densenet40_ce")),
    "fashionmnist_densenet",
]
LANGUAGE = ["emotion6_Qwen-14B_task", "mmbench6_llava-v1.5-7b"]


def candidates() -> dict[str, Calibrator]:
    """What is compared. Every ρ-Norm candidate searches the paper's grid of ρ."""

    def rho(objective: str, **options: Any) -> RhoNormScaling:
        return RhoNormScaling(objective=objective, **{"alpha": 0.0, "center": True, **options})

    return {
        "temperature": TemperatureScaling(),
        "nll": rho("nll"),
        "nll, not centred": rho("nll", center=False),
        "nll + top-brier": rho("nll + top-brier"),
        "top-brier": rho("top-brier"),
        "sce": rho("sce"),
        "sce, not centred": rho("sce", center=False),
        "sce, rho by objective": rho("sce", selection="objective"),
        "sce + 0.01*nll": rho("sce + 0.01*nll"),
        "sce + 0.01*nll, not centred": rho("sce + 0.01*nll", center=False),
        "sce + 0.03*nll": rho("sce + 0.03*nll"),
        "sce + 0.1*nll": rho("sce + 0.1*nll"),
        "sce + 0.01*kl": rho("sce", alpha=0.01),
        "sce + 1*kl": rho("sce", alpha=1.0),
        "sce + auto*kl": rho("sce", alpha="auto"),
    }


def network_rows(path: Path, n_seeds: int) -> list[dict[str, Any]]:
    work = ((split, candidates()) for split in splits(*file_sources(read(path)), n_seeds=n_seeds))
    return [row.flat() for row in compare(path.stem, work)]


def table(rows: list[dict[str, Any]], networks: list[str]) -> list[list[str]]:
    """Candidate, mean ECE, AdaECE, NLL, Brier, ECE over temperature's, and the worst NLL over temperature's."""

    def means(method: str, metric: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        cells = [[r[metric] for r in rows if (r["network"], r["method"]) == (name, method)] for name in networks]
        return np.array([np.mean(cell) for cell in cells])

    lines = []
    for method in candidates():
        figures = {metric: means(method, metric) for metric in ("ece", "adaptive_ece", "nll", "brier")}
        ratio = figures["ece"].mean() / means("temperature", "ece").mean()
        worst = figures["nll"] / means("temperature", "nll")
        lines.append(
            [method, *(f"{values.mean():.4f}" for values in figures.values()), f"{ratio:.3f}", f"{worst.max():.4f}"]
        )
    return lines


def markdown(lines: list[list[str]]) -> str:
    head = ["objective", "ECE", "AdaECE", "NLL", "Brier", "ECE / temperature's", "worst NLL / temperature's"]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logits", type=Path, default=Path("../shared/data/logits"), help="folder of .npz files")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--render", action="store_true", help="only write README.md again, from rows.csv")
    args = parser.parse_args()
    if not args.render:
        measure(args.logits, args.seeds, args.jobs)
    render()


def measure(logits: Path, n_seeds: int, n_jobs: int) -> None:
    paths = sorted(logits.glob("*.npz"), key=lambda path: -path.stat().st_size)
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(n_jobs) as pool:
        for path, new in zip(paths, pool.map(partial(network_rows, n_seeds=n_seeds), paths), strict=True):
            rows += new
            print(f"{len(rows):5} rows, {path.stem}", flush=True)
    rows.sort(key=lambda row: (row["network"], row["split"]))
    write_rows(HERE / "rows.csv", rows)


def render() -> None:
    rows = read_rows(HERE / "rows.csv")
    networks = list(dict.fromkeys(row["network"] for row in rows))
    text = (HERE / "template.md").read_text(encoding="utf-8")
    for mark, chosen in (
        ("TWELVE", TWELVE),
        ("OTHERS", [name for name in networks if name not in TWELVE]),
        ("LANGUAGE", LANGUAGE),
    ):
        text = text.replace("{" + mark + "}", markdown(table(rows, chosen)))
    write_text(HERE / "README.md", text)


if __name__ == "__main__":
    main()
