"""The decision-keeping cascade as a family."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.cascade.cascade import (
    MIN_SAMPLES,
    Cascade,
    cascade_solution,
    compare_with_references,
    fitted_numbers,
)
from rhocal.calibrators.cascade.confidence import SHARES, KeptConfidence
from rhocal.calibrators.cascade.fitting import CascadeFit, can_be_cross_fitted, fit_cascade
from rhocal.calibrators.cascade.keeping import Keeps, keep, project
from rhocal.calibrators.cascade.simpler import with_effective_weight
from rhocal.calibrators.estimator import unfitted
from rhocal.calibrators.fitted_values import POSITIVE
from rhocal.calibrators.guard import SampleScores, is_worse
from rhocal.calibrators.map import Map, map_probs, part, without_numbers
from rhocal.calibrators.options import Fitted, option
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.calibrators.validated_fit import fit_validated
from rhocal.errors import DecisionWarning, warn
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.numerics.ops import MAX_HULL_CLASSES
from rhocal.numerics.special import Vector, row_max, softmax
from rhocal.numerics.tables import line_tables
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from rhocal.calibrators.cascade.samples import Block
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.optimize import Solution

MAX_COST = 0.05
"""Share of the free cascade's NLL that keeping the decision may cost before there is a warning."""

MIN_CHANGED = 0.01
"""Share of samples in which the free cascade must prefer another class as well."""


@dataclass(eq=False, repr=False)
class KeptCascade(Calibrator):
    """The cascade's law, projected on laws that keep the decision of the network.

    The confidence of the kept class is then corrected with laws of samples that were held out: where the projection binds, it
    overstates. Below 500 samples, or where all logits are equal, ``field`` is fitted instead.

    Parameters
    ----------
    keeps
        ``"order"``: no two classes change their order. ``"top"``: the predicted class stays, the others are free.
        ``"scale"``: the logits of a sample are multiplied by one positive number.
    slack
        How much ECE is allowed for likelihood, in units of the ECE that a perfectly calibrated model has on as many samples:
        0 corrects the confidence as far as possible, infinity leaves the projection as it is.
    exchangeable
        Whether columns are options without a meaning of their own, as in multiple choice: shared stages alone are fitted.
    min_samples
        Weight of the samples below which ``field`` is fitted instead. Where a few samples have most of the weight, the
        effective number of samples counts.

    Attributes
    ----------
    law_
        The free cascade, or the calibrator that is used instead.
    scale_
        β, the scale of the cascade.
    knots_, values_, share_
        The corners of T, and λ: the confidence is (1 − λ)·c + λ·T(c), with c that of the projection.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.KeptCascade("order").fit(logits[:1000], labels[:1000])
    >>> bool((calibrator.predict(logits) == logits.argmax(1)).all())
    True
    """

    name = "kept-cascade"
    keeps_decision = True

    keeps: Keeps = "order"
    _: KW_ONLY
    slack: float = option(0.5, minimum=0)
    exchangeable: bool = False
    min_samples: float = option(MIN_SAMPLES, minimum=0)

    law_ = Fitted[Calibrator]("calibrator")
    scale_ = Fitted[float](**POSITIVE)
    knots_ = Fitted[Vector](shape="knots", minimum=0, maximum=1, increasing=True)
    values_ = Fitted[Vector](shape="knots", minimum=0, maximum=1)
    share_ = Fitted[float](minimum=0, maximum=1)
    constraints = (("values_ do not decrease", lambda fitted: bool((np.diff(fitted["values"]) >= 0).all())),)

    @property
    def has_class_maps(self) -> bool:
        return self.law_.has_class_maps if "map_" in vars(self) else not self.exchangeable

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, Solution]:
        data = with_effective_weight(data)
        profile = Profile.from_predictions(data)
        if not can_be_cross_fitted(profile, self.min_samples):
            reference = fit_validated(unfitted("field"), data, kind="logits")
            return self._fallback_map(reference, data), reference.solution_
        fit = fit_cascade(data, ScaleSearch.from_profile(profile), exchangeable=self.exchangeable)
        law = self._free_cascade(fit)
        laws = KeptLaws.read(self.keeps, fit)
        counts = fit.folds.weights
        confidence = KeptConfidence.fit(laws.projected, laws.own, counts, data.n_classes, self.slack)
        for share in lower_shares(confidence.share):
            map_ = self._kept_map(law, fit.scale, replace(confidence, share=share))
            losses = kept_losses(self.keeps, fit, map_)
            held_out = compare_with_references(self.label, losses, fit, profile)
            if not is_worse(held_out):
                break
        row: dict[str, Any] = {"keeps": self.keeps, "share": share}
        row["preferred_otherwise"] = float(counts @ laws.prefers_other / counts.sum())
        free_nll = float(counts @ fit.held_out_losses().nll / counts.sum())
        row["cost_nll"] = held_out.nll[self.label] - free_nll
        self._warn_of_cost(free_nll, row)
        solution = cascade_solution(fit)
        return map_, replace(solution, trials=(*solution.trials, row), held_out=held_out)

    def _free_cascade(self, fit: CascadeFit) -> Cascade:
        law = Cascade(exchangeable=self.exchangeable, min_samples=self.min_samples)
        law.classes_, law.kind_, law.mask_gap_ = self.classes_, "logits", self.mask_gap_
        law.solution_ = cascade_solution(fit)
        vars(law)["map_"] = law._new_map(**fitted_numbers(fit))  # noqa: SLF001 - our own
        return law

    def _kept_map(self, law: Calibrator, scale: float, confidence: KeptConfidence) -> Map:
        numbers = {"knots": confidence.knots, "values": confidence.values, "share": confidence.share}
        return self._new_map(law=law, scale=scale, **numbers)

    def _warn_of_cost(self, free_nll: float, row: dict[str, Any]) -> None:
        cost, share = row["cost_nll"], row["preferred_otherwise"]
        if cost > MAX_COST * free_nll and share > MIN_CHANGED:
            warn(
                f"keeping the decision costs {cost:.4f} NLL here ({free_nll:.4f} without): the labels prefer another class in "
                f"{100 * share:.1f} % of samples. Method cascade, which may change the decision, has the lower NLL",
                DecisionWarning,
                remedy="use method cascade if predictions may change",
            )

    @property
    def is_guarded(self) -> bool:
        return True

    @property
    def is_portable(self) -> bool:  # type: ignore[override]
        """Whether torch, ONNX and ``apply_fn`` can carry out its map: the order of many classes is kept by NumPy alone."""
        classes = getattr(self, "classes_", ())
        return self.keeps != "order" or len(classes) <= MAX_HULL_CLASSES

    def _fallback_map(self, reference: Calibrator, data: Predictions | Profile) -> Map:
        return self._kept_map(reference, 1.0, KeptConfidence.unchanged())

    def _map(self, *, law: Calibrator, scale: float, knots: Vector, values: Vector, share: float) -> Map:
        if law.map_.keeps_decision:
            return law.map_
        m = len(self.classes_)
        numbers = {"scale": np.array(scale), "share": np.array(share)}
        parameters: dict[str, Any] = {**numbers, "places": np.arange(m, dtype=np.float64), "n_classes": float(m)}
        for name, tables in (("confidence", line_tables(knots, values)), ("law", law.map_.parameters)):
            parameters |= {f"{name}.{key}": value for key, value in tables.items()}
        return Map(partial(kept, without_numbers(law.map_), self.keeps), parameters, keeps_decision=True, is_wide=True)


