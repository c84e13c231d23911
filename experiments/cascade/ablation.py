"""What each part of a cascade contributes: it is left out, and the rest is fitted again.

    make cascade

Rows go to ``rows.csv``, the table to ``README.md``, both beside this file.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from typing import TYPE_CHECKING

from common import TWELVE, Rows, means, measure, parser

from rhocal import Cascade, TemperatureScaling
from rhocal.data.files import write_text
from rhocal.evaluation.rows import read_rows

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator

HERE = Path(__file__).parent
SHIFTED = "iemocap_final_psrcal"


def candidates() -> dict[str, Calibrator]:
    """The whole cascade, and the same without some of its parts."""
    return {
        "temperature": TemperatureScaling(),
        "cascade": Cascade(),
        "without tail": Cascade(steps=("bias", "slope", "matrix", "kernel")),
        "without tail and matrix": Cascade(steps=("bias", "slope", "kernel")),
        "without kernel": Cascade(steps=("bias", "slope", "matrix", "tail")),
        "biases and slopes alone": Cascade(steps=("bias", "slope")),
        "shared stages alone": Cascade(exchangeable=True),
    }


def table(rows: Rows, networks: list[str]) -> str:
    """Means over networks of ECE, NLL and Brier score, and how far NLL is above that of the whole cascade."""
    whole = means(rows, "cascade", "nll", networks).mean()
    lines = [f"Mean over {len(networks)} networks.", ""]
    lines += ["| | ECE | NLL | Brier | NLL above the cascade |", "|---|---|---|---|---|"]
    for method in candidates():
        ece, nll, brier = (means(rows, method, metric, networks).mean() for metric in ("ece", "nll", "brier"))
        lines.append(f"| {method} | {ece:.4f} | {nll:.4f} | {brier:.4f} | {nll - whole:+.4f} |")
    return "\n".join(lines)


def main() -> None:
    args = parser(__doc__).parse_args()
    if not args.render:
        measure(candidates, args, HERE / "rows.csv")
    rows = read_rows(HERE / "rows.csv")
    networks = sorted({row["network"] for row in rows} - {SHIFTED})
    text = (HERE / "template.md").read_text(encoding="utf-8")
    parts = {"TWELVE": TWELVE, "OTHERS": [name for name in networks if name not in TWELVE]}
    for mark, part in parts.items():
        text = text.replace("{" + mark + "}", table(rows, [name for name in part if name in networks]))
    write_text(HERE / "README.md", text)


if __name__ == "__main__":
    main()
