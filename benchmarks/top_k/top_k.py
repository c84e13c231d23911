"""The k best tokens of a large vocabulary: time and memory of a fit, and how far confidences are from those of all logits.

    python benchmarks/top_k/top_k.py [folder of .npz files with logits]

Writes `README.md` beside this file.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import rhocal

N_TOKENS, K, VOCABULARY = 100_000, 20, 128_256
N_WHOLE = 300
"""Tokens whose logits are all made, for the comparison."""
METHODS = ("temperature", "rho-norm", "field")
TEMPERATURES = (1.05, 1.25, 2.0)
NETWORKS = {
    "imagenet_efficientnet_lite0": "ImageNet",
    "cifar100_resnet56": "CIFAR-100",
    "flowers102_effnetlite0_lin": "Flowers",
}
"""Files whose logits are cut to the k best, and what they hold."""
N_ROWS = 4000
"""Of such a file."""


def logits_like(n: int, seed: int) -> Any:
    """Logits that fall with the logarithm of the rank of a token, with noise: over-confident by a factor of 1.25."""
    rng = np.random.default_rng(seed)
    rank = np.log(np.arange(1, VOCABULARY + 1))
    steepness = np.exp(0.35 * rng.normal(size=(n, 1)))
    return 1.25 * (-2.6 * steepness * rank + rng.normal(size=(n, VOCABULARY)))


def normal_logits(n: int, seed: int) -> Any:
    """Normal logits of any spread, of which 30 are raised."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, VOCABULARY)) * rng.uniform(1, 2, (n, 1))
    logits[:, :30] += 7 + rng.exponential(3, (n, 30))
    return logits


def log_softmax(z: Any) -> Any:
    z = z - z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def top_k(log_probs: Any) -> tuple[Any, Any]:
    best = np.argpartition(-log_probs, K, axis=1)[:, :K]
    return np.take_along_axis(log_probs, best, axis=1), best


def many(seed: int = 0) -> tuple[rhocal.TopK, Any]:
    """Samples with 20 tokens each, from blocks of whole logits that are repeated with noise."""
    rng = np.random.default_rng(seed)
    parts = [top_k(log_softmax(logits_like(100, k))) for k in range(5)]
    values, indices = (np.concatenate([part[j] for part in parts]) for j in range(2))
    rows = rng.integers(0, len(values), N_TOKENS)
    noisy = values[rows] + 0.1 * rng.normal(size=(N_TOKENS, K))
    total = np.exp(noisy).sum(axis=1, keepdims=True)
    noisy -= np.log(np.maximum(total, 0.999) / np.exp(values[rows]).sum(axis=1, keepdims=True))
    top = rhocal.TopK.from_arrays(noisy, indices[rows], None, VOCABULARY)
    truth = top.log_probs / 1.25 + rng.gumbel(size=top.log_probs.shape)
    return top, np.take_along_axis(top.indices, truth.argmax(axis=1)[:, None], axis=1)[:, 0]


def differences(calibrator: Any, whole: Any) -> Any:
    """Between the confidence from the k best and that from all logits, of the same calibrator."""
    some = rhocal.TopK.from_arrays(*top_k(whole), None, whole.shape[1])
    return np.abs(calibrator.predict_proba(some)[:, 0] - calibrator.predict_proba(whole, kind="log_probs").max(axis=1))


def summary(away: Any) -> str:
    return f"{away.mean():.5f} | {np.quantile(away, 0.99):.5f} | {away.max():.4f} | {100 * (away <= 1e-3).mean():.1f} %"


def temperature_of(value: float, n_classes: int) -> Any:
    """Temperature scaling with a temperature of choice."""
    labels = np.arange(60) % 2
    top = rhocal.TopK.from_arrays(np.log(np.tile([0.5, 0.3], (60, 1))), np.tile([0, 1], (60, 1)), None, n_classes)
    calibrator = rhocal.TemperatureScaling().fit(top, labels)
    calibrator.temperature_ = value
    return calibrator


def main() -> None:
    load = os.getloadavg()[0]
    top, labels = many()
    cals, seconds = {}, {}
    for method in METHODS:
        fresh = rhocal.TopK(top.log_probs, top.indices, top.rest, top.n_classes)  # nothing is kept of another fit
        start = np.array([time.perf_counter(), time.process_time()])
        cals[method] = rhocal.calibrator(method).fit(fresh, labels)
        seconds[method] = np.array([time.perf_counter(), time.process_time()]) - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    whole = log_softmax(logits_like(N_WHOLE, 99))
    machine = f"{os.cpu_count()} cores ({platform.machine()}, Python {platform.python_version()})"
    lines = [
        "# The k best tokens of a large vocabulary",
        "",
        f"`python benchmarks/top_k/top_k.py{' FOLDER' * (len(sys.argv) > 1)}`, on {machine}. A fit on {N_TOKENS:,} tokens",
        f"of which the {K} best of {VOCABULARY:,} are known (made-up logits), and the confidence of {N_WHOLE} other tokens",
        f"from the {K} best, compared with that of the same calibrator from all logits. Norms and margins are those of the k",
        "best in both cases.",
        f"Peak memory of the process with all fits: {peak:.2f} GB. Other processes ran beside it",
        f"(load {load:.1f}): seconds would be fewer on an idle machine.",
        "",
        "| method | seconds | processor seconds | mean difference | 99 % | largest | within 0.001 |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| `{name}` | {seconds[name][0]:.2f} | {seconds[name][1]:.2f} | {summary(differences(cal, whole))} |"
            for name, cal in cals.items()
        ),
        "",
        f"At a temperature of choice, from the {K} best, on other data. The k best and the total of the rest do not",
        "determine the sum of p^(1/T) over the rest; the farther T is from 1, the more its spread matters. `confidence_low`",
        "and `confidence_high` of `rhocal apply` bound it for every sample.",
        "",
        "| data | classes | T | mean difference | 99 % | largest | within 0.001 |",
        "|---|---|---|---|---|---|---|",
    ]
    sets = {"power of the rank (made up)": whole, "normal (made up)": log_softmax(normal_logits(N_WHOLE, 99))}
    for folder in sys.argv[1:]:
        for name, title in NETWORKS.items():
            with np.load(Path(folder) / f"{name}.npz") as file:
                logits = next(file[key] for key in file.files if "logits" in key)
                sets[title] = log_softmax(logits[:N_ROWS].astype(np.float64))
    for title, log_probs in sets.items():
        for temperature in TEMPERATURES:
            away = differences(temperature_of(temperature, log_probs.shape[1]), log_probs)
            lines.append(f"| {title} | {log_probs.shape[1]:,} | {temperature} | {summary(away)} |")
    Path(__file__).with_name("README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
