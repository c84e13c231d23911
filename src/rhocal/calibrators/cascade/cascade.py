"""The cascade as a family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.cascade.fitting import CascadeFit, can_be_cross_fitted, fit_cascade
from rhocal.calibrators.cascade.scores import base_scores
from rhocal.calibrators.cascade.shared import SharedWeights, n_context_columns, part_sizes, shared_stage
from rhocal.calibrators.cascade.simpler import (
    SimplerMethod,
    chain_for_few_samples,
    few_samples_method,
    simpler_method,
    with_effective_weight,
)
from rhocal.calibrators.cascade.steps import KINDS, Kind, StepFeatures, step_logits
from rhocal.calibrators.fitted_values import POSITIVE
from rhocal.calibrators.guard import IDENTITY, TEMPERATURE, SampleScores, fit_without_warnings, held_out_scores
from rhocal.calibrators.map import Map, part
from rhocal.calibrators.options import Fitted, option, validate_options
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.numerics.special import Vector
from rhocal.optimize import HeldOutScores, Solution
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.ops import Ops, Parameters, Value

MIN_SAMPLES = 500
"""With fewer samples the steps are noise, and something simpler is fitted."""

X_FEATURES = ("x_mean", "x_sd")
DIRECTION_FEATURES = ("direction_mean", "direction_sd")
KERNEL_FEATURES = (*X_FEATURES, "x_low", "x_high", "landmarks", "landmark_squares", "width")
FEATURES_OF: dict[Kind, tuple[str, ...]] = {
    "bias": (), "slope": X_FEATURES, "matrix": DIRECTION_FEATURES, "tail": DIRECTION_FEATURES, "kernel": KERNEL_FEATURES,
}  # fmt: skip
"""The numbers of ``StepFeatures`` that each kind of step needs."""
STAGE_NAMES = ("mix", "first_context", "first_weights", "last_context", "last_weights")
FEATURE_NAMES = tuple(dict.fromkeys((*DIRECTION_FEATURES, *KERNEL_FEATURES)))


def _has_stages(fitted: Mapping[str, Any]) -> bool:
    """Whether both stages are there and fit the number of classes; a fallback has none."""
    if not np.size(fitted["scale"]):
        return all(np.size(fitted[name]) == 0 for name in STAGE_NAMES)
    n_context = n_context_columns(fitted["n_classes"])
    for name, has_top in (("first", True), ("last", False)):
        standard, weights = fitted[f"{name}_context"], fitted[f"{name}_weights"]
        if standard.shape != (4, n_context) or len(weights) != sum(part_sizes(n_context, has_top=has_top)):
            return False
        low, high, _, sd = standard
        if not ((low <= high) & (sd > 0)).all():
            return False
    return np.size(fitted["mix"]) == 1


def _has_features(fitted: Mapping[str, Any]) -> bool:
    """Whether the steps have their features, and a matrix a row for each of its inputs."""
    used = [kind for kind in KINDS if np.size(fitted[kind])]
    if used and not np.size(fitted["scale"]):
        return False
    matrices = [fitted[kind] for kind in ("matrix", "tail") if kind in used]
    return (
        all(np.size(fitted[name]) for kind in used for name in FEATURES_OF[kind])
        and all(len(matrix) == fitted["n_classes"] + 1 for matrix in matrices)
        and bool(np.all(fitted["x_low"] <= fitted["x_high"]))
    )


@dataclass(eq=False, repr=False)
class Cascade(Calibrator):
    """Shared stages for all classes alike, and cross-fitted steps for single classes in between. It may change the decision.

    x = log((1 − ε)·softmax(βz) + ε/m) → shared stage → + b + s∘x + A·d + tail∘(B·d) + C·kernel(x) → shared stage. The steps are
    taken greedily, while they gain on samples held out. Temperature scaling or ``svs`` is used instead where its held-out NLL
    is lower, or where it is calibrated and a cascade gains less than 1 % of NLL. Below 500 samples, and where all logits are
    equal, it is ``svs``, or ``sms:field`` if that is better by more than one standard error.

    Parameters
    ----------
    exchangeable
        Whether columns are options without a meaning of their own, as in multiple choice: shared stages alone are fitted.
    min_samples
        Weight of the samples below which no cascade is fitted. Where a few samples have most of the weight, the effective
        number of samples counts.
    steps
        The kinds of steps that are tried: ``bias``, ``slope``, ``matrix``, ``tail``, ``kernel``.

    Attributes
    ----------
    fallback_
        The calibrator that is used instead, if there is one, in a list; empty otherwise.
    scale_, mix_
        β and ε.
    bias_, slope_, matrix_, tail_, kernel_
        The sums of the steps of each kind; without rows if none was taken.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> new_logits, new_labels = rhocal.demo_logits("test")
    >>> calibrator = rhocal.Cascade().fit(logits[:1000], labels[:1000])
    >>> before = rhocal.metrics.nll(new_logits, new_labels, kind="logits")
    >>> rhocal.metrics.nll(calibrator.predict_proba(new_logits), new_labels) < before
    True
    """

    name = "cascade"
    keeps_decision = False

    _: KW_ONLY
    exchangeable: bool = False
    min_samples: float = option(MIN_SAMPLES, minimum=0)
    steps: Sequence[Kind] = KINDS

    fallback_ = Fitted[list[Calibrator]]("calibrator", shape="fallbacks", allows_empty=True)
    scale_ = Fitted[float](shape="0|", allows_empty=True, **POSITIVE)
    mix_ = Fitted[float](shape="0|", allows_empty=True, minimum=0, maximum=1)
    first_context_ = Fitted[Vector](shape="0|4 context", allows_empty=True)
    first_weights_ = Fitted[Vector](shape="0|first", allows_empty=True)
    last_context_ = Fitted[Vector](shape="0|4 context", allows_empty=True)
    last_weights_ = Fitted[Vector](shape="0|last", allows_empty=True)
    bias_ = Fitted[Vector](shape="0|classes", allows_empty=True)
    slope_ = Fitted[Vector](shape="0|classes", allows_empty=True)
    matrix_ = Fitted[Vector](shape="0|inputs classes", allows_empty=True)
    tail_ = Fitted[Vector](shape="0|inputs classes", allows_empty=True)
    kernel_ = Fitted[Vector](shape="0|landmarks classes", allows_empty=True)
    x_mean_ = Fitted[Vector](shape="0|classes", allows_empty=True)
    x_sd_ = Fitted[float](shape="0|", allows_empty=True, **POSITIVE)
    direction_mean_ = Fitted[Vector](shape="0|classes", allows_empty=True)
    direction_sd_ = Fitted[float](shape="0|", allows_empty=True, **POSITIVE)
    x_low_ = Fitted[Vector](shape="0|classes", allows_empty=True)
    x_high_ = Fitted[Vector](shape="0|classes", allows_empty=True)
    landmarks_ = Fitted[Vector](shape="0|classes landmarks", allows_empty=True)
    landmark_squares_ = Fitted[Vector](shape="0|landmarks", allows_empty=True, minimum=0)
    width_ = Fitted[float](shape="0|", allows_empty=True, **POSITIVE)
    constraints = (
        (
            "there is a fallback or a cascade",
            lambda fitted: len(fitted["fallback"]) == (0 if np.size(fitted["scale"]) else 1),
        ),
        ("the stages of a cascade have a weight for each feature", _has_stages),
        ("steps have the numbers that they need", _has_features),
    )

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, Solution]:
        return self._fit_and_keep(data)[:2]

    def _fit_and_keep(self, data: Predictions) -> tuple[Map, Solution, CascadeFit | None]:
        """The map, the evidence, and the fit with its held-out logits; None where something else is used."""
        data = with_effective_weight(data)
        profile = Profile.from_predictions(data)
        if not can_be_cross_fitted(profile, self.min_samples):
            return *self._fit_fallback(data), None
        search = ScaleSearch.from_profile(profile)
        fit = fit_cascade(data, search, exchangeable=self.exchangeable, kinds=self.steps)
        if not fit.is_consistent:
            return *self._fit_fallback(data), None
        solution = cascade_solution(fit)
        simpler = self._simpler_method(fit, data)
        if simpler is None:
            held_out = compare_with_references(self.label, fit.held_out_losses(), fit, profile)
            return self._new_map(**fitted_numbers(fit)), replace(solution, held_out=held_out), fit
        held_out = compare_with_references(self.label, simpler.scores.take(fit.folds.order), fit, profile)
        trials = (*fit.trials, {"fallback": simpler.calibrator.label, "nll": held_out.nll[self.label]})
        return self._fallback_map(simpler.calibrator, data), replace(solution, trials=trials, held_out=held_out), None

    def _simpler_method(self, fit: CascadeFit, data: Predictions) -> SimplerMethod | None:
        return simpler_method(fit, data, exchangeable=self.exchangeable)

    def _fit_fallback(self, data: Predictions) -> tuple[Map, Solution]:
        """A simpler method or a chain for few samples; for exchangeable columns a scale."""
        if self.exchangeable:
            chosen = fit_without_warnings("field", data)
            return self._fallback_map(chosen, data), chosen.solution_
        chosen, held_out = few_samples_method(self.label, data)
        solution = chosen.solution_ if held_out is None else replace(chosen.solution_, held_out=held_out)
        return self._fallback_map(chosen, data), solution

    def _choice_candidates(self, data: Predictions) -> list[str | Calibrator]:
        """What a fit chooses among, the simplest first."""
        if can_be_cross_fitted(Profile.from_predictions(with_effective_weight(data)), self.min_samples):
            simple = [TEMPERATURE] if self.exchangeable else [TEMPERATURE, "svs"]
            return [*simple, FreeCascade.from_options(self)]
        return ["field"] if self.exchangeable else ["svs", chain_for_few_samples(data.n_classes)]

    @property
    def has_class_maps(self) -> bool:
        if "map_" not in vars(self):
            return not self.exchangeable
        if self.fallback_:
            return self.fallback_[0].has_class_maps
        return any(np.size(getattr(self, f"{kind}_")) for kind in KINDS)

    @property
    def is_guarded(self) -> bool:
        return True

    def _fallback_map(self, reference: Calibrator, data: Predictions | Profile) -> Map:
        empty = {name.removesuffix("_"): np.zeros(0) for name in self.parameters}
        return self._new_map(fallback=[reference], **empty)

    def _map(self, *, fallback: Sequence[Calibrator], **numbers: Any) -> Map:
        if fallback:
            return fallback[0].map_
        return Map(cascade, map_parameters(numbers, len(self.classes_)), is_wide=True)


class FreeCascade(Cascade):
    """A cascade that no simpler method replaces, with however few samples: what intervals of a cascade are made of."""

    @classmethod
    def from_options(cls, calibrator: Cascade) -> FreeCascade:
        """With the options of a cascade."""
        return cls(**{**calibrator.get_params(deep=False), "min_samples": 0})

    def _simpler_method(self, fit: CascadeFit, data: Predictions) -> None:
        return None


def fit_held_out(calibrator: Cascade, data: Predictions) -> CascadeFit | None:
    """Fit on validated logits, as ``fit_validated`` does, and keep what was held out; None where something else is used."""
    validate_options(calibrator)
    calibrator.classes_, calibrator.kind_ = data.classes, "logits"
    vars(calibrator)["map_"], calibrator.solution_, fit = calibrator._fit_and_keep(data)  # noqa: SLF001 - our own
    return fit


def cascade_solution(fit: CascadeFit) -> Solution:
    """The evidence of a fit, without a comparison."""
    stages = [row for row in fit.trials if "stage" in row]
    converged, n_passes = all(row["converged"] for row in stages), sum(row["passes"] for row in stages)
    return Solution("nll", stages[-1]["nll"], converged, n_passes, trials=fit.trials)


def compare_with_references(name: str, losses: SampleScores, fit: CascadeFit, profile: Profile) -> HeldOutScores:
    """Scores out of fold beside those of the identity and of temperature scaling, whose one number is fitted on all samples."""
    order = fit.folds.order
    scores = {name: losses}
    for reference, scale in ((IDENTITY, 1.0), (TEMPERATURE, fit.scale)):
        every = SampleScores.from_scales(profile, np.full(profile.n_samples, scale))
        scores[reference] = SampleScores(every.nll[order], every.brier[order])
    clusters = None if profile.clusters is None else profile.clusters[order]
    return held_out_scores(name, scores, profile.weights[order], profile.total_weight, clusters)


def fitted_numbers(fit: CascadeFit) -> dict[str, Any]:
    """The fitted attributes; arrays in double precision, empty where a part was not used."""
    (first_context, first_weights), (last_context, last_weights) = fit.first.arrays, fit.last.arrays
    needed = {name for kind in fit.steps for name in FEATURES_OF[kind]}
    features = {name: fit.features[name] if name in needed else np.zeros(0) for name in FEATURE_NAMES}
    steps: dict[str, Any] = {kind: np.asarray(fit.steps.get(kind, np.zeros(0)), np.float64) for kind in KINDS}
    return {
        "fallback": [],
        "scale": fit.scale,
        "mix": fit.mix,
        "first_context": first_context,
        "first_weights": first_weights,
        "last_context": last_context,
        "last_weights": last_weights,
        **features,
        **steps,
    }


def map_parameters(numbers: dict[str, Any], n_classes: int) -> dict[str, Any]:
    """The parameters of ``cascade``; parts without numbers are left out."""
    common = {"scale": np.array(numbers["scale"]), "mix": np.array(numbers["mix"]), "n_classes": float(n_classes)}
    stages: dict[str, Any] = {}
    for name in ("first", "last"):
        stage = SharedWeights.from_arrays(numbers[f"{name}_context"], numbers[f"{name}_weights"])
        stages |= {f"{name}.{parameter}": value for parameter, value in stage.parameters.items()}
    used = {name: np.asarray(numbers[name]) for name in (*FEATURE_NAMES, *KINDS) if np.size(numbers[name])}
    return {**common, **stages, **used, "steps": tuple(kind for kind in KINDS if kind in used)}


def cascade(ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """The formula: base, shared stage, steps, shared stage."""
    common = {name: parameters[name] for name in ("scale", "mix", "n_classes")}
    scores = base_scores(ops, parameters, logits)
    first, last = ({**common, **part(parameters, stage)} for stage in ("first", "last"))
    u = shared_stage(ops, first, scores.log_norm, scores.is_top, scores.log_probs)
    if parameters["steps"]:
        steps = {kind: parameters[kind] for kind in parameters["steps"]}
        u = u + step_logits(ops, steps, StepFeatures(ops, parameters, scores))
    return shared_stage(ops, last, scores.log_norm, None, u)
