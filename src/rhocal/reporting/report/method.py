"""One method of a report: its figures, differences, bins, curves, and the fit behind it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators import ScaleCalibrator
from rhocal.evaluation.evaluate import evaluate_checked
from rhocal.metrics.inference.paired import differences
from rhocal.metrics.scored import Scored
from rhocal.objectives import Objective
from rhocal.reporting.curves.fine import FineSums, fine_bins
from rhocal.reporting.curves.fitted import confidence_map_of, temperature_of
from rhocal.reporting.curves.selection import risk_coverage_of
from rhocal.reporting.report.plain import short

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.evaluation.evaluation import Evaluation

METRICS_SHOWN = ("ece", "adaptive_ece", "nll", "brier", "accuracy")
SMALL = 12
"""Arrays of up to so many numbers are written out; of larger ones the shape and the range."""


@dataclass(frozen=True)
class Measured:
    """A method with its entry in the document."""

    name: str
    calibrator: Calibrator | None
    evaluation: Evaluation
    entry: dict[str, Any]


def calibrated(cal: Calibrator, data: Predictions) -> Predictions:
    """The same samples after calibration."""
    groups = data.groups if cal.takes_groups else None
    return replace(data, scores=cal.transform(data.logits, kind="logits", groups=groups), kind="logits")


def measure(
    name: str,
    cal: Calibrator | None,
    after: Predictions,
    data: Predictions,
    before: Scored,
    n_replicates: int,
    seed: int,
) -> Measured:
    """Everything the report shows of one method; differences to ``before`` from so many resamples."""
    scored = Scored.from_predictions(after)
    evaluation = evaluate_checked(after, metrics=METRICS_SHOWN, seed=seed)
    bins = fine_bins(scored)
    risk = risk_coverage_of(scored)
    entry: dict[str, Any] = {
        "name": name,
        "fit": None if cal is None else fitted(cal),
        "verdict": evaluation.verdict,
        "distinguishable": evaluation.distinguishable,
        "mean_confidence": evaluation.confidence,
        "mean_accuracy": evaluation.accuracy,
        "values": {figure.metric: asdict(figure) for figure in evaluation.values},
        "tests": {test: asdict(outcome) for test, outcome in evaluation.tests.items()},
        "differences": None,
        "bins": {"width": _sums(bins.width), "mass": _sums(bins.mass)},
        "risk_coverage": {"coverage": short(risk.coverage), "risk": short(risk.risk), "area": risk.area},
        "map": None,
        "temperature": None,
    }
    if cal is not None:
        found = differences(scored, before, METRICS_SHOWN, n_replicates=n_replicates, seed=seed)
        entry["differences"] = {metric: vars(d) | {"verdict": d.verdict} for metric, d in found.items()}
        moved = confidence_map_of(data.logits, after.logits)
        entry["map"] = {"raw": short(moved.raw), "calibrated": short(moved.calibrated), "share_kept": moved.share_kept}
    if isinstance(cal, ScaleCalibrator):
        hot = temperature_of(cal, data)
        entry["temperature"] = {"amplitude": short(hot.amplitude), "temperature": short(hot.temperature)}
    return Measured(name, cal, evaluation, entry)


def _sums(fine: FineSums) -> dict[str, Any]:
    sums = fine.sums
    return {
        "index": fine.index.tolist(),
        "weight": sums.weight.tolist(),
        "confidence": sums.confidence.tolist(),
        "correct": sums.correct.tolist(),
        "variance": short(fine.variance, 6),
    }


def fitted(cal: Calibrator) -> dict[str, Any]:
    """The fitted numbers and their evidence."""
    solution = cal.solution_
    return {
        "family": type(cal).__name__,
        "keeps_decision": cal.keeps_decision,
        "options": {name: _option(value) for name, value in cal.get_params().items()},
        "parameters": {name.rstrip("_"): parameter(getattr(cal, name)) for name in cal.parameters},
        "inside": {name.rstrip("_"): fitted(getattr(cal, name)) for name in cal.children},
        "objective": solution.objective,
        "value": solution.value,
        "converged": solution.converged,
        "n_evaluations": solution.n_evaluations,
        "at_bound": solution.at_bound,
        "trials": [dict(row) for row in solution.trials],
    }


def parameter(value: Any) -> Any:
    """A number as it is, a small array written out, a large one described."""
    if not isinstance(value, np.ndarray):
        return value
    if value.size <= SMALL:
        return value.tolist()
    shape = " × ".join(str(n) for n in value.shape)
    if value.dtype.kind not in "fiub":
        return f"{shape} values"
    return f"{shape} numbers from {value.min():.4g} to {value.max():.4g}"


def _option(value: Any) -> Any:
    return str(value) if isinstance(value, Objective) else value
