"""What could be automated: the certified coverage for a range of error rates, and the policy of the calibrator."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.evaluation.decide import certified_targets
from rhocal.evaluation.question import CONFIDENCE, in_order
from rhocal.evaluation.risk_monitor import TITLES, policy_losses
from rhocal.metrics.inference.units import are_counts
from rhocal.reporting.sections.numbers import for_plot

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.metrics.inference.design import SamplingDesign

TARGETS = (0.001, 0.002, 0.005, *(k / 100 for k in range(1, 11)), 0.12, 0.15, 0.2, 0.25, 0.3)
"""Largest error rates of the slider."""
DEFAULT_TARGET = 0.05
N_POINTS = 200
"""Points of the curve that is drawn."""


def decisions(
    name: str, cal: Calibrator | None, test: Predictions, design: SamplingDesign, *, same_samples: bool
) -> dict[str, Any] | None:
    """The section; None where nothing can be certified: on the samples of the fit, on dependent or reweighted ones."""
    weights = test.counts
    if same_samples or not design.is_simple or not are_counts(weights):
        return None
    certified = certified_targets(cal, test, TARGETS)
    curve = certified.curve
    picked = np.unique(np.linspace(0, len(curve.threshold) - 1, min(N_POINTS, len(curve.threshold))).astype(int))
    shown = ("threshold", "coverage", "risk", "bound")
    return {
        "method": name,
        "confidence": CONFIDENCE,
        "curve": {key: for_plot(getattr(curve, key)[picked]) for key in shown},
        "targets": [
            {"target": target, **dict.fromkeys(shown)}
            if index is None
            else {"target": target, **{key: float(getattr(curve, key)[index]) for key in shown}}
            for target, index in zip(TARGETS, certified.indices, strict=True)
        ],
        "default": TARGETS.index(DEFAULT_TARGET),
        "always": _most_frequent(test, weights),
        "policy": None if cal is None or cal.policy_ is None else _policy(cal, test, weights),
    }


def _most_frequent(test: Predictions, weights: Any) -> dict[str, Any]:
    """The most frequent class, and the error rate of a model that always predicts it: below it a target promises little."""
    assert test.labels is not None
    counts = np.bincount(test.labels, weights, minlength=test.n_classes)
    return {"class": str(test.classes[counts.argmax()]), "error": float(1 - counts.max() / counts.sum())}


def _policy(cal: Calibrator, test: Predictions, weights: Any) -> dict[str, Any] | None:
    """The promise of a saved policy, and what these samples say about it."""
    policy, data = cal.policy_, in_order(test, cal)
    assert policy is not None
    if policy.certificate is None or policy.certificate.risk not in TITLES:
        return None
    assert data.labels is not None
    decided = policy.decide(cal.map_.probs(data), cal.classes_)
    subjects, losses = policy_losses(policy, decided, data.labels)
    total = float(weights @ subjects)
    return {
        **asdict(policy.certificate),
        "what": TITLES[policy.certificate.risk],
        "rate_here": float(weights @ (subjects & losses)) / total if total else None,
        "n_here": total,
    }
