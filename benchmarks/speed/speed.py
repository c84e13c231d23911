"""Speed side by side: ours and peers, same data, same threads, one run; ratios, not seconds, are what to read.

    make bench

Each cell is the median of several repetitions in a row, after one that does not count and a pause in which the threads of
whoever came before rest. Peers fit *temperature scaling* only; ours are temperature and the full ρ-Norm fit (nine ρ,
selection, exact finish). `README.md` beside this file is written by the run.
"""

from __future__ import annotations

import argparse
import gc
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import torch
from netcal.scaling import TemperatureScaling as NetcalTemperature
from probmetrics.calibrators import get_calibrator
from probmetrics.distributions import CategoricalLogits
from scipy.special import softmax as scipy_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from torchmetrics.functional.classification import multiclass_calibration_error

import rhocal
from rhocal.data.files import write_text
from rhocal.evaluation.rows import write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
PAUSE = 0.2
SMALL = 1_000_000
Logits = np.ndarray[Any, np.dtype[np.float32]]
Labels = np.ndarray[Any, np.dtype[np.int64]]


class Fixed(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose decision function is its input: how scikit-learn is given logits."""

    def fit(self, _: Logits, y: Labels) -> Fixed:
        self.classes_ = np.unique(y)
        return self

    def predict(self, z: Logits) -> Labels:
        return z.argmax(axis=1)

    def decision_function(self, z: Logits) -> Logits:
        return z


def sklearn_fit(z: Logits, y: Labels) -> None:
    estimator = FrozenEstimator(Fixed().fit(z, y))
    CalibratedClassifierCV(estimator, method="temperature", ensemble=False).fit(z, y)


def torch_fit(z: Logits, y: Labels) -> None:
    logits, labels = torch.from_numpy(z), torch.from_numpy(y)
    log_scale = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_scale], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits * log_scale.exp(), labels)
        torch.autograd.backward(loss)
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]


def probmetrics_fit(z: Logits, y: Labels) -> None:
    get_calibrator("temp-scaling").fit_torch(CategoricalLogits(torch.from_numpy(z)), torch.from_numpy(y))


def netcal_fit(z: Logits, y: Labels) -> None:
    # float64: on float32 probabilities netcal 1.4.0 silently does nothing
    NetcalTemperature().fit(scipy_softmax(z.astype(np.float64), axis=1), y)


PEERS: dict[str, Callable[[Logits, Labels], None]] = {
    "torch L-BFGS": torch_fit,
    "scikit-learn": sklearn_fit,
    "probmetrics": probmetrics_fit,
    "netcal": netcal_fit,
}
OURS: dict[str, Callable[[Logits, Labels], Any]] = {
    "rhocal temperature": lambda z, y: rhocal.TemperatureScaling().fit(z, y),
    "rhocal rho-norm (all)": lambda z, y: rhocal.RhoNormScaling().fit(z, y),
    "rhocal field (all)": lambda z, y: rhocal.FieldScaling().fit(z, y),
}


def data(n: int, m: int) -> tuple[Logits, Labels]:
    """Over-confident logits whose labels are drawn from the true distribution; every class occurs if there are few."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(n, m)).astype(np.float32) * 1.5
    p = np.exp(truth)
    p /= p.sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    if 5 * m <= n:  # some peers ask for it; with more classes these would be labels at random
        labels[:m] = np.arange(m)
    return 2.5 * truth, labels


def medians(repeats: int, works: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Median seconds of each work, one after the other."""
    found = {}
    for name, work in works.items():
        work()
        time.sleep(PAUSE)
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        found[name] = float(np.median(times))
    return found


def repetitions(repeats: int, n_entries: int) -> int:
    """More where one takes milliseconds: there noise is largest."""
    return 5 * repeats if n_entries <= SMALL else repeats


def logsumexp_pass(z: Logits) -> None:
    """The unit of cost: one blocked pass on one thread."""
    for start in range(0, len(z), 128):
        block = z[start : start + 128]
        top = block.max(axis=1)
        np.log(np.exp(block - top[:, None]).sum(axis=1)) + top


def extra_memory(name: str, n: int, m: int) -> float:
    """Peak memory of a fit above what was there before it, as a share of the logits, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--memory-of", name, str(n), str(m)], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def memory_of(name: str, n: int, m: int) -> float:
    """What ``extra_memory`` runs: the fit itself, after a small one has loaded everything."""
    fit = {**OURS, **PEERS}[name]
    fit(*data(2000, 50))
    z, y = data(n, m)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forget the peak so far
    before = _status("VmRSS")
    fit(z, y)
    return (_status("VmHWM") - before) / z.nbytes


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])


