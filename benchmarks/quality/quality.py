"""Quality side by side: our methods and the structured scalings of probmetrics, on the same splits, in one run.

    make quality

For every network and file of multiple-choice options five random halves, or its own tune and test split; for `auto`, which
takes longest, the first of them. `rows.csv` holds a line for each method and split;
`README.md` is rendered from it. What has a line is not run again: delete `rows.csv`, or the lines of a method, to start over.
"""

from __future__ import annotations

import argparse
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
from rhocal.evaluation.compare import CalibrationSplit, compare, file_sources, splits
from rhocal.evaluation.rows import Row, read_rows, write_rows
from rhocal.metrics import measure_all
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import N_BINS, perfect_error

if TYPE_CHECKING:
    from rhocal.calibrators.base import Calibrator

HERE = Path(__file__).parent
OURS = ("identity", "temperature", "rho-norm", "field", "svs", "sms", "svs:field", "sms:field", "cascade", "auto")
PEERS = {"probmetrics svs": "svs", "probmetrics sms": "sms"}
FIRST_SPLITS = {"seed 0", "own"}
"""The splits of `auto`."""
MAX_CLASSES_SMS = 200  # a full matrix for more classes does not finish in reasonable time

TWELVE = [
    *(f"cifar100_{name}" for name in ("resnet20", "resnet56", "vgg16_bn", "mobilenetv2_x1_0", "repvgg_a2")),
    *(f"cifar100_{name}" for name in ("shufflenetv2_x2_0", "vgglike_playground")),
    *(f"cifar10_{name}" for name in ("resnet56", "resnet110_ce", "vgg16_bn", "densenet40_ce")),
    "fashionmnist_densenet",
]
OPTIONS = [
    *(f"hellaswag_full_{name}" for name in ("Qwen2.5-1.5B", "pythia-1b", "qwen-2.5-32b-instruct")),
    "hellaswag_placeholder_SmolLM2-1.7B",
    *(f"hellaswag_zero_{name}" for name in ("gemma-3-1b-pt", "granite-3.1-1b-a400m-base")),
]
LANGUAGE = [
    "emotion6_Qwen-14B_task", "emotion6_Mistral-7B-v0.1_task", "mmbench6_llava-v1.5-7b", "mnli_lm_zeroshot", "agnews_gpt2",
]  # fmt: skip

Cell = tuple[str, str, str]


def peer_row(network: str, split: CalibrationSplit, method: str) -> Row:
    """One of probmetrics' calibrators, given logits, measured by the same metrics."""
    import torch  # noqa: PLC0415
    from probmetrics.calibrators import get_calibrator  # noqa: PLC0415
    from probmetrics.distributions import CategoricalLogits  # noqa: PLC0415

    torch.set_num_threads(1)
    calibration, test = split.calibration.predictions, split.test.predictions
    start = time.perf_counter()
    peer = get_calibrator(PEERS[method])
    peer.fit_torch(CategoricalLogits(torch.tensor(calibration.logits)), torch.tensor(calibration.labels))
    seconds = time.perf_counter() - start
    out = peer.predict_proba_torch(CategoricalLogits(torch.tensor(test.logits))).get_logits()
    calibrated = Predictions.from_arrays(out, test.labels)
    scored = Scored.from_predictions(calibrated)
    floor = perfect_error(scored.confidence, scored.weights, N_BINS)
    sizes = calibration.n_samples, test.n_samples
    return Row(network, split.name, method, measure_all(calibrated), seconds, *sizes, floor)


def unfitted(network: str, method: str) -> Calibrator:
    """A method; `cascade` is told of options that have no position of their own, `auto` finds out."""
    return rhocal.calibrator(method, **({"exchangeable": True} if method == "cascade" and network in OPTIONS else {}))