def kept(law: Map, keeps: Keeps, ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """The formula: the law, projected, with its confidence corrected."""
    return keep_numbers(ops, parameters, keeps, map_probs(ops, law, part(parameters, "law"), logits), logits)


def keep_numbers(ops: Ops, parameters: Parameters, keeps: Keeps, p: Value, logits: Value) -> Value:
    """``keep`` with the parameters of a map."""
    return keep(ops, {**parameters, "confidence": part(parameters, "confidence")}, keeps, p, logits)


def lower_shares(share: float) -> list[float]:
    """λ, and lower ones: where an honest confidence has a higher NLL than temperature scaling, less of it is taken."""
    return [float(one) for one in SHARES[::-1] if one <= share]


@dataclass(frozen=True, eq=False)
class KeptLaws:
    """What out-of-fold laws say of the kept class of every sample, in the order of the folds."""

    projected: Vector
    """Its probability after the projection."""
    own: Vector
    """Its probability in the law itself."""
    prefers_other: Vector
    """1 where the law has another class above it."""

    @classmethod
    def read(cls, keeps: Keeps, fit: CascadeFit) -> KeptLaws:
        """From the laws of a fit."""
        m = fit.folds.n_classes
        parameters = {"scale": fit.scale, "n_classes": float(m), "places": np.arange(m, dtype=np.float64)}

        def work(block: Block) -> Vector:
            z, p = logits_and_law(fit, block)
            is_kept = z == row_max(z)[:, None]
            return np.stack(
                [
                    project(NUMPY, parameters, keeps, p, z)[1][:, 0],
                    (p * is_kept).sum(axis=1) / is_kept.sum(axis=1),
                    row_max(np.where(is_kept, 0.0, p)) > row_max(np.where(is_kept, p, 0.0)),
                ]
            )

        return cls(*np.concatenate(fit.folds.each(work), axis=1))


def kept_losses(keeps: Keeps, fit: CascadeFit, map_: Map) -> SampleScores:
    """NLL and Brier score of out-of-fold laws that keep the decision, in the order of the folds."""

    def work(block: Block) -> SampleScores:
        z, p = logits_and_law(fit, block)
        return SampleScores.from_logits(keep_numbers(NUMPY, map_.parameters, keeps, p, z), block.labels)

    scores = SampleScores.concat(fit.folds.each(work))
    return SampleScores(scores.nll + fit.optimism, scores.brier)


def logits_and_law(fit: CascadeFit, block: Block) -> tuple[Vector, Vector]:
    """The logits of a block and its out-of-fold law, in double precision."""
    logits = fit.folds.logits[fit.folds.order[block.rows]].astype(np.float64)
    return logits, np.asarray(softmax(fit.held_out[block.rows].astype(np.float64)))
