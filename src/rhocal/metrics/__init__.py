"""What a report shows. Every metric takes probabilities unless ``kind="logits"`` is said.

(Calibrators take logits by default, metrics take probabilities: what each is mostly given. Logits handed to a metric by
mistake are an error, not a wrong figure.)

>>> from rhocal import metrics
>>> round(metrics.ece([[0.05, 0.95], [0.0, 1.0]], [1, 0]), 12)
0.475

A metric that streams adds up over batches and machines:

>>> monday = metrics.ece.of([[0.05, 0.95]], [1])
>>> tuesday = metrics.ece.of([[0.0, 1.0]], [0])
>>> round((monday + tuesday).value, 12)
0.475
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.predictions import Kind, predictions
from rhocal.errors import InputError
from rhocal.metrics import binned, classwise, decompositions, kernel, scores, selection, smooth, spread
from rhocal.metrics.decompositions import Murphy, MurphySums
from rhocal.metrics.metric import Metric, check, mean, scored, streamed
from rhocal.metrics.scored import Scored
from rhocal.metrics.sums import WeightedMean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rhocal.data.predictions import Predictions
    from rhocal.metrics.selection import RejectionCurve
    from rhocal.numerics.special import Vector

INF = float("inf")
EDGES = "the edges of its bins depend on all samples"
RANKS = "it depends on the rank of every sample among all"
PAIRS = "it depends on all pairs of samples"

_GUO = "Guo et al. 2017"
_NIXON = "Nixon et al. 2019"
_NAEINI = "Naeini et al. 2015"
_KUMAR = "Kumar, Liang & Ma 2019"
_MURPHY = "Murphy 1973"
_GEIFMAN = "Geifman et al. 2019"

CORE: dict[str, Metric] = {
    "accuracy": mean("Accuracy", scores.accuracy_per_sample, "higher", reference="share of right decisions"),
    "ece": streamed("ECE", binned.ece, "lower", reference=f"{_NAEINI}; {_GUO}", straight=partial(binned.straight, power=1)),
    "mce": streamed("MCE", binned.mce, "lower", reference=_NAEINI, straight=partial(binned.straight, power=INF)),
    "adaptive_ece": Metric(
        "AdaECE", "lower", binned.adaptive_ece, reference=_NIXON, why_not=EDGES,
        sketch=partial(binned.equal_mass_sketch, power=1),
    ),
    "nll": mean("NLL", scores.nll_per_sample, "lower", range=(0, INF), reference="Good 1952"),
    "brier": mean("Brier", scores.brier_per_sample, "lower", range=(0, 2), reference="Brier 1950"),
    "top_brier": mean("Top Brier", scores.top_brier_per_sample, "lower", reference="Brier 1950"),
}  # fmt: skip
"""The figures of a comparison: quick, and side by side."""

_MORE: dict[str, Metric] = {
    # over bins
    "rmsce": streamed("RMSCE", binned.rmsce, "lower", reference="Hendrycks et al. 2019",
        straight=partial(binned.straight, power=2),),
    "adaptive_mce": Metric("AdaMCE", "lower", binned.adaptive_mce, reference=_NIXON, why_not=EDGES,
        sketch=partial(binned.equal_mass_sketch, power=INF),),
    "adaptive_rmsce": Metric("AdaRMSCE", "lower", binned.adaptive_rmsce, reference=_NIXON, why_not=EDGES,
        sketch=partial(binned.equal_mass_sketch, power=2),),
    "debiased_rmsce": streamed("Debiased RMSCE", binned.debiased_rmsce, "lower", reference=_KUMAR),
    "ece_sweep": Metric("ECE sweep", "lower", binned.ece_sweep, reference="Roelofs et al. 2022", why_not=EDGES),
    "top_k_ece": streamed("Top-k ECE", binned.top_k_ece, "lower", reference="Gupta et al. 2021"),
    "classwise_ece": streamed("Classwise ECE", classwise.classwise_ece, "lower", reference=f"Kull et al. 2019; {_NIXON}"),
    "tace": Metric("TACE", "lower", classwise.tace, reference=_NIXON, why_not=EDGES),
    "over_confidence": streamed("Over-confidence", binned.over_confidence, "lower", reference="Thulasidasan et al. 2019"),
    "under_confidence": streamed(
        "Under-confidence", binned.under_confidence, "lower", reference="Thulasidasan et al. 2019"
    ),
    # without bins
    "smooth_ece": streamed("Smooth ECE", smooth.smooth_ece, "lower", reference="Błasiok & Nakkiran 2024"),
    "ks": Metric("KS", "lower", smooth.ks, reference="Gupta et al. 2021", why_not=RANKS, sketch=smooth.ks_sketch),
    "kuiper": Metric(
        "Kuiper", "lower", smooth.kuiper, reference="Arrieta-Ibarra et al. 2022", why_not=RANKS, sketch=smooth.kuiper_sketch
    ),
    "ici": streamed("ICI", smooth.ici, "lower", reference="Austin & Steyerberg 2019"),
    "spiegelhalter_z": streamed(
        "Spiegelhalter Z", smooth.spiegelhalter_z, "zero", range=(-INF, INF), reference="Spiegelhalter 1986"
    ),
    "mmce": Metric("MMCE", "lower", kernel.mmce, reference="Kumar, Sarawagi & Jain 2018", why_not=PAIRS),
    "top_skce": Metric(
        "Top SKCE", "lower", kernel.top_skce, range=(-1, 1), reference="Widmann et al. 2019", why_not=PAIRS
    ),
    "skce": Metric("SKCE", "lower", kernel.skce, range=(-2, 2), reference="Widmann et al. 2019", why_not=PAIRS),
    "kde_ce": Metric(
        "KDE CE", "lower", kernel.kde_ce, range=(0, 2), reference="Popordanoska et al. 2022", why_not=PAIRS
    ),
    # scores and their parts
    "spherical": mean("Spherical", scores.spherical_per_sample, "higher", reference="Gneiting & Raftery 2007"),
    "reliability": streamed("Reliability", decompositions.reliability, "lower", reference=_MURPHY),
    "resolution": streamed("Resolution", decompositions.resolution, "higher", range=(0, 0.25), reference=_MURPHY),
    "murphy_uncertainty": streamed("Uncertainty", decompositions.uncertainty, "neither", range=(0, 0.25), reference=_MURPHY),
    "calibration_loss": Metric(
        "Calibration loss", "lower", decompositions.calibration_loss, reference="Dimitriadis et al. 2021", why_not=RANKS
    ),
    "refinement_loss": Metric(
        "Refinement loss", "lower", decompositions.refinement_loss, range=(0, 0.25), reference="Dimitriadis et al. 2021",
        why_not=RANKS,
    ),
    "nll_calibration_loss": Metric(
        "NLL calibration loss", "lower", decompositions.nll_calibration_loss, range=(0, INF),
        reference="Berta et al. 2025", why_not="the best temperature needs the logits of all samples",
    ),
    "nll_refinement_loss": Metric(
        "NLL refinement loss", "lower", decompositions.nll_refinement_loss, range=(0, INF),
        reference="Berta et al. 2025", why_not="the best temperature needs the logits of all samples",
    ),
    # ranking and selection
    "aurc": Metric("AURC", "lower", selection.aurc, reference=_GEIFMAN, why_not=RANKS, sketch=selection.aurc_sketch),
    "e_aurc": Metric("E-AURC", "lower", selection.e_aurc, reference=_GEIFMAN, why_not=RANKS, sketch=selection.e_aurc_sketch),
    "auroc": Metric(
        "AUROC", "higher", selection.auroc, reference="Hendrycks & Gimpel 2017", why_not=RANKS,
        sketch=selection.auroc_sketch,
    ),
    "coverage_at_risk": Metric(
        "Coverage at 5 % risk", "higher", selection.coverage_at_risk, reference="Geifman & El-Yaniv 2017", why_not=RANKS,
        sketch=selection.coverage_sketch,
    ),
    "avu": Metric(
        "AvU", "higher", selection.avu, reference="Krishnan & Tickoo 2020",
        why_not="its threshold is the middle of two means over all samples",
    ),
    # spread
    "confidence_gap": mean(
        "Confidence gap", spread.gap_per_sample, "zero", range=(-1, 1), reference="mean confidence − accuracy"
    ),
    "entropy": mean("Entropy", spread.entropy_per_sample, "neither", range=(0, INF), reference="Shannon 1948"),
}  # fmt: skip

METRICS: dict[str, Metric] = {name: replace(metric, name=name) for name, metric in (CORE | _MORE).items()}
"""Every metric of one set of predictions. A line here is a public function of this module, and all that is told of it."""

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
    """Several metrics from one look at the logits."""
    samples = Scored.from_predictions(data)
    return {name: METRICS[name].value(samples) for name in names}


def class_errors(
    probs: Any, labels: Any, *, n_bins: int = binned.N_BINS, power: float = 1, threshold: float = 0.0,
    min_labels: float = 0.0, sample_weight: Any = None, kind: Kind = "probs",
) -> Vector:  # fmt: skip
    """The ECE of every class against the rest, in the order of the columns; ``classwise_ece`` is their mean.

    NaN for a class with fewer than ``min_labels`` labels, or whose probabilities are all below ``threshold``.
    """
    options = {"n_bins": n_bins, "power": power, "threshold": threshold, "min_labels": min_labels}
    check(options)
    return classwise.one_by_one(scored(probs, labels, sample_weight, kind), **options)


def murphy(
    probs: Any, labels: Any, *, n_bins: int = binned.N_BINS, sample_weight: Any = None, kind: Kind = "probs"
) -> Murphy:
    """Murphy's terms of the top-label Brier score: reliability − resolution + uncertainty, and what the bins hide."""
    check({"n_bins": n_bins})
    return MurphySums.of(scored(probs, labels, sample_weight, kind), n_bins).terms