def network_rows(path: Path, n_seeds: int, methods: list[str], done: set[Cell]) -> list[dict[str, Any]]:
    warnings.simplefilter("ignore")
    rows: list[Row] = []
    for split in splits(*file_sources(read(path)), n_seeds=n_seeds):
        for method in methods:
            if (path.stem, split.name, method) in done or (method == "auto" and split.name not in FIRST_SPLITS):
                continue
            if "sms" in method and split.calibration.predictions.n_classes > MAX_CLASSES_SMS:
                continue
            try:
                if method in PEERS:
                    rows.append(peer_row(path.stem, split, method))
                else:
                    rows += compare(path.stem, [(split, {method: unfitted(path.stem, method)})])
            except Exception as error:  # noqa: BLE001 - a failure is a result
                print(f"{path.stem}, {split.name}: {method} failed: {error}", file=sys.stderr)
    return [row.flat() for row in rows]


def table(rows: list[dict[str, Any]], networks: list[str], *, first_split: bool = False) -> str:
    """Means over the networks on which every method has a result; with ``first_split`` of one split each, `auto` among them."""
    methods = [method for method in (*OURS, *PEERS) if first_split or method != "auto"]
    rows = [row for row in rows if not first_split or row["split"] in FIRST_SPLITS]

    def mean(method: str, metric: str, network: str) -> float:
        return float(np.mean([r.get(metric, np.nan) for r in rows if (r["network"], r["method"]) == (network, method)]))

    have = {(row["network"], row["method"]) for row in rows}
    common = [name for name in networks if all((name, method) in have for method in methods)]
    lines = [
        f"Mean over {len(common)} networks{', one split each' if first_split else ''}.",
        "",
        "| method | ECE | above floor | AdaECE | NLL | Brier | accuracy | worst NLL / temperature's | fit s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for method in methods:
        ece, floor, *cells = (
            float(np.mean([mean(method, metric, name) for name in common]))
            for metric in ("ece", "ece_floor", "adaptive_ece", "nll", "brier", "accuracy")
        )
        worst = max(mean(method, "nll", name) / mean("temperature", "nll", name) for name in common)
        seconds = np.mean([mean(method, "seconds", name) for name in common])
        numbers = " | ".join("" if np.isnan(cell) else f"{cell:.4f}" for cell in (ece, ece - floor, *cells, worst))
        lines.append(f"| {method} | {numbers} | {seconds:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logits", type=Path, default=Path("../shared/data/logits"), help="folder of .npz files")
    parser.add_argument(
        "--options", type=Path, default=Path("../shared/data/llm"), help="folder of multiple-choice files"
    )
    parser.add_argument("--methods", nargs="+", default=[*OURS, *PEERS], help="those to run")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    rows = read_rows(HERE / "rows.csv") if (HERE / "rows.csv").exists() else []
    done = {(row["network"], row["split"], row["method"]) for row in rows}
    paths = sorted(
        [*args.logits.glob("*.npz"), *args.options.glob("*.npz")],
        key=lambda path: (path.stem not in TWELVE + LANGUAGE, path.stat().st_size),
    )
    order = [*OURS, *PEERS]
    with ProcessPoolExecutor(args.jobs) as pool:
        work = partial(network_rows, n_seeds=args.seeds, methods=args.methods, done=done)
        for path, new in zip(paths, pool.map(work, paths), strict=True):
            rows += new
            rows.sort(key=lambda row: (row["network"], row["split"], order.index(row["method"])))
            write_rows(HERE / "rows.csv", rows)
            print(f"{path.stem}: {len(new)} new rows", flush=True)
    networks = {row["network"] for row in rows} - set(OPTIONS)
    text = (HERE / "template.md").read_text(encoding="utf-8")
    parts = {"TWELVE": TWELVE, "LANGUAGE": LANGUAGE, "OTHERS": sorted(networks - set(TWELVE)), "OPTIONS": OPTIONS}
    for mark, part in parts.items():
        text = text.replace("{" + mark + "}", table(rows, part))
    for mark, part in (("AUTO", sorted(networks)), ("AUTO_OPTIONS", OPTIONS)):
        text = text.replace("{" + mark + "}", table(rows, part, first_split=True))
    write_text(HERE / "README.md", text)


if __name__ == "__main__":
    main()
