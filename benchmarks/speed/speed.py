"""Speed side by side: ours and peers, same data, same threads, one run; ratios, not seconds, are what to read.

    make bench

Each cell is the best of several repetitions. Peers fit *temperature scaling* only; ours are temperature and the full
ρ-Norm fit (nine ρ, selection, exact finish). `README.md` beside this file is written by the run.
"""

from __future__ import annotations

import argparse
import platform
import time
import warnings
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from rhocal.files import write_text

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
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
    """Over-confident logits whose labels are drawn from the true distribution; every class occurs."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(n, m)).astype(np.float32) * 1.5
    p = np.exp(truth)
    p /= p.sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    labels[:m] = np.arange(m)
    return 2.5 * truth, labels


def best_of(repeats: int, work: Callable[[], Any]) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def logsumexp_pass(z: Logits) -> None:
    """The unit of cost: one blocked pass on one thread."""
    for start in range(0, len(z), 128):
        block = z[start : start + 128]
        top = block.max(axis=1)
        np.log(np.exp(block - top[:, None]).sum(axis=1)) + top


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    shapes = [(5000, 10), (5000, 100), (25_000, 1000)]
    seconds: dict[str, list[float]] = {name: [] for name in ("one logsumexp pass", *OURS, *PEERS)}
    softmaxes = []
    for n, m in shapes:
        z, y = data(n, m)
        seconds["one logsumexp pass"].append(best_of(args.repeats, partial(logsumexp_pass, z)))
        for name, fit in {**OURS, **PEERS}.items():
            seconds[name].append(best_of(args.repeats, partial(fit, z, y)))
            print(f"{n} x {m}  {name}: {seconds[name][-1]:.4f} s", flush=True)
        cal = rhocal.TemperatureScaling().fit(z, y)
        ours = best_of(args.repeats, partial(cal.predict_proba, z))
        softmaxes.append(ours / best_of(args.repeats, partial(scipy_softmax, z, axis=1)))
    probs = scipy_softmax(data(1_000_000, 10)[0], axis=1)
    labels = np.random.default_rng(1).integers(0, 10, len(probs))
    ece = best_of(args.repeats, lambda: rhocal.metrics.ece(probs, labels))
    as_tensors = torch.from_numpy(probs), torch.from_numpy(labels)
    peer = best_of(
        args.repeats, lambda: multiclass_calibration_error(*as_tensors, num_classes=10, n_bins=10, norm="l1")
    )
    fastest = [min(seconds[name][k] for name in PEERS) for k in range(len(shapes))]
    lines = [
        "# Speed, side by side",
        "",
        f"Made by `make bench`. {platform.machine()}, 2 threads, Python {platform.python_version()}, NumPy {np.__version__}; "
        + ", ".join(
            f"{name} {version(name)}" for name in ("torch", "scikit-learn", "probmetrics", "netcal", "torchmetrics")
        )
        + ".",
        "",
        "Seconds to fit, float32, best of several; in brackets how many times faster than the fastest peer's temperature fit.",
        "Peers fit temperature scaling; `(all)` is the full fit with its search and cross-validation.",
        "",
        "| | " + " | ".join(f"{n:,} × {m:,}" for n, m in shapes) + " |",
        "|---" * (1 + len(shapes)) + "|",
    ]
    for name, values in seconds.items():
        cells = [f"{s:.4f} ({fastest[k] / s:.1f}×)" if name in OURS else f"{s:.4f}" for k, s in enumerate(values)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| | " + " | ".join(f"{n:,} × {m:,}" for n, m in shapes) + " |",
        "|---" * (1 + len(shapes)) + "|",
        "| `predict_proba` / `scipy.special.softmax` | " + " | ".join(f"{ratio:.2f}" for ratio in softmaxes) + " |",
        "",
        f"ECE of 1,000,000 × 10 probabilities: ours {ece:.3f} s, torchmetrics {peer:.3f} s.",
    ]
    write_text(HERE / "README.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
