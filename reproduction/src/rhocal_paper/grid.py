"""What a table of the paper is here: methods, metrics, and the claims made with them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal_paper.published import published

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rhocal.calibrators import Calibrator
    from rhocal.evaluation.rows import Row
    from rhocal_paper.networks import Network

REPRODUCED, IN_DIRECTION, NOT = "reproduced", "reproduced in direction", "not reproduced"
NONE = "no verdict"

ECE, ADA, MCE, KL = "ECE", "AdaECE", "MCE", "KL"
COLUMNS = {"ece": ECE, "adaptive_ece": ADA, "mce": MCE, "kl_to_base": KL}
"""Our columns of the paper's metrics: 10 bins; KL(g‖s) as a mean over samples and classes."""

Finding = tuple[str, str]
"""A verdict and its reason."""


@dataclass(frozen=True)
class Entry:
    """One column of a table."""

    make: Callable[[int], Calibrator]
    """From the seed of the split, so that draws differ as the paper's five runs do."""
    theirs: str | None = None
    """Its name in ``published.csv``; None for what the paper does not have."""


@dataclass(frozen=True)
class Claim:
    """Something the paper says, and how it is judged on one network."""

    text: str
    judge: Callable[[Means], Finding]

    def on(self, means: Means) -> Finding:
        """The verdict; there is none where something was not measured."""
        try:
            return self.judge(means)
        except LookupError as error:
            return NONE, f"{error.args[0]} has no result"


@dataclass(frozen=True)
class Grid:
    """A table of the paper."""

    table: int
    title: str
    entries: Mapping[str, Entry]
    metrics: tuple[str, ...]
    claims: Sequence[Claim]


class Level(IntEnum):
    """Whether one mean is below another."""

    NOT = 0
    MEAN = 1
    """By no more than the standard deviation of the difference over splits."""
    CLEAR = 2
    """By more than that; or there is only one split."""

    @property
    def verdict(self) -> str:
        """The verdict on a claim that it is below."""
        return (NOT, IN_DIRECTION, REPRODUCED)[self]


@dataclass(frozen=True)
class Means:
    """What was measured on one network: (method, metric) → values over splits."""

    values: Mapping[tuple[str, str], Any]

    def __call__(self, method: str, metric: str = ECE) -> float:
        """The mean over splits."""
        values = self.values.get((method, metric), ())
        if not len(values) or np.isnan(values).any():
            raise LookupError(method)
        return float(np.mean(values))

    def gap(self, one: str, other: str, metric: str = ECE) -> tuple[float, float]:
        """Mean of the difference on the same splits, and its standard deviation."""
        self(one, metric), self(other, metric)
        difference = np.subtract(self.values[one, metric], self.values[other, metric])
        return float(difference.mean()), float(difference.std(ddof=1)) if len(difference) > 1 else math.nan

    def below(self, one: str, other: str, metric: str = ECE) -> Level:
        """How one compares with another on the same splits."""
        gap, sd = self.gap(one, other, metric)
        if not gap < 0:
            return Level.NOT
        return Level.MEAN if -gap <= sd else Level.CLEAR

    def told(self, *methods: str, metric: str = ECE) -> str:
        """Some means in words; those without a result are left out."""
        known = [name for name in dict.fromkeys(methods) if (name, metric) in self.values]
        return f"{metric}: " + ", ".join(f"{name} {self(name, metric):.4f}" for name in known)


def means_of(rows: Sequence[Row], metrics: Sequence[str]) -> Means:
    """The figures of one network; splits in the order of their names."""
    ordered = sorted(rows, key=lambda row: (row.network, row.split))
    columns = [(column, title) for column, title in COLUMNS.items() if title in metrics]
    methods = dict.fromkeys(row.method for row in ordered)
    return Means(
        {
            (method, title): np.array([row.values.get(column, math.nan) for row in ordered if row.method == method])
            for method in methods
            for column, title in [*columns, ("accuracy", "accuracy")]
        }
    )


def by_label(rows: Sequence[Row], networks: Mapping[str, Network]) -> dict[str, list[Row]]:
    """Rows by the label of their network."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(networks[row.network].label, []).append(row)
    return found


def lines(grid: Grid, rows: Sequence[Row], networks: Mapping[str, Network]) -> list[dict[str, Any]]:
    """Tidy lines: network, metric, method; ours (mean and sd over splits and seeds), the floor, and the published number."""
    numbers = {(*p.cell, p.method, p.metric): p for p in published(grid.table)}
    found = []
    for label, mine in by_label(rows, networks).items():
        cell, exact = networks[mine[0].network].beside(grid.table)
        means = means_of(mine, grid.metrics)
        for metric in grid.metrics:
            for method, entry in grid.entries.items():
                values = means.values.get((method, metric), np.array([]))
                floors = [row.ece_floor for row in mine if row.method == method]
                known = numbers.get((*cell, entry.theirs or "", metric)) if cell else None
                found.append(
                    {
                        "network": label,
                        "dataset": cell[0] if cell else "",
                        "model": cell[1] if cell else "",
                        "stand_in": not exact,
                        "metric": metric,
                        "method": method,
                        "ours": float(np.mean(values)) if len(values) else math.nan,
                        "ours_sd": float(np.std(values, ddof=1)) if len(values) > 1 else math.nan,
                        "n": len(values),
                        "ece_floor": float(np.mean(floors)) if floors else math.nan,
                        "published": known.value if known else math.nan,
                        "published_sd": known.sd if known else math.nan,
                    }
                )
    return found


def verdicts(grid: Grid, rows: Sequence[Row], networks: Mapping[str, Network]) -> list[dict[str, str]]:
    """What becomes of every claim on every network."""
    found = []
    for label, mine in by_label(rows, networks).items():
        means = means_of(mine, grid.metrics)
        for claim in grid.claims:
            verdict, reason = claim.on(means)
            found.append({"network": label, "claim": claim.text, "verdict": verdict, "reason": reason})
    return found


def overall(verdicts: Sequence[Mapping[str, str]]) -> Finding:
    """The verdict on a claim from those on several networks: what more than half of them agree on.

    >>> overall([{"verdict": "reproduced"}, {"verdict": "reproduced in direction"}, {"verdict": "not reproduced"}])
    ('reproduced in direction', '1 reproduced, 1 in direction, 1 not, of 3')
    """
    counted = [found["verdict"] for found in verdicts if found["verdict"] != NONE]
    n, full, some = len(counted), counted.count(REPRODUCED), counted.count(IN_DIRECTION)
    told = f"{full} reproduced, {some} in direction, {n - full - some} not, of {n}"
    if not n:
        return NONE, "nothing was measured"
    if 2 * full > n:
        return REPRODUCED, told
    return (IN_DIRECTION if 2 * (full + some) > n else NOT), told
