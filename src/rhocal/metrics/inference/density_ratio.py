"""The density ratio of two populations, by a classifier that tells their samples apart (Bickel et al. 2009).

With both populations weighted equally, the odds that x is of the target are w(x) = p_target(x)/p_source(x). A sample's odds
come from a classifier that did not see it (cross-fitting); else a rich classifier separates the samples themselves, and odds
are far too large. A logistic map of these out-of-fold odds corrects a classifier that is over- or under-confident. Weights
above √n are cut (Ionides 2008): they would cost more variance than the bias that they remove.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal import optimize
from rhocal.numerics.special import Floats, Vector, dot, expit, normal_cdf, softplus

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_FOLDS = 5
RIDGES = (1000.0, 100.0, 10.0, 1.0)
"""Of the classifier; the one with the lowest out-of-fold loss is used."""
MAX_CROSSED = 10
"""Features up to which products of two of them are terms of the classifier."""
MAX_SQUARED = 200
"""Features up to which squares are."""
MAX_NEWTON_TERMS = 100
MAX_COPIES_TOGETHER = 8
"""Equal rows of one population that stay in one fold, so that copies of a sample do not identify themselves."""
MIN_SHARED = 0.5
"""How often rows of different populations are equal, over how often two of one are, above which equal rows are values."""
MAX_FIT_SAMPLES = 20_000
"""Of each population that a classifier is fitted on."""

Classifier = Callable[[Floats, Vector, Vector], Callable[[Floats], Vector]]
"""Features, whether a sample is of the target, weights → a function from features to log-odds."""


@dataclass(frozen=True, eq=False)
class DensityRatio:
    """Weights of the source samples, and how they were found."""

    weights: Vector
    """They have mean 1."""
    outside: float
    """Share of the target samples whose weight would have been cut."""
    auc: float
    """How well the classifier tells the populations apart, out of fold; 0.5 if they are the same."""
    p_value: float
    """Of the test whether both are one population."""
    before: Vector
    """Of each feature, the distance of the means in standard deviations."""
    after: Vector
    """The same with weights."""


def density_ratio(source: Floats, target: Floats, classifiers: list[Classifier] | None = None) -> DensityRatio:
    """Estimate the ratio. ``classifiers`` are candidates; the default is ridge logistic regression with quadratic terms."""
    folds = density_folds(source, target)
    candidates = classifiers or [_ridge(ridge) for ridge in RIDGES]
    odds = [_out_of_fold(source, target, (folds[0].number, folds[1].number), candidate) for candidate in candidates]
    losses = [(softplus(own), softplus(-other)) for own, other in odds]
    best = int(np.argmin([own.mean() + other.mean() for own, other in losses]))
    auc, p_value = _fold_test(*odds[best], *folds)[0], _fold_test(*odds[0], *folds)[1]  # a choice would raise the level
    log_ratio = _recalibrated(*_mean_of_equals(source, target, *odds[best]))
    # A ratio that predicts no better than 1, give or take a standard error, is noise.
    gains = [np.log(2) - softplus(own) for own in (log_ratio[0], -log_ratio[1])]
    gain = float(gains[0].mean() + gains[1].mean())
    error = float(np.sqrt(sum(part.var() / len(part) for part in gains)))
    if gain <= error:
        log_ratio = np.zeros(len(source)), np.zeros(len(target))
    raw, limit = np.exp(np.minimum(log_ratio[0], 50)), np.sqrt(len(source))
    weights = np.minimum(raw, limit)
    weights = weights / weights.mean()
    before, after = (_distances(source, target, one) for one in (np.ones(len(source)), weights))
    outside = float((log_ratio[1] > np.log(limit)).mean())
    return DensityRatio(weights, outside, auc, p_value, before, after)


@dataclass(frozen=True, eq=False)
class SampleFolds:
    """The fold of every sample of a population."""

    number: NDArray[np.intp]
    copies: NDArray[np.intp]
    """How many equal rows stay in one fold with it, itself among them."""


def density_folds(source: Floats, target: Floats) -> tuple[SampleFolds, SampleFolds]:
    """Folds of both populations by content, so that neither the order of rows nor that of columns matters.

    Copies of a sample stay together. Equal rows that are values, which the other population has too, or many, are spread: a
    classifier that has seen none of them knows nothing about them, and together they would be counted as independent samples.
    """
    are_values = _share_values(source, target)
    return _content_folds(source, 0, are_values=are_values), _content_folds(target, 1, are_values=are_values)


def _share_values(source: Floats, target: Floats) -> bool:
    """Whether equal rows are values: two rows of different populations are equal about as often as two of the same."""
    n, m = len(source), len(target)
    equal, _, _ = _equal_rows(_rounded(np.concatenate([source, target])))
    a, b = (np.bincount(part, minlength=int(equal.max()) + 1) for part in (equal[:n], equal[n:]))
    within = (a @ (a - 1) / (n * max(n - 1, 1)) + b @ (b - 1) / (m * max(m - 1, 1))) / 2
    return bool(a @ b / (n * m) > MIN_SHARED * within)


def _content_folds(rows: Floats, seed: int, *, are_values: bool) -> SampleFolds:
    """Folds of one population."""
    values = _rounded(rows)
    equal, first, counts = _equal_rows(values)
    keys = _row_keys(values[first])
    # Rows that hold the same numbers in other columns have the same key: then the rarer comes first.
    places = np.empty(len(keys), np.intp)
    places[np.lexsort((counts, keys))] = np.arange(len(keys))
    group = places[equal]
    order = np.argsort(group, kind="stable")
    spread = np.empty(len(rows), np.intp)
    # At random: in folds that all have the same share of a value, every fold would confirm what the others show.
    spread[order] = np.random.default_rng(seed).integers(N_FOLDS, size=len(rows))
    is_spread = (counts[equal] > MAX_COPIES_TOGETHER) | (are_values & (counts[equal] > 1))
    return SampleFolds(np.where(is_spread, spread, group % N_FOLDS), np.where(is_spread, 1, counts[equal]))


def _rounded(rows: Floats) -> NDArray[np.float64]:
    """Rows whose last digits, which depend on the order of sums, are gone; -0 is 0."""
    return np.asarray(np.round(np.ascontiguousarray(rows, np.float64), 9) + 0.0, np.float64)


def _equal_rows(values: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """The number of the distinct row that each row equals, the first row of each, and how many there are."""
    whole = np.ascontiguousarray(values).view(np.dtype((np.void, values.dtype.itemsize * values.shape[1]))).reshape(-1)
    _, first, equal, counts = np.unique(whole, return_index=True, return_inverse=True, return_counts=True)
    return equal, first, counts


def _row_keys(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """A hash of the numbers of each row, whatever their columns: it orders rows, and does not tell all of them apart."""
    bits = np.ascontiguousarray(values).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (bits ^ (bits >> np.uint64(32))).sum(axis=1, dtype=np.uint64) * np.uint64(0x94D049BB133111EB)
    return np.asarray(keys ^ (keys >> np.uint64(31)))


def _mean_of_equals(source: Floats, target: Floats, own: Vector, other: Vector) -> tuple[Vector, Vector]:
    """Equal rows of both have equal odds, whichever fold they are in.

    Otherwise a value that many rows share would be recognized by its fold: without a sample its own population is rarer there.
    """
    equal, _, counts = _equal_rows(_rounded(np.concatenate([source, target])))
    means = (np.bincount(equal, np.concatenate([own, other])) / counts)[equal]
    return means[: len(own)], means[len(own) :]


def _out_of_fold(
    source: Floats, target: Floats, folds: tuple[NDArray[np.intp], NDArray[np.intp]], fit: Classifier
) -> tuple[Vector, Vector]:
    """Log-odds of every sample by a classifier that was fitted without its fold."""
    odds = np.zeros(len(source)), np.zeros(len(target))
    for fold in range(N_FOLDS):
        inside = [
            rows[own != fold][:: _step(rows[own != fold])] for rows, own in zip((source, target), folds, strict=True)
        ]
        if not all(len(rows) for rows in inside):
            continue
        sizes = [len(rows) for rows in inside]
        is_target = np.repeat([0.0, 1.0], sizes)
        predict = fit(np.concatenate(inside), is_target, np.repeat(0.5 * sum(sizes) / np.array(sizes), sizes))
        for values, rows, own in zip(odds, (source, target), folds, strict=True):
            if (own == fold).any():
                values[own == fold] = predict(rows[own == fold])
    return odds


def _step(rows: Floats) -> int:
    return max(1, -(-len(rows) // MAX_FIT_SAMPLES))


def _ridge(ridge: float) -> Classifier:
    """Logistic regression on features, their squares and products."""

    def fit(x: Floats, is_target: Vector, weight: Vector) -> Callable[[Floats], Vector]:
        terms = np.asarray(_terms(x), np.float64)
        if terms.shape[1] <= MAX_NEWTON_TERMS:
            coefficients = optimize.logistic(terms.T, is_target, weight, ridge).x
        else:
            coefficients = optimize.lbfgs(
                _loss(terms, is_target, weight, ridge), np.zeros(terms.shape[1]), tolerance=1e-9
            ).x
        return lambda other: np.asarray(_terms(other) @ coefficients)

    return fit


def _loss(terms: Floats, target: Vector, weight: Vector, ridge: float) -> optimize.VectorFunction:
    def loss(x: Vector) -> tuple[float, Vector]:
        f = terms @ x
        value = float(weight @ (softplus(f) - target * f) + ridge / 2 * (x @ x))
        return value, np.asarray(terms.T @ (weight * (expit(f) - target)) + ridge * x)

    return loss


def _terms(x: Floats) -> Floats:
    """A constant, the features, and as many of their squares and products as there is room for."""
    n, d = x.shape
    parts = [np.ones((n, 1)), x]
    if d <= MAX_SQUARED:
        parts.append((x**2 - 1) / 2)
    if d <= MAX_CROSSED:
        first, second = np.triu_indices(d, 1)
        parts.append(x[:, first] * x[:, second])
    return np.concatenate(parts, axis=1)


def _recalibrated(own: Vector, other: Vector) -> tuple[Vector, Vector]:
    """Log-odds after a logistic map, fitted on both samples with equal weight; all 0 if they point the wrong way."""
    n, m = len(own), len(other)
    features = np.stack([np.ones(n + m), np.concatenate([own, other])])
    weight = np.repeat([0.5 * (n + m) / n, 0.5 * (n + m) / m], [n, m])
    bias, slope = optimize.logistic(features, np.repeat([0.0, 1.0], [n, m]), weight, 1e-3, np.array([0.0, 1.0])).x
    if slope <= 0:
        return np.zeros(n), np.zeros(m)
    return bias + slope * own, bias + slope * other


def _fold_test(own: Vector, other: Vector, folds: SampleFolds, other_folds: SampleFolds) -> tuple[float, float]:
    """Area under the curve, and the p-value of rank tests within folds, where one function scores samples it has not seen.

    The p-values of folds depend on each other; Cauchy's combination allows for that (Liu & Xie 2020). Copies in one fold are
    one sample: the variance is that of (Σk)²/Σk² samples for k copies of each (Kish 1965).
    """
    areas, p_values, sizes = [], [], []
    for fold in range(N_FOLDS):
        inside, other_inside = folds.number == fold, other_folds.number == fold
        a, b = own[inside], other[other_inside]
        n, m = len(a), len(b)
        if not (n and m):
            continue
        _, place, counts = np.unique(np.concatenate([a, b]), return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
        area = (ranks[n:].sum() - m * (m + 1) / 2) / (n * m)
        ties = float((counts.astype(float) ** 3 - counts).sum()) / max((n + m) * (n + m - 1.0), 1)
        effect = (folds.copies[inside].mean() / n + other_folds.copies[other_inside].mean() / m) / (1 / n + 1 / m)
        variance = effect * ((n + m + 1) - ties) / (12.0 * n * m)
        areas.append(area)
        sizes.append(float(n * m))
        p_values.append(float(normal_cdf(np.array((0.5 - area) / np.sqrt(variance)))) if variance > 0 else 0.5)
    if not areas:
        return 0.5, 1.0
    share = np.array(sizes) / np.sum(sizes)
    p = np.clip(p_values, 1e-15, 1 - 1e-15)
    combined = float(np.mean(1 / np.tan(np.pi * p)))
    return float(dot(share, np.array(areas))), float(0.5 - np.arctan(combined) / np.pi)


def _distances(source: Floats, target: Floats, weights: Vector) -> Vector:
    """How far the weighted mean of each feature is from that of the target, in standard deviations of both."""
    spread = np.maximum(
        np.sqrt((source.var(axis=0) + target.var(axis=0)) / 2), 1e-2
    )  # a feature that only tells them apart
    return np.asarray(np.abs(weights @ source / weights.sum() - target.mean(axis=0)) / spread)