def accuracy_rejection_curve(
    probs: Any, labels: Any, *, sample_weight: Any = None, kind: Kind = "probs"
) -> RejectionCurve:
    """Accuracy on the samples that are left when the least confident share is rejected, for every share."""
    return selection.rejection_curve(scored(probs, labels, sample_weight, kind))


def amplitude(logits: Any, *, center: bool = False, sample_weight: Any = None) -> float:
    """Mean of ‖z‖₂ / m (paper, Fig. 2). It needs the logits themselves: probabilities have lost it.

    ``center`` takes the row mean away first, so that networks whose logits are shifted compare.
    """
    data = predictions(logits, sample_weight=sample_weight)
    return _mean(spread.amplitudes(data.logits, center=center), data)


def kl_to_uncalibrated(
    probs: Any, base: Any, *, sample_weight: Any = None, kind: Kind = "probs", reduction: str = "samples"
) -> float:
    """Divergence KL(g‖s) from the calibrated distribution g to the uncalibrated s, mean over samples.

    ``reduction="mean"`` divides by the number of classes too, which is what fits the paper's tables.
    """
    if reduction not in {"samples", "mean"}:
        raise InputError(f"reduction is samples or mean; got {reduction!r}")
    g = predictions(probs, sample_weight=sample_weight, kind=kind, name=kind)
    s = predictions(base, kind=kind, name="base")
    if g.logits.shape != s.logits.shape:
        raise InputError(f"{kind} and base differ in shape: {g.logits.shape} and {s.logits.shape}")
    return _mean(spread.divergences(g.logits, s.logits), g) / (g.n_classes if reduction == "mean" else 1)


def _mean(values: Vector, data: Predictions) -> float:
    return WeightedMean.of(values, np.ones(len(values)) if data.weights is None else data.weights).value


OTHERS: dict[str, str] = {
    "class_errors": "ECE of every class against the rest",
    "murphy": "Murphy's three terms at once, and what the bins hide",
    "accuracy_rejection_curve": "accuracy when the least confident are rejected, as a curve",
    "amplitude": "mean ‖z‖₂ / m; needs the logits",
    "kl_to_uncalibrated": "KL(g‖s) to the uncalibrated distribution; needs both",
}
"""What is no single figure of probabilities and labels."""

__all__ = ["CORE", "METRICS", "OTHERS", "Metric", "Scored", "measure_all", *OTHERS, *METRICS]  # noqa: PLE0604 - keys of these are texts
