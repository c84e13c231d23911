"""Approximate inverses of the Hessian of a linear map: blocks of the parameters of each class, none between classes.

The part between classes, −Σ w p_j p_l, is small where there are many of them, except in one direction: a number that is added
to the logits of all classes changes nothing. Steps are kept out of it, and only the ridge decides there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics.special import softmax

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.linear.linear_problem import LinearProblem
    from rhocal.numerics.special import Vector
    from rhocal.optimize import Precondition

MIN_DETERMINANT = 1e-5
"""Of a block of slope and bias, as a share of the product of its diagonal: below it single precision knows no determinant."""

N_EVALUATIONS = 5
"""Blocks of a matrix are computed from as many samples as cost that many evaluations."""

MAX_CLASSES = 200
"""Classes of a matrix up to which its blocks are computed: they have the cube of that many numbers."""

DAMPING = 1e-6
"""Added to the diagonal of a block, as a share of its mean."""


class Balance:
    """What can be added to the parameters of all classes without a change of probabilities, settled by the ridge alone."""

    def __init__(self, strengths: Vector, centers: Vector, *, is_matrix: bool) -> None:
        shared = slice(None) if is_matrix else slice(-1, None)
        strengths = strengths[:, shared]
        total = strengths.sum(axis=0)
        self.shares = np.where(total > 0, strengths / np.where(total > 0, total, 1.0), 1 / len(strengths))
        self.centers, self.shared = centers[:, shared], shared

    def parameters(self, parameters: Vector) -> Vector:
        """The parameters with the same probabilities that have the lowest ridge."""
        out = parameters.copy()
        out[:, self.shared] -= (self.shares * (out[:, self.shared] - self.centers)).sum(axis=0)
        return out

    def precondition(self, inverse: Precondition) -> Precondition:
        """An approximate inverse of the Hessian whose steps keep the balance."""

        def project(gradient: Vector) -> Vector:
            out = gradient.copy()
            out[:, self.shared] -= self.shares * out[:, self.shared].sum(axis=0)
            step = inverse(out)
            step[:, self.shared] -= (self.shares * step[:, self.shared]).sum(axis=0)
            return step

        return project


def inverse_of_pairs(squares: Vector, products: Vector, counts: Vector) -> Precondition:
    """The inverse of blocks of a slope and a bias: Σ w q x², Σ w q x and Σ w q of every class, q = p(1 − p), with the ridge."""
    squares, counts = (np.maximum(value, max(1e-12 * value.max(), 1e-300)) for value in (squares, counts))
    determinant = np.maximum(squares * counts - products**2, MIN_DETERMINANT * squares * counts)

    def inverse(gradient: Vector) -> Vector:
        slope, bias = gradient.T
        return (
            np.column_stack([counts * slope - products * bias, squares * bias - products * slope])
            / determinant[:, None]
        )

    return inverse


def inverse_of_rows(problem: LinearProblem, parameters: Vector) -> Precondition:
    """The inverse of blocks of the row of a matrix and its bias, from some of the samples."""
    n, m = problem.x.shape
    rows = spread_rows(problem, min(n, max(1, round(2 * N_EVALUATIONS * n / m))))
    x = np.column_stack([problem.x[rows], np.ones(len(rows), problem.x.dtype)])
    weights = problem.weights[rows]
    weights = weights * (problem.weights.sum() / max(weights.sum(), 1e-300))
    p = softmax(problem.logits(parameters, rows))
    q = (p * (1 - p) * weights[:, None]).astype(x.dtype)
    blocks = np.empty((m, m + 1, m + 1))
    for j in range(m):
        blocks[j] = (x * q[:, j, None]).T @ x
    diagonal = np.einsum("jaa->ja", blocks)
    diagonal += 2 * problem.strengths + DAMPING * diagonal.mean(axis=1, keepdims=True)
    inverses = np.linalg.inv(blocks).astype(x.dtype)

    def inverse(gradient: Vector) -> Vector:
        return np.asarray(inverses @ gradient[:, :, None].astype(x.dtype), np.float64)[:, :, 0]

    return inverse


def spread_rows(problem: LinearProblem, n_rows: int) -> NDArray[np.intp]:
    """Samples with weight from those whose label has a low input to those where it has a high one, whatever their order."""
    present = np.flatnonzero(problem.weights > 0)
    order = np.argsort(problem.x[present, problem.labels[present]], kind="stable")
    ranks = ((np.arange(n_rows) + 0.5) * len(present) / n_rows).astype(np.intp)
    return present[order[np.unique(ranks)]]
