"""Tables: our methods, scikit-learn's and probmetrics' on classifiers of tables, in one run.

    make tabular

Models are trained here on data that comes with scikit-learn (``tables.py``), and read from a folder of score files where
it is there (``--models``). `rows.csv` holds a line for each model and method; `README.md` is made from it. What has a line is
not run again: delete `rows.csv`, or the lines of a method, to start over.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core

import numpy as np
from other_libraries import PEERS
from tables import Scores, trained_models

import rhocal
from rhocal.data.files import write_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

HERE = Path(__file__).parent
OURS = (
    "identity", "temperature", "rho-norm", "field", "svs", "sms", "svs:field", "sms:field", "beta", "venn-abers",
    "centered-isotonic", "quadratic", "cascade", "auto",
)  # fmt: skip
COLUMNS = ("model", "n_classes", "method", "nll", "brier", "ece", "accuracy", "seconds", "note")
SMALLEST_PROBABILITY = 1e-15
"""Isotonic regression and binning of other libraries say 0 for what then happens; log-loss is cut here, as scikit-learn did."""

LIMIT_SHARE, LIMIT_NATS = 0.03, 0.003
"""A method is clearly worse than `svs` where its NLL is above by more than this share and by more than this."""


def stored_models(folder: Path) -> Iterator[tuple[str, Scores]]:
    """The files of a folder, each with its own calibration and test set."""
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            yield (
                path.stem,
                Scores(*(file[f"{array}_{part}"] for part in ("val", "test") for array in ("logits", "labels"))),
            )


def measured(probs: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
    """NLL, Brier score (sum over classes), ECE with 10 bins, accuracy."""
    label = probs[np.arange(len(labels)), labels]
    return {
        "nll": float(-np.log(np.maximum(label, SMALLEST_PROBABILITY)).mean()),
        "brier": rhocal.metrics.brier(probs, labels),
        "ece": rhocal.metrics.ece(probs, labels),
        "accuracy": float((probs.argmax(axis=1) == labels).mean()),
    }


def model_rows(name: str, scores: Scores, methods: list[str]) -> list[dict[str, Any]]:
    """A row for each method."""
    warnings.simplefilter("ignore")
    rows = []
    for method in methods:
        row: dict[str, Any] = {"model": name, "n_classes": scores.logits.shape[1], "method": method}
        start = time.perf_counter()
        try:
            if method in PEERS:
                predict = PEERS[method](scores.logits, scores.labels)
            else:
                cal = rhocal.calibrator(method)
                predict = cal.fit(scores.logits, scores.labels).predict_proba
            row["seconds"] = time.perf_counter() - start
            row |= measured(np.asarray(predict(scores.test_logits), dtype=np.float64), scores.test_labels)
        except Exception as error:  # noqa: BLE001 - a failure is a result, and stands in the table
            row["note"] = f"{type(error).__name__}: {error}"
        rows.append(row)
    return rows


def table(rows: list[dict[str, Any]], models: list[str]) -> str:
    """Means over the models on which every method has a result, and on how many a method is clearly worse than `svs`."""
    values = {(row["model"], row["method"]): row for row in rows if row["nll"] != ""}
    methods = [*OURS, *PEERS]
    common = [model for model in models if all((model, method) in values for method in methods)]
    lines = [
        f"Mean over {len(common)} models.",
        "",
        "| method | NLL | Brier | ECE | accuracy | worst NLL / svs | clearly worse than svs | fit s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method in methods:
        mean = {key: np.mean([float(values[model, method][key]) for model in common]) for key in
                ("nll", "brier", "ece", "accuracy", "seconds")}  # fmt: skip
        pairs = [(float(values[model, method]["nll"]), float(values[model, "svs"]["nll"])) for model in common]
        worse = sum(nll > (1 + LIMIT_SHARE) * svs and nll > svs + LIMIT_NATS for nll, svs in pairs)
        lines.append(
            f"| {method} | {mean['nll']:.4f} | {mean['brier']:.4f} | {mean['ece']:.4f} | {mean['accuracy']:.4f} "
            f"| {max(nll / svs for nll, svs in pairs):.3f} | {worse} | {mean['seconds']:.2f} |"
        )
    return "\n".join(lines)


def difference(rows: list[dict[str, Any]], models: list[str], method: str, other: str) -> str:
    """How far the NLL of a method is above that of another, with the standard error over the models."""
    nll = {(row["model"], row["method"]): float(row["nll"]) for row in rows if row["nll"] != ""}
    above = np.array([nll[model, method] - nll[model, other] for model in models])
    error = above.std(ddof=1) / np.sqrt(len(above))
    return f"The NLL of `{method}` minus that of `{other}`: {above.mean():+.4f} ± {error:.4f} (one standard error)."


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows measured before."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """All rows, sorted by model; numbers with six digits."""
    order = [*OURS, *PEERS]
    lines = [",".join(COLUMNS)]
    for row in sorted(rows, key=lambda row: (row["model"], order.index(row["method"]))):
        cells = [row.get(column, "") for column in COLUMNS]
        lines.append(
            ",".join(f"{cell:.6g}" if isinstance(cell, float) else str(cell).replace(",", ";") for cell in cells)
        )
    write_text(path, "\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=Path("../shared/data/tabular"), help="folder of .npz files")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    path = HERE / "rows.csv"
    rows = [row for row in read_rows(path) if row["method"] in {*OURS, *PEERS}]
    done = {(row["model"], row["method"]) for row in rows}
    stored = list(stored_models(args.models))
    trained = list(trained_models())
    with ProcessPoolExecutor(args.jobs) as pool:
        futures = [
            pool.submit(model_rows, name, scores, [m for m in (*OURS, *PEERS) if (name, m) not in done])
            for name, scores in [*trained, *stored]
        ]
        for (name, _), future in zip([*trained, *stored], futures, strict=True):
            rows += future.result()
            write_rows(path, rows)
            print(f"{name}: {len(future.result())} new rows", flush=True)
    rows = read_rows(path)
    names = {name for name, _ in trained}
    text = (HERE / "template.md").read_text(encoding="utf-8")
    models = {row["model"]: int(row["n_classes"]) for row in rows}
    parts = {
        "TRAINED": [model for model in models if model in names],
        "BINARY": [model for model, n_classes in models.items() if model not in names and n_classes == 2],
        "MULTICLASS": [model for model, n_classes in models.items() if model not in names and n_classes > 2],
        "STORED": [model for model in models if model not in names],
    }
    for mark, part in parts.items():
        text = text.replace("{" + mark + "}", f"{table(rows, part)}\n\n{difference(rows, part, 'auto', 'cascade')}")
    write_text(HERE / "README.md", text)


if __name__ == "__main__":
    main()
