"""How often intervals of paired ECE differences contain the true difference, and how often equal models are called different.

Writes paired.csv and paired.md beside this file.

    python experiments/coverage/paired.py --trials 500
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from models import MIDDLE, NEAR_ONE, SURE, UNSURE, scored, within

from rhocal.evaluation.rows import write_rows
from rhocal.metrics.inference.paired import differences
from rhocal.numerics.bins import N_BINS, equal_width

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.metrics.scored import Scored
    from rhocal.numerics.special import Vector

HERE = Path(__file__).parent
SIZES = (300, 1000, 3000)
N_TYPICAL = 1_000_000


@dataclass(frozen=True)
class Pair:
    """Two predictions for the same samples: functions of a number that is drawn for each sample."""

    name: str
    first: Callable[[Vector], Vector]
    """The confidence of A."""
    second: Callable[[Vector], Vector]
    """The confidence of B."""
    accuracy: Callable[[Vector], Vector] = lambda c: c
    """How often a sample is right."""
    beta: tuple[float, float] = MIDDLE
    separate: bool = False
    """B has numbers of its own, and its own decisions, of accuracy ``other``."""
    other: Callable[[Vector], Vector] = lambda c: c

    def confidences(self, rng: np.random.Generator, n: int) -> tuple[Vector, Vector, Vector, Vector]:
        """Confidence and chance of being right of A, then of B."""
        c = np.minimum(0.1 + 0.9 * rng.beta(*self.beta, n), 1 - 1e-6)
        e = np.minimum(0.1 + 0.9 * rng.beta(*self.beta, n), 1 - 1e-6) if self.separate else c
        right = np.clip(self.accuracy(c), 0, 1)
        a, b = (np.clip(part, 1e-6, 1 - 1e-9) for part in (self.first(c), self.second(e)))
        return a, right, b, np.clip(self.other(e), 0, 1) if self.separate else right

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Scored, Scored]:
        a, right_a, b, right_b = self.confidences(rng, n)
        u = rng.random(n)
        v = rng.random(n) if self.separate else u
        return scored(a, (u < right_a).astype(float)), scored(b, (v < right_b).astype(float))

    def truth(self) -> float:
        """The difference of the population ECEs."""
        a, right_a, b, right_b = self.confidences(np.random.default_rng(2026), N_TYPICAL)
        ece = [
            float(np.abs(np.bincount(equal_width(c, N_BINS), right - c, N_BINS)).sum() / N_TYPICAL)
            for c, right in ((a, right_a), (b, right_b))
        ]
        return ece[0] - ece[1]


def identity(c: Vector) -> Vector:
    return c


def sharpen(power: float) -> Callable[[Vector], Vector]:
    """Multiply the logit."""
    return lambda c: 1 / (1 + ((1 - c) / c) ** power)


def coarsen(n_values: int, beta: tuple[float, float] = MIDDLE) -> Callable[[Vector], Vector]:
    """The mean confidence of each of several equally large parts: as well calibrated, and coarser."""
    typical = np.sort(np.minimum(0.1 + 0.9 * np.random.default_rng(1).beta(*beta, 400_000), 1 - 1e-6))
    means = np.array([part.mean() for part in np.array_split(typical, n_values)])
    edges = typical[np.arange(1, n_values) * len(typical) // n_values]
    return lambda c: means[np.searchsorted(edges, c, side="right")]


PAIRS = [
    Pair("perfect / constant, perfect", identity, coarsen(1)),
    Pair("perfect / two values, perfect", identity, coarsen(2)),
    Pair("perfect / four values, perfect", identity, coarsen(4)),
    Pair("unsure, perfect / constant, perfect", identity, coarsen(1, UNSURE), beta=UNSURE),
    Pair("perfect / another perfect model", identity, identity, separate=True),
    Pair("over-confident by .02 / ± .02", identity, lambda c: c - 0.02 + 0.02 * np.sign(c - 0.83), lambda c: c - 0.02),
    Pair("perfect / over-confident by .04", identity, lambda c: c + 0.32 * c * (1 - c)),
    Pair("perfect / temperature 1/1.1", identity, sharpen(1.1)),
    Pair("perfect / temperature 1/1.3", identity, sharpen(1.3)),
    Pair("perfect / temperature 1/2", identity, sharpen(2.0)),
    Pair("perfect / another by .02", identity, identity, separate=True, other=lambda c: c - 0.02),
    Pair("perfect / another by .05", identity, identity, separate=True, other=lambda c: c - 0.05),
    Pair("perfect / wavy", identity, lambda c: c + 0.02 * np.sin(25 * c)),
    Pair("unsure, perfect / wavy", identity, lambda c: c + 0.04 * np.sin(8 * c), beta=UNSURE),
    Pair("near one, perfect / by .004", identity, lambda c: c + 0.3 * (1 - c), beta=NEAR_ONE),
    Pair("near one, perfect / by .011", identity, lambda c: c + 0.9 * (1 - c), beta=NEAR_ONE),
    Pair("over-confident by .05 / by .08", identity, lambda c: (c + 0.78) / 2, lambda c: c - 0.05),
]

HELD_BACK = [
    Pair("sure, perfect / ten values, perfect", identity, coarsen(10, SURE), beta=SURE),
    Pair("unsure, another perfect model", identity, identity, beta=UNSURE, separate=True),
    Pair("constant, perfect / three values, perfect", coarsen(1), coarsen(3)),
    Pair("temperatures 1/1.2 and 1/1.3", sharpen(1.2), sharpen(1.3)),
    Pair("temperature 1/.8 / perfect", sharpen(0.8), identity),
    Pair("sure, perfect / over-confident by .02", identity, lambda c: c + 0.02, beta=SURE),
    Pair("perfect / one bin", identity, lambda c: c + 0.05 * within(c, 0.5, 0.6)),
    Pair("unsure, over-confident by .03 / perfect", lambda c: c + 0.03, identity, beta=UNSURE),
    Pair("under-confident by .03 / another by .03", lambda c: c - 0.03, lambda c: c - 0.03, separate=True),
    Pair("tilted / over-confident by .01", lambda c: c - 0.03 * np.tanh(8 * (c - 0.6)), lambda c: c + 0.01),
]


def measure(pair: Pair, truth: float, n: int, trials: int) -> dict[str, Any]:
    """Coverage, rejections of equality, and the mean width."""
    rng = np.random.default_rng([n, *pair.name.encode()])
    found = [differences(*pair.draw(rng, n), ["ece"], seed=k)["ece"] for k in range(trials)]
    return {
        "pair": pair.name, "n": n, "truth": truth,
        "coverage": float(np.mean([d.low <= truth <= d.high for d in found])),
        "rejected": float(np.mean([d.p_value <= 0.05 for d in found])),
        "width": float(np.mean([d.high - d.low for d in found])), "trials": trials,
    }  # fmt: skip


def page(rows: list[dict[str, Any]]) -> str:
    """The table, in Markdown."""
    lines = ["| A / B | true difference | " + " | ".join(f"n = {n:,}" for n in SIZES) + " |", "|" + " --- |" * 5]
    for name in dict.fromkeys(row["pair"] for row in rows):
        own = [row for row in rows if row["pair"] == name]
        cells = [f"{row['coverage']:.3f} ({row['width']:.3f}), {row['rejected']:.3f}" for row in own]
        lines.append(f"| {name} | {own[0]['truth']:+.4f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    trials = parser.parse_args().trials
    rows, sections = [], []
    for part in (PAIRS, HELD_BACK):
        own = [measure(pair, truth, n, trials) for pair in part for truth in [pair.truth()] for n in SIZES]
        sections.append(page(own))
        rows += own
    write_rows(HERE / "paired.csv", rows)
    text = (HERE / "paired_template.md").read_text(encoding="utf-8")
    for place, value in zip(("{pairs}", "{held_back}", "{trials}"), [*sections, f"{trials:,}"], strict=True):
        text = text.replace(place, value)
    (HERE / "paired.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
