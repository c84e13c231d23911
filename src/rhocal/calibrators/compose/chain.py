"""A chain: one calibrator, then a second one on its outputs, such as a linear map followed by a scale."""

from __future__ import annotations

from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.compose.cross_fit import held_out_logits
from rhocal.calibrators.estimator import unfitted
from rhocal.calibrators.folds import Folds
from rhocal.calibrators.guard import IDENTITY, score_rows, scored_folds
from rhocal.calibrators.map import chain_map
from rhocal.calibrators.options import Fitted, option
from rhocal.calibrators.scale.scale import ScaleCalibrator
from rhocal.calibrators.validated_fit import fit_validated
from rhocal.data.logit_sizes import MIN_DIFFERENCE, largest_difference
from rhocal.errors import InputError
from rhocal.numerics.special import row_max
from rhocal.optimize import Solution
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from rhocal.calibrators.map import Map
    from rhocal.data.predictions import Predictions


@dataclass(eq=False, repr=False)
class Chain(Calibrator):
    """The second calibrator on the outputs of the first; written ``first:second`` where a name of a method is expected.

    The second is fitted on outputs that the first gives for samples it was not fitted on (out of fold), because on its own
    calibration set a rich map looks better than it is. Then the first is fitted again on all samples.

    Parameters
    ----------
    first, second
        Calibrators, or names of methods. Their options are written ``first__ridge_diagonal=2``.
    n_folds
        Folds of the outputs that the second is fitted on; more of them differ less from a first stage fitted on all.

    Attributes
    ----------
    first_, second_
        The fitted calibrators.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> new_logits, new_labels = rhocal.demo_logits("test")
    >>> calibrator = rhocal.Chain("svs", "temperature").fit(logits, labels)
    >>> calibrator.label
    'svs:temperature'
    >>> round(rhocal.metrics.ece(calibrator.predict_proba(new_logits), new_labels), 3)
    0.009
    """

    name = "chain"
    keeps_decision = False

    first: str | Calibrator = option(stage=True)
    second: str | Calibrator = option(stage=True)
    _: KW_ONLY
    n_folds: int = option(10, minimum=2)

    first_ = Fitted[Calibrator]("calibrator")
    second_ = Fitted[Calibrator]("calibrator")

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, Solution]:
        map_, solution, between, folds = self._fit_stages(data)
        if not folds:
            return map_, solution
        second = map_.fitted["second"]
        second = second.with_choices() if isinstance(second, ScaleCalibrator) else self.second
        scored = scored_folds(folds, data.clusters)
        try:
            held_out = score_rows(self.label, data, scored, methods={self.label: (second, between)})
        except InputError:  # without a fold the second cannot be fitted
            return map_, solution
        return map_, replace(solution, held_out=held_out)

    def _fit_map_alone(self, data: Predictions, start: Map | None = None) -> tuple[Map, Solution]:
        return self._fit_stages(data)[:2]

    def _fit_stages(self, data: Predictions) -> tuple[Map, Solution, Predictions, Folds]:
        """The map, the evidence, what the second stage was fitted on, and the folds of that."""
        first = fit_validated(unfitted(self.first), data, kind="logits")
        folds = Folds.from_profile(Profile.from_predictions(data), self.n_folds)
        outputs = held_out_logits(first, data, folds) if folds else first.map_.logits(data)
        between = replace(data, kind="logits", scores=outputs, mask_gap=None)
        second = unfitted(self.second)
        second.classes_ = data.classes
        if second.reads_probs and largest_difference(between) < MIN_DIFFERENCE <= largest_difference(data):
            top = row_max(outputs)[:, None]  # the first leaves rounding; masks stay
            between = replace(between, scores=np.where(outputs > top - 1, top, outputs))
        second = fit_validated(second, between, kind="logits")
        one, two = first.solution_, second.solution_
        solution = Solution(
            f"{one.objective}, then {two.objective}",
            two.value,
            one.converged and two.converged,
            one.n_evaluations + two.n_evaluations,
            "; ".join(filter(None, (one.at_bound, two.at_bound))),
            (*({"stage": 1, **row} for row in one.trials), *({"stage": 2, **row} for row in two.trials)),
        )
        return self._new_map(first=first, second=second), solution, between, folds

    @classmethod
    def from_fitted(cls, first: Calibrator, second: Calibrator, like: Calibrator | None = None) -> Chain:
        """The chain of two fitted calibrators, which takes the input that ``like`` takes (default: the first)."""
        like = like or first
        if like.takes_groups:
            raise InputError(f"{like.label} reads groups, which a chain does not pass on")
        chain = cls(unfitted(first), unfitted(second))
        about_input = ("classes_", "kind_", "mask_gap_", "smallest_prob_", "positive_", "columns_")
        for name in (*about_input, "label_shares_", "n_samples_", "n_clusters_", "weighting_"):
            setattr(chain, name, getattr(like, name))
        chain.solution_ = like.solution_
        stages = {"first": copy(first), "second": copy(second)}
        for stage in stages.values():
            stage.kind_ = "logits"
            vars(stage)["map_"] = replace(stage.map_, kind="logits")
        vars(chain)["map_"] = chain._new_map(**stages)
        return chain

    @property
    def label(self) -> str:
        """The stages by name, as ``first:second``."""
        return ":".join(stage if isinstance(stage, str) else stage.label for stage in (self.first, self.second))

    @property
    def has_class_maps(self) -> bool:
        stages = (self.first_, self.second_) if "map_" in vars(self) else (unfitted(self.first), unfitted(self.second))
        return any(stage.has_class_maps for stage in stages)

    @property
    def is_guarded(self) -> bool:
        return True

    def _fallback_map(self, reference: Calibrator, data: Predictions | Profile) -> Map:
        return self._new_map(first=reference, second=fit_validated(unfitted(IDENTITY), data, kind="logits"))

    def with_choices(self) -> Chain:
        first, second = (unfitted(stage.with_choices()) for stage in (self.first_, self.second_))
        return replace(self, first=first, second=second)

    def _map(self, *, first: Calibrator, second: Calibrator) -> Map:
        return chain_map(first.map_, second.map_)
