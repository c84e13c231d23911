"""Measure networks that were trained to be calibrated, before and after ρ-norm scaling, and write their page.

    python reproduction/pages/training_methods.py runs

reads the finished runs of a campaign of `training_methods.toml`. Rows of runs that are not in the folder are kept.
"""

from __future__ import annotations

import argparse
import tomllib
import warnings
from pathlib import Path

from paper_rows import HERE, ROWS

from rhocal.calibrators import calibrator
from rhocal.data.files import read, write_text
from rhocal.errors import RhocalWarning
from rhocal.evaluation.compare import compare
from rhocal.evaluation.rows import Row, write_rows
from rhocal_paper.measure import official, old_rows
from rhocal_paper.page import markdown

METHODS = ("identity", "temperature", "rho-norm")
OUTPUT = ROWS / "training_methods.csv"
BASE = "cross-entropy"
MARGIN = 0.01
"""Smaller differences cannot be told from those of two seeds."""

TEXT = """\
# Calibration during training, before and after ρ-norm scaling

The paper says that calibration during training may compromise calibration afterwards. One thin network (VGG-16 with 8 channels,
a quarter of CIFAR-10, 12 epochs, one seed) was trained in each way; calibrators are fitted on the calibration set of 5,000
images and measured on the test set of 10,000. The floor of ECE is that of ρ-norm scaling. `adafocal`, `cals` and
`early-stopping` use the calibration set during training too, on which calibrators are then fitted.

{TABLE}

{MISSING}

{CLAIM}

One seed and one small network: differences of ECE below about 0.01 between rows cannot be told from those of two seeds, and no
verdict is given. References of the methods: [docs/training.md](../../docs/training.md#calibration-during-training).
"""


def measured(folder: Path) -> list[Row]:
    """A row for each run and method."""
    rows = []
    for path in sorted(folder.glob("*/logits.npz")):
        name = path.parent.name.removesuffix("-0")  # the seed
        split = official(read(path))
        rows += list(compare(name, [(split, {method: calibrator(method)}) for method in METHODS]))
    return rows


def page(rows: list[Row]) -> str:
    """The table, and what was not measured."""
    with (HERE / "training_methods.toml").open("rb") as file:
        names = [network["name"] for network in tomllib.load(file)["network"]]
    have = {(row.network, row.method): row for row in rows}
    cells = []
    for name in names:
        if (name, METHODS[0]) not in have:
            continue
        plain, heated, scaled = (have[name, method] for method in METHODS)
        values = [row.values["ece"] for row in (plain, heated, scaled)]
        losses = [row.values["nll"] for row in (plain, scaled)]
        shown = (plain.values["accuracy"], *values, scaled.ece_floor, *losses)
        cells.append([f"`{name}`", *(f"{value:.4f}" for value in shown)])
    missing = [f"`{name}`" for name in names if (name, METHODS[0]) not in have]
    head = ["training", "accuracy", "ECE", "after temperature", "after ρ-norm", "floor", "NLL", "NLL after ρ-norm"]
    told = f"Not measured yet: {', '.join(missing)}." if missing else ""
    text = TEXT.replace("{TABLE}", markdown(head, cells)).replace("{MISSING}\n\n", f"{told}\n\n" if told else "")
    return text.replace("{CLAIM}", claim({name: have[name, METHODS[-1]].values["ece"] for name, _ in have}))


def claim(after: dict[str, float]) -> str:
    """Which networks ρ-norm scaling leaves with a higher ECE than the one trained by cross entropy."""
    base = after.pop(BASE)
    spoiled = [f"`{name}`" for name, value in after.items() if value > base + MARGIN]
    found = ", ".join(spoiled) if spoiled else "none"
    return (
        f"After ρ-norm scaling, the networks whose ECE is more than {MARGIN} above that of the one trained by cross entropy\n"
        f"alone: {found} (of {len(after)})."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", help="folder of the campaign; without it the page alone")
    folder = parser.parse_args().runs
    warnings.simplefilter("ignore", RhocalWarning)
    rows = old_rows(OUTPUT)
    if folder is not None:
        new = measured(folder)
        rows = [row for row in rows if row.network not in {row.network for row in new}] + new
        write_rows(OUTPUT, [row.flat() for row in rows])
    write_text(HERE / "training_methods.md", page(rows))


if __name__ == "__main__":
    main()
