"""Choose the defaults of ``FieldScaling()`` on evidence, and write that evidence down.

    make field-defaults        (python experiments/field/field.py --logits ../shared/data/logits)

Every candidate is fitted on random halves of every network (or on the network's own tune split) and measured on the rest.
Rows go to ``rows.csv``, the tables to ``README.md``, both beside this file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import TWELVE, measure, parser, table

from rhocal import FieldScaling, RhoNormScaling, TemperatureScaling
from rhocal.data.files import write_text
from rhocal.evaluation.rows import read_rows

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator

HERE = Path(__file__).parent

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "caution 0": {"caution": 0.0},
    "caution 0.5": {"caution": 0.5},
    "caution 1": {"caution": 1.0},
    "guard 0.003": {"guard": 0.003},
    "guard 0.01": {"guard": 0.01},
    "no ridge": {"ridge": 0.0},
    "top-brier": {"objective": "top-brier"},
    "top-brier + nll": {"objective": "top-brier + nll"},
    "sce + 0.03*nll": {"objective": "sce + 0.03*nll"},
    "top-brier + sce": {"objective": "top-brier + sce"},
    "top-brier + sce + 0.1*nll": {"objective": "top-brier + sce + 0.1*nll"},
    "features: log-norm": {"features": ("log-norm",)},
    "features: margin, log-margin": {"features": ("margin", "log-margin")},
    "features: log-norm, log-margin": {"features": ("log-norm", "log-margin")},
    "features: log-norm, margin, log-margin": {"features": ("log-norm", "margin", "log-margin")},
    "features: margin-spline": {"features": ("margin-spline",)},
    "features: with log-top": {"features": ("log-norm", "log-top", "margin-spline")},
}


def candidates() -> dict[str, Calibrator]:
    """What is compared: the default, and what differs from it in one option."""
    fields = {name: FieldScaling(**options) for name, options in VARIANTS.items()}
    return {"temperature": TemperatureScaling(), "rho-norm": RhoNormScaling(), **fields}


def main() -> None:
    args = parser(__doc__).parse_args()
    if not args.render:
        measure(candidates, args, HERE / "rows.csv")
    rows = read_rows(HERE / "rows.csv")
    others = [name for name in dict.fromkeys(row["network"] for row in rows) if name not in TWELVE]
    text = (HERE / "template.md").read_text(encoding="utf-8")
    for mark, chosen in (("TWELVE", TWELVE), ("OTHERS", others)):
        text = text.replace("{" + mark + "}", table(rows, chosen, beside="rho-norm"))
    write_text(HERE / "README.md", text)


if __name__ == "__main__":
    main()
