"""How often the interval of a calibrated probability holds the true one, where the family is right.

Of methods that no simple truth belongs to (bins, averages of binnings, splines) it is the limit of the fit that an interval is
about: what the method gives on 100,000 samples. ``lowest`` is the coverage at the point where it is lowest. Writes
intervals.csv beside this file, a row after each cell.

    python experiments/decide/simulate_intervals.py
"""

from __future__ import annotations

import argparse
import csv
import os
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.special import ndtr

import rhocal
from rhocal.evaluation.rows import write_rows
from rhocal.numerics.special import log_softmax, softmax

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.special import Floats

HERE = Path(__file__).parent
LEVEL = 0.95
N_POINTS = 30
N_REPLICATES = 50
N_LIMIT = 100_000
CELLS = (
    ("temperature", "temperature", 200, 3, 2000), ("temperature", "temperature", 1000, 3, 2000),
    ("rho-norm", "norm", 500, 3, 600), ("field", "norm", 2000, 3, 60), ("polynomial", "temperature", 500, 3, 400),
    ("iop", "temperature", 500, 3, 200), ("ets", "mixture", 500, 3, 100), ("ets", "temperature", 500, 3, 60),
    ("platt", "logistic", 200, 2, 2000), ("platt", "logistic", 1000, 2, 300), ("platt", "clusters", 1000, 2, 300),
    ("beta", "logistic", 500, 2, 400), ("quadratic", "logistic", 500, 2, 400),
    ("isotonic", "logistic", 500, 2, 300), ("isotonic", "tied", 500, 2, 300), ("isotonic", "clusters", 1000, 2, 300),
    ("centered-isotonic", "logistic", 500, 2, 200), ("venn-abers", "logistic", 500, 2, 200),
    ("isotonic", "log-probs", 500, 3, 100),
    ("vector", "vector", 500, 3, 300), ("svs", "log-probs", 120, 3, 300), ("svs", "log-probs", 500, 3, 200),
    ("svs", "clusters", 1000, 2, 200), ("sms", "log-probs", 120, 3, 200), ("dirichlet", "log-probs", 500, 3, 100),
    ("auto", "log-probs", 500, 3, 60), ("svs:field", "log-probs", 500, 3, 40), ("cascade", "log-probs", 500, 3, 20),
    ("histogram-binning", "logistic", 500, 2, 300), ("bbq", "logistic", 500, 2, 300), ("spline", "logistic", 500, 2, 300),
)  # fmt: skip
"""Method, truth, samples, classes and trials; with 50 replicates a trial takes up to ten seconds."""
HAS_NO_TRUTH = ("histogram-binning", "bbq", "spline")
CLUSTER_SIZE, CLUSTER_CORRELATION = 5, 0.5


def draw_logits(rng: np.random.Generator, truth: str, n: int, m: int) -> Floats:
    """Normal logits; ``tied``: rounded to multiples of 0.5."""
    logits = 2 * rng.normal(size=(n, m))
    return np.round(2 * logits) / 2 if truth == "tied" else logits


def true_probs(truth: str, logits: Floats) -> Floats:
    """True probabilities."""
    slopes, biases = np.array([0.85, 1.0, 1.15]), np.array([-0.3, 0.0, 0.3])
    if truth == "temperature":
        return softmax(logits / 1.7)
    if truth == "mixture":
        return 0.6 * softmax(logits / 1.7) + 0.25 * softmax(logits) + 0.15 / logits.shape[1]
    if truth == "norm":
        centered = logits - logits.mean(axis=1, keepdims=True)
        return softmax(logits / (1 + 0.2 * np.linalg.norm(centered, axis=1, keepdims=True)))
    if truth == "vector":
        return softmax(logits * np.array([0.5, 0.6, 0.7]) + biases)
    if truth == "log-probs":
        return softmax(log_softmax(logits / 1.7) * slopes + biases)
    log_odds = 0.6 * (logits[:, 1] - logits[:, 0]) - 0.3
    return softmax(np.stack([0 * log_odds, log_odds], axis=1))


def draw(rng: np.random.Generator, truth: str, n: int, m: int) -> tuple[Floats, NDArray[np.intp]]:
    """Logits and labels. Samples of a cluster have the same scores, and labels that depend on each other."""
    size = CLUSTER_SIZE if truth == "clusters" else 1
    logits = np.repeat(draw_logits(rng, truth, n // size, m), size, axis=0)
    levels = np.cumsum(true_probs(truth, logits), axis=1)
    if size == 1:
        return logits, np.minimum((levels < rng.random((n, 1))).sum(axis=1), m - 1)
    own, common = rng.normal(size=n), np.repeat(rng.normal(size=n // size), size)
    latent = np.sqrt(CLUSTER_CORRELATION) * common + np.sqrt(1 - CLUSTER_CORRELATION) * own
    return logits, np.minimum((levels < ndtr(latent)[:, None]).sum(axis=1), m - 1)


def cell(method: str, truth: str, n: int, m: int, trials: int) -> dict[str, Any]:
    points = draw_logits(np.random.default_rng(1), truth, N_POINTS, m)
    target, probs = "truth", true_probs(truth, points)
    if method in HAS_NO_TRUTH:
        large = draw(np.random.default_rng(2), truth, N_LIMIT, m)
        target, probs = "limit of the fit", rhocal.calibrator(method).fit(*large).predict_proba(points)
    elif method.endswith("isotonic") and m > 2:
        large = draw(
            np.random.default_rng(2), truth, N_LIMIT, m
        )  # rows are normalized: the truth is no function of one score
        target, probs = "limit of the fit", rhocal.calibrator("centered-isotonic").fit(*large).predict_proba(points)
    covered, width = [], []
    clusters = np.arange(n) // CLUSTER_SIZE if truth == "clusters" else None
    for trial in range(trials):
        logits, labels = draw(np.random.default_rng([zlib.crc32(method.encode()), n, trial]), truth, n, m)
        calibrator = rhocal.calibrator(method).fit(logits, labels, classes=np.arange(m), clusters=clusters)
        replicates = rhocal.bootstrap(
            calibrator, logits, labels, n_replicates=N_REPLICATES, seed=trial, clusters=clusters
        )
        low, high = replicates.predict_interval(points, level=LEVEL)
        covered.append(((low <= probs) & (probs <= high)).mean(axis=1))
        width.append((high - low).mean())
    of_points, of_trials = np.mean(covered, axis=0), np.mean(covered, axis=1)
    return {
        "method": method, "truth": truth, "n": n, "classes": m, "holds": target, "trials": trials,
        "coverage": float(of_points.mean()), "error": float(np.std(of_trials) / np.sqrt(trials)),
        "lowest": float(of_points.min()), "width": float(np.mean(width)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the trials of each cell")
    parser.add_argument("--methods", help="these methods alone, separated by commas; the rows of others stay")
    parser.add_argument("--truths", help="these truths alone, separated by commas; the rows of others stay")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    path = HERE / "intervals.csv"
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    if args.methods or args.truths:
        with path.open(newline="", encoding="utf-8") as file:
            rows = {(row["method"], row["truth"], int(row["n"])): row for row in csv.DictReader(file)}
    for method, truth, n, m, trials in CELLS:
        if (args.methods and method not in args.methods.split(",")) or (
            args.truths and truth not in args.truths.split(",")
        ):
            continue
        rows[method, truth, n] = cell(method, truth, n, m, max(2, round(args.share * trials)))
        print(rows[method, truth, n], flush=True)
        write_rows(path, [rows[key] for key in ((one[0], one[1], one[2]) for one in CELLS) if key in rows])


if __name__ == "__main__":
    main()
