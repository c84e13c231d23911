"""Online updates on streams of batches: what they win after a drift, and what they cost where nothing changes.

Writes online.csv beside this file. Three classes; logits are 1.5 times too large, and from the middle of the stream on
``after`` times, with a bias of the first class. In a stream with noise the labels of one batch are drawn at random. Differences
are NLL of the map in use minus NLL of the first calibrator, a sample. ``needless`` are trials in which a map was adopted that
is worse on 10,000 other samples of the same population. ``recovery`` is the number of samples after a drift until a tenth of
the loss is left that a calibrator fitted on 10,000 samples of the new population would avoid (median).

    python experiments/adapt/online.py --trials 100
"""

from __future__ import annotations

import os
import zlib
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from cells import run_cells

import rhocal

HERE = Path(__file__).parent
N_TEST = 10_000
N_CLASSES = 3
BEFORE = 1.5, 0.0
LEFT = 0.1


@dataclass(frozen=True)
class Cell:
    """A stream."""

    method: str
    n_calibration: int
    batch: int
    n_batches: int
    after: float = 1.5
    bias: float = 0.0
    noise_at: int = -1
    half_life: float = 10_000.0


CELLS = (
    Cell("temperature", 500, 250, 40),
    Cell("temperature", 5000, 250, 40),
    Cell("svs", 500, 250, 40),
    Cell("svs", 5000, 250, 40),
    Cell("svs", 5000, 50, 100),
    Cell("temperature", 2000, 250, 40, 2.5),
    Cell("svs", 2000, 250, 40, 2.5, 0.5),
    Cell("svs", 2000, 50, 100, 2.5, 0.5),
    Cell("svs", 2000, 250, 40, 1.8),
    Cell("svs", 2000, 250, 40, 2.5, 0.5, half_life=2000.0),
    Cell("temperature", 2000, 250, 30, noise_at=15),
    Cell("svs", 2000, 250, 30, noise_at=15),
)


def draw(rng: np.random.Generator, n: int, scale: float, bias: float) -> tuple[Any, Any]:
    """Logits and labels."""
    truth = 1.5 * rng.normal(size=(n, N_CLASSES))
    p = np.exp(truth + np.array([bias, 0, 0]))
    return scale * truth, (p.cumsum(1) / p.sum(1, keepdims=True) > rng.random((n, 1))).argmax(1)


def nll(cal: Any, data: tuple[Any, Any]) -> float:
    """Mean NLL."""
    return float(rhocal.metrics.nll(cal.predict_proba(data[0]), data[1]))


def trial(cell: Cell, rng: np.random.Generator) -> dict[str, float]:
    """One stream."""
    cal = first = rhocal.calibrator(cell.method).fit(*draw(rng, cell.n_calibration, *BEFORE))
    tests = [draw(rng, N_TEST, *BEFORE), draw(rng, N_TEST, cell.after, cell.bias)]
    has_drift = (cell.after, cell.bias) != BEFORE
    middle = cell.n_batches // 2
    oracle = (
        nll(rhocal.calibrator(cell.method).fit(*draw(rng, N_TEST, cell.after, cell.bias)), tests[1]) if has_drift else 0
    )
    at_first = [nll(first, test) for test in tests]
    before: list[float] = []
    after: list[float] = []
    adopted, needless, recovery, rolled_back = 0, False, np.inf, 0
    for k in range(cell.n_batches):
        is_after = has_drift and k >= middle
        batch = draw(rng, cell.batch, *((cell.after, cell.bias) if is_after else BEFORE))
        if k == cell.noise_at:
            batch = batch[0], rng.integers(N_CLASSES, size=cell.batch)
        else:
            (after if is_after or k > cell.noise_at > 0 else before).append(nll(cal, batch) - nll(first, batch))
        step = cal.update(*batch, half_life=cell.half_life)
        cal = step.calibrator
        rolled_back += step.action == "rolled back"
        if step.action == "updated":
            adopted += 1
            value = nll(cal, tests[is_after])
            needless |= value > at_first[is_after]
            if is_after and value - oracle <= LEFT * (at_first[1] - oracle):
                recovery = min(recovery, float((k + 1 - middle) * cell.batch))
    return {
        "difference_before": float(np.mean(before)),
        "difference_after": float(np.mean(after)) if after else np.nan,
        "adopted": float(adopted > 0),
        "needless": float(needless),
        "rolled_back": float(rolled_back > 0),
        "at_end": nll(cal, tests[has_drift]) - at_first[has_drift],
        "oracle": oracle - at_first[1] if has_drift else np.nan,
        "recovery": recovery if has_drift else np.nan,
    }


def row(cell: Cell, n_trials: int) -> dict[str, Any]:
    """One row of the table: means over trials, and the median of the recovery."""
    rng = np.random.default_rng(zlib.crc32(repr(astuple(cell)).encode()))
    trials = [trial(cell, rng) for _ in range(n_trials)]
    values = {name: np.array([one[name] for one in trials]) for name in trials[0]}
    means = {name: float(np.median(v) if name == "recovery" else np.mean(v)) for name, v in values.items()}
    error = float(values["difference_before"].std() / np.sqrt(max(n_trials - 1, 1)))
    blank = {name: "" if np.isnan(value) else value for name, value in means.items()}
    return {**asdict(cell), "n_trials": n_trials, **blank, "difference_before_error": error}


if __name__ == "__main__":
    run_cells(__doc__, CELLS, row, HERE / "online.csv")
