"""The report as one versioned JSON document: dictionaries, lists, numbers and texts. docs/report.md is its schema.

The parts of the document are computed in ``sections/``; ``rhocal.reporting.page`` renders it and needs nothing else.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.scale.identity import Identity
from rhocal.errors import InputError
from rhocal.evaluation.evaluate import UNCALIBRATED
from rhocal.evaluation.measure import apply_calibrator
from rhocal.metrics import METRICS
from rhocal.metrics.inference.defaults import N_REPLICATES
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.inference.paired import adjust_for_candidates
from rhocal.metrics.inference.verdict import TOLERANCE
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import N_BINS
from rhocal.reporting.curves.fine import MAX_BINS, MIN_BINS, edges
from rhocal.reporting.sections.cautions import cautions
from rhocal.reporting.sections.decisions import decisions
from rhocal.reporting.sections.methods import METRICS_SHOWN, Inference, describe_method
from rhocal.reporting.sections.mistakes import confident_mistakes
from rhocal.reporting.sections.numbers import round_numbers
from rhocal.reporting.sections.provenance import citations
from rhocal.reporting.sections.slices import slices, worst_classes
from rhocal.reporting.sections.summary import level, select_headline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.reporting.sections.provenance import Provenance

FORMAT = "rhocal-report"
SCHEMA = 2
REPLICATES_PER_METHOD = 80
"""Resamples per method compared: a p-value is at least 2 / (1 + their number), and Holm's correction multiplies it."""


def build_document(
    test: Predictions,
    calibrators: Mapping[str, Calibrator],
    provenance: Provenance,
    *,
    calibration: Predictions | None = None,
    same_samples: bool = False,
    headline: str | None = None,
    name: str = UNCALIBRATED,
    models: Mapping[str, Predictions] | None = None,
    groups: Any = None,
    notes: Mapping[str, str] | None = None,
    design: SamplingDesign | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> dict[str, Any]:
    """Evaluate the uncalibrated model and every calibrator on samples with labels.

    ``headline`` is the calibrator that the summary is about, by default the first; it should be chosen before looking at these
    samples. ``groups`` are slices that are evaluated one by one, by default the predicted classes. ``calibration`` is the
    calibration set, if known; ``same_samples`` states that it is these same samples. ``design`` states what weights are and
    which samples depend on each other; ``tolerance`` is that of the verdicts. ``models`` are predictions of other models on the
    same samples, which are compared with ``test``; ``name`` is how the page calls that.
    """
    if test.labels is None:
        raise InputError("labels are missing; a report needs one label for each sample")
    chosen = {name: cal for name, cal in calibrators.items() if not isinstance(cal, Identity)}
    others = dict(models or {})
    if repeated := {name, *others} & set(chosen) or {name} & set(others):
        raise InputError(f"two models or calibrators are called {repeated.pop()!r}; give them different names")
    main = select_headline(chosen | others, headline)
    before = Scored.from_predictions(test)
    n_replicates = max(N_REPLICATES, REPLICATES_PER_METHOD * len(chosen | others))
    design = SamplingDesign() if design is None else design
    how = Inference(design, tolerance, n_replicates, seed)
    methods = [describe_method(name, None, test, None, how)]
    methods += [describe_method(method, cal, test, before, how) for method, cal in chosen.items()]
    methods += [describe_method(model, None, data, before, how) for model, data in others.items()]
    adjusted = adjust_for_candidates({method.name: method.differences for method in methods[1:]})
    views = {name: test}
    if main is not None:
        views[main] = apply_calibrator(chosen[main], test) if main in chosen else others[main]
    first, last = methods[0].evaluation, next((m for m in methods if m.name == main), methods[0]).evaluation
    document: dict[str, Any] = {
        "format": FORMAT,
        "schema": SCHEMA,
        "title": provenance.title,
        "created": provenance.created,
        "before": name,
        "compares": "models" if others else "calibrators",
        "headline": main,
        "verdict": {
            "before": first.verdict,
            "after": None if main is None else last.verdict,
            "level_before": level(first),
            "level": level(last, same_samples=same_samples and main is not None),
        },
        "data": _describe_data(test, calibration) | {"n_effective": first.n_effective},
        "metrics": {name: {"title": METRICS[name].title, "better": METRICS[name].better} for name in METRICS_SHOWN},
        "bins": {"min": MIN_BINS, "max": MAX_BINS, "default": N_BINS, "edges": edges().tolist()},
        "methods": [method.entry(adjusted.get(method.name)) for method in methods],
        "decisions": decisions(
            main or name, chosen.get(main or ""), others.get(main or "", test), design, same_samples=same_samples
        ),
        "classes": worst_classes(views, design),
        "slices": slices(views, groups, how),
        "mistakes": confident_mistakes(views),
        "warnings": cautions(test, calibration, methods, same_samples=same_samples, notes=notes or {}),
        "reproduce": {
            "commands": list(provenance.commands),
            "versions": dict(provenance.versions),
            "inputs": [vars(item) for item in provenance.inputs],
            "seed": seed,
        },
        "cite": citations(methods),
    }
    return round_numbers(document)


def to_json(document: Mapping[str, Any]) -> str:
    """The document as text."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _describe_data(test: Predictions, calibration: Predictions | None) -> dict[str, Any]:
    weights = test.weights
    assert test.labels is not None
    return {
        "n_samples": test.n_samples,
        "n_classes": test.n_classes,
        "positive": None if test.positive is None else str(test.positive),
        "n_ignored": test.n_ignored,
        "n_clipped": test.n_clipped,
        "weight": test.n_samples if weights is None else float(weights.sum()),
        "n_calibration": None if calibration is None else calibration.n_samples,
        "kind": test.kind,
        "n_labeled_classes": len(np.unique(test.labels)),
    }
