"""The objective of a linear map as a function of its parameters, its minimum and its derivatives.

Fits move Δ and b in r = x + Δ x + b, with x scaled so that Δ = 0, b = 0 is temperature scaling; a ridge pulls there.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal import optimize
from rhocal.calibrators.linear.preconditioners import MAX_CLASSES, Balance, inverse_of_pairs, inverse_of_rows
from rhocal.calibrators.ridge_centers import ridge_centers
from rhocal.numerics import kernels
from rhocal.numerics.caching import cached_property
from rhocal.numerics.masks import MASKED_LOGIT
from rhocal.numerics.special import Floats, Vector, dot, exp_normal, log_softmax, row_max, row_sum, softmax
from rhocal.numerics.threads import in_threads, row_blocks
from rhocal.objectives import NLL, batch_size_of
from rhocal.profile.statistics import Facts, LogitStatistics, of_logits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.folds import Fold
    from rhocal.calibrators.map import Map
    from rhocal.data.predictions import Predictions
    from rhocal.objectives import Objective
    from rhocal.profile.profile import Profile

FEW_PARAMETERS = 150
"""Up to here Newton steps are faster, several times; beyond, a Hessian costs more than it saves."""

SINGLE_TOLERANCE = 1e-9
"""Relative decrease of NLL in single precision below which a step is the last."""

DOUBLE_TOLERANCE = 1e-12
"""The same in double precision, with blocks of the Hessian."""

NEAR_TOLERANCE = 1e-7
"""The same for fits that begin at another map, those without a fold: far below the differences that they show."""

SMALLEST_CURVATURE = 1e-12
"""Curvatures below this times the largest do not set the unit of a parameter."""

N_PROOF_STEPS = 5
"""Exact steps from the end of a mini-batch descent, which show whether it has converged."""


@dataclass(frozen=True)
class Ridge:
    """Σ diagonal·Δ_jj² + Σ off_diagonal·Δ_jk² + Σ intercept·b_j², added to an objective that is a mean over samples."""

    diagonal: float
    intercept: float
    off_diagonal: float | None = None
    """None: there is nothing off the diagonal."""

    def strengths(self, n_classes: int) -> Vector:
        """One for each parameter: a row Δ_j·, b_j for each class, or just Δ_jj, b_j."""
        if self.off_diagonal is None:
            return np.tile([self.diagonal, self.intercept], (n_classes, 1))
        matrix = np.full((n_classes, n_classes), self.off_diagonal)
        np.fill_diagonal(matrix, self.diagonal)
        return np.hstack([matrix, np.full((n_classes, 1), self.intercept)])


class LinearProblem:
    """Parameters → logits → objective → slope in the logits → slope in the parameters, with the ridge.

    Parameters are rows (Δ_j·, b_j), one for each class.
    """

    def __init__(
        self, x: Floats, data: Predictions, profile: Profile, target: Objective, ridge: Ridge, kappa: float
    ) -> None:
        assert data.labels is not None
        self.x, self.labels, self.kappa = x, data.labels, kappa
        self.masked = data.masked
        self.weights, self.n_classes = profile.weights, profile.n_classes
        self.full = ridge.off_diagonal is not None
        self.strengths = ridge.strengths(x.shape[1])
        self.centers = ridge_centers(2 * profile.total_weight * self.strengths)
        self.base: Floats = x[:, :0]
        if any(name.startswith("kl") for name in target.needs):
            self.base = log_softmax(data.logits.astype(np.float64))
        self.target = target
        if target.needs_preparation:
            parts = self._statistics(np.zeros_like(self.strengths))
            self.target = target.prepare(*self._values(parts))

    def minimum(
        self, start: Vector | None = None, *, precondition: optimize.Precondition | None = None, **limits: Any
    ) -> optimize.Minimum:
        """The minimum, from temperature scaling or from the parameters given.

        NLL is convex: with few parameters it takes some six Newton steps, with many as few steps with blocks of its Hessian.
        ``precondition`` is the ``row_inverse`` of a similar problem, or with few parameters its ``inverse``. ``limits`` are
        those of ``optimize.lbfgs``.

        For other objectives every parameter is measured in the unit in which NLL's curvature at temperature scaling is 1:
        with 100 classes that takes a third of the evaluations.
        """
        if self.x.dtype == np.float32:
            limits = {"tolerance": SINGLE_TOLERANCE if start is None else NEAR_TOLERANCE, **limits}
        if self.has_blocks and "max_steps" not in limits:
            return self._minimum_with_blocks(start, precondition, limits.get("tolerance", DOUBLE_TOLERANCE))
        if precondition is not None and self.has_few_parameters:
            first = np.zeros_like(self.strengths) if start is None else start
            fixed = precondition
            return optimize.preconditioned_lbfgs(
                lambda parameters: (*self(parameters), fixed), first, limits.get("tolerance", DOUBLE_TOLERANCE)
            )
        unit = self.unit

        def fun(u: Vector) -> tuple[float, Vector]:
            value, slope = self(u.reshape(unit.shape) * unit)
            return value, (slope * unit).ravel()

        first = (np.zeros_like(unit) if start is None else start / unit).ravel()
        if self.has_few_parameters:
            scale = np.outer(unit, unit)

            def hessian(u: Vector) -> Vector:
                return scale * self.hessian(u.reshape(unit.shape) * unit)

            scaled = optimize.convex_newton(fun, hessian, first, limits.get("tolerance", 1e-12))
        else:
            scaled = optimize.lbfgs(fun, first, **limits)
        return replace(scaled, x=scaled.x.reshape(unit.shape) * unit)

    @property
    def has_few_parameters(self) -> bool:
        """Whether the whole Hessian is used: NLL of few parameters."""
        return self.strengths.size <= FEW_PARAMETERS and isinstance(self.target, NLL)

    def inverse(self, hessian: Vector) -> optimize.Precondition:
        """The inverse of a Hessian without ridge, from a similar problem, plus the ridge of this one.

        Constant scores tell nothing of some parameters: their curvature is 0, and they are damped.
        """
        inverse = np.linalg.inv(optimize.damped(hessian + np.diag(2 * self.strengths.ravel())))
        return lambda gradient: np.asarray(inverse @ gradient.ravel()).reshape(gradient.shape)

    @property
    def has_blocks(self) -> bool:
        """Whether blocks of the Hessian are known: of NLL, without masks, of a diagonal in compiled passes or of a matrix."""
        if not isinstance(self.target, NLL) or self.masked is not None or self.strengths.size <= FEW_PARAMETERS:
            return False
        return self.n_classes <= MAX_CLASSES if self.full else kernels.supports_matrix(self.x)

    def _minimum_with_blocks(
        self, start: Vector | None, inverse: optimize.Precondition | None, tolerance: float
    ) -> optimize.Minimum:
        balance = self._balance
        first = self._first if start is None else balance.parameters(start)
        if not self.full:
            return optimize.preconditioned_lbfgs(partial(self._nll_with_pairs, balance), first, tolerance)
        fixed = balance.precondition(inverse or self.row_inverse(first))
        return optimize.preconditioned_lbfgs(lambda parameters: (*self(parameters), fixed), first, tolerance)

    def row_inverse(self, parameters: Vector | None = None) -> optimize.Precondition:
        """The approximate inverse of the Hessian of a matrix, which fits without a fold may share, by default at the start."""
        return inverse_of_rows(self, self._first if parameters is None else parameters)

    @property
    def _balance(self) -> Balance:
        return Balance(self.strengths, self.centers, is_matrix=self.full)

    @property
    def _first(self) -> Vector:
        """Temperature scaling, as the ridge prefers it."""
        return self._balance.parameters(np.zeros_like(self.strengths))

    def descend(self, start: Vector, *, learning_rate: float | None, **options: Any) -> optimize.Minimum:
        """Where mini-batch descent ends, on the objective of one drawn batch: ``optimize.sgd``, or ``adam`` without a rate.

        Some exact steps from there show whether it has converged.
        """

        def gradient(flat: Vector, rows: NDArray[np.intp]) -> Vector:
            return self.batch(rows)(flat.reshape(start.shape))[1].reshape(1, -1)

        options |= {"weights": self.weights, "batch_size": batch_size_of(self.target)}
        if learning_rate is not None:
            flat = optimize.sgd(gradient, start.reshape(1, -1), learning_rate=learning_rate, **options)
        else:
            flat = optimize.adam(gradient, start.reshape(1, -1), **options)
        parameters = flat.reshape(start.shape)
        value = self(parameters)[0]
        lower = self.minimum(parameters, max_steps=N_PROOF_STEPS).value
        converged = optimize.has_converged(value, lower)
        return optimize.Minimum(parameters, value, converged, n_evaluations=options["n_steps"])

    def batch(self, rows: NDArray[np.intp]) -> LinearProblem:
        """The same problem on a drawn mini-batch."""
        part = self._copy()
        part.x, part.labels, part.base = self.x[rows], self.labels[rows], self.base[rows]
        part.masked = None if self.masked is None else self.masked[rows]
        part.weights, part.target = np.full(len(rows), 1 / len(rows)), self.target.on_batch()
        return part

    def without(self, fold: Fold) -> LinearProblem:
        """The same problem without the samples of a fold; its ridge is that of fewer samples."""
        part, share = self._copy(), 1 - fold.share
        part.weights = (self.weights - fold.held_out_weights) / share
        part.strengths = self.strengths / share
        return part

    def _copy(self) -> LinearProblem:
        part = copy(self)
        vars(part).pop("_at_labels", None)
        return part

    @property
    def unit(self) -> Vector:
        """Of each parameter: in it NLL's curvature at temperature scaling is 1."""
        return np.asarray(1 / np.sqrt(self._curvature()))

    def weight_and_bias(self, parameters: Vector) -> tuple[Vector, Vector]:
        """1 + Δ and b."""
        m = len(parameters)
        change = parameters[:, :-1]
        return (np.eye(m) + change if self.full else 1 + change[:, 0]), parameters[:, -1].copy()

    def start_from(self, near: Map) -> Vector | None:
        """The parameters of another map of 1 + Δ and b, to start with; None if it has another shape."""
        weight, bias = near.parameters["weight"].T, near.parameters["bias"]
        if (weight.ndim == 2, len(bias)) != (self.full, len(self.strengths)):
            return None
        return np.column_stack([weight - (np.eye(len(bias)) if self.full else 1), bias])

    def __call__(self, parameters: Vector) -> tuple[float, Vector]:
        if isinstance(self.target, NLL):
            return self._nll(parameters)
        parts = self._statistics(parameters)
        value, slopes = self.target.evaluate(*self._values(parts))
        gradient = 2 * self.strengths * (parameters - self.centers)
        for rows, stats in parts:
            pulled = stats.vjp({name: slope[rows] for name, slope in slopes.items()})
            if self.full:
                gradient[:, :-1] += pulled.T @ self.x[rows]
            else:
                gradient[:, 0] += np.einsum("ij,ij->j", pulled, self.x[rows])
            gradient[:, -1] += pulled.sum(axis=0)
        return value + self._ridge(parameters), gradient

    def _ridge(self, parameters: Vector) -> float:
        return float((self.strengths * (parameters - self.centers) ** 2).sum())

    def _nll(self, parameters: Vector) -> tuple[float, Vector]:
        """NLL plus ridge, whose slope in the logits is p − 1 at the label: a third of the work of objectives in general."""
        sums = self._class_sums(parameters)
        if sums is not None:
            return sums[:2]

        def part(rows: slice) -> tuple[float, Vector]:
            x, weights = self.x[rows], self.weights[rows]
            r = self.logits(parameters, rows)
            r -= row_max(r)[:, None]
            label = np.arange(len(r)), self.labels[rows]
            log_label = r[label]
            total = row_sum(exp_normal(r))
            r *= (weights / total).astype(r.dtype)[:, None]
            r[label] -= weights.astype(r.dtype)
            slope = r.T @ x if self.full else np.einsum("ij,ij->j", r, x)[:, None]
            value = -float(dot((log_label - np.log(total)).astype(np.float64), weights))
            return value, np.column_stack([slope, r.sum(axis=0)]).astype(np.float64)

        parts = in_threads(part, list(row_blocks(*self.x.shape)))
        value = sum(value for value, _ in parts) + self._ridge(parameters)
        return value, sum((slope for _, slope in parts), 2 * self.strengths * (parameters - self.centers))

    def _class_sums(
        self, parameters: Vector, *, is_curvature: bool = False
    ) -> tuple[float, Vector, list[Vector]] | None:
        """The same for a diagonal, in one compiled pass, and the sums of curvatures; None where NumPy has to.

        What depends on labels is linear in the parameters: its sums are the same at all of them.
        """
        if self.full or self.masked is not None:
            return None
        slope, bias = 1 + parameters[:, 0], parameters[:, 1].copy()
        sums = kernels.class_sums(self.x, self.weights, slope, bias, is_curvature=is_curvature)
        if sums is None:
            return None
        value, (probs, products, *curvatures) = sums
        value += self._ridge(parameters) - float(self._at_labels.T.ravel() @ np.r_[slope, bias])
        gradient = np.column_stack([products, probs]) - self._at_labels
        return value, gradient + 2 * self.strengths * (parameters - self.centers), curvatures

    def _nll_with_pairs(self, balance: Balance, parameters: Vector) -> tuple[float, Vector, optimize.Precondition]:
        """NLL plus ridge of a diagonal, its slope, and the inverse of the blocks of its Hessian."""
        sums = self._class_sums(parameters, is_curvature=True)
        assert sums is not None
        value, gradient, (counts, products, squares) = sums
        ridge_slope, ridge_bias = 2 * self.strengths.T
        inverse = inverse_of_pairs(squares + ridge_slope, products, counts + ridge_bias)
        return value, gradient, balance.precondition(inverse)

    @cached_property
    def _at_labels(self) -> Vector:
        """Of each class the sums of w·x and of w over the samples that have it as their label."""
        n, m = self.x.shape
        weighted = self.weights * self.x[np.arange(n), self.labels]
        return np.column_stack([np.bincount(self.labels, by, minlength=m) for by in (weighted, self.weights)])

    def evaluate(self, parameters: Vector) -> float:
        """The objective without the ridge."""
        return self.target.evaluate(*self._values(self._statistics(parameters)))[0]

    def hessian(self, parameters: Vector) -> Vector:
        """Of NLL plus ridge: Σ_i w_i p_ij (δ_jl − p_il) x_ia x_ib between the parameters (j, a) and (l, b), x_i0 = 1 for b."""
        m, width = parameters.shape
        hessian = np.diag(2 * self.strengths.ravel())
        own = np.zeros((m, width, width))
        for rows in row_blocks(len(self.x), m * width):
            x, weights = self.x[rows], self.weights[rows, None]
            p = softmax(self.logits(parameters, rows))
            inputs = np.ones((len(x), m, width)) if not self.full else np.ones((len(x), 1, width))
            inputs[:, :, :-1] = x[:, None, :] if self.full else x[:, :, None]
            slopes = (np.sqrt(weights) * p)[:, :, None] * inputs
            flat = slopes.reshape(len(x), -1)
            hessian -= flat.T @ flat
            if self.full:
                own += (flat.T @ (np.sqrt(weights) * inputs[:, 0])).reshape(own.shape)
            else:
                own += np.einsum("ija,ijb->jab", slopes, np.sqrt(weights)[:, :, None] * inputs)
        for j in range(m):
            block = slice(j * width, (j + 1) * width)
            hessian[block, block] += own[j]
        return hessian

    def logits(self, parameters: Vector, rows: slice | NDArray[np.intp]) -> Vector:
        """Of some samples, with the parameters given."""
        x, parameters = self.x[rows], parameters.astype(self.x.dtype)
        change = parameters[:, :-1]
        r = x @ change.T if self.full else x * change[:, 0]
        r += x
        r += parameters[:, -1]
        if self.masked is not None:
            r[self.masked[rows]] = MASKED_LOGIT
        return r

    def _statistics(self, parameters: Vector) -> list[tuple[slice, LogitStatistics]]:
        parts = []
        for rows in row_blocks(*self.x.shape):
            logits, base = self.logits(parameters, rows), self.base[rows]
            parts.append((rows, of_logits(logits, self.labels[rows], base, self.target.needs, self.kappa)))
        return parts

    def _values(self, parts: list[tuple[slice, LogitStatistics]]) -> tuple[dict[str, Vector], Facts]:
        values = {name: np.concatenate([stats.values[name] for _, stats in parts]) for name in parts[0][1].values}
        correct = np.concatenate([stats.correct for _, stats in parts])
        return values, Facts(correct, self.weights, self.n_classes)

    def _curvature(self) -> Vector:
        """Second derivative of NLL plus ridge in each parameter at temperature scaling: Σ_i w_i p_ij (1 − p_ij) x_ik²."""
        curvature = 2 * self.strengths
        ones, zeros = np.ones(self.n_classes), np.zeros(self.n_classes)
        if not self.full and self.masked is None:
            sums = kernels.class_sums(self.x, self.weights, ones, zeros, is_curvature=True)
            if sums is not None:
                curvature += sums[1][[4, 2]].T
                return np.maximum(curvature, SMALLEST_CURVATURE * curvature.max())
        for rows in row_blocks(*self.x.shape):
            x = self.x[rows]
            p = softmax(x if self.masked is None else np.where(self.masked[rows], MASKED_LOGIT, x))
            p *= (1 - p) * self.weights[rows, None]
            if self.full:
                curvature[:, :-1] += p.T @ x**2
            else:
                curvature[:, 0] += np.einsum("ij,ij->j", p, x**2)
            curvature[:, -1] += p.sum(axis=0)
        return np.maximum(curvature, SMALLEST_CURVATURE * curvature.max())
