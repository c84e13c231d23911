"""What is measured on predictions with labels.

A metric is a formula on ``Scored`` samples and, where its definition allows, a state that adds. A new metric is a formula in
one of the modules here and a line of the table below. How far a value can be trusted (floor, intervals, tests) belongs in
``inference/``, what a fit minimizes in ``rhocal.objectives``. This package never imports calibrators.

Metrics take probabilities unless ``kind="logits"`` is given, calibrators take logits: what each is mostly used with. Logits
that are passed to a metric by mistake are an error, not a wrong value.

>>> from rhocal import metrics
>>> round(metrics.ece([[0.05, 0.95], [0.0, 1.0]], [1, 0]), 12)
0.475

A metric with sums adds up over batches and machines:

>>> monday = metrics.ece.of([[0.05, 0.95]], [1])
>>> tuesday = metrics.ece.of([[0.0, 1.0]], [0])
>>> round((monday + tuesday).value, 12)
0.475
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError
from rhocal.metrics import binned, classwise, decompositions, distance, kernel, scores, selection, smooth, spread
from rhocal.metrics.binned import equal_mass_bound, one_pass_error
from rhocal.metrics.decompositions import Murphy, MurphySums
from rhocal.metrics.metric import RANKS, Metric, mean_metric, ranked_metric, sums_metric, validate_options
from rhocal.metrics.scored import Scored
from rhocal.metrics.sums import WeightedMean
from rhocal.numerics.bins import N_BINS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rhocal.data.predictions import Kind
    from rhocal.metrics.selection import RejectionCurve
    from rhocal.numerics.special import Vector

INF = float("inf")
EDGES = "the edges of its bins depend on all samples"
PAIRS = "it depends on all pairs of samples"
TEMPERATURE = "the best temperature needs the logits of all samples"

_GUO = "Guo et al. 2017"
_NIXON = "Nixon et al. 2019"
_NAEINI = "Naeini et al. 2015"
_KUMAR = "Kumar, Liang & Ma 2019"
_MURPHY = "Murphy 1973"
_GEIFMAN = "Geifman et al. 2019"
_THULASIDASAN = "Thulasidasan et al. 2019"
_DIMITRIADIS = "Dimitriadis et al. 2021"
_BERTA = "Berta et al. 2025"
_WIDMANN = "Widmann et al. 2019"

CORE: dict[str, Metric] = {
    "accuracy": mean_metric("Accuracy", scores.accuracy_per_sample, "higher", reference="share of right decisions"),
    "ece": sums_metric("ECE", binned.ece, "lower", reference=f"{_NAEINI}; {_GUO}", one_pass=partial(one_pass_error, power=1)),
    "mce": sums_metric("MCE", binned.mce, "lower", reference=_NAEINI, one_pass=partial(one_pass_error, power=INF)),
    "adaptive_ece": ranked_metric("AdaECE", binned.adaptive_ece, "lower", reference=_NIXON, reason=EDGES,
        bound=partial(equal_mass_bound, power=1)),
    "nll": mean_metric("NLL", scores.nll_per_sample, "lower", range=(0, INF), reference="Good 1952"),
    "brier": mean_metric("Brier", scores.brier_per_sample, "lower", range=(0, 2), reference="Brier 1950"),
    "top_brier": mean_metric("Top Brier", scores.top_brier_per_sample, "lower", reference="Brier 1950"),
}  # fmt: skip
"""The metrics of a comparison."""

_MORE: dict[str, Metric] = {
    # over bins
    "rmsce": sums_metric("RMSCE", binned.rmsce, "lower", reference="Hendrycks et al. 2019",
        one_pass=partial(one_pass_error, power=2)),
    "adaptive_mce": ranked_metric("AdaMCE", binned.adaptive_mce, "lower", reference=_NIXON, reason=EDGES,
        bound=partial(equal_mass_bound, power=INF)),
    "adaptive_rmsce": ranked_metric("AdaRMSCE", binned.adaptive_rmsce, "lower", reference=_NIXON, reason=EDGES,
        bound=partial(equal_mass_bound, power=2)),
    "debiased_rmsce": sums_metric("Debiased RMSCE", binned.debiased_rmsce, "lower", reference=_KUMAR),
    "ece_sweep": ranked_metric("ECE sweep", binned.ece_sweep, "lower", reference="Roelofs et al. 2022", reason=EDGES),
    "top_k_ece": sums_metric("Top-k ECE", binned.top_k_ece, "lower", reference="Gupta et al. 2021"),
    "classwise_ece": sums_metric("Classwise ECE", classwise.classwise_ece, "lower", reference=f"Kull et al. 2019; {_NIXON}"),
    "tace": Metric("TACE", "lower", classwise.tace, reference=_NIXON, no_sums_reason=EDGES),
    "tce": ranked_metric("TCE", binned.tce, "lower", reference="Matsubara et al. 2023", reason=EDGES),
    "over_confidence": sums_metric("Over-confidence", binned.over_confidence, "lower", reference=_THULASIDASAN),
    "under_confidence": sums_metric("Under-confidence", binned.under_confidence, "lower", reference=_THULASIDASAN),
    # without bins
    "smooth_ece": sums_metric("Smooth ECE", smooth.smooth_ece, "lower", reference="Błasiok & Nakkiran 2024"),
    "smooth_calibration": sums_metric("Smooth calibration", distance.smooth_calibration, "lower",
        reference="Kakade & Foster 2008; Błasiok et al. 2023"),
    "ks": ranked_metric("KS", smooth.ks, "lower", reference="Gupta et al. 2021",
        bound=partial(smooth.cumulative_bound, n_ends=1)),
    "kuiper": ranked_metric("Kuiper", smooth.kuiper, "lower", reference="Arrieta-Ibarra et al. 2022",
        bound=partial(smooth.cumulative_bound, n_ends=2)),
    "ici": sums_metric("ICI", smooth.ici, "lower", reference="Austin & Steyerberg 2019"),
    "spiegelhalter_z": sums_metric("Spiegelhalter Z", smooth.spiegelhalter_z, "zero", range=(-INF, INF),
        reference="Spiegelhalter 1986"),
    "mmce": ranked_metric("MMCE", kernel.mmce, "lower", reference="Kumar, Sarawagi & Jain 2018", reason=PAIRS),
    "top_skce": Metric("Top SKCE", "lower", kernel.top_skce, range=(-1, 1), reference=_WIDMANN, no_sums_reason=PAIRS),
    "skce": Metric("SKCE", "lower", kernel.skce, range=(-2, 2), reference=_WIDMANN, no_sums_reason=PAIRS),
    "kde_ce": Metric("KDE CE", "lower", kernel.kde_ce, range=(0, 2), reference="Popordanoska et al. 2022",
        no_sums_reason=PAIRS),
    # scores and their parts
    "binary_brier": mean_metric("Binary Brier", scores.binary_brier_per_sample, "lower", reference="Brier 1950"),
    "spherical": mean_metric("Spherical", scores.spherical_per_sample, "higher", reference="Gneiting & Raftery 2007"),
    "reliability": sums_metric("Reliability", decompositions.reliability, "lower", reference=_MURPHY),
    "resolution": sums_metric("Resolution", decompositions.resolution, "higher", range=(0, 0.25), reference=_MURPHY),
    "murphy_uncertainty": sums_metric("Uncertainty", decompositions.uncertainty, "neither", range=(0, 0.25),
        reference=_MURPHY),
    "calibration_loss": Metric("Calibration loss", "lower", decompositions.calibration_loss, reference=_DIMITRIADIS,
        no_sums_reason=RANKS),
    "refinement_loss": Metric("Refinement loss", "lower", decompositions.refinement_loss, range=(0, 0.25),
        reference=_DIMITRIADIS, no_sums_reason=RANKS),
    "discrimination": Metric("Discrimination", "higher", decompositions.discrimination, range=(0, 0.25),
        reference=_DIMITRIADIS, no_sums_reason=RANKS),
    "nll_calibration_loss": Metric("NLL calibration loss", "lower", decompositions.nll_calibration_loss, range=(0, INF),
        reference=_BERTA, no_sums_reason=TEMPERATURE),
    "nll_refinement_loss": Metric("NLL refinement loss", "lower", decompositions.nll_refinement_loss, range=(0, INF),
        reference=_BERTA, no_sums_reason=TEMPERATURE),
    # ranking and selection
    "aurc": ranked_metric("AURC", selection.aurc, "lower", reference=_GEIFMAN, bound=selection.aurc_bound),
    "e_aurc": ranked_metric("E-AURC", selection.e_aurc, "lower", reference=_GEIFMAN, bound=selection.aurc_bound),
    "auroc": ranked_metric("AUROC", selection.auroc, "higher", reference="Hendrycks & Gimpel 2017",
        bound=selection.auroc_bound),
    "coverage_at_risk": ranked_metric("Coverage at 5 % risk", selection.coverage_at_risk, "higher",
        reference="Geifman & El-Yaniv 2017", bound=selection.coverage_bound),
    "avu": Metric("AvU", "higher", selection.avu, reference="Krishnan & Tickoo 2020",
        no_sums_reason="its threshold is the middle of two means over all samples"),
    # confidence
    "confidence_gap": mean_metric("Confidence gap", scores.gap_per_sample, "zero", range=(-1, 1),
        reference="mean confidence − accuracy"),
    "entropy": mean_metric("Entropy", scores.entropy_per_sample, "neither", range=(0, INF), reference="Shannon 1948"),
}  # fmt: skip

METRICS: dict[str, Metric] = {name: replace(metric, name=name) for name, metric in (CORE | _MORE).items()}
"""Every metric of one set of predictions, by name. Each is a public function of this module."""

CORE = {name: METRICS[name] for name in CORE}


def __getattr__(name: str) -> Metric:
    """The metrics are names of this module: ``rhocal.metrics.ece``."""
    try:
        return METRICS[name]
    except KeyError:
        raise AttributeError(f"rhocal.metrics has no {name!r}; see rhocal.metrics.__all__") from None


def __dir__() -> list[str]:
    return __all__


def measure_all(data: Predictions, names: Iterable[str] = tuple(CORE)) -> dict[str, float]:
    """The values of several metrics, from one pass over the logits."""
    samples = Scored.from_predictions(data)
    return {name: METRICS[name].value(samples) for name in names}


def class_errors(
    probs: Any, labels: Any, *, n_bins: int = N_BINS, power: float = 1, threshold: float = 0.0,
    min_labels: float = 0.0, sample_weight: Any = None, kind: Kind = "probs", classes: Any = None, positive: Any = None,
) -> Vector:  # fmt: skip
    """The ECE of every class against the rest, in the order of the columns; ``classwise_ece`` is their mean.

    NaN for a class with fewer than ``min_labels`` labels, or whose probabilities are all below ``threshold``.
    """
    validate_options({"n_bins": n_bins, "power": power, "threshold": threshold, "min_labels": min_labels})
    scored = Scored.from_arrays(probs, labels, sample_weight, kind, classes=classes, positive=positive)
    sums = classwise.class_sums(scored, n_bins, threshold)
    return classwise.class_errors(sums, power=power, min_labels=min_labels)


def murphy(
    probs: Any, labels: Any, *, n_bins: int = N_BINS, sample_weight: Any = None, kind: Kind = "probs", classes: Any = None,
    positive: Any = None,
) -> Murphy:  # fmt: skip
    """Murphy's terms of the top-label Brier score: reliability − resolution + uncertainty, and the variation inside bins."""
    validate_options({"n_bins": n_bins})
    scored = Scored.from_arrays(probs, labels, sample_weight, kind, classes=classes, positive=positive)
    return MurphySums.of(scored, n_bins).terms


