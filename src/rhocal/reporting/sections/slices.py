"""Single classes and slices of the samples, before and after calibration, worst first."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.evaluation.evaluate import by_group
from rhocal.evaluation.samples import Samples
from rhocal.metrics.inference.defaults import N_REPLICATES, SIGNIFICANCE_LEVEL
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import bin_totals
from rhocal.numerics.special import row_argmax
from rhocal.reporting.curves.spread import class_heat_from_scored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.metrics.inference.design import SamplingDesign
    from rhocal.reporting.sections.methods import Inference

MAX_CLASSES = 12
MAX_SLICES = 40
"""Slices evaluated, the largest; the others are put together."""
OTHERS = "… all others"


def worst_classes(views: Mapping[str, Predictions], design: SamplingDesign) -> dict[str, Any]:
    """The classes with the largest ECE against the rest after calibration, and what it was before."""
    data = next(iter(views.values()))
    assert data.labels is not None
    weights = data.counts
    counts = bin_totals(data.labels, design.counts(weights), data.n_classes)
    n_labels = dict(zip(data.classes.tolist(), counts.tolist(), strict=True))
    heats = {
        name: class_heat_from_scored(Scored.from_predictions(data), most=data.n_classes) for name, data in views.items()
    }
    last = list(heats.values())[-1]
    by_name = {name: dict(zip(heat.classes.tolist(), heat.error.tolist(), strict=True)) for name, heat in heats.items()}
    rows = [
        {
            "class": str(label),
            "n_labels": n_labels[label],
            "ece": {name: errors[label] for name, errors in by_name.items()},
        }
        for label in last.classes.tolist()[:MAX_CLASSES]
    ]
    return {"n_classes": last.n_classes, "rows": rows}


def slices(views: Mapping[str, Predictions], groups: Any, how: Inference) -> dict[str, Any]:
    """Every slice before and after; the p-values are corrected for the number of slices (Holm)."""
    before = next(iter(views.values()))
    kind = "predicted class" if groups is None else "group"
    names = before.classes[row_argmax(before.logits)] if groups is None else np.asarray(groups)
    if groups is None and before.of_answers:
        kind, names = "answer", np.full(before.n_samples, "all")
    codes, n_different = _largest(names.astype(str))
    lines: dict[str, dict[str, Any]] = {}
    for name, data in views.items():
        samples = Samples.from_predictions(data).with_design(how.design)
        for group in by_group(samples, codes, N_REPLICATES, how.seed, how.tolerance):
            line = lines.setdefault(group.group, {"slice": group.group, "n_samples": group.n_samples, "methods": {}})
            line["methods"][name] = {
                "accuracy": group.accuracy, "confidence": group.confidence, "ece": asdict(group.ece),
                "p_value": group.p_value, "state": group.state, "verdict": group.verdict,
            }  # fmt: skip
    last = list(views)[-1]
    rows = sorted(lines.values(), key=lambda row: _badness(row["methods"][last]))
    return {"by": kind, "n_slices": n_different, "rows": rows}


def _badness(method: dict[str, Any]) -> tuple[bool, float]:
    """Significant errors first, then by excess."""
    return method["p_value"] > SIGNIFICANCE_LEVEL, -method["ece"]["excess"]


def _largest(names: NDArray[Any]) -> tuple[NDArray[Any], int]:
    distinct, codes, counts = np.unique(names, return_inverse=True, return_counts=True)
    if len(distinct) <= MAX_SLICES:
        return names, len(distinct)
    kept = np.argsort(-counts, kind="stable")[: MAX_SLICES - 1]
    labels = np.full(len(distinct), OTHERS, dtype=object)
    labels[kept] = distinct[kept]
    return labels[codes].astype(str), len(distinct)
