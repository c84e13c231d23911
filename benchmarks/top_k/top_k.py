"""The k best tokens of a large vocabulary: time and memory of a fit, and how far confidences are from those of all logits.

    python benchmarks/top_k/top_k.py

Writes `README.md` beside this file.
"""

from __future__ import annotations

import os
import platform
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

import rhocal

N_TOKENS, K, VOCABULARY = 100_000, 20, 128_256
N_WHOLE = 300
"""Tokens whose logits are all made, for the comparison."""
METHODS = ("temperature", "rho-norm", "field")


def logits_like(n: int, seed: int) -> Any:
    """Logits that fall with the logarithm of the rank of a token, with noise: over-confident by a factor of 1.25."""
    rng = np.random.default_rng(seed)
    rank = np.log(np.arange(1, VOCABULARY + 1))
    steepness = np.exp(0.35 * rng.normal(size=(n, 1)))
    return 1.25 * (-2.6 * steepness * rank + rng.normal(size=(n, VOCABULARY)))


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


def main() -> None:
    top, labels = many()
    cals, seconds = {}, {}
    for method in METHODS:
        fresh = rhocal.TopK(top.log_probs, top.indices, top.rest, top.n_classes)  # nothing is kept of another fit
        start = time.perf_counter()
        cals[method] = rhocal.calibrator(method).fit(fresh, labels)
        seconds[method] = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    whole = log_softmax(logits_like(N_WHOLE, 99))
    some = rhocal.TopK.from_arrays(*top_k(whole), None, VOCABULARY)
    machine = f"{os.cpu_count()} cores ({platform.machine()}, Python {platform.python_version()})"
    lines = [
        "# The k best tokens of a large vocabulary",
        "",
        f"`python benchmarks/top_k/top_k.py`, on {machine}. A fit on {N_TOKENS:,} tokens of which the {K} best of",
        f"{VOCABULARY:,} are known (made-up logits), and the confidence of {N_WHOLE} other tokens from the {K} best,",
        f"compared with that from all logits. Peak memory of the process with all fits: {peak:.2f} GB.",
        "",
        "| method | seconds | confidence, mean difference | largest |",
        "|---|---|---|---|",
    ]
    for method, cal in cals.items():
        away = np.abs(cal.predict_proba(some)[:, 0] - cal.predict_proba(whole, kind="log_probs").max(axis=1))
        lines.append(f"| `{method}` | {seconds[method]:.2f} | {away.mean():.5f} | {away.max():.4f} |")
    lines += [
        "",
        "`rho-norm` and `field` read the norm of all logits, which the k best do not determine: a calibrator that is fitted",
        "on the k best is for the k best.",
    ]
    Path(__file__).with_name("README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
