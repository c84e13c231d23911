"""Every method beside the same method of other libraries: seconds of processor time to fit, one thread, in alternation.

    python benchmarks/speed/methods.py

Processor time, because other work on the machine changes the time on the clock; ratios are what to read. `methods.csv` and
`methods.md` are written after each size, so that a run that is stopped keeps what it has.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import torch
from probmetrics.calibrators import get_calibrator
from probmetrics.distributions import CategoricalLogits
from speed import data, sklearn_fit, torch_fit

import rhocal
from rhocal.data.files import write_text
from rhocal.evaluation.rows import read_rows, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
SHAPES = [(5000, 10), (5000, 100), (25_000, 1000)]
MAX_MATRIX_CLASSES = 200
MATRICES = {"matrix", "dirichlet", "sms", "sms:field"}
OURS = (
    "temperature", "rho-norm", "field", "ets", "vector", "svs", "svs:field", "sms", "sms:field", "matrix", "dirichlet",
    "isotonic", "beta", "cascade", "cascade-top", "auto",
)  # fmt: skip
PROBMETRICS = {
    "temperature": "temp-scaling", "vector": "svs", "svs": "svs", "svs:field": "svs", "sms": "sms", "sms:field": "sms",
    "matrix": "sms", "isotonic": "isotonic", "beta": "beta", "cascade": "sms", "auto": "sms",
}  # fmt: skip
"""The same method there, or the one that targets compare with."""


def probmetrics_fit(name: str) -> Callable[[Any, Any], Any]:
    def fit(z: Any, y: Any) -> None:
        get_calibrator(name).fit_torch(CategoricalLogits(torch.from_numpy(z)), torch.from_numpy(y))

    return fit


def own_fit(method: str, z: Any, y: Any) -> None:
    rhocal.calibrator(method).fit(z, y)


def peers_of(method: str, n_classes: int) -> dict[str, Callable[[Any, Any], Any]]:
    """Fits of other libraries that a method is compared with."""
    name = PROBMETRICS.get(method)
    if name == "sms" and n_classes > MAX_MATRIX_CLASSES:
        name = "svs"
    peers: dict[str, Callable[[Any, Any], Any]] = {} if name is None else {f"probmetrics {name}": probmetrics_fit(name)}
    if method == "temperature":
        peers |= {"scikit-learn temperature": sklearn_fit, "torch L-BFGS": torch_fit}
    return peers


def seconds(fit: Callable[[Any, Any], Any], z: Any, y: Any) -> float:
    start = time.process_time()
    fit(z, y)
    return time.process_time() - start


def measure(n: int, m: int, methods: list[str], repeats: int) -> list[dict[str, Any]]:
    """A row for each method and peer: the median over repetitions, in which every fit has its turn."""
    z, y = data(n, m)
    fits: dict[str, Callable[[Any, Any], Any]] = {}
    for method in methods:
        if method in MATRICES and m > MAX_MATRIX_CLASSES:
            continue
        fits[method] = partial(own_fit, method)
        fits |= peers_of(method, m)
    small = data(600, min(m, 100))
    for name, fit in fits.items():
        try:
            fit(*small)  # imports do not count
        except Exception as error:  # noqa: BLE001 - a failure is a result
            print(f"{name}: {error}", flush=True)
    times: dict[str, list[float]] = {name: [] for name in fits}
    for _ in range(repeats):
        for name, fit in fits.items():
            try:
                times[name].append(seconds(fit, z, y))
            except Exception as error:  # noqa: BLE001 - a failure is a result
                print(f"{name} at {n} x {m}: {error}", flush=True)
                continue
            print(f"{n} x {m}  {name}: {times[name][-1]:.3f} s", flush=True)
    return [
        {"n_samples": n, "n_classes": m, "fit": name, "seconds": float(np.median(t)), "n_repetitions": len(t)}
        for name, t in times.items()
        if t
    ]


def markdown(rows: list[dict[str, Any]]) -> str:
    """Ours with the fastest peer and the ratio to it, a line for each method."""
    found = {(int(row["n_samples"]), int(row["n_classes"]), row["fit"]): float(row["seconds"]) for row in rows}
    shapes = [shape for shape in SHAPES if any(key[:2] == shape for key in found)]
    counts = [
        str(min(int(row["n_repetitions"]) for row in rows if (int(row["n_samples"]), int(row["n_classes"])) == shape))
        for shape in shapes
    ]
    lines = [
        "# Every method beside its peers",
        "",
        "Made by `make bench` (`methods.py`): seconds of processor time to fit, float32, one thread, median of repetitions in",
        "alternation. Our fits include their comparison with temperature scaling on samples held out. In brackets: the fastest",
        "peer's time, and ours as a multiple of it. `vector` and `svs:field` are beside `svs`; `sms:field`, `matrix`,",
        "`cascade` and `auto` are beside `sms` (with 1,000 classes `svs`). No peer has `matrix` with a ridge chosen by",
        f"cross-validation; `sms` is one fit with a fixed ridge. Repetitions: {', '.join(counts)}.",
        "",
        "| | " + " | ".join(f"{n:,} × {m:,}" for n, m in shapes) + " |",
        "|---" * (1 + len(shapes)) + "|",
    ]
    for method in OURS:
        cells = []
        for n, m in shapes:
            own = found.get((n, m, method))
            peers = [found[n, m, name] for name in peers_of(method, m) if (n, m, name) in found]
            ratio = f" ({min(peers):.3f}; {own / min(peers):.2f}×)" if own is not None and peers else ""
            cells.append("" if own is None else f"{own:.3f}{ratio}")
        if any(cells):
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=list(OURS))
    parser.add_argument("--shapes", nargs="+", default=[f"{n}x{m}" for n, m in SHAPES], help="such as 5000x100")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    path = HERE / "methods.csv"
    rows = read_rows(path) if path.exists() else []
    for n, m in (map(int, shape.split("x")) for shape in args.shapes):
        new = measure(n, m, args.methods, args.repeats)
        replaced = {(n, m, row["fit"]) for row in new}
        rows = [row for row in rows if (int(row["n_samples"]), int(row["n_classes"]), row["fit"]) not in replaced] + new
        write_rows(path, rows)
        write_text(HERE / "methods.md", markdown(rows))


if __name__ == "__main__":
    main()