def accuracy_rejection_curve(
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    kind: Kind = "probs",
    classes: Any = None,
    positive: Any = None,
) -> RejectionCurve:
    """Accuracy on the samples that are left when the least confident share is rejected, for every share."""
    scored = Scored.from_arrays(probs, labels, sample_weight, kind, classes=classes, positive=positive)
    return selection.rejection_curve(scored.ranked)


def distance_bounds(
    probs: Any, labels: Any, *, sample_weight: Any = None, kind: Kind = "probs", classes: Any = None, positive: Any = None,
) -> tuple[float, float]:  # fmt: skip
    """A lower and an upper bound of the distance of the top label's confidence to the nearest calibrated confidence.

    The lower one is half the smooth calibration error, the upper one the mean |confidence − isotonic accuracy|. Both are those
    of these samples, and above those of the population by chance.
    """
    scored = Scored.from_arrays(probs, labels, sample_weight, kind, classes=classes, positive=positive)
    return distance.distance_bounds(scored)


def amplitude(logits: Any, *, center: bool = False, sample_weight: Any = None) -> float:
    """Mean of ‖z‖₂ / m (paper, Fig. 2). It needs the logits themselves: probabilities do not determine it.

    ``center`` subtracts the row mean first, so that networks whose logits are shifted can be compared.
    """
    data = Predictions.from_arrays(logits, weights=sample_weight)
    return _mean(spread.amplitudes(data.logits, center=center), data)


