"""Curves over the tidy rows of comparisons: methods against each other, and quality over the size of the calibration set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.numerics.special import Vector


@dataclass(frozen=True)
class Pareto:
    """Two metrics of every method, mean over networks and splits; both are better when lower."""

    methods: tuple[str, ...]
    x_metric: str
    y_metric: str
    x: Vector
    y: Vector
    best: tuple[bool, ...]
    """Whether no other method is at least as good in both and better in one."""


@dataclass(frozen=True)
class LearningCurve:
    """A metric over the number of calibration samples, one line for each method."""

    metric: str
    methods: tuple[str, ...]
    size: Vector
    mean: Vector
    """Shape (methods, sizes); NaN where nothing was measured."""
    error: Vector
    """Standard error over networks and splits."""


def pareto(rows: Sequence[Mapping[str, Any]], *, x: str = "nll", y: str = "ece") -> Pareto:
    """The methods that no other beats in both metrics, from the rows of ``rhocal compare -o``."""
    table = _means(rows, [x, y])
    methods = tuple(table)
    points = np.array([table[name] for name in methods])
    best = tuple(not any((other <= point).all() and (other < point).any() for other in points) for point in points)
    return Pareto(methods, x, y, points[:, 0], points[:, 1], best)


def learning_curve(rows: Sequence[Mapping[str, Any]], *, metric: str = "ece") -> LearningCurve:
    """Rows with ``n_calibration``, ``method`` and the metric, as ``experiments/learning_curve`` writes them.

    Only sizes at which every network was measured: a mean over fewer, easier ones would look like progress.
    """
    _require(rows, ["method", "n_calibration", metric])
    rows = _complete(rows)
    methods = tuple(dict.fromkeys(row["method"] for row in rows))
    sizes = sorted({float(row["n_calibration"]) for row in rows})
    mean, error = np.full((2, len(methods), len(sizes)), np.nan)
    for i, method in enumerate(methods):
        for j, size in enumerate(sizes):
            values = [float(r[metric]) for r in rows if r["method"] == method and float(r["n_calibration"]) == size]
            if values:
                mean[i, j] = np.mean(values)
                error[i, j] = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return LearningCurve(metric, methods, np.array(sizes), mean, error)


def _complete(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    networks: dict[Any, set[Any]] = {}
    for row in rows:
        networks.setdefault(row["n_calibration"], set()).add(row.get("network"))
    everything = set.union(*networks.values())
    return [row for row in rows if networks[row["n_calibration"]] == everything] or list(rows)


def _means(rows: Sequence[Mapping[str, Any]], names: list[str]) -> dict[str, list[float]]:
    _require(rows, ["method", *names])
    return {
        method: [float(np.mean([float(row[name]) for row in rows if row["method"] == method])) for name in names]
        for method in dict.fromkeys(row["method"] for row in rows)
    }


def _require(rows: Sequence[Mapping[str, Any]], names: list[str]) -> None:
    if not rows:
        raise InputError("rows is empty; give the rows that `rhocal compare -o rows.csv` wrote")
    absent = [name for name in names if any(name not in row for row in rows)]
    if absent:
        raise InputError(f"rows have no column {absent[0]!r}; they have {', '.join(rows[0])}")
