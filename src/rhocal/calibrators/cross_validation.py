"""Cross-validation: warm starts, early stopping, held-out values, standard errors, and the choice.

Every calibrator that chooses something by held-out samples chooses it here. A caller states how a candidate is fitted without
a fold and how it is scored on that fold; candidates are ridges, degrees of a polynomial, pairs of strengths or methods.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np

from rhocal.numerics.special import dot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.folds import Fold, Folds
    from rhocal.numerics.special import Vector

N_FOLDS = 5
"""Folds of a cross-validation, unless an option states another number."""

CAUTION = 0.25
"""Standard errors by which a candidate must be better than an earlier, simpler one to be preferred."""

GUARD = 0.006
"""By how much the held-out NLL of a choice, plus ``SURENESS`` standard errors, may exceed the first candidate's, relatively."""

SURENESS = 1.0
"""Standard errors of the paired difference that the guard adds: the best of many candidates looks better than it is, the more
so the fewer samples there are."""

MAX_SHARE_BEHIND = 0.02
"""A candidate whose held-out value is by more than this share above its rival's is not fitted on further folds."""

MAX_ERRORS_BEHIND = 2.0
"""A method this many standard errors behind the best is not fitted on further folds."""

WarmStart = Literal["neighbor", "previous fold"]

C = TypeVar("C", bound=Hashable)
"""A candidate."""
F = TypeVar("F")
"""What a fit of a candidate returns."""


@dataclass(frozen=True)
class HeldOut:
    """What a candidate scored on a fold that it was not fitted on."""

    value: float
    """What candidates are compared by; lower is better."""
    nll: float = 0.0
    """What the guard compares with the first candidate's."""


@dataclass(frozen=True)
class Rule:
    """The first candidate within ``caution`` standard errors (over the folds, paired) of the lowest value."""

    caution: float = CAUTION
    guard: float | None = None
    """If set: how far the NLL of the choice may be above that of the first candidate, relatively."""


LOWEST = Rule(caution=0.0)
"""The candidate with the lowest held-out value."""


@dataclass(frozen=True)
class Choice(Generic[C, F]):
    """The candidate that a rule chose, with the evidence."""

    candidate: C
    value: float
    """Its mean held-out value."""
    models: tuple[F, ...]
    """Its fits, one for each fold."""
    passes_guard: bool
    trials: tuple[dict[str, Any], ...]
    """A row for each candidate."""


