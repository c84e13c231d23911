"""One binary map for each class, or one for the top class alone."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.binary import formulas
from rhocal.calibrators.binary.binary_map import (
    BinaryMap,
    FittedBinaryMap,
    Outcomes,
    field_names,
    one_sided_factor,
    stacked,
)
from rhocal.calibrators.binary.class_scores import ClassScores, ScoreKind
from rhocal.calibrators.fitted_values import Constraint
from rhocal.calibrators.map import Map, unchanged
from rhocal.calibrators.options import Fitted, declarations
from rhocal.calibrators.solutions import warn_if_few, warn_unless_converged
from rhocal.numerics.special import Vector, expit
from rhocal.numerics.threads import BLOCK_ENTRIES
from rhocal.optimize import Solution

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rhocal.calibrators.fitted_values import Numbers
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.ops import Formula

Scope = Literal["one-vs-rest", "top", "top-capped"]
ONE_VS_REST, TOP, TOP_CAPPED = SCOPES = get_args(Scope)

SMOOTHING = 2.0
"""Samples that the rule of succession adds; see ``binary_map.smoothed``."""

BEHIND = 1e-6
"""How far behind the top class, relatively, a capped class stays: visible in single precision."""

TABLE_ROWS = 256
"""Samples that NumPy maps at a time at least: the calls for the tables of 1,000 classes are then shared by as many."""


def has_all_maps(fitted: Numbers) -> bool:
    """Whether there are as many maps as ``BinaryCalibrator._columns`` gives."""
    is_shared = fitted["n_classes"] == 2 and fitted["calibrator"].mirrored
    is_single = SCOPES[fitted["scope"]] != ONE_VS_REST or is_shared
    return len(fitted["one_sided"]) == (1 if is_single else fitted["n_classes"])


def has_numbers(fitted: Numbers) -> bool:
    """Whether the numbers of every map are there, and NaN where ``stacked`` writes it."""
    is_mapped, calibrator = np.isnan(fitted["one_sided"]), fitted["calibrator"]
    names = field_names(calibrator.map)
    declared = declarations(type(calibrator))
    first = fitted[names[0]]
    for name in names:
        array, is_table = fitted[name], "|" in declared[f"{name}_"].values.shape
        if array.ndim == 1 and is_table and is_mapped.any():
            return False
        if array.ndim == 1 and not np.array_equal(~np.isnan(array), is_mapped):
            return False
        if array.ndim == 2:
            present = ~np.isnan(array)
            is_same = name in calibrator.map.keeps_score or np.array_equal(present, ~np.isnan(first))
            if not (is_same and np.array_equal(present.any(axis=1), is_mapped)):
                return False
    return True


class BinaryCalibrator(Calibrator):
    """Uses a binary map for many classes. It may change the predicted class.

    With scope ``"one-vs-rest"`` the score of every class goes through a map of its own, and rows are normalized; two
    classes share one map (p and 1 − p). With scope ``"top"`` one map turns the confidence of the predicted class into the
    probability that it is right, and the rest is spread over the other classes in proportion. With ``"top-capped"`` no
    other class gets more than the predicted one: the decision stays wherever the confidence is above 1/n_classes.
    A class that never occurs in the calibration set has no map; see ``one_sided_factor``.
    """

    keeps_decision = False
    map: ClassVar[type[BinaryMap]]
    """What it fits."""
    score_kind: ClassVar[ScoreKind] = "probs"
    """What the map is a function of: the probability of a class, or its log-odds."""
    mirrored: ClassVar[bool] = True
    """Whether a map of p is as good as the map of 1 − p, so that two classes need one map only."""
    has_monotone_bounds: ClassVar[bool] = False
    """Whether intervals come from likelihood ratios among all non-decreasing functions, because a bootstrap is not valid."""

    @property
    def joins_misses(self) -> bool:
        """Whether a map needs no more of samples without a hit than their number and ends between two with hits."""
        return False

    scope: Scope
    scope_ = Fitted[int](dtype="integer", minimum=0, maximum=len(SCOPES) - 1)
    """The scope that was fitted, by its place in ``SCOPES``."""
    one_sided_ = Fitted[Vector](shape="maps", minimum=-1, maximum=1, allows_nan=True)
    """``one_sided_factor`` of each class that never (or always) occurred, else NaN."""
    constraints: ClassVar[tuple[Constraint, ...]] = (
        ("one_sided_ is not 0", lambda fitted: bool(fitted["one_sided"].all())),
        ("there is a map for each class, or one where the scope asks for one", has_all_maps),
        ("classes without a map have NaN, and others have numbers", has_numbers),
    )

    @property
    def has_class_maps(self) -> bool:
        return not self.scope.startswith("top")

    @property
    def reads_probs(self) -> bool:  # type: ignore[override]
        return (
            self.score_kind == "probs" or len(self.classes_) > 2
        )  # log-odds of two classes are a difference of logits

    @abstractmethod
    def _fit_map(self, data: Outcomes) -> FittedBinaryMap:
        """Fit one map to scores with at least one hit and one miss."""

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, Solution]:
        return self._fit_maps(data, is_measured=True)

    def _fit_map_alone(self, data: Predictions, start: Map | None = None) -> tuple[Map, Solution]:
        return self._fit_maps(data, is_measured=False)

    def _fit_maps(self, data: Predictions, *, is_measured: bool) -> tuple[Map, Solution]:
        """The maps of all classes. The NLL of each on its samples, which takes a third of the time, is evidence alone."""
        maps: list[BinaryMap | None] = []
        factors, trials, values, n_evaluations, converged = [], [], [], 0, True
        for column, outcomes in self.outcomes(data, joins_misses=self.joins_misses):
            where = {} if column is None else {"class": column}
            if outcomes.hits.any() and (outcomes.hits < outcomes.weight).any():
                fitted = self._fit_map(outcomes)
                maps.append(fitted.map)
                factors.append(np.nan)
                if is_measured:
                    at_scores = fitted.map(outcomes.score) if fitted.values is None else fitted.values
                    values.append(outcomes.nll(at_scores))
                trials += [where | dict(row) for row in fitted.trials]
                converged, n_evaluations = converged and fitted.converged, n_evaluations + fitted.n_evaluations
            else:
                probs = outcomes.score if self.score_kind == "probs" else expit(outcomes.score)
                factor = one_sided_factor(probs, outcomes)
                maps.append(None)
                factors.append(factor)
                trials.append(where | {"one_sided": factor})
        fields = {name: stacked(maps, name) for name in field_names(self.map)}
        map_ = self._new_map(scope=SCOPES.index(self.scope), one_sided=np.array(factors), **fields)
        warn_unless_converged(self.name, converged=converged)
        if data.n_classes > 2 and self.scope == ONE_VS_REST:
            warn_if_few(
                self.name,
                data.total_weight / data.n_classes,
                "field, which has one map for all classes",
                argument="scope='top-capped'",
                remedy="map the confidence alone",
            )
        value = float(np.mean(values)) if values else float("nan")
        return map_, Solution(f"{self.scope} nll", value, converged, n_evaluations, trials=tuple(trials))

    def outcomes(self, data: Predictions, *, joins_misses: bool = False) -> Iterator[tuple[int | None, Outcomes]]:
        """What each map is fitted on, after its class; None for the top class. The option is that of ``from_samples``."""
        assert data.labels is not None
        scores = ClassScores.from_logits(data.precise_logits(), self.score_kind)
        masked, weights = data.masked, data.weights
        for column in self._columns(data.n_classes):
            kept: Any = slice(None)
            if column is None:
                score, hit, n_classes = scores.of_top(), scores.predicted == data.labels, 2
            else:
                score, hit, n_classes = scores.of_class(column), data.labels == column, data.n_classes
                if masked is not None and not masked[:, column].all():  # where it cannot occur nothing is learned
                    kept = ~masked[:, column]
            own_weights = None if weights is None else weights[kept]
            yield (
                column,
                Outcomes.from_samples(score[kept], hit[kept], own_weights, n_classes, joins_misses=joins_misses),
            )

    def _columns(self, n_classes: int) -> Sequence[int | None]:
        """The class of each map; None for the top class."""
        if self.scope != ONE_VS_REST:
            return [None]
        return [1] if n_classes == 2 and self.mirrored else range(n_classes)

    def _map(self, *, scope: int, one_sided: Vector, **fields: Vector) -> Map:
        missing, n_classes = ~np.isnan(one_sided), len(self.classes_)
        is_one_vs_rest = SCOPES[scope] == ONE_VS_REST
        parameters: dict[str, Any] = {
            "score_kind": self.score_kind,
            "rounds_scores": self.map.rounds_scores,
            "n_classes": n_classes,
            "order": np.arange(n_classes, dtype=np.float64),
            "behind": BEHIND if SCOPES[scope] == TOP_CAPPED else None,
        }
        if missing.any():
            parameters |= {"missing": missing, "factor": np.nan_to_num(one_sided)}
        formula: Formula = unchanged
        if not missing.all():
            formula = self.map.formula
            parameters |= self.map.tables(fields)
        whole = formulas.one_vs_rest if is_one_vs_rest else formulas.of_top
        if is_one_vs_rest and len(missing) == 1:
            whole = formulas.mirrored
        # A formula has some ten arrays at a time, so that blocks are smaller than where there are one or two.
        entries = max(BLOCK_ENTRIES // 8, TABLE_ROWS * n_classes)
        return Map(partial(whole, formula), parameters, is_wide=True, block_entries=entries)