def kl_to_uncalibrated(
    probs: Any, base: Any, *, sample_weight: Any = None, kind: Kind = "probs", reduction: str = "samples",
    classes: Any = None, positive: Any = None,
) -> float:  # fmt: skip
    """Divergence KL(g‖s) from the calibrated distribution g to the uncalibrated s, mean over samples.

    ``reduction="mean"`` also divides by the number of classes, as in the paper's tables.
    """
    if reduction not in {"samples", "mean"}:
        raise InputError(f"reduction is samples or mean; got {reduction!r}")
    spec = InputSpec(kind, classes, positive=positive)
    g = Predictions.from_arrays(probs, weights=sample_weight, name=kind, spec=spec)
    s = Predictions.from_arrays(base, name="base", spec=spec)
    if g.logits.shape != s.logits.shape:
        raise InputError(f"{kind} and base differ in shape: {g.logits.shape} and {s.logits.shape}")
    return _mean(spread.divergences(g.logits, s.logits), g) / (g.n_classes if reduction == "mean" else 1)


def _mean(values: Vector, data: Predictions) -> float:
    return WeightedMean.of(values, data.counts).value


OTHERS: dict[str, str] = {
    "class_errors": "ECE of every class against the rest",
    "murphy": "Murphy's three terms, and the variation inside bins",
    "accuracy_rejection_curve": "accuracy when the least confident are rejected, as a curve",
    "distance_bounds": "bounds of the distance to calibration",
    "amplitude": "mean ‖z‖₂ / m; needs the logits",
    "kl_to_uncalibrated": "KL(g‖s) to the uncalibrated distribution; needs both",
}
"""Functions that are not one value of probabilities and labels."""

__all__ = ["CORE", "METRICS", "OTHERS", "Metric", "Scored", "measure_all", *OTHERS, *METRICS]  # noqa: PLE0604 - keys of these are texts
