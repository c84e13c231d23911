"""Ranks of methods over networks, and how often each method wins, as comparisons of classifiers report them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.evaluation.rows import Row, complete
from rhocal.metrics import METRICS
from rhocal.optimize import studentized_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.numerics.special import Vector


def means(rows: Sequence[Row], metric: str) -> tuple[list[str], Vector]:
    """The methods, and their mean over splits on every network that all have a result on (networks × methods).

    Of ECE it is the debiased one: floors differ between methods, and would decide the ranks of good ones. Rows of earlier
    versions do not have it; if any row is one of them, all are ranked by the ECE of the samples.
    """
    methods = list(dict.fromkeys(row.method for row in rows))
    is_debiased = metric == "ece" and not any(math.isnan(row.ece_debiased) for row in rows if not row.failed)
    by_cell: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        value = row.ece_debiased if is_debiased else row.values[metric]
        by_cell.setdefault((row.network, row.method), []).append(value)
    return methods, np.array([[np.mean(by_cell[network, method]) for method in methods] for network in complete(rows)])


def ratios(rows: Sequence[Row], method: str, metric: str = "nll", beside: str = "temperature") -> dict[str, Vector]:
    """For every network, a metric of one method over another's, on every split on which both have a result."""
    by_key = {(row.network, row.split, row.method): row.values[metric] for row in rows}
    by_network: dict[str, list[float]] = {}
    for (network, split, name), value in by_key.items():
        other = by_key.get((network, split, beside), math.nan)
        if name == method and not math.isnan(value / other):
            by_network.setdefault(network, []).append(value / other)
    return {network: np.array(values) for network, values in by_network.items()}


def ranks(table: Vector, *, lower: bool) -> Vector:
    """The rank of every method on every network, 1 for the best; equal values share the mean of their ranks.

    >>> ranks(np.array([[0.1, 0.3, 0.1]]), lower=True).tolist()
    [[1.5, 3.0, 1.5]]
    """
    sign = 1 if lower else -1
    ahead = (sign * table[:, :, None] > sign * table[:, None, :]).sum(axis=2)
    level = (table[:, :, None] == table[:, None, :]).sum(axis=2)
    return np.asarray(ahead + (level + 1) / 2)


def critical_difference(n_methods: int, n_networks: int, level: float = 0.05) -> float:
    """How far two mean ranks must be apart to differ significantly (Nemenyi; Demšar 2006).

    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    q = studentized_range(1 - level, n_methods) / math.sqrt(2)
    return q * math.sqrt(n_methods * (n_methods + 1) / (6 * n_networks))


def ranking(rows: Sequence[Row], metric: str, beside: str = "temperature") -> list[dict[str, Any]]:
    """Methods by mean rank, with the share of networks on which each beats another (a tie is half a win)."""
    methods, table = means(rows, metric)
    lower = METRICS[metric].better == "lower"
    mean_ranks = ranks(table, lower=lower).mean(axis=0)
    other = table[:, [methods.index(beside)]]
    better = (table < other) if lower else (table > other)
    wins = (better + 0.5 * (table == other)).mean(axis=0)
    lines = [
        {"method": name, "mean_rank": float(rank), "win_rate": float(win), "mean": float(mean)}
        for name, rank, win, mean in zip(methods, mean_ranks, wins, table.mean(axis=0), strict=True)
    ]
    return sorted(lines, key=lambda line: float(line["mean_rank"]))
