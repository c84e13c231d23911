"""The numbers that the paper prints. ``data/README.md`` says what is stored."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from importlib.resources import files

Cell = tuple[str, str]
"""Dataset and model, in the paper's words."""


@dataclass(frozen=True)
class Published:
    """A number of the paper."""

    table: int
    dataset: str
    model: str
    method: str
    metric: str
    value: float
    sd: float = math.nan

    @property
    def cell(self) -> Cell:
        """Dataset and model."""
        return self.dataset, self.model


def published(table: int) -> list[Published]:
    """The numbers of a table."""
    text = (files("rhocal_paper") / "published.csv").read_text(encoding="utf-8")
    return [
        Published(
            table, row["dataset"], row["model"], row["method"], row["metric"],
            float(row["value"]), float(row["std"] or math.nan),
        )
        for row in csv.DictReader(text.splitlines())
        if int(row["table"]) == table
    ]  # fmt: skip


def cells(table: int) -> list[Cell]:
    """The networks of a table."""
    return list(dict.fromkeys(number.cell for number in published(table)))
