"""How often the interval of a calibrated probability holds the true one, where the family is right.

Of methods that no simple truth belongs to (bins, splines, smoothed margins) it is the limit of the fit that an interval is
about: what the method gives on 100,000 samples. ``lowest`` is the coverage at the point where it is lowest. Writes
intervals.csv beside this file, a row after each cell. With ``--seconds`` a cell ends after so much processor time, whatever its
coverage is by then; its row states the trials, and ``--trials`` with their number gives the same row.

    python experiments/decide/simulate_intervals.py --methods ets,iop --seconds 600
"""

from __future__ import annotations

import argparse
import csv
import os
import time
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
MIN_TRIALS = 10
CELLS = (
    ("temperature", "temperature", 200, 3), ("temperature", "temperature", 1000, 3), ("rho-norm", "norm", 500, 3),
    ("field", "norm", 200, 3), ("field", "norm", 2000, 3), ("polynomial", "temperature", 500, 3),
    ("iop", "temperature", 500, 3), ("ets", "mixture", 500, 3), ("ets", "temperature", 500, 3), ("platt", "logistic", 200, 2),
    ("platt", "logistic", 1000, 2), ("platt", "clusters", 1000, 2), ("beta", "logistic", 500, 2),
    ("quadratic", "logistic", 500, 2), ("isotonic", "logistic", 500, 2), ("isotonic", "tied", 500, 2),
    ("isotonic", "clusters", 1000, 2), ("centered-isotonic", "logistic", 500, 2), ("venn-abers", "logistic", 500, 2),
    ("isotonic", "log-probs", 500, 3), ("multi-domain", "domains", 500, 3), ("pts", "temperature", 500, 3),
    ("smart", "temperature", 500, 3), ("matrix", "vector", 500, 3), ("average", "temperature", 500, 3),
    ("cross-fitted", "log-probs", 500, 3), ("vector", "vector", 500, 3), ("svs", "log-probs", 120, 3),
    ("svs", "log-probs", 500, 3), ("svs", "clusters", 1000, 2), ("sms", "log-probs", 120, 3),
    ("dirichlet", "log-probs", 500, 3), ("auto", "log-probs", 200, 3), ("auto", "log-probs", 500, 3),
    ("auto", "temperature", 500, 3), ("auto", "norm", 500, 3), ("auto", "mixture", 500, 3), ("auto", "logistic", 500, 2),
    ("svs:field", "log-probs", 500, 3), ("cascade", "log-probs", 200, 3), ("cascade", "log-probs", 500, 3),
    ("cascade", "temperature", 500, 3), ("cascade", "vector", 500, 3), ("histogram-binning", "logistic", 500, 2),
    ("bbq", "logistic", 500, 2), ("bbq", "tied", 500, 2), ("spline", "logistic", 500, 2),
)  # fmt: skip
"""Method, truth, samples and classes; with 50 replicates a trial takes from 0.02 to five seconds of processor time."""
HAS_NO_TRUTH = ("histogram-binning", "spline", "smart")
DOMAIN_TEMPERATURES = np.array([1.3, 2.2])
"""Of rows with even and odd numbers."""
CLUSTER_SIZE, CLUSTER_CORRELATION = 5, 0.5


def draw_logits(rng: np.random.Generator, truth: str, n: int, m: int) -> Floats:
    """Normal logits; ``tied``: rounded to multiples of 0.5."""
    logits = 2 * rng.normal(size=(n, m))
    return np.round(2 * logits) / 2 if truth == "tied" else logits


def true_probs(truth: str, logits: Floats) -> Floats:
    """True probabilities."""
    slopes, biases = np.array([0.85, 1.0, 1.15]), np.array([-0.3, 0.0, 0.3])
    if truth in {"temperature", "domains"}:
        temperatures = DOMAIN_TEMPERATURES if truth == "domains" else np.array([1.7, 1.7])
        return softmax(logits / temperatures[np.arange(len(logits)) % 2][:, None])
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


def domains(truth: str, n: int) -> NDArray[np.str_] | None:
    """The domain of each row, where there are some."""
    return np.array(["even", "odd"])[np.arange(n) % 2] if truth == "domains" else None


def cell(method: str, truth: str, n: int, m: int, trials: int, seconds: float = np.inf) -> dict[str, Any]:
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
    groups = domains(truth, n)
    end = time.process_time() + seconds
    for trial in range(trials):
        if trial >= MIN_TRIALS and time.process_time() > end:
            trials = trial
            break
        logits, labels = draw(np.random.default_rng([zlib.crc32(method.encode()), n, trial]), truth, n, m)
        calibrator = rhocal.calibrator(method).fit(
            logits, labels, classes=np.arange(m), clusters=clusters, groups=groups
        )
        replicates = rhocal.bootstrap(
            calibrator, logits, labels, n_replicates=N_REPLICATES, seed=trial, clusters=clusters, groups=groups
        )
        low, high = replicates.predict_interval(points, level=LEVEL, groups=domains(truth, N_POINTS))
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
    parser.add_argument("--trials", type=int, default=2000, help="of each cell")
    parser.add_argument("--seconds", type=float, default=np.inf, help="of processor time, after which a cell ends")
    parser.add_argument("--methods", help="these methods alone, separated by commas; the rows of others stay")
    parser.add_argument("--truths", help="these truths alone, separated by commas; the rows of others stay")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    path = HERE / "intervals.csv"
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    if args.methods or args.truths:
        with path.open(newline="", encoding="utf-8") as file:
            rows = {(row["method"], row["truth"], int(row["n"])): row for row in csv.DictReader(file)}
    for method, truth, n, m in CELLS:
        if (args.methods and method not in args.methods.split(",")) or (
            args.truths and truth not in args.truths.split(",")
        ):
            continue
        rows[method, truth, n] = cell(method, truth, n, m, args.trials, args.seconds)
        print(rows[method, truth, n], flush=True)
        write_rows(path, [rows[key] for key in ((one[0], one[1], one[2]) for one in CELLS) if key in rows])


if __name__ == "__main__":
    main()
