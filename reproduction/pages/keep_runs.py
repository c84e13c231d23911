"""Keep what a campaign of `thin.toml` left: logits, log and card. Those that the package ships go into its data.

    python reproduction/pages/keep_runs.py runs

Logits are kept as float16 if no figure of any of three methods moves by more than 0.0005 and no prediction changes; else as
float32. Runs that are kept already are left alone, unless they were trained again in another way: then the rows measured on
the old ones are removed, and `make paper` measures the new ones.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from paper_rows import HERE, OWN, ROWS

from rhocal.calibrators import calibrator
from rhocal.data.files import read
from rhocal.data.formats import write_arrays
from rhocal.evaluation.compare import compare, file_sources, splits
from rhocal.evaluation.rows import write_rows
from rhocal_paper.measure import old_rows

METHODS = ("identity", "temperature", "rho-norm")
FIGURES = ("ece", "adaptive_ece", "nll", "brier", "accuracy")
MOST = 5e-4


def figures(path: Path) -> dict[tuple[str, str], float]:
    """What a comparison says about a file of logits."""
    (split,) = splits(*file_sources(read(path)), n_seeds=1)
    rows = compare("run", [(split, {name: calibrator(name) for name in METHODS})])
    return {(row.method, name): row.values[name] for row in rows for name in FIGURES}


def small(name: str, values: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    """Logits in this type, labels in the smallest that holds them."""
    if name.startswith("logits"):
        return values.astype(dtype)
    if not name.startswith("labels") or values.dtype.kind not in "iu":
        return values
    return values.astype(np.uint8 if values.max() < 256 else np.int32)


def keep(run: Path, target: Path) -> str:
    """Copy a run; says how its logits are kept and what that moved."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ("log.csv", "run.json"):
        shutil.copy(run / name, target / name)
    with np.load(run / "logits.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    before = figures(run / "logits.npz")
    for dtype in (np.float16, np.float32):
        write_arrays(target / "logits.npz", {name: small(name, values, dtype) for name, values in arrays.items()})
        after = figures(target / "logits.npz")
        moved = max(abs(after[key] - before[key]) for key in before)
        same = all(
            np.array_equal(arrays[name].astype(dtype).argmax(1), arrays[name].argmax(1))
            for name in arrays
            if name.startswith("logits")
        )
        if moved <= MOST and same:
            break
    size, accuracy = (target / "logits.npz").stat().st_size, after["identity", "accuracy"]
    return f"{np.dtype(dtype)}, {size / 1e3:.0f} kB, largest change of a figure {moved:.1e}, accuracy {accuracy:.4f}"


def forget(network: str) -> None:
    """Remove the rows of a network from every table."""
    for path in ROWS.glob("table*.csv"):
        rows = old_rows(path)
        write_rows(path, [row.flat() for row in rows if row.network != network])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder of the campaign")
    for path in sorted(parser.parse_args().runs.glob("*/logits.npz")):
        run = path.parent
        name = run.name.removesuffix("-0")  # the seed
        target = (OWN[0] if (OWN[0] / name).is_dir() else HERE / "runs") / name
        if (target / "logits.npz").exists():
            if (target / "log.csv").read_bytes() == (run / "log.csv").read_bytes():
                continue
            forget(name)
        print(f"{name}: {keep(run, target)}", flush=True)


if __name__ == "__main__":
    main()
