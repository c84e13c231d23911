"""What importance weights are worth under covariate shift, and what they cost where there is none.

Writes covariate_shift.csv beside this file. The first of three features moves by ``shift`` standard deviations; ``strength`` is
how much the true scale of the logits depends on it, so that a map of the logits alone fits one population at a time. With
``label_shift`` the classes change their shares instead (a tenth of the samples are of class 1, half of them before), and the
features follow the classes. Everything is measured on 20,000 labeled target samples.

    python experiments/adapt/covariate_shift.py --trials 100
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
N_TEST = 20_000
RARE, BALANCED = 0.1, 0.5


@dataclass(frozen=True)
class Cell:
    """Two populations, and the method."""

    method: str
    n_samples: int
    shift: float
    strength: float = 0.5
    n_classes: int = 2
    label_shift: bool = False


CELLS = (
    *(Cell(method, 1000, shift) for method in ("temperature", "svs") for shift in (0.0, 0.5, 1.0)),
    Cell("beta", 1000, 1.0),
    Cell("temperature", 300, 1.0),
    Cell("temperature", 10_000, 1.5),
    Cell("temperature", 1000, 1.0, n_classes=5),
    Cell("svs", 1000, 1.0, n_classes=5),
    Cell("temperature", 1000, 1.0, strength=0.0),
    Cell("svs", 1000, 1.0, strength=0.0),
    Cell("temperature", 1000, 0.0, label_shift=True),
)


def draw(rng: np.random.Generator, n: int, cell: Cell, *, is_target: bool) -> tuple[Any, Any, Any]:
    """Features, logits and labels."""
    if cell.label_shift:
        labels = (rng.random(n) < (RARE if is_target else BALANCED)).astype(int)
        features = rng.normal(size=(n, 3)) + labels[:, None] * [1.0, 0.5, 0.0]
        score = 1.5 * (features @ [1.0, 0.5, 0.0] - 0.625)  # over-confident by half
        return features, np.stack([-score / 2, score / 2], axis=1), labels
    features = rng.normal(size=(n, 3)) + np.array([cell.shift * is_target, 0, 0])
    logits = 2 * rng.normal(size=(n, cell.n_classes))
    p = np.exp(logits * np.exp(-cell.strength * features[:, :1]))
    return features, logits, (p.cumsum(1) / p.sum(1, keepdims=True) > rng.random((n, 1))).argmax(1)


def row(cell: Cell, n_trials: int) -> dict[str, Any]:
    """One row of the table: means over trials."""
    rng = np.random.default_rng(zlib.crc32(repr(astuple(cell)).encode()))
    rows = []
    for _ in range(n_trials):
        x, z, y = draw(rng, cell.n_samples, cell, is_target=False)
        new_x, new_z, new_y = draw(rng, cell.n_samples, cell, is_target=True)
        _, test_z, test_y = draw(rng, N_TEST, cell, is_target=True)
        unweighted = rhocal.calibrator(cell.method).fit(z, y)
        weights = rhocal.estimate_weights(x, new_x)
        found = {
            "unweighted": unweighted,
            "weighted": rhocal.reweight(unweighted, z, y, weights).calibrator,
            "oracle": rhocal.calibrator(cell.method).fit(new_z, new_y),
        }
        if cell.label_shift:
            found["adapt"] = rhocal.adapt(unweighted, new_z, labeled=(z, y)).calibrator
        values = {"effective_size": weights.effective_size, "rejected": float(weights.is_shifted)}
        for name, cal in found.items():
            p = cal.predict_proba(test_z)
            values[f"nll_{name}"] = rhocal.metrics.nll(p, test_y)
            values[f"ece_{name}"] = rhocal.metrics.ece(p, test_y)
        rows.append(values)
    means = {name: float(np.mean([one[name] for one in rows])) for name in rows[0]}
    gain = [one["nll_weighted"] - one["nll_unweighted"] for one in rows]
    error = float(np.std(gain) / np.sqrt(max(n_trials - 1, 1)))
    blank = {} if cell.label_shift else {"nll_adapt": "", "ece_adapt": ""}
    return {**asdict(cell), "n_trials": n_trials, **means, **blank, "nll_gain_error": error}


if __name__ == "__main__":
    run_cells(__doc__, CELLS, row, HERE / "covariate_shift.csv")
