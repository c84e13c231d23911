"""Figure 2: the amplitude ‖z‖₂/m while networks are trained, with and without weight decay, and how confident they end."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.files import read
from rhocal.errors import FileError
from rhocal.metrics.spread import amplitudes as per_sample
from rhocal.numerics.special import top_probability
from rhocal.reporting import curves, plots
from rhocal.reporting.plots.style import new_axes_grid
from rhocal_paper.grid import IN_DIRECTION, NOT, REPRODUCED, UNKNOWN, half_interval
from rhocal_paper.networks import MODELS, card_of, differences, named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rhocal.numerics.special import Vector
    from rhocal.reporting.curves import Amplitudes

RUNS = "runs that end with a larger amplitude are more confident"
ONE_SEED = 0.01
"""Differences of mean confidence between two runs up to this size may be those of two seeds."""

STEADY = 0.8
"""Rank correlation of epoch and amplitude from which on growth is called steady."""


@dataclass(frozen=True)
class Run:
    """A network, its amplitude after each epoch, and its samples after the last."""

    network: str
    weight_decay: float
    curve: Amplitudes
    """Of the calibration set on the way; of the test set at the end."""
    correlation: float
    """Rank correlation of amplitude and confidence over the test samples."""
    seed: int = 0

    @classmethod
    def of(cls, folder: Path) -> Run:
        """What ``rhocal-paper train`` left in a folder."""
        card = card_of(folder)
        with (folder / "log.csv").open(newline="", encoding="utf-8") as file:
            log = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
        logits = np.asarray(read(folder / "logits.npz").test_set().scores, dtype=np.float32)
        decay = float(card["weight_decay"])
        columns = {name: np.array([row[name] for row in log]) for name in ("epoch", "amplitude", "confidence")}
        curve = replace(
            curves.amplitudes(f"weight decay {decay:g}" if decay else "no weight decay", [logits]),
            epoch=columns["epoch"], mean=columns["amplitude"], confidence=columns["confidence"],
        )  # fmt: skip
        confidence = top_probability(logits)
        model = str(card["model_name"])
        dataset, _ = named(f"{card['data']} {model}")
        parts = [str(card["data"]).split(".", maxsplit=1)[0], MODELS.get(model, model), f"width {card['model_width']}"]
        correlation = rank_correlation(per_sample(logits, center=False), confidence)
        label = ", ".join([*parts, *differences(card, dataset)])
        return cls(label, decay, curve, correlation, int(card.get("seed", 0)))


def runs(folders: Iterable[Path]) -> list[Run]:
    """Every finished run in the folders."""
    cards = [card for folder in folders for card in sorted(folder.glob("*/run.json"))]
    found = [Run.of(card.parent) for card in cards if (card.parent / "logits.npz").is_file()]
    if not found:
        raise FileError("no finished runs of `rhocal-paper train` there: folders with run.json, log.csv and logits.npz")
    return sorted(found, key=lambda run: (run.network, run.weight_decay, run.seed))


def rank_correlation(x: Vector, y: Vector) -> float:
    """Spearman's: that of the ranks.

    >>> rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([0.1, 0.2, 0.3]))
    1.0
    """
    ranks = [np.argsort(np.argsort(values, kind="stable")).astype(np.float64) for values in (x, y)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if len(x) > 1 else float("nan")


def rows(found: Sequence[Run]) -> list[dict[str, Any]]:
    """Tidy: a row for each run and epoch."""
    return [
        {
            "network": run.network, "weight_decay": run.weight_decay, "seed": run.seed, "epoch": int(epoch),
            "amplitude": float(amplitude), "confidence": float(confidence), "rank_correlation": run.correlation,
        }
        for run in found
        for epoch, amplitude, confidence in zip(run.curve.epoch, run.curve.mean, run.curve.confidence, strict=True)
    ]  # fmt: skip


def verdicts(found: Sequence[Run]) -> list[dict[str, str]]:
    """What becomes of the claims of the figure, on every run or pair of runs."""
    lines = []
    for run in found:
        size, epoch = run.curve.mean, run.curve.epoch
        if run.weight_decay == 0:
            steady = rank_correlation(epoch, size)
            grows = size[-1] > size[0]
            verdict = REPRODUCED if grows and steady > STEADY else IN_DIRECTION if grows else NOT
            told = f"from {size[0]:.3f} to {size[-1]:.3f}; rank correlation with the epoch {steady:.2f}"
            lines.append(line(run.network, "amplitude grows without weight decay", verdict, told))
        told = f"rank correlation {run.correlation:.2f} over test samples"
        verdict = REPRODUCED if run.correlation > 0 else NOT
        network = f"{run.network}, weight decay {run.weight_decay:g}"
        lines.append(line(network, "amplitude and confidence of samples are positively correlated", verdict, told))
    decayed = dict.fromkeys((run.network, run.weight_decay) for run in found if run.weight_decay > 0)
    for network, decay in decayed:
        plain = {run.seed: run for run in found if run.network == network and run.weight_decay == 0}
        pairs = [
            (run, plain[run.seed])
            for run in found
            if (run.network, run.weight_decay) == (network, decay) and run.seed in plain
        ]
        if pairs:
            lines.append(line(network, "weight decay holds the amplitude down", *amplitudes_of(pairs, decay)))
            lines.append(line(network, RUNS, *confidences_of(pairs)))
    return lines


def amplitudes_of(pairs: Sequence[tuple[Run, Run]], decay: float) -> tuple[str, str]:
    """Whether runs with weight decay end with a smaller amplitude than their partners of the same seed without."""
    ends = np.array([[run.curve.mean[-1] for run in pair] for pair in pairs])
    told = f"ends at {ends[:, 0].mean():.3f} with weight decay {decay:g}, {ends[:, 1].mean():.3f} without"
    return judged(ends[:, 1] - ends[:, 0], 0.0), f"{told}; {seeds(pairs)}"


def confidences_of(pairs: Sequence[tuple[Run, Run]]) -> tuple[str, str]:
    """The caption's claim is about whole runs: that of the larger final amplitude is the more confident."""
    ordered = [sorted(pair, key=lambda run: run.curve.mean[-1]) for pair in pairs]
    size, sure = (
        np.array([[getattr(run.curve, name)[-1] for run in pair] for pair in ordered]).mean(0)
        for name in ("mean", "confidence")
    )
    gaps = np.array([other.curve.confidence[-1] - one.curve.confidence[-1] for one, other in ordered])
    told = f"final amplitude {size[0]:.3f} and {size[1]:.3f}, mean confidence {sure[0]:.4f} and {sure[1]:.4f}"
    return judged(gaps, ONE_SEED), f"{told}; {seeds(pairs)}"


