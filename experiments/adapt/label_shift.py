"""How well the shares of classes are estimated under label shift, and how often their intervals contain the truth.

Writes simulation.csv beside this file. Samples of class k are normal around the k-th corner of a simplex; the calibration set
is balanced, the new samples are not. ``stretch`` multiplies the logits, which makes a model over-confident.

    python experiments/adapt/label_shift.py --trials 2000
"""

from __future__ import annotations

import os
import zlib
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from cells import run_cells

import rhocal
from rhocal.metrics.inference.label_shift import estimated_shares, shares_with_labels

if TYPE_CHECKING:
    from numpy.typing import NDArray

HERE = Path(__file__).parent
FIVE = (0.5, 0.3, 0.1, 0.07, 0.03)


@dataclass(frozen=True)
class Cell:
    """A population and the sizes of both samples."""

    shares: tuple[float, ...]
    n_labeled: int
    n_samples: int
    distance: float = 1.5
    stretch: float = 1.0
    method: str = "temperature"
    noise: float = 1.0
    """The spread of new samples of a class; 1 in the calibration set, so that another value is no label shift."""


CELLS = (
    *(Cell((0.98, 0.02), n, m) for n in (1000, 10_000) for m in (1000, 10_000)),
    Cell((0.7, 0.3), 200, 200),
    Cell((0.8, 0.2), 1000, 1000, 1.0, 1.6, "identity"),
    Cell((0.8, 0.2), 1000, 1000, 1.0, 1.6),
    Cell(FIVE, 1000, 2000),
    Cell(FIVE, 1000, 2000, stretch=1.5, method="identity"),
    Cell((0.995, 0.005), 1000, 500, 4.0),
    Cell((0.5, 0.5), 100, 1000),
    Cell((0.1,) * 10, 300, 1000),
    Cell((0.9, 0.1), 2000, 2000, noise=1.3),
)


def draw(
    rng: np.random.Generator, n: int, shares: NDArray[np.float64], cell: Cell, noise: float
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Logits and labels."""
    labels = rng.choice(len(shares), n, p=shares)
    corners = np.eye(len(shares)) * cell.distance
    place = corners[labels] + noise * rng.normal(size=(n, len(shares)))
    return place * cell.distance * cell.stretch, labels


def row(cell: Cell, n_trials: int) -> dict[str, Any]:
    """One row of the table."""
    rng = np.random.default_rng(zlib.crc32(repr(astuple(cell)).encode()))
    truth, m = np.array(cell.shares), len(cell.shares)
    inside, rejected, errors, em_errors = np.zeros(m), 0, [], []
    for _ in range(n_trials):
        logits, labels = draw(rng, cell.n_labeled, np.full(m, 1 / m), cell, 1.0)
        new, _ = draw(rng, cell.n_samples, truth, cell, cell.noise)
        cal = rhocal.calibrator(cell.method).fit(logits, labels)
        source, probs = np.bincount(labels, minlength=m) / len(labels), cal.predict_proba(new)
        found = shares_with_labels(probs, cal.predict_proba(logits), labels, source)
        inside += (found.low <= truth) & (truth <= found.high)
        rejected += found.p_value < 0.05
        errors.append(found.value - truth)
        em_errors.append(estimated_shares(probs, source, len(labels)) - truth)
    return {
        "shares": " ".join(f"{share:g}" for share in cell.shares),
        "n_labeled": cell.n_labeled,
        "n_samples": cell.n_samples,
        "distance": cell.distance,
        "stretch": cell.stretch,
        "noise": cell.noise,
        "method": cell.method,
        "n_trials": n_trials,
        "coverage_min": float(inside.min() / n_trials),
        "coverage_max": float(inside.max() / n_trials),
        "rejected": rejected / n_trials,
        "rmse": float(np.sqrt(np.mean(np.square(errors)))),
        "rmse_em": float(np.sqrt(np.mean(np.square(em_errors)))),
    }


if __name__ == "__main__":
    run_cells(__doc__, CELLS, row, HERE / "simulation.csv", 2000)
