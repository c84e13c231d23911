"""Rows of comparisons: one for every network, split and method, in files and as means over networks."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.fitting import SUBSAMPLED
from rhocal.data.spreadsheet_cells import cell_text, text_cell
from rhocal.data.storage.atomic import writing
from rhocal.metrics import CORE, METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rhocal.evaluation.best import SampleNumbers

COLUMNS = (*CORE, "classwise_ece")
"""The metrics of a row."""

FAILED = "no result: "
"""The beginning of the note of a row whose method could not be fitted."""

MORE = ("kl_to_base", "kl_from_base")
"""Values that some rows have besides: how far calibrated distributions are from the original ones."""

NUMBER_COLUMNS = ("ece_floor", "ece_debiased", "seconds", "cpu_seconds", *MORE)
"""Columns of rows that are numbers, besides the metrics."""

OLD_NAMES = {"n_tune": "n_calibration"}
"""Columns of files that earlier versions wrote."""


@dataclass(frozen=True)
class Row:
    """One method on one split of one network."""

    network: str
    split: str
    method: str
    values: dict[str, float]
    seconds: float
    n_calibration: int
    n_test: int
    ece_floor: float = math.nan
    """The ECE of a perfectly calibrated model with the same confidences, on as many samples (the mean)."""
    note: str = ""
    cpu_seconds: float = math.nan
    """Processor time of the fit, all threads together; a busy machine does not change it."""
    data: str = ""
    """A key of the bytes that the row was computed from, where they came from a file."""
    ece_debiased: float = math.nan
    """An estimate of the population ECE: without what a perfectly calibrated model has by chance."""
    samples: SampleNumbers | None = field(default=None, repr=False, compare=False)
    """Numbers of test samples, for differences between methods; files do not keep them."""

    @property
    def failed(self) -> bool:
        """Whether the method could not be fitted."""
        return self.note.startswith(FAILED)

    def flat(self) -> dict[str, Any]:
        """Plain columns."""
        head = {"network": self.network, "split": self.split, "method": self.method}
        tail = {
            "ece_floor": self.ece_floor,
            "ece_debiased": self.ece_debiased,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "n_calibration": self.n_calibration,
            "n_test": self.n_test,
            "note": self.note,
        }
        return head | self.values | tail | ({"data": self.data} if self.data else {})

    @classmethod
    def from_flat(cls, row: Mapping[str, Any]) -> Row:
        """A row from the columns of a file; an empty cell is not a number."""
        values = {
            name: float(row.get(name, math.nan)) for name in (*COLUMNS, *(extra for extra in MORE if extra in row))
        }
        seconds, floor, cpu, debiased = (
            float(row.get(name, math.nan)) for name in ("seconds", "ece_floor", "cpu_seconds", "ece_debiased")
        )
        sizes = int(row["n_calibration"]), int(row["n_test"])
        note, data = row.get("note", ""), row.get("data", "")
        return cls(
            row["network"], row["split"], row["method"], values, seconds, *sizes, floor, note, cpu, data, debiased
        )


def complete(rows: Sequence[Row]) -> list[str]:
    """The networks on which every method has a result: only over these are means comparable."""
    failed = {row.network for row in rows if row.failed}
    return [network for network in dict.fromkeys(row.network for row in rows) if network not in failed]


def averaged(rows: Sequence[Row]) -> list[str]:
    """The networks that means are taken over: the complete ones; if there are none, all of them."""
    return complete(rows) or list(dict.fromkeys(row.network for row in rows))


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each method the mean over networks of the mean over splits, and the standard deviation over splits."""
    networks = averaged(rows)
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        cells = [[row for row in rows if row.method == method and row.network == network] for network in networks]
        line: dict[str, Any] = {"method": method}
        for name in COLUMNS:
            table = [[row.values[name] for row in cell] for cell in cells]
            line[name] = _mean([_mean(values) for values in table])
            line[f"{name}_sd"] = _mean([float(np.std(values, ddof=min(1, len(values) - 1))) for values in table])
        line["subsampled"] = any(SUBSAMPLED in row.note for cell in cells for row in cell)
        for name in ("ece_floor", "ece_debiased"):
            line[name] = _mean([_mean([getattr(row, name) for row in cell]) for cell in cells])
        line["seconds"] = _mean([row.seconds for cell in cells for row in cell])
        lines.append(line)
    return lines


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV with six digits. The file appears complete or not at all; missing values stay empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with writing(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return text_cell(value)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read rows that ``write_rows`` wrote, metrics and seconds as numbers; empty cells are left out."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {
                OLD_NAMES.get(name, name): float(value)
                if name in METRICS or name in NUMBER_COLUMNS
                else cell_text(value)
                for name, value in row.items()
                if value or name == "note"
            }
            for row in csv.DictReader(file)
        ]