def judged(gaps: Vector, margin_of_one: float) -> str:
    """The verdict on the claim that gaps are positive: by their interval over seeds; one seed is no reproduction."""
    mean, half = float(np.mean(gaps)), half_interval(gaps)
    if len(gaps) < 2:
        return UNKNOWN if abs(mean) <= margin_of_one else IN_DIRECTION if mean > 0 else NOT
    if mean - half > 0:
        return REPRODUCED
    return NOT if mean + half < 0 else UNKNOWN


def seeds(pairs: Sequence[tuple[Run, Run]]) -> str:
    """How many there are."""
    return "one seed each" if len(pairs) == 1 else f"means of {len(pairs)} seeds"


def line(network: str, claim: str, verdict: str, reason: str) -> dict[str, str]:
    """As ``grid.verdicts`` has it."""
    return {"network": network, "claim": claim, "verdict": verdict, "reason": reason}


def draw(found: Sequence[Run]) -> Any:
    """A line of panels for each network: amplitude over epochs, and both histograms at the end."""
    networks = list(dict.fromkeys(run.network for run in found))
    axes = new_axes_grid(None, len(networks), 3, (10.5, 3.1 * len(networks)))
    for row, network in zip(axes, networks, strict=True):
        same = [run for run in found if run.network == network]
        mine = [run.curve for run in same if run.seed == min(other.seed for other in same)]
        plots.amplitude_over_epochs(mine, ax=row[0]).set_title(network, fontsize=10)
        plots.confidence_histogram(mine, ax=row[1])
        plots.amplitude_histogram(mine, ax=row[2])
    return axes
