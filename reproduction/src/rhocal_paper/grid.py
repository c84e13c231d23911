"""What a table of the paper is here: methods, metrics, and the claims made with them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from rhocal_paper.published import published

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rhocal.calibrators import Calibrator
    from rhocal.evaluation.rows import Row
    from rhocal_paper.networks import Network

REPRODUCED, IN_DIRECTION, TIE, UNKNOWN, NOT = (
    "reproduced", "reproduced in direction", "tie", "cannot be told", "not reproduced",
)  # fmt: skip
NONE = "no verdict"

MARGIN = 0.001
"""Differences of ECE and AdaECE up to this size are ties: less than a tenth of the floor of most networks here."""

LEVEL = 0.95
"""Of the intervals that verdicts are read from."""

RULE = f"""\
A claim that one method is below another is judged by the {LEVEL:.0%} interval of their mean difference over random cuts. Cuts
overlap, so the variance is that of Nadeau and Bengio (2003): (1/k + n_test/n_calibration) times the variance over k cuts.
*Tie*: the whole interval is within ±{MARGIN:g}. *Reproduced*: it is below −{MARGIN:g}. *In direction*: it is below 0, and part
of it is above −{MARGIN:g}. *Not*: it is above 0. *Cannot be told*: it holds 0, and every comparison on one cut. The best of
several methods is on each cut the one that is lowest on the other cuts: chosen by the values that are compared, it would be too
low by chance. Over several networks the interval is that of the mean difference over them. Claims of another form
state their own rule, and their verdict is that of more than half of the networks."""

OFFICIAL = "official"
"""The name of the split that the data has: fit on its calibration set, report on its test set."""

RULE_OF_SEEDS = f"""\
Calibrators are fitted on the calibration set of the official split and measured on its test set. Values are means ± standard
deviation over networks trained with different seeds. A claim that one method is below another is judged by the {LEVEL:.0%}
interval of their mean difference over seeds (Student's t). *Tie*: the whole interval is within ±{MARGIN:g}. *Reproduced*: it is
below −{MARGIN:g}. *In direction*: it is below 0, and part of it is above −{MARGIN:g}. *Not*: it is above 0. *Cannot be told*:
it holds 0, and every comparison on one seed. The best of several methods is for each seed the one that is lowest for the other
seeds. All seeds share one test set: the interval is about training, not about other images."""

ECE, ADA, MCE, KL = "ECE", "AdaECE", "MCE", "KL"
COLUMNS = {"ece": ECE, "adaptive_ece": ADA, "mce": MCE, "kl_to_base": KL}
"""Our columns of the paper's metrics: 10 bins; KL(g‖s) as a mean over samples and classes."""

Finding = tuple[str, str] | tuple[str, str, float]
"""A verdict, its reason, and where one method is claimed to be below another the mean difference."""


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

    @staticmethod
    def below(one: str, other: str, m: Means, metric: str = ECE, *beside: str) -> Finding:
        """The finding on a claim that one method is below another."""
        return (
            m.below(one, other, metric).verdict,
            m.told(one, other, *beside, metric=metric),
            m.gap(one, other, metric)[0],
        )


@dataclass(frozen=True)
class Grid:
    """A table of the paper."""

    table: int
    title: str
    entries: Mapping[str, Entry]
    metrics: tuple[str, ...]
    claims: Sequence[Claim]


class Level(IntEnum):
    """Whether one mean is below another (``RULE``)."""

    NOT = 0
    UNKNOWN = 1
    TIE = 2
    MEAN = 3
    CLEAR = 4

    @property
    def verdict(self) -> str:
        """The verdict on a claim that it is below."""
        return (NOT, UNKNOWN, TIE, IN_DIRECTION, REPRODUCED)[self]


def level_of(gap: float, half: float) -> Level:
    """What an interval says, by ``RULE``; ``half`` is half its length."""
    low, high = gap - half, gap + half
    if low >= -MARGIN and high <= MARGIN:
        return Level.TIE
    if high < 0:
        return Level.CLEAR if high < -MARGIN else Level.MEAN
    return Level.NOT if low > 0 else Level.UNKNOWN  # also of NaN


@dataclass(frozen=True)
class Means:
    """What was measured on one network: (method, metric) → values over splits."""

    values: Mapping[tuple[str, str], Any]
    test_ratio: float = 1.0
    """Test samples for each calibration sample of a split, 0 for networks of different seeds: ``overlap``."""

    def __call__(self, method: str, metric: str = ECE) -> float:
        """The mean over splits."""
        values = self.values.get((method, metric), ())
        if not len(values) or np.isnan(values).any():
            raise LookupError(method)
        return float(np.mean(values))

    def gap(self, one: str, other: str, metric: str = ECE) -> tuple[float, float]:
        """Mean of the difference on the same splits, and half the length of its interval (NaN with one split)."""
        self(one, metric), self(other, metric)
        if len(self.values[one, metric]) != len(self.values[other, metric]):  # a run was interrupted
            raise LookupError(min(one, other, key=lambda name: len(self.values[name, metric])))
        difference = np.subtract(self.values[one, metric], self.values[other, metric])
        return float(difference.mean()), half_interval(difference, self.test_ratio)

    def with_lowest(self, methods: Sequence[str], metric: str = ECE) -> tuple[Means, str]:
        """The same with one method more, and its name: on each split that of the methods which is lowest on the other splits.

        On one split it is the lowest there; nothing is told from one split.
        """
        for method in methods:
            self(method, metric)
        n = min(len(self.values[method, metric]) for method in methods)
        found = np.array([self.values[method, metric][:n] for method in methods])
        others = found.sum(axis=1, keepdims=True) - found if n > 1 else found
        best = others.argmin(axis=0)
        names = [methods[k] for k in dict.fromkeys(best.tolist())]
        name = names[0] if len(names) == 1 else f"lowest on other cuts ({' or '.join(names)})"
        return replace(self, values={**self.values, (name, metric): found[best, np.arange(n)]}), name

    def below(self, one: str, other: str, metric: str = ECE) -> Level:
        """How one compares with another on the same splits; see ``RULE``."""
        gap, half = self.gap(one, other, metric)
        return level_of(gap, half)

    def told(self, *methods: str, metric: str = ECE) -> str:
        """Some means in words; those without a result are left out."""
        known = [name for name in dict.fromkeys(methods) if (name, metric) in self.values]
        return f"{metric}: " + ", ".join(f"{name} {self(name, metric):.4f}" for name in known)


def half_interval(differences: Any, overlap: float = 0.0) -> float:
    """Half the length of the interval of a mean; ``overlap`` is that of the variance of overlapping cuts. NaN for one value."""
    k = len(differences)
    if k < 2:
        return math.nan
    return float(stdtrit(k - 1, (1 + LEVEL) / 2) * math.sqrt((1 / k + overlap) * np.var(differences, ddof=1)))


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
        },
        test_ratio=overlap(ordered),
    )