class CrossValidation(Generic[C, F]):
    """Fits of candidates without each of the folds, and their scores on that fold.

    A fit starts where a similar one ended: on the same fold that of the ``neighbor``, another candidate; or that of the same
    candidate on the ``previous fold`` (on the first fold the neighbor's). Do not store one on an object whose methods it
    calls: that reference cycle would keep the samples in memory.
    """

    def __init__(
        self,
        folds: Folds,
        fit: Callable[[C, Fold, F | None], F],
        score: Callable[[C, F, Fold], HeldOut] | None = None,
        warm_start: WarmStart = "neighbor",
    ) -> None:
        self.folds = tuple(folds)
        self.shares = np.array([fold.share for fold in self.folds])
        self.fit, self.score, self.warm_start = fit, score, warm_start
        self.models: dict[C, list[F]] = {}
        """The fits of each candidate, fold by fold."""
        self.held_out: dict[C, list[HeldOut]] = {}

    def advance(self, candidate: C, start: F | None = None) -> F:
        """Fit a candidate without its next fold, from a start, and score it there."""
        models = self.models.setdefault(candidate, [])
        fold = self.folds[len(models)]
        model = self.fit(candidate, fold, start)
        models.append(model)
        if self.score is not None:
            self.held_out.setdefault(candidate, []).append(self.score(candidate, model, fold))
        return model

    def complete(self, candidate: C, neighbor: C | None = None, rival: C | None = None) -> bool:
        """Fit a candidate without each fold, unless it falls behind a rival on the same folds: then the rest is not fitted."""
        if candidate in self.models:
            return self.is_complete(candidate)
        for _ in self.folds:
            self.advance(candidate, self.start(candidate, neighbor))
            if rival is not None and self._is_behind(candidate, rival):
                break
        return self.is_complete(candidate)

    def is_complete(self, candidate: C) -> bool:
        """Whether a candidate was fitted without each fold."""
        return len(self.models[candidate]) == len(self.folds)

    def start(self, candidate: C, neighbor: C | None) -> F | None:
        """Where the next fit of a candidate starts."""
        models = self.models.get(candidate, [])
        if models and self.warm_start == "previous fold":
            return models[-1]
        return None if neighbor is None else self.models[neighbor][len(models)]

    def choose(self, candidates: Sequence[C], rule: Rule, name: str) -> Choice[C, F]:
        """Fit and score all candidates, fold by fold, the simplest first, and choose by a rule.

        Each is the neighbor of the next. ``name`` is what a candidate is called in the evidence.
        """
        for _ in self.folds:
            neighbor: C | None = None
            for candidate in candidates:
                self.advance(candidate, self.start(candidate, neighbor))
                neighbor = candidate
        shares = self.shares / self.shares.sum()
        values = self._matrix(candidates, lambda held_out: held_out.value)
        mean = shares @ values
        above, errors = paired_over_folds(values, values[:, [int(mean.argmin())]], shares)
        best = int(np.argmax(above <= rule.caution * errors))
        rows: list[dict[str, Any]] = [
            {
                name: candidate,
                "held_out": float(mean[i]),
                "above_lowest": float(above[i]),
                "standard_error": float(errors[i]),
            }
            for i, candidate in enumerate(candidates)
        ]
        passes = True
        if rule.guard is not None:
            nll = self._matrix(candidates, lambda held_out: held_out.nll)
            nll_mean = shares @ nll
            nll_above, nll_errors = paired_over_folds(nll, nll[:, [0]], shares)
            passes = passes_guard(float(nll_above[best]), float(nll_errors[best]), float(nll_mean[0]), rule.guard)
            for i, row in enumerate(rows):
                row |= {"nll": float(nll_mean[i]), "nll_above": float(nll_above[i]), "nll_error": float(nll_errors[i])}
        chosen = candidates[best]
        return Choice(chosen, float(mean[best]), tuple(self.models[chosen]), passes, tuple(rows))

    def mean(self, candidate: C) -> float:
        """The mean held-out value over the folds that a candidate was scored on."""
        values = np.array([held_out.value for held_out in self.held_out[candidate]])
        shares = self.shares[: len(values)]
        return float(shares @ values / shares.sum())

    def _is_behind(self, candidate: C, rival: C) -> bool:
        mine, others = (np.array([held_out.value for held_out in self.held_out[c]]) for c in (candidate, rival))
        shares, others = self.shares[: len(mine)], others[: len(mine)]
        return bool(shares @ (mine - others) > MAX_SHARE_BEHIND * abs(float(shares @ others)))

    def _matrix(self, candidates: Sequence[C], read: Callable[[HeldOut], float]) -> Vector:
        """A row for each fold, a column for each candidate."""
        return np.array([[read(self.held_out[c][k]) for c in candidates] for k in range(len(self.folds))])


def paired_over_folds(values: Vector, others: Vector, shares: Vector) -> tuple[Vector, Vector]:
    """Mean over the folds of each column's difference, and its standard error."""
    differences = values - others
    mean = shares @ differences
    return mean, np.sqrt(shares @ (differences - mean) ** 2 / (len(shares) - 1))


def paired_over_samples(
    values: Vector, others: Vector, weights: Vector, total_weight: float, clusters: NDArray[np.intp] | None = None
) -> tuple[float, float]:
    """Mean over the samples of the difference, and its standard error; with clusters, that of their sums."""
    difference = values - others
    mean = float(dot(weights, difference))  # a product of BLAS may wait for its threads
    if clusters is not None:
        sums = np.bincount(clusters, weights * (difference - mean)).astype(np.float64, copy=False)
        return mean, float(np.sqrt(dot(sums, sums)))
    return mean, float(np.sqrt(dot(weights, (difference - mean) ** 2) / total_weight))


def passes_guard(above: float, error: float, baseline: float, guard: float = GUARD) -> bool:
    """Whether NLL is at most a share ``guard`` above that of the baseline, as far as the samples show."""
    return above + SURENESS * error <= guard * abs(baseline)
