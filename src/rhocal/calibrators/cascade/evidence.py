"""How a shared stage is fitted: NLL by Newton steps, with one ridge for each group of weights by evidence.

With entry features f_a and u = offset + Σ_a coefficient_a(context)·f_a, the Hessian needs only the covariances of the f_a under
the probabilities of each sample: a few sums a sample, whatever the number of weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.cascade.samples import MAX_KEPT_ENTRIES
from rhocal.calibrators.cascade.scores import smoothed_log_probs
from rhocal.calibrators.cascade.shared import SharedWeights, context, entry_features, part_sizes
from rhocal.calibrators.scale.features import Standardization
from rhocal.numerics.special import row_dot, row_max, row_sum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.cascade.samples import Block, Samples
    from rhocal.numerics.special import Floats, Vector

MAX_STEPS = 15
FIRST_RIDGE = 3.0
RIDGE_RANGE = (0.3, 1e4)
MIN_FREEDOM = 0.1
"""Effective number of weights of a group at least: a ridge never becomes infinite."""

RIDGE_TOLERANCE = 0.15
"""In log ridge: ridges that change less are settled."""

DECREASE_TOLERANCE = 0.1
"""Nats of all samples together that a last step may promise."""

SHORTEST_STEP = 0.01
JITTER = 1e-7


@dataclass(frozen=True, eq=False)
class BlockFeatures:
    """What a block contributes: the features of its entries, and the context of its samples with a leading 1."""

    entries: list[Floats]
    context: Vector
    at_label: Vector
    """The features at the label, a column each."""


@dataclass(frozen=True, eq=False)
class Quadratic:
    """NLL at some weights: value, gradient and Hessian."""

    value: float
    gradient: Vector
    hessian: Vector


class SharedProblem:
    """NLL of a shared stage on offsets, which are logits in the order of the samples."""

    def __init__(self, samples: Samples, offset: Floats, *, has_top: bool) -> None:
        self.samples, self.offset, self.has_top = samples, offset, has_top
        raw = samples.row_values(self._context)
        self.standard = Standardization.from_features(raw, samples.weights / samples.total_weight)
        self.context = np.concatenate([np.ones((len(raw), 1)), self.standard(raw)], axis=1)
        self.sizes = part_sizes(raw.shape[1], has_top=has_top)
        self._kept: dict[int, BlockFeatures] = {}

    def _log_probs(self, block: Block) -> Floats:
        x: Floats = smoothed_log_probs(self.samples.ops, self.samples.parameters, self.offset[block.rows])
        return x

    def _context(self, block: Block) -> Any:
        log_norm = self.samples.scores(block).log_norm
        return context(self.samples.ops, log_norm, self._log_probs(block), self.samples.n_classes)

    def features(self, block: Block) -> BlockFeatures:
        """The features of a block; kept if all of them are small."""
        if block.number in self._kept:
            return self._kept[block.number]
        is_top = self.samples.scores(block).is_top if self.has_top else None
        entries = entry_features(self.samples.ops, self._log_probs(block), is_top)
        at_label = np.stack([entry[block.label_entries] for entry in entries], axis=1).astype(np.float64)
        features = BlockFeatures(entries, self.context[block.rows], at_label)
        if len(entries) * self.samples.size <= MAX_KEPT_ENTRIES:
            self._kept[block.number] = features
        return features

    @property
    def groups(self) -> list[NDArray[np.intp]]:
        """Weights that share a ridge: gap × context, tail, top, top × context. That of the gap itself keeps its ridge."""
        starts = np.cumsum([0, *self.sizes])
        gap, tail, *top = (np.arange(a, b) for a, b in pairwise(starts))
        return [gap[1:], tail, *(part for indices in top for part in (indices[:1], indices[1:]))]

    def coefficients(self, weights: Vector, c: Vector) -> Vector:
        """The coefficient of each entry feature for every sample."""
        gap, tail, *top = np.split(weights, np.cumsum(self.sizes)[:-1])
        columns = [c @ gap, *(np.full(len(c), weight) for weight in tail), *(c @ weight for weight in top)]
        return np.stack(columns, axis=1)

    def at(self, weights: Vector) -> Quadratic:
        """Value and derivatives at some weights."""
        parts = self.samples.each(lambda block: self._block_at(weights, block))
        return Quadratic(
            sum(part.value for part in parts),
            np.sum([part.gradient for part in parts], axis=0),
            np.sum([part.hessian for part in parts], axis=0),
        )

    def _block_at(self, weights: Vector, block: Block) -> Quadratic:
        features, w = self.features(block), block.weights.astype(np.float64)
        coefficients = self.coefficients(weights, features.context).astype(self.samples.ops.dtype)
        u = self.offset[block.rows].copy()
        for a, entry in enumerate(features.entries):
            u += coefficients[:, a : a + 1] * entry
        label = u[block.label_entries].astype(np.float64)
        top = row_max(u)
        p = np.exp(u - top[:, None])
        total = row_sum(p)
        p /= total[:, None]
        value = float(w @ (np.log(total.astype(np.float64)) + top - label))
        means, covariances = moments(p, features.entries)
        blocks_of = self._weights_of(features.context)
        residual = (means - features.at_label) * w[:, None]
        gradient = np.concatenate([c.T @ residual[:, a] for a, c in enumerate(blocks_of)])
        rows = [
            np.concatenate(
                [(c * (w * covariances[a, b])[:, None]).T @ other for b, other in enumerate(blocks_of)], axis=1
            )
            for a, c in enumerate(blocks_of)
        ]
        return Quadratic(value, gradient, np.concatenate(rows, axis=0))

    def _weights_of(self, c: Vector) -> list[Vector]:
        """For each entry feature the derivatives of its coefficient in its weights."""
        one = c[:, :1]
        n_tail = self.sizes[1]
        return [c, *([one] * n_tail), *([c] if self.has_top else [])]


def moments(p: Floats, entries: list[Floats]) -> tuple[Vector, Vector]:
    """Means and covariances of the entry features of every sample under its probabilities (n × A, A × A × n)."""
    n_features = len(entries)
    means = np.empty((len(p), n_features))
    seconds = np.empty((n_features, n_features, len(p)))
    for a, entry in enumerate(entries):
        weighted = p * entry
        means[:, a] = row_sum(weighted)
        for b in range(a, n_features):
            seconds[a, b] = seconds[b, a] = row_dot(weighted, entries[b])
    return means, seconds - means.T[:, None, :] * means.T[None, :, :]


def fit_shared(samples: Samples, offset: Floats, *, has_top: bool) -> tuple[SharedWeights, dict[str, Any]]:
    """Fit a shared stage; its weights, and a row of evidence."""
    problem = SharedProblem(samples, offset, has_top=has_top)
    groups, n_weights = problem.groups, sum(problem.sizes)
    weights, ridge = np.zeros(n_weights), np.full(n_weights, FIRST_RIDGE)
    here = problem.at(weights)
    before, n_passes, is_settled = here.value, 1, False
    for step in range(MAX_STEPS):
        curvature = here.hessian + np.diag(ridge)
        curvature += JITTER * np.trace(here.hessian) / n_weights * np.eye(n_weights)
        slope = here.gradient + ridge * weights
        direction = -np.linalg.solve(curvature, slope)
        decrease, length = -float(slope @ direction), 1.0
        objective = here.value + 0.5 * float(ridge @ weights**2)
        while True:
            tried = weights + length * direction
            there, n_passes = problem.at(tried), n_passes + 1
            if there.value + 0.5 * float(ridge @ tried**2) <= objective - 1e-4 * length * decrease:
                break
            length /= 2
            if length < SHORTEST_STEP:
                break
        if length < SHORTEST_STEP:
            is_settled = True  # rounding: nothing is lower than here
            break
        weights, here = tried, there
        if step:
            new = evidence_ridges(weights, ridge, curvature, groups)
            is_settled = bool(np.abs(np.log(new / ridge)).max() < RIDGE_TOLERANCE) and decrease < DECREASE_TOLERANCE
            ridge = new
            if is_settled:
                break
    total, freedom = samples.total_weight, n_weights - float(ridge @ variances(here.hessian + np.diag(ridge)))
    row = {"nll_before": before / total, "nll": here.value / total, "freedom": freedom, "passes": n_passes}
    row["converged"] = is_settled
    return SharedWeights(problem.standard, weights), row


def evidence_ridges(weights: Vector, ridge: Vector, curvature: Vector, groups: list[NDArray[np.intp]]) -> Vector:
    """MacKay's update: the effective number of weights of a group, divided by the sum of their squares."""
    variance, new = variances(curvature), ridge.copy()
    for group in groups:
        effective = max(len(group) - float(ridge[group] @ variance[group]), MIN_FREEDOM)
        new[group] = np.clip(effective / (float((weights[group] ** 2).sum()) + 1e-9), *RIDGE_RANGE)
    return new


def variances(curvature: Vector) -> Vector:
    """Of the weights, as the curvature of their posterior distribution has them."""
    # With very uneven weights two features can be the same to the last digit.
    return np.diag(np.linalg.pinv(curvature, hermitian=True))
