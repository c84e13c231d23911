"""One method of a report: its metrics, differences, bins, curves, and its fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators import ScaleCalibrator
from rhocal.calibrators.scale.rho_norm import RhoNormScaling
from rhocal.evaluation.evaluate import infer
from rhocal.evaluation.measure import apply_calibrator
from rhocal.evaluation.samples import Samples
from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL
from rhocal.metrics.inference.intervals import wilson
from rhocal.metrics.inference.paired import differences
from rhocal.objectives import Objective
from rhocal.reporting.curves.fine import FineSums, counts_by_confidence, fine_bins
from rhocal.reporting.curves.fitted import confidence_map_from_logits, temperature_map_from_predictions
from rhocal.reporting.curves.reliability import positive_view, reliability_from_scored
from rhocal.reporting.curves.selection import risk_coverage_from_scored
from rhocal.reporting.sections.numbers import for_plot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.evaluation.evaluation import Evaluation
    from rhocal.metrics.inference.design import SamplingDesign
    from rhocal.metrics.inference.paired import Difference
    from rhocal.metrics.scored import Scored

METRICS_SHOWN = ("ece", "adaptive_ece", "nll", "brier", "accuracy")
POSITIVE_BINS = 10
MAX_NUMBERS = 12
"""Arrays of up to this many numbers are listed; larger ones are described by shape and range."""


@dataclass(frozen=True)
class Inference:
    """How samples were drawn, what error is tolerated, and the draws behind intervals."""

    design: SamplingDesign
    tolerance: float
    n_replicates: int
    seed: int


@dataclass(frozen=True)
class MethodSection:
    """A method, and its fields in the document."""

    name: str
    calibrator: Calibrator | None
    evaluation: Evaluation
    differences: dict[str, Difference]
    """To the uncalibrated model, or to the first model, by metric."""
    fields: dict[str, Any]

    def entry(self, adjusted: Mapping[str, Difference] | None) -> dict[str, Any]:
        """All fields, with the ``adjusted`` differences; None for the uncalibrated model."""
        if adjusted is None:
            return self.fields
        return self.fields | {"differences": {name: d.to_dict() for name, d in adjusted.items()}}


def describe_method(
    name: str, cal: Calibrator | None, data: Predictions, before: Scored | None, how: Inference
) -> MethodSection:
    """Everything the report shows of a method or model (``cal`` None: as it is), with differences to ``before`` if given."""
    after = apply_calibrator(cal, data)
    whole = Samples.from_predictions(after)
    samples = whole.with_design(how.design)
    scored, evaluation = samples.scored, infer(samples, METRICS_SHOWN, tolerance=how.tolerance, seed=how.seed)
    bins = fine_bins(scored, samples.counts)
    risk = risk_coverage_from_scored(scored)
    fields: dict[str, Any] = {
        "name": name,
        "fit": None if cal is None else describe_fit(cal),
        "verdict": evaluation.verdict,
        "distinguishable": evaluation.distinguishable,
        "p_value": evaluation.p_value,
        "state": evaluation.state,
        "tolerance": evaluation.tolerance,
        "mean_confidence": evaluation.confidence,
        "mean_accuracy": evaluation.accuracy,
        "values": {value.metric: asdict(value) for value in evaluation.values},
        "tests": {test: asdict(outcome) for test, outcome in evaluation.tests.items()},
        "positive": None if evaluation.positive is None else asdict(evaluation.positive),
        "classes": [asdict(figures) for figures in evaluation.classes],
        "differences": None,
        "bins": {"width": _sums(bins.width), "mass": _sums(bins.mass)},
        "risk_coverage": {"coverage": for_plot(risk.coverage), "risk": for_plot(risk.risk), "area": risk.area},
        "positive_curve": _positive_curve(samples, how.seed),
        "map": None,
        "temperature": None,
    }
    to_uncalibrated: dict[str, Difference] = {}
    if before is not None:
        pair = how.design.apply_to_pair(whole.scored, before)
        to_uncalibrated = differences(*pair, METRICS_SHOWN, n_replicates=how.n_replicates, seed=how.seed)
    if cal is not None:
        pairs = confidence_map_from_logits(data.logits, after.logits)
        points = {"raw": for_plot(pairs.raw), "calibrated": for_plot(pairs.calibrated)}
        fields["map"] = points | {"share_kept": pairs.share_kept}
    if isinstance(cal, ScaleCalibrator):
        curve = temperature_map_from_predictions(cal, data)
        fields["temperature"] = {"amplitude": for_plot(curve.amplitude), "temperature": for_plot(curve.temperature)}
    return MethodSection(name, cal, evaluation, to_uncalibrated, fields)


def _positive_curve(samples: Samples, seed: int) -> dict[str, Any] | None:
    """Prevalence of the positive class in bins of its probability; None if there are not two classes."""
    scored, n_samples = samples.scored, None
    if scored.source.n_classes != 2:
        return None
    curve = reliability_from_scored(scored, n_bins=POSITIVE_BINS, scheme="mass", of_positive=True, seed=seed)
    # Wilson's interval, as the page has it for accuracy: a bin without a positive sample has an upper limit above 0
    intervals = [wilson(share, n, CONFIDENCE_LEVEL) for share, n in zip(curve.accuracy, curve.weight, strict=True)]
    if samples.counts is not None:
        by_bin = counts_by_confidence(positive_view(scored)[0], samples.counts).equal_mass(POSITIVE_BINS)
        n_samples = by_bin.nonempty().correct
    values = {
        "probability": curve.confidence, "prevalence": curve.accuracy, "low": [one.low for one in intervals],
        "high": [one.high for one in intervals],
    }  # fmt: skip
    plotted = {name: for_plot(value) for name, value in values.items()}
    return plotted | {"n_samples": for_plot(curve.weight if n_samples is None else n_samples, 9)}


def _sums(fine: FineSums) -> dict[str, Any]:
    numbers = {"variance": for_plot(fine.variance, 6), "n_samples": for_plot(fine.n_samples, 9)}
    return {"index": fine.index, **asdict(fine.sums), **numbers}


def describe_fit(cal: Calibrator) -> dict[str, Any]:
    """The fitted numbers and their evidence."""
    solution = cal.solution_
    return {
        "method": cal.label,
        "family": type(cal).__name__,
        "keeps_decision": cal.map_.keeps_decision,
        "decisions": None if solution.decisions is None else solution.decisions.sentence,
        "options": {name: str(v) if isinstance(v, Objective) else v for name, v in cal.get_params().items()},
        "parameters": {name.rstrip("_"): parameter(getattr(cal, name)) for name in cal.parameters},
        "children": {name: describe_fit(child) for name, child in named_children(cal).items()},
        "objective": solution.objective,
        "value": solution.value,
        "converged": solution.converged,
        "n_evaluations": solution.n_evaluations,
        "at_bound": solution.at_bound,
        "held_out": None if solution.held_out is None else solution.held_out.summary,
        "weights": None if cal.weighting_ is None else cal.weighting_.sentence,
        "trials": [dict(row) for row in solution.trials],
    }


def uses_rho_norm(methods: Sequence[MethodSection]) -> bool:
    """Whether one of the calibrators is ρ-norm scaling, or is made of it."""

    def is_rho_norm(cal: Calibrator) -> bool:
        return isinstance(cal, RhoNormScaling) or any(is_rho_norm(child) for child in named_children(cal).values())

    return any(method.calibrator is not None and is_rho_norm(method.calibrator) for method in methods)


def named_children(cal: Calibrator) -> dict[str, Calibrator]:
    """The calibrators that one is made of by name, those of a list with a number."""
    by_attribute: dict[str, Calibrator] = {}
    for name in cal.children:
        child = getattr(cal, name)
        members = child if isinstance(child, list) else None
        by_attribute |= (
            {f"{name}{k}": member for k, member in enumerate(members, 1)} if members is not None else {name: child}
        )
    return {name.rstrip("_"): child for name, child in by_attribute.items()}


def parameter(value: Any) -> Any:
    """A number, a list of the numbers of a small array, or a description of a large array."""
    if not isinstance(value, np.ndarray):
        return value
    if value.size <= MAX_NUMBERS:
        return value.tolist()
    shape = " × ".join(str(n) for n in value.shape)
    if value.dtype.kind not in "fiub":
        return f"{shape} values"
    return f"{shape} numbers from {value.min():.4g} to {value.max():.4g}"
