"""The report as one versioned document: plain dictionaries, lists, numbers and texts. docs/report.md is its schema.

``rhocal.reporting.page`` turns the document into a page, and needs nothing else.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.scale.identity import Identity
from rhocal.errors import InputError
from rhocal.metrics import METRICS
from rhocal.metrics.inference.defaults import N_REPLICATES
from rhocal.metrics.inference.paired import holm
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import N_BINS
from rhocal.reporting.curves.fine import FEWEST, MOST, edges
from rhocal.reporting.report.cautions import cautions
from rhocal.reporting.report.method import METRICS_SHOWN, Measured, calibrated, measure
from rhocal.reporting.report.plain import rounded
from rhocal.reporting.report.provenance import CITE, About, Input, about
from rhocal.reporting.report.slices import slices, worst_classes
from rhocal.reporting.report.summary import headline_of, level

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions

FORMAT = "rhocal-report"
SCHEMA = 1
FINE = 80
"""Resamples for each method compared: a p-value is at least 2 / (1 + their number), and must stand Holm's correction."""
BEFORE = "uncalibrated"
"""How the model as it came is called."""


def document(
    test: Predictions,
    calibrators: Mapping[str, Calibrator],
    source: About,
    *,
    tune: Predictions | None = None,
    same_samples: bool = False,
    headline: str | None = None,
    groups: Any = None,
    notes: Mapping[str, str] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure the model as it is and with every calibrator, on samples with labels.

    ``headline`` is the calibrator that the summary is about, unless said the first; it should be chosen before looking at these
    samples. ``groups`` are slices to look at one by one, unless given the predicted classes. ``tune`` is what the
    calibrators were fitted on, where known; ``same_samples`` says that it is these very samples.
    """
    if test.labels is None:
        raise InputError("labels are missing; a report needs one label for each sample")
    chosen = {name: cal for name, cal in calibrators.items() if not isinstance(cal, Identity)}
    main = headline_of(chosen, headline)
    before = Scored.from_predictions(test)
    n_replicates = max(N_REPLICATES, FINE * len(chosen))
    measured = [measure(BEFORE, None, test, test, before, n_replicates, seed)]
    for name, cal in chosen.items():
        measured.append(measure(name, cal, calibrated(cal, test), test, before, n_replicates, seed))
    _correct_for_many(measured)
    views = {BEFORE: test} | ({} if main is None else {main: calibrated(chosen[main], test)})
    first, last = measured[0].evaluation, next((m for m in measured if m.name == main), measured[0]).evaluation
    found: dict[str, Any] = {
        "format": FORMAT,
        "schema": SCHEMA,
        "title": source.title,
        "created": source.created,
        "before": BEFORE,
        "headline": main,
        "verdict": {
            "before": first.verdict,
            "after": None if main is None else last.verdict,
            "level_before": level(first),
            "level": level(last, same_samples=same_samples and main is not None),
        },
        "data": _about_data(test, tune),
        "metrics": {name: {"title": METRICS[name].title, "better": METRICS[name].better} for name in METRICS_SHOWN},
        "bins": {"fewest": FEWEST, "most": MOST, "first": N_BINS, "edges": edges().tolist()},
        "methods": [m.entry for m in measured],
        "classes": worst_classes(views),
        "slices": slices(views, groups, seed=seed),
        "warnings": cautions(test, tune, measured, same_samples=same_samples, notes=notes or {}),
        "reproduce": {
            "commands": list(source.commands),
            "versions": dict(source.versions),
            "inputs": [vars(item) for item in source.inputs],
            "seed": seed,
        },
        "cite": CITE,
    }
    return rounded(found)


def to_json(found: Mapping[str, Any]) -> str:
    """The document as text."""
    return json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _correct_for_many(measured: list[Measured]) -> None:
    """Holm's correction of each metric's p-values, for having compared many methods."""
    others = [m.entry["differences"] for m in measured if m.entry["differences"]]
    for metric in others[0] if others else ():
        for found, p in zip(others, holm([found[metric]["p_value"] for found in others]), strict=True):
            found[metric]["p_value"] = p
            found[metric]["verdict"] = (
                found[metric]["verdict"] if p <= 0.05 else "same" if found[metric]["value"] == 0 else "not seen"
            )


def _about_data(test: Predictions, tune: Predictions | None) -> dict[str, Any]:
    weights = test.weights
    assert test.labels is not None
    return {
        "n_samples": test.n_samples,
        "n_classes": test.n_classes,
        "n_ignored": test.n_ignored,
        "n_clipped": test.n_clipped,
        "weight": test.n_samples if weights is None else float(weights.sum()),
        "n_tune": None if tune is None else tune.n_samples,
        "kind": test.kind,
        "labels_seen": len(np.unique(test.labels)),
    }


__all__ = ["BEFORE", "FORMAT", "SCHEMA", "About", "Input", "about", "document", "to_json"]