def overlap(rows: Sequence[Row]) -> float:
    """What the variance over splits of one network lacks, because they overlap; networks of different seeds do not."""
    if not rows or rows[0].split == OFFICIAL:
        return 0.0
    return rows[0].n_test / max(rows[0].n_calibration, 1)


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
            verdict, reason, *gap = claim.on(means)
            difference = f"{gap[0]:.6g}" if gap else ""
            found.append(
                {"network": label, "claim": claim.text, "verdict": verdict, "reason": reason, "difference": difference}
            )
    return found


def overall(verdicts: Sequence[Mapping[str, str]]) -> tuple[str, str]:
    """The verdict on a claim from those on several networks.

    Where one method is claimed to be below another, networks are the sample: the interval of the mean difference over them,
    by ``RULE``. Else what more than half of them agree on.

    >>> overall([{"verdict": "reproduced"}, {"verdict": "reproduced in direction"}, {"verdict": "not reproduced"}])
    ('reproduced in direction', '1 reproduced, 1 in direction, 1 not, of 3')
    """
    counted = [found["verdict"] for found in verdicts if found["verdict"] != NONE]
    n = len(counted)
    if not n:
        return NONE, "nothing was measured"
    words = {REPRODUCED: "reproduced", IN_DIRECTION: "in direction", TIE: "ties", UNKNOWN: "cannot be told", NOT: "not"}
    told = ", ".join(f"{counted.count(verdict)} {word}" for verdict, word in words.items() if verdict in counted)
    told = f"{told}, of {n}"
    gaps = [float(found["difference"]) for found in verdicts if found.get("difference")]
    if len(gaps) > 2:
        gap, half = float(np.mean(gaps)), half_interval(gaps)
        told += f"; over networks {gap:+.4f}, {LEVEL:.0%} interval {gap - half:+.4f} to {gap + half:+.4f}"
        return level_of(gap, half).verdict, told
    full, some = counted.count(REPRODUCED), counted.count(IN_DIRECTION)
    if 2 * full > n:
        overall_verdict = REPRODUCED
    elif 2 * (full + some) > n:
        overall_verdict = IN_DIRECTION
    else:  # no majority for the claim: what the others agree on, if they do
        rest = [verdict for verdict in (TIE, NOT, UNKNOWN) if 2 * counted.count(verdict) > n]
        overall_verdict = rest[0] if rest else (UNKNOWN if counted.count(UNKNOWN) >= counted.count(NOT) else NOT)
    return overall_verdict, told