def cost_curves(repeats: int) -> list[dict[str, Any]]:
    """Seconds as samples and classes grow; ``search`` is the fit without its passes, on a saved profile."""
    rows: list[dict[str, Any]] = []
    grid = [(n, 1000) for n in (1000, 2500, 5000, 10_000, 25_000, 50_000)]
    grid += [(5000, m) for m in (10, 30, 100, 300, 1000, 3000, 10_000)]
    for n, m in grid:
        z, y = data(n, m)
        row: dict[str, Any] = {"n_samples": n, "n_classes": m}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "profile.safetensors"
            rhocal.save_profile(rhocal.profile_logits(z, y), path)
            profile = rhocal.load_profile(path)
        row |= medians(
            repetitions(repeats, n * m),
            {
                "temperature": partial(OURS["rhocal temperature"], z, y),
                "rho_norm": partial(OURS["rhocal rho-norm (all)"], z, y),
                "search": partial(rhocal.RhoNormScaling().fit_profile, profile),
            },
        )
        print(row, flush=True)
        rows.append(row)
    return rows


def plot(rows: list[dict[str, Any]]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, fixed, free in ((axes[0], ("n_classes", 1000), "n_samples"), (axes[1], ("n_samples", 5000), "n_classes")):
        chosen = sorted((row for row in rows if row[fixed[0]] == fixed[1]), key=lambda row: row[free])
        for name, mark in (("rho_norm", "o-"), ("temperature", "s--"), ("search", "^:")):
            label = {"rho_norm": "rho-norm, all", "temperature": "temperature", "search": "rho-norm, after the pass"}[
                name
            ]
            axis.loglog([row[free] for row in chosen], [row[name] for row in chosen], mark, label=label)
        axis.set_xlabel(free.replace("n_", ""))
        axis.set_title(f"{fixed[1]:,} {fixed[0].replace('n_', '')}", fontsize=10)
        axis.grid(visible=True, which="both", alpha=0.2)
    axes[0].set_ylabel("seconds to fit")
    axes[0].legend(frameon=False)
    figure.savefig(HERE / "cost.svg", metadata={"Date": None})


def side_by_side(shapes: list[tuple[int, int]], repeats: int) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds of every fit on every shape, and ``predict_proba`` over scipy's softmax."""
    seconds: dict[str, list[float]] = {name: [] for name in ("one logsumexp pass", *OURS, *PEERS)}
    softmaxes = []
    for n, m in shapes:
        z, y = data(n, m)
        works: dict[str, Callable[[], Any]] = {"one logsumexp pass": partial(logsumexp_pass, z)}
        works |= {name: partial(fit, z, y) for name, fit in {**OURS, **PEERS}.items()}
        for name, value in medians(repetitions(repeats, n * m), works).items():
            seconds[name].append(value)
            print(f"{n} x {m}  {name}: {value:.4f} s", flush=True)
        cal = rhocal.TemperatureScaling().fit(z, y)
        both = {"ours": partial(cal.predict_proba, z), "scipy": partial(scipy_softmax, z, axis=1)}
        found = medians(3 * repetitions(repeats, n * m), both)
        softmaxes.append(found["ours"] / found["scipy"])
    return seconds, softmaxes


def ece_times(repeats: int) -> tuple[float, float]:
    """Ours and torchmetrics' on 1,000,000 x 10 probabilities."""
    probs = scipy_softmax(data(1_000_000, 10)[0], axis=1)
    labels = np.random.default_rng(1).integers(0, 10, len(probs))
    tensors = torch.from_numpy(probs), torch.from_numpy(labels)
    found = medians(
        3 * repeats,
        {
            "ours": lambda: rhocal.metrics.ece(probs, labels),
            "torchmetrics": lambda: multiclass_calibration_error(*tensors, num_classes=10, n_bins=10, norm="l1"),
        },
    )
    return found["ours"], found["torchmetrics"]


def markdown(
    shapes: list[tuple[int, int]],
    seconds: dict[str, list[float]],
    softmaxes: list[float],
    memory: dict[str, float],
    ece: tuple[float, float],
) -> str:
    fastest = [min(seconds[name][k] for name in PEERS) for k in range(len(shapes))]
    head = ["| | " + " | ".join(f"{n:,} × {m:,}" for n, m in shapes) + " |", "|---" * (1 + len(shapes)) + "|"]
    peers = ", ".join(
        f"{name} {version(name)}" for name in ("torch", "scikit-learn", "probmetrics", "netcal", "torchmetrics")
    )
    lines = [
        "# Speed, side by side",
        "",
        (
            f"Made by `make bench`. {platform.machine()}, 2 threads, Python {platform.python_version()}, "
            f"NumPy {np.__version__}; {peers}."
        ),
        "",
        "Seconds to fit, float32, median of several repetitions; in brackets the speed relative to the fastest peer.",
        "Peers fit temperature scaling; `(all)` is the full fit with its search and cross-validation. The two cores are",
        "shared with other work: times of milliseconds vary from run to run, ours by a third, torch's by a factor of two.",
        "",
        *head,
    ]
    for name, values in seconds.items():
        cells = [f"{s:.4f} ({fastest[k] / s:.1f}×)" if name in OURS else f"{s:.4f}" for k, s in enumerate(values)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    passes = [seconds["rhocal rho-norm (all)"][k] / seconds["one logsumexp pass"][k] for k in range(len(shapes))]
    lines += [
        "",
        *head,
        "| rho-norm (all), in single-threaded logsumexp passes | " + " | ".join(f"{x:.1f}" for x in passes) + " |",
        "| `predict_proba` / `scipy.special.softmax` | " + " | ".join(f"{ratio:.2f}" for ratio in softmaxes) + " |",
        "",
        "Peak memory of a fit above the memory before it, as a share of the logits (25,000 × 1,000):",
        "",
        *(f"- {name}: {100 * share:.0f} %" for name, share in memory.items()),
        "",
        f"ECE of 1,000,000 × 10 probabilities: ours {ece[0]:.3f} s, torchmetrics {ece[1]:.3f} s ({ece[1] / ece[0]:.1f}×).",
        "",
        "[methods.md](methods.md) has every method beside the same method of other libraries.",
        "",
        "The cost (`cost.csv`) grows linearly with samples; after the pass over the logits it does not grow with classes.",
        "",
        "![Seconds to fit against samples and against classes](cost.svg)",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="for large data; five times as many for small")
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    if args.memory_of:
        name, n, m = args.memory_of
        print(memory_of(name, int(n), int(m)))
        return
    shapes = [(5000, 10), (5000, 100), (25_000, 1000), (50_000, 1000)]
    seconds, softmaxes = side_by_side(shapes, args.repeats)
    memory = {name: extra_memory(name, 25_000, 1000) for name in (*OURS, *PEERS)}
    rows = cost_curves(args.repeats)
    write_rows(HERE / "cost.csv", rows)
    plot(rows)
    write_text(HERE / "README.md", markdown(shapes, seconds, softmaxes, memory, ece_times(args.repeats)))


if __name__ == "__main__":
    main()
