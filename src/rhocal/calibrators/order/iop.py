"""Intra order-preserving map, diagonal and order-invariant: one increasing function for all logits of all samples."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from rhocal import optimize
from rhocal.calibrators.cross_validation import N_FOLDS, CrossValidation, HeldOut, Rule
from rhocal.calibrators.fitted_values import POSITIVE
from rhocal.calibrators.folds import Fold, Folds, thinned_rows
from rhocal.calibrators.map import Map
from rhocal.calibrators.options import Fitted, option
from rhocal.calibrators.order.order import KAPPA, OrderCalibrator
from rhocal.calibrators.ridge_centers import ridge_centers
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.calibrators.solutions import equal_logits_solution, solution_at, warn_at_bound
from rhocal.numerics.masks import MASKED_LOGIT
from rhocal.numerics.special import Vector, log_softmax
from rhocal.numerics.tables import padded
from rhocal.objectives import Objective, objective
from rhocal.profile.profile import Profile
from rhocal.profile.statistics import Facts, of_logits

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.ops import Ops, Parameters, Value

KNOTS = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0)
"""Where the slope of the function may change, in units of the NLL-optimal temperature below the largest logit."""

RIDGES = (np.inf, 300.0, 30.0, 3.0)
"""Strengths of the ridge that cross-validation tries, in samples; infinite is plain temperature scaling."""

SLOPES = (0.02, 20.0)
"""No piece is flatter or steeper than this times temperature scaling: strictly increasing, and nothing explodes."""

MAX_CHOOSING_ENTRIES, MAX_FITTING_ENTRIES = 300_000, 5_000_000
"""Entries of the logits used to choose the ridge and to fit; of more, rows at regular ranks of confidence are taken."""


@dataclass(eq=False, repr=False)
class IntraOrderPreserving(OrderCalibrator):
    """r_j = −f(z₍₁₎ − z_j), f increasing and piecewise linear (Rahimi et al. 2020, diagonal and order-invariant).

    The original's function is a monotone network of the raw logit. Here it is linear between ``KNOTS`` below the largest
    logit: a shift of all logits stays invisible, as it is to softmax, and with NLL the fit is convex. Temperature scaling
    is the straight line, to which a ridge pulls.

    Parameters
    ----------
    objective
        What to minimize; see ``rhocal.objectives``.
    ridge
        Strength of the pull toward temperature scaling, ridge / (2 n) · ‖slopes − 1‖²: the weight of that many samples; or
        ``"cv"``: chosen by cross-validation from ``RIDGES``.
    n_folds
        Of the cross-validation.

    Attributes
    ----------
    unit_, slopes_
        The NLL-optimal scale, and the slope of f on every piece in units of it.
    knots_
        Where the pieces begin.
    ridge_
        The strength used.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.IntraOrderPreserving(ridge=1.0).fit(logits, labels)
    >>> ranks = logits.argsort(1)
    >>> bool((calibrator.predict_proba(logits).argsort(1) == ranks).all())
    True
    """

    name = "iop"

    objective: str | Objective = "nll"
    _: KW_ONLY
    ridge: float | Literal["cv"] = option("cv", minimum=0)
    n_folds: int = option(N_FOLDS, minimum=2)

    unit_ = Fitted[float](**POSITIVE)
    knots_ = Fitted[Vector](shape="knots", minimum=0, increasing=True)
    slopes_ = Fitted[Vector](shape="knots", minimum=SLOPES[0], maximum=SLOPES[1])
    ridge_ = Fitted[float](minimum=0, maximum=np.inf)
    constraints = (("knots_ begin at 0", lambda fitted: fitted["knots"][0] == 0),)

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, optimize.Solution]:
        target = objective(self.objective)
        profile = Profile.from_predictions(data)
        knots, line = np.array(KNOTS), np.ones(len(KNOTS))
        if not profile.spread > 0:
            return self._new_map(unit=1.0, knots=knots, slopes=line, ridge=np.inf), equal_logits_solution(target)
        search = ScaleSearch.from_profile(profile)
        target = search.prepared(target)
        at_bound = warn_at_bound(search.log_scale, search.bounds)
        first: Vector | None = None
        trials: tuple[dict[str, Any], ...] = ()
        if at_bound:  # the slopes would run away just as the temperature does
            ridge = np.inf
        elif isinstance(self.ridge, str):
            ridge, first, trials = choose_ridge(data, search, target, self.n_folds)
        else:
            ridge = float(self.ridge)
        pieces = Pieces(data, search, target, thinned_rows(search, MAX_FITTING_ENTRIES))
        minimum = pieces.minimum(ridge, line + ridge_centers(np.full(len(line), ridge)), first)
        solution = solution_at(minimum, target, "intra order-preserving map", at_bound, trials)
        unit = float(np.exp(search.log_scale))
        return self._new_map(unit=unit, knots=knots, slopes=minimum.x, ridge=ridge), solution

    def with_choices(self) -> IntraOrderPreserving:
        return replace(self, ridge=self.ridge_)

    def _map(self, *, unit: float, knots: Vector, slopes: Vector, ridge: float) -> Map:
        later = padded(knots[1:], np.inf)  # the first piece begins at 0, where gaps begin
        begin = np.r_[0.0, np.cumsum(slopes[:-1] * np.diff(knots))]
        numbers = {"unit": np.array(unit), "later": later, "first": np.zeros(1, np.int64)}
        return Map(pieces, {**numbers, "knots": knots, "begin": begin, "slopes": slopes, "width": len(later)})


def pieces(ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """−f of the gap to the largest logit. Knots are exact in binary, so that it never decreases, to the last bit."""
    gap = parameters["unit"] * (ops.max(logits) - logits)
    piece = ops.locate(parameters["later"], parameters["first"], parameters["width"], gap, count_equal=True)
    inside = gap - ops.take(parameters["knots"], piece)
    return -(ops.take(parameters["begin"], piece) + ops.take(parameters["slopes"], piece) * inside)


def pieces_of(gap: Vector, knots: Vector) -> tuple[NDArray[np.intp], Vector]:
    """The piece on which each gap lies, and how far it is from its beginning."""
    piece = np.searchsorted(knots, gap.ravel(), side="right").reshape(gap.shape) - 1
    return piece, gap - knots[piece]


def height(piece: NDArray[np.intp], inside: Vector, knots: Vector, slopes: Vector) -> Vector:
    """F at every gap. Knots are exact in binary, so that it never decreases, to the last bit."""
    begin = np.r_[0.0, np.cumsum(slopes[:-1] * np.diff(knots))]
    return np.asarray(begin[piece] + slopes[piece] * inside)


class Pieces:
    """The objective, on some rows of a calibration set, as a function of the slopes, with the ridge."""

    def __init__(self, data: Predictions, search: ScaleSearch, target: Objective, rows: NDArray[np.intp]) -> None:
        assert data.labels is not None
        z = data.logits[rows].astype(np.float64)
        gap = np.exp(search.log_scale) * (z.max(axis=1, keepdims=True) - z)
        if data.masked is not None:  # as deep as any: no slope moves it
            gap[data.masked[rows]] = np.inf
        self.is_class = np.isfinite(gap)
        gap[~self.is_class] = 0
        self.knots = np.array(KNOTS)
        self.piece, self.inside = pieces_of(gap, self.knots)
        self.base = log_softmax(z).astype(np.float64, copy=False) if needs_base(target) else z
        self.target, self.labels = target, data.labels[rows]
        weights = search.profile.weights[rows]
        self.share = float(weights.sum())
        self.total_weight = search.profile.total_weight * self.share
        self.facts = Facts(search.profile.correct[rows], weights / self.share, data.n_classes)

    def evaluate(self, slopes: Vector) -> tuple[float, Vector]:
        """The objective without the ridge."""
        logits = np.where(self.is_class, -height(self.piece, self.inside, self.knots, slopes), MASKED_LOGIT)
        stats = of_logits(logits, self.labels, self.base, self.target.needs, KAPPA)
        value, outer = self.target.evaluate(stats.values, self.facts)
        back, where = stats.vjp(outer).ravel(), self.piece.ravel()
        within = np.bincount(where, back * self.inside.ravel(), len(slopes))
        on = np.bincount(where, back, len(slopes))
        beyond = np.cumsum(on[::-1])[::-1] - on  # an entry further down has passed the whole piece
        return value, -(within + beyond * np.diff(self.knots, append=0.0))

    def minimum(self, ridge: float, center: Vector, start: Vector | None, tolerance: float = 1e-11) -> optimize.Minimum:
        """The minimum of objective + ridge/(2n)·‖slopes − center‖²."""
        if ridge == np.inf:
            return optimize.Minimum(center, self.evaluate(center)[0], converged=True, n_evaluations=1)
        strength = ridge / self.total_weight

        def fun(slopes: Vector) -> tuple[float, Vector]:
            value, slope = self.evaluate(slopes)
            away = slopes - center
            return value + strength * float(away @ away) / 2, slope + strength * away

        first = center if start is None else start
        return optimize.lbfgs(fun, first, [SLOPES] * len(center), max_steps=300, tolerance=tolerance)


def needs_base(target: Objective) -> bool:
    """Whether an objective compares with the uncalibrated distribution."""
    return bool(target.needs & {"kl_to_base", "kl_from_base"})


def choose_ridge(
    data: Predictions, search: ScaleSearch, target: Objective, n_folds: int
) -> tuple[float, Vector | None, tuple[dict[str, Any], ...]]:
    """The ridge by cross-validation, the mean of its fits as a start, and the evidence.

    In each fold the ridge pulls to that fold's own temperature.
    """
    folds = Folds.stratified(search, n_folds, MAX_CHOOSING_ENTRIES)
    if not folds:
        return np.inf, None, ()

    @lru_cache(maxsize=1)  # all ridges are tried on one fold before the next
    def parts(fold: Fold) -> tuple[Pieces, Vector, Pieces]:
        inner = Pieces(data, search, target, fold.inside)
        weights = np.zeros_like(search.profile.weights)
        weights[fold.inside] = inner.facts.weights
        anchor = float(search.weighted(weights).single_scale(objective("nll")).x[0]) - search.log_scale
        center = np.clip(np.full(len(KNOTS), np.exp(anchor)), *SLOPES)
        return inner, center, Pieces(data, search, target, fold.outside)

    def fit(ridge: float, fold: Fold, start: Vector | None) -> Vector:
        inner, center, _ = parts(fold)
        return inner.minimum(ridge, center, start, tolerance=1e-7).x

    def score(_: float, slopes: Vector, fold: Fold) -> HeldOut:
        return HeldOut(parts(fold)[2].evaluate(slopes)[0])

    choice = CrossValidation(folds, fit, score).choose(RIDGES, Rule(), "ridge")
    return choice.candidate, np.mean(choice.models, axis=0), choice.trials
