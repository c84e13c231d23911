"""Candidate steps: which there are, what they are scaled with, and how a gradient becomes a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.cascade.steps import Kind, StepFeatures
from rhocal.calibrators.folds import sort_keys
from rhocal.calibrators.scale.features import Standardization
from rhocal.numerics.special import row_dot, softmax

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.cascade.samples import Block, Samples, Sums
    from rhocal.calibrators.scale.scale_search import ScaleSearch
    from rhocal.numerics.special import Floats, Vector

BIAS_STRENGTHS = (0.3, 3.0, 30.0)
"""Samples of each class that are added to the observed and to the expected number."""

SLOPE_STRENGTHS = (10.0, 100.0)

RIDGE_STRENGTHS = (0.03, 0.3, 3.0, 30.0)
"""In units of the mean eigenvalue of the Gram matrix."""

MAX_KERNEL_CLASSES = 30
"""In more dimensions landmarks are too far apart."""

MAX_MATRIX_CLASSES = 300
"""Beyond, a matrix for each fold takes more memory than the logits."""

N_LANDMARKS = 300
KERNEL_JITTER = 1e-4
SMALLEST_EIGENVALUE = 1e-9


@dataclass(frozen=True)
class Candidate:
    """A kind of step with a strength of its ridge."""

    kind: Kind
    strength: float

    @property
    def feature(self) -> str:
        """The features whose Gram matrix scales it; empty for steps of single classes."""
        return {"matrix": "matrix", "tail": "matrix", "kernel": "kernel"}.get(self.kind, "")


def candidate_steps(n_classes: int) -> list[Candidate]:
    """Every candidate for a number of classes."""
    strengths: dict[Kind, tuple[float, ...]] = {"bias": BIAS_STRENGTHS, "slope": SLOPE_STRENGTHS}
    if n_classes <= MAX_MATRIX_CLASSES:
        strengths |= {"matrix": RIDGE_STRENGTHS, "tail": RIDGE_STRENGTHS}
    if n_classes <= MAX_KERNEL_CLASSES:
        strengths["kernel"] = RIDGE_STRENGTHS
    return [Candidate(kind, strength) for kind, values in strengths.items() for strength in values]


def feature_parameters(samples: Samples, search: ScaleSearch) -> dict[str, Any]:
    """The numbers of ``StepFeatures``: means, deviations, landmarks. Arrays are in double precision."""

    def add(block: Block, sums: Sums) -> None:
        scores, w = samples.scores(block), block.weights.astype(np.float64)
        for name, values in (("x", scores.log_probs), ("direction", scores.direction)):
            sums.add(name, w @ values)
            sums.add(f"{name} squares", w @ values.astype(np.float64) ** 2)

    sums = samples.sums(add)
    parameters: dict[str, Any] = {}
    for name in ("x", "direction"):
        mean = sums[name] / samples.total_weight
        variance = float((sums[f"{name} squares"] / samples.total_weight - mean**2).mean())
        parameters |= {f"{name}_mean": mean, f"{name}_sd": float(np.sqrt(max(variance, 0.0))) + 1e-9}
    if samples.n_classes <= MAX_KERNEL_CLASSES:
        parameters |= kernel_parameters(samples, search, parameters)
    return parameters


def kernel_parameters(samples: Samples, search: ScaleSearch, parameters: dict[str, Any]) -> dict[str, Any]:
    """Landmarks at regular ranks of the samples, the range of the features, and the width of the kernel."""
    numbers = samples.cast(parameters)
    x = samples.row_values(lambda block: StepFeatures(samples.ops, numbers, samples.scores(block)).slope)
    standard = Standardization.from_features(x, samples.weights / samples.total_weight)
    place = np.empty(len(samples.logits), np.intp)
    place[samples.order] = np.arange(len(samples.order))
    landmarks = np.clip(x[place[landmark_rows(search)]], standard.low, standard.high)
    squares = (landmarks**2).sum(axis=1)
    distances = squares[:, None] + squares[None] - 2 * landmarks @ landmarks.T
    apart = distances[distances > 1e-9]
    return {
        "x_low": standard.low,
        "x_high": standard.high,
        "landmarks": landmarks.T.copy(),
        "landmark_squares": squares,
        "width": float(np.median(apart)) if len(apart) else 1.0,
    }


def landmark_rows(search: ScaleSearch) -> NDArray[np.intp]:
    """Different samples at regular ranks: neither the order of samples nor repeating one changes them."""
    keys = sort_keys(search)
    order = np.lexsort(keys[::-1])
    order = order[search.profile.weights[order] > 0]
    is_first = np.append(True, np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0))
    distinct = order[is_first]
    every = -(-len(distinct) // min(N_LANDMARKS, max(len(distinct) // 2, 1)))
    return np.asarray(distinct[every // 2 :: every])


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """(ΦᵀWΦ + c·tr/D)⁻¹ for every strength c, from one eigendecomposition."""

    values: Vector
    vectors: Vector
    """With Vᵀ·Gram·V = diag(values); V is not orthogonal where features are whitened first."""
    unit: float

    @classmethod
    def from_gram(cls, gram: Vector, whitening: Vector | None = None) -> Preconditioner:
        """Of a Gram matrix; ``whitening`` is that of the features, T in Φ·T."""
        if whitening is not None:
            gram = whitening.T @ gram @ whitening
        values, vectors = np.linalg.eigh(gram)
        unit = float(np.trace(gram)) / len(gram)
        vectors = vectors if whitening is None else whitening @ vectors
        return cls(np.maximum(values, 0), vectors, unit)

    def solve(self, gradient: Vector, strength: float) -> Vector:
        """The step for a gradient."""
        scale = 1 / (self.values + strength * self.unit + SMALLEST_EIGENVALUE)
        return np.asarray(self.vectors @ (scale[:, None] * (self.vectors.T @ gradient)))


def preconditioners(
    samples: Samples, parameters: dict[str, Any], held_out: Floats, features: set[str]
) -> dict[str, list[Preconditioner]]:
    """For each of the features one for each fold model (the Gram matrix of all minus that of the fold), and that of all."""
    numbers = samples.cast(parameters)

    def add(block: Block, sums: Sums) -> None:
        p = softmax(held_out[block.rows])
        spread = block.weights * (1 - row_dot(p, p)) / samples.n_classes
        step_features = StepFeatures(samples.ops, numbers, samples.scores(block))
        for name in features:
            values = getattr(step_features, name)
            sums.add((name, block.fold), ((values * spread[:, None]).T @ values).astype(np.float64))

    sums = samples.sums(add)
    solvers = {}
    for name in features:
        grams = [sums[name, fold] for fold in range(samples.n_folds)]
        total = np.sum(grams, axis=0)
        whitening = kernel_whitening(parameters) if name == "kernel" else None
        solvers[name] = [Preconditioner.from_gram(gram, whitening) for gram in (*(total - g for g in grams), total)]
    return solvers


def kernel_whitening(parameters: dict[str, Any]) -> Vector:
    """L⁻ᵀ with LLᵀ the kernel of the landmarks: features k·L⁻ᵀ have the kernel as their product."""
    landmarks, squares = parameters["landmarks"].T, parameters["landmark_squares"]
    distances = np.maximum(squares[:, None] + squares[None] - 2 * landmarks @ landmarks.T, 0)
    kernel = np.exp(-distances / parameters["width"])
    lower = np.linalg.cholesky(kernel + KERNEL_JITTER * np.eye(len(landmarks)))
    return np.asarray(np.linalg.inv(lower).T)


def step_from_gradient(candidate: Candidate, gradient: Sums, model: int, solver: list[Preconditioner]) -> Vector:
    """The step of a model."""
    strength = candidate.strength
    if candidate.kind == "bias":
        return np.asarray(np.log((gradient[model, "labels"] + strength) / (gradient[model, "probs"] + strength)))
    if candidate.kind == "slope":
        return np.asarray(gradient[model, "slope"] / (gradient[model, "slope curvature"] + strength))
    return solver[model].solve(gradient[model, candidate.kind], strength)
