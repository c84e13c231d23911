"""One binary map for each class, or one for the top class alone."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.binary.binary_map import (
    BinaryMap,
    FittedBinaryMap,
    OneSided,
    Outcomes,
    field_names,
    stacked,
    unstacked,
)
from rhocal.calibrators.binary.class_scores import ClassScores, Sees
from rhocal.calibrators.binary.portable_binary import of_top, one_vs_rest, unchanged
from rhocal.calibrators.map import Portable
from rhocal.calibrators.options import Fitted
from rhocal.calibrators.scale.scale_search import warn_unless
from rhocal.data.predictions import SMALLEST_PROB
from rhocal.errors import FewSamplesWarning, warn
from rhocal.numerics.special import Floats, Vector, expit, softmax
from rhocal.numerics.threads import row_blocks
from rhocal.optimize import Solution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.portable import Formula

Scope = Literal["one-vs-rest", "top", "top-capped"]
ONE_VS_REST, TOP, TOP_CAPPED = SCOPES = get_args(Scope)

SMOOTHING = 2.0
"""Samples that the rule of succession adds; see ``binary_map.smoothed``."""

ENOUGH_PER_CLASS = 10
"""Tune samples a class below which one-vs-rest warns."""

BEHIND = 1e-6
"""How far behind the top class, relatively, a capped class stays: visible in single precision."""

BLOCK = 1 << 20
"""Entries mapped at a time: with 1,000 classes the calls of 1,000 maps are then shared by 1,000 samples."""


class BinaryCalibrator(Calibrator):
    """Uses a binary map for many classes. It may change the predicted class.

    With scope ``"one-vs-rest"`` the score of every class goes through a map of its own, and rows are normalised; two
    classes share one map (p and 1 − p). With scope ``"top"`` one map turns the confidence of the predicted class into the
    probability that it is right, and the rest is spread over the other classes in proportion. With ``"top-capped"`` no
    other class gets more than the predicted one: the decision stays wherever the confidence is above 1/n_classes.
    A class that never occurs in the tune set has no map; see ``OneSided``.
    """

    keeps_decision = False
    map: ClassVar[type[BinaryMap]]
    """What it fits."""
    sees: ClassVar[Sees] = "probs"
    """What the map is a function of."""
    mirrored: ClassVar[bool] = True
    """Whether a map of p is as good as the map of 1 − p, so that two classes need one map only."""

    scope: Scope
    scope_ = Fitted[int]()
    """The scope that was fitted, by its place in ``SCOPES``."""
    one_sided_ = Fitted[Vector]()
    """The factor of ``OneSided`` for each class that never (or always) occurred, else NaN."""

    @abstractmethod
    def _fit_map(self, data: Outcomes) -> FittedBinaryMap:
        """Fit one map to scores with at least one hit and one miss."""

    def _fit(self, data: Predictions) -> Solution:
        assert data.labels is not None
        self.scope_ = SCOPES.index(self.scope)
        scores = ClassScores.of(data.logits, self.sees)
        weights = np.ones(data.n_samples) if data.weights is None else data.weights
        maps: list[BinaryMap | None] = []
        factors, trials, values, n_evaluations, converged = [], [], [], 0, True
        for column in self._columns(data.n_classes):
            if column is None:
                outcomes = Outcomes.of(scores.of_top(), scores.predicted == data.labels, weights, 2)
            else:
                outcomes = Outcomes.of(scores.of_class(column), data.labels == column, weights, data.n_classes)
            where = {} if column is None else {"class": column}
            if outcomes.hits.any() and (outcomes.hits < outcomes.weight).any():
                fitted = self._fit_map(outcomes)
                maps.append(fitted.map)
                factors.append(np.nan)
                values.append(outcomes.nll(fitted.map(outcomes.score)))
                trials += [where | dict(row) for row in fitted.trials]
                converged, n_evaluations = converged and fitted.converged, n_evaluations + fitted.n_evaluations
            else:
                one_sided = OneSided.of(self._as_probs(outcomes.score), outcomes)
                maps.append(None)
                factors.append(one_sided.factor)
                trials.append(where | {"one_sided": one_sided.factor})
        self.one_sided_ = np.array(factors)
        for name in field_names(self.map):
            setattr(self, f"{name}_", stacked(maps, name))
        warn_unless(converged=converged, what=self.name)
        if data.n_classes > 2:
            self._warn_if_few(float(weights.sum()) / data.n_classes)
        value = float(np.mean(values)) if values else float("nan")
        return Solution(f"{self.scope} nll", value, converged, n_evaluations, trials=tuple(trials))

    @property
    def _of_top(self) -> bool:
        """Whether the one map is for the top class."""
        return SCOPES[self.scope_] != ONE_VS_REST

    def _warn_if_few(self, samples_per_class: float) -> None:
        if not self._of_top and samples_per_class < ENOUGH_PER_CLASS:
            warn(
                f"{self.name} fits a map for each class on {samples_per_class:.3g} samples a class; below "
                f"{ENOUGH_PER_CLASS} that is mostly noise. Use scope='top-capped' (one map for all), or temperature or field",
                FewSamplesWarning,
            )

    def _columns(self, n_classes: int) -> Sequence[int | None]:
        """The class of each map; None for the top class."""
        if self._of_top:
            return [None]
        return [1] if n_classes == 2 and self.mirrored else range(n_classes)

    def _maps(self) -> list[BinaryMap]:
        """The fitted maps, as functions of what they see."""
        arrays = [getattr(self, f"{name}_") for name in field_names(self.map)]
        return [
            unstacked(self.map, arrays, row) if np.isnan(factor) else OneSided(float(factor))
            for row, factor in enumerate(self.one_sided_)
        ]

    def _apply(self, one: BinaryMap, score: Vector) -> Vector:
        return one(self._as_probs(score)) if isinstance(one, OneSided) else one(score)

    def _as_probs(self, score: Vector) -> Vector:
        return score if self.sees == "probs" else expit(score)

    def _transform(self, logits: Floats) -> Floats:
        out, maps = np.empty_like(logits), self._maps()
        for rows in row_blocks(len(logits), logits.shape[1], BLOCK):
            scores = ClassScores.of(logits[rows], self.sees)
            if self._of_top:
                confidence = self._apply(maps[0], scores.of_top())
                p = with_confidence(logits[rows], scores.predicted, confidence)
                if SCOPES[self.scope_] == TOP_CAPPED:
                    cap_others(p, scores.predicted, confidence)
            else:
                p = normalised([self._apply(one, scores.of_class(c)) for c, one in self._by_class(maps)])
            out[rows] = np.log(np.maximum(p, SMALLEST_PROB))
        return out

    def _portable(self) -> Portable:
        names = field_names(self.map)
        missing = ~np.isnan(self.one_sided_)
        numbers: dict[str, NDArray[np.generic]] = {"order": np.arange(len(self.classes_), dtype=np.float64)}
        if missing.any():
            numbers |= {"missing": missing, "factor": np.nan_to_num(self.one_sided_)}
        of_maps: dict[str, NDArray[np.generic]] = {}
        formula: Formula = unchanged
        if not missing.all():
            of_maps, formula = self.map.portable({name: getattr(self, f"{name}_") for name in names})
        sees, mirrored, m = self.sees, len(missing) == 1, len(self.classes_)
        behind = BEHIND if SCOPES[self.scope_] == TOP_CAPPED else None
        if self._of_top:
            return Portable(
                numbers | of_maps, lambda ops, c, z: of_top(ops, c, z, m, sees, formula, behind=behind), wide=True
            )
        return Portable(
            numbers | of_maps,
            lambda ops, c, z: one_vs_rest(ops, c, z, m, sees, formula, mirrored=mirrored),
            wide=True,
        )

    def _by_class(self, maps: list[BinaryMap]) -> list[tuple[int, BinaryMap]]:
        return [(1, maps[0])] if len(maps) == 1 else list(enumerate(maps))


def normalised(columns: Sequence[Vector]) -> NDArray[np.float64]:
    """Rows that sum to 1 from the probability of each class on its own (or of the second of two)."""
    if len(columns) == 1:
        return np.stack([1 - columns[0], columns[0]], axis=1)
    p = np.maximum(np.stack(columns, axis=1), SMALLEST_PROB)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def with_confidence(logits: Floats, top: NDArray[np.intp], confidence: Vector) -> NDArray[np.float64]:
    """Probabilities with a given confidence of the top class, the others in the proportions they have among themselves.

    Those are a softmax without the top class: divided by the rest of the whole row, which may be 1e-300, they would overflow.
    """
    z, samples = logits.astype(np.float64), np.arange(len(logits))
    z[samples, top] = -np.inf
    p = softmax(z).astype(np.float64, copy=False) * (1 - confidence)[:, None]
    p[samples, top] = confidence
    return p


def cap_others(p: NDArray[np.float64], top: NDArray[np.intp], confidence: Vector) -> None:
    """Let no class be ahead of the top class, in place: what is cut off goes to those below the cap, in proportion.

    Rows where that cannot be (a confidence of 1/n_classes or less) stay as they are.
    """
    cap = (1 - BEHIND) * confidence
    ahead = (p > cap[:, None]).sum(axis=1) > 1
    rows = np.flatnonzero(ahead & (cap * (p.shape[1] - 1) >= 1 - confidence))
    mine, most, rest = (np.arange(len(rows)), top[rows]), cap[rows, None], 1 - confidence[rows, None]
    q = np.maximum(p[rows], SMALLEST_PROB)
    q[mine] = 0
    full = np.zeros(q.shape, dtype=bool)
    while (over := (q > most) & ~full).any():
        full |= over
        free = np.where(full, 0, q)
        room = rest - most * full.sum(axis=1, keepdims=True)
        q = np.where(full, most, free * room / np.maximum(free.sum(axis=1, keepdims=True), SMALLEST_PROB))
    q[mine] = confidence[rows]
    p[rows] = q
