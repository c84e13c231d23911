"""The held-out NLL that `auto` states, beside that of its map on new samples: simulated data on which methods nearly tie.

    python experiments/chosen_nll/chosen_nll.py

The probabilities of the labels are known, so that the luck of the calibration set is taken out: from the stated NLL that of the
true probabilities on the calibration samples is subtracted, and from the NLL on new samples that of the true ones there. What
is left is the bias of the stated NLL. `lowest` is that of the method chosen on all folds, whose choice has seen every sample.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

import rhocal
from rhocal.data.files import write_text
from rhocal.errors import RhocalWarning
from rhocal.evaluation.rows import read_rows, write_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

HERE = Path(__file__).parent
N_NEW = 20_000
SETTINGS: dict[str, tuple[int, int, int, list[str] | None]] = {
    "two classes, five flexible methods, 300 samples": (
        400, 2, 300, ["svs", "quadratic", "beta", "centered-isotonic", "venn-abers"],
    ),
    "two classes, 300 samples": (400, 2, 300, None),
    "two classes, 1,000 samples": (80, 2, 1000, None),
    "five classes, 400 samples": (80, 5, 400, None),
}  # fmt: skip
"""Fits, classes, calibration samples and methods; None: those that `auto` tries by itself."""


def draw(rng: np.random.Generator, n: int, m: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Logits, labels and the true log-probabilities: a temperature, biases, and a bend that is small beside the noise."""
    logits = 2 * rng.normal(size=(n, m)) + 1.5 * np.eye(m)[rng.integers(m, size=n)]
    true = 0.6 * logits + 0.1 * np.tanh(logits) + np.linspace(-0.1, 0.1, m)
    true -= np.log(np.exp(true).sum(axis=1, keepdims=True))
    labels = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    return logits, labels, true


def nll_of(log_probs: NDArray[Any], labels: NDArray[Any]) -> float:
    return -float(log_probs[np.arange(len(labels)), labels].mean())


def measure(setting: str, seed: int) -> dict[str, Any]:
    """One fit: the biases of the stated NLL and of the lowest."""
    _, m, n, methods = SETTINGS[setting]
    rng = np.random.default_rng(seed)
    logits, labels, true = draw(rng, n, m)
    new, new_labels, new_true = draw(rng, N_NEW, m)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        cal = rhocal.AutoCalibrator(methods).fit(logits, labels)
    held_out, chosen = cal.solution_.held_out, cal.solution_.objective.partition("(")[2].partition(": ")[0]
    assert held_out is not None
    lowest = next(float(row["nll"]) for row in cal.solution_.trials if row["method"] == chosen)
    on_new = nll_of(np.log(cal.predict_proba(new)), new_labels) - nll_of(new_true, new_labels)
    luck = nll_of(true, labels)
    return {
        "setting": setting,
        "seed": seed,
        "chosen": chosen,
        "new": on_new,
        "stated": held_out.nll["auto"] - luck - on_new,
        "lowest": lowest - luck - on_new,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Mean biases with their standard errors, a line for each setting."""
    lines = [
        "| data | fits | stated − true | of the method chosen on all folds − true | difference |",
        "|---|---|---|---|---|",
    ]
    for setting in SETTINGS:
        part = [row for row in rows if row["setting"] == setting]
        if len(part) > 1:
            stated, lowest = (np.array([float(row[key]) for row in part]) for key in ("stated", "lowest"))
            cells = (
                f"{x.mean():+.4f} ± {x.std(ddof=1) / len(x) ** 0.5:.4f}" for x in (stated, lowest, stated - lowest)
            )
            lines.append(f"| {setting} | {len(part)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the fits of each setting")
    args = parser.parse_args()
    path = HERE / "rows.csv"
    rows = read_rows(path) if path.exists() else []
    done = {(row["setting"], int(row["seed"])) for row in rows}
    for setting, (n_fits, *_) in SETTINGS.items():
        rows += [measure(setting, seed) for seed in range(round(args.share * n_fits)) if (setting, seed) not in done]
        write_rows(path, rows)
        template = (HERE / "template.md").read_text(encoding="utf-8")
        write_text(HERE / "README.md", template.replace("{table}", table(rows)))


if __name__ == "__main__":
    main()
