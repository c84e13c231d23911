"""Class shares of unlabeled samples under label shift: the mix of the classes changes, the samples of each class do not.

EM (Saerens et al. 2002) maximizes Σ log Σ_k π_k p_k(x)/s_k over the shares π, with p the probabilities of a model for shares s.
It is right if p is. Labeled samples of the first mix repair it where p is not: with h(x) the probabilities that belong to the
EM estimate, E[h] = Σ_k π_k E[h | k] holds for the true shares whatever h is (black-box shift estimation, Lipton et al. 2018;
at this h it is as precise as EM). Both sides are means, so the interval follows from their covariances. EM alone has none that
holds: how far p is from the truth is not seen in unlabeled samples.

Either estimate is often 0 for a class that is rare. With such a share its samples are impossible, which costs far more than a
share that is too large, so what is returned is the mean of what the share may be (``expected_shares``). Either estimate also
moves by noise where nothing has changed: the part that noise explains is left out (``unexplained_part``). Estimates that are
many standard errors from 0, and differences from the first mix that are as large, stay as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import InputError
from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL
from rhocal.numerics.special import exp_normal, f_tail, normal_cdf, normal_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.special import Floats, Vector

MAX_STEPS = 2000
TOLERANCE = 1e-9
"""Largest change of a share in the last EM step."""

MAX_CONDITION = 1e4
"""Means of classes that differ less than this says do not tell the classes apart."""

MIN_OF_CLASS = 10
"""Labeled samples of a class below which their mean has no usable variance."""

MAX_INVERTED_CLASSES = 20
"""Up to here intervals invert a test, some twenty evaluations a class; beyond they are those of a normal estimate."""
SEARCH_STEPS, MAX_LOG_ODDS = 11, 12.0

MIN_DISTANCE = 1e-8
"""Means in a class and in the others that differ by a smaller part are equal but for rounding."""

MAX_ERROR = 0.5
"""A standard error of a share above which its samples say nothing about it."""

N_CELLS = 10
"""Cells of equal mass in which the distribution of scores is compared."""

MIN_IN_CELL = 5.0

MIN_OF_CLASS_IN_CELL = 15
"""Labeled samples of the rarest class for each cell: of fewer, variances of cells are too small too often."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Estimated class shares."""

    value: Vector
    low: Vector
    high: Vector
    p_value: float
    """Of the test whether label shift explains the samples."""


def adapted(probs: Floats, ratio: Vector) -> Floats:
    """The probabilities for another mix: p_k·r_k, normalized; r are new shares over old ones."""
    moved = probs * ratio
    out: Floats = moved / moved.sum(axis=1, keepdims=True)
    return out


def em_shares(probs: Floats, source: Vector) -> Vector:
    """The shares that maximize the likelihood of the samples, given probabilities that are right for ``source``.

    Steps are extrapolated (SQUAREM, Varadhan and Roland 2008): with overlapping classes EM alone needs thousands.
    """
    w = np.full(len(probs), 1 / len(probs))

    def step(shares: Vector) -> Vector:
        ratio = shares / source
        return np.asarray(ratio * ((w / (probs @ ratio)) @ probs))

    def likelihood(shares: Vector) -> float:
        return float(w @ np.log(probs @ (shares / source)))

    shares = source.copy()
    for _ in range(MAX_STEPS):
        one = step(shares)
        two = step(one)
        first, second = one - shares, two - 2 * one + shares
        if np.abs(two - one).max() < TOLERANCE:
            return two
        length = math.sqrt(float(first @ first) / max(float(second @ second), 1e-300))
        jump = np.maximum(shares + 2 * length * first + length**2 * second, 1e-15)
        jump = step(jump / jump.sum())
        shares = jump if likelihood(jump) >= likelihood(two) else two
    return shares


def estimated_shares(probs: Floats, source: Vector, n_calibration: int | None = None) -> Vector:
    """The shares of unlabeled samples by EM, less what noise explains, and away from 0 by their error.

    The noise of the probabilities is that of means of classes in ``n_calibration`` samples; None: they are taken as exact.
    """
    shares = np.maximum(em_shares(probs, source), smallest_share(probs))
    shares /= shares.sum()
    counts = np.full(len(source), np.inf) if n_calibration is None else source * n_calibration
    h = adapted(probs, shares / source)
    means, variances = _weighted_moments(h)
    errors = share_errors(h, shares, means, variances, counts)
    noise = 1 + (shares**2 / counts @ variances).sum() / max(h.var(axis=0).sum() / len(h), 1e-300)
    likelihood_ratio = 2 * float(np.log(probs @ (shares / source)).sum())
    return expected_shares(_without_noise(shares, source, errors, likelihood_ratio / noise), errors)


def shares_with_labels(probs: Floats, labeled_probs: Floats, labels: NDArray[np.intp], source: Vector) -> Shares:
    """The estimate that labeled samples of the first mix repair, its interval, and the test of label shift."""
    counts = np.bincount(labels, minlength=len(source))
    if counts.min() < MIN_OF_CLASS:
        raise InputError(
            f"the rarest class has {counts.min()} labeled samples, and {MIN_OF_CLASS} are needed to estimate shares; "
            "give more labeled samples, or state the shares"
        )
    problem = _Moments(probs, labeled_probs, labels, source)
    floor = smallest_share(probs)
    em = np.maximum(em_shares(probs, source), floor)
    means, h, labeled = problem.at(em)
    if np.linalg.cond(means / means.mean(axis=0)) > MAX_CONDITION:
        raise InputError(
            "the scores do not tell the classes apart well enough to estimate their shares; state the shares, if they are known"
        )
    value = np.linalg.solve(means.T, h.mean(axis=0))
    p_value = explained(h, labeled, labels, value, np.linalg.inv(means.T))
    inverse = np.linalg.inv(means)
    noise = mixture_covariance(None, labeled @ inverse, labels, np.maximum(value, floor))
    shares = np.maximum(em + shrunk(value - em, noise), floor)
    shares /= shares.sum()
    if len(source) <= MAX_INVERTED_CLASSES:
        low, high = problem.inverted(shares, CONFIDENCE_LEVEL)
    else:
        low, high = _interval(value, problem.errors(shares, labeled, means), CONFIDENCE_LEVEL)
    chi2 = squared_distance(shares - source, mixture_covariance(h @ inverse, labeled @ inverse, labels, shares))
    means, h, labeled = problem.at(shares)
    variances = np.stack([labeled[labels == k].var(axis=0, ddof=1) for k in range(len(source))])
    errors = share_errors(h, shares, means, variances, counts.astype(np.float64))
    shares = expected_shares(_without_noise(shares, source, errors, chi2), errors)
    return Shares(shares, np.minimum(low, shares), np.maximum(high, shares), p_value)


def smallest_share(probs: Floats) -> float:
    """The smallest estimate: less than half a sample is not known to be nothing."""
    return 0.5 / (len(probs) + 1)


def _weighted_moments(h: Floats) -> tuple[Floats, Floats]:
    """Means and variances of h in each class, a row each, if h are the probabilities of the classes."""
    weights = h / np.maximum(h.sum(axis=0), 1e-300)
    means = weights.T @ h
    return means, np.maximum(weights.T @ h**2 - means**2, 0)


def share_errors(h: Floats, shares: Vector, means: Floats, variances: Floats, counts: Vector) -> Vector:
    """The standard error of each share, if the others keep their proportions.

    ``means`` and ``variances`` are those of h in each class, a row each, known from ``counts`` samples of it.
    """
    own = np.diag(means)
    distance = own - (shares @ means - shares * own) / (shares.sum() - shares)
    noise = h.var(axis=0) / len(h) + (shares**2 / counts) @ variances
    is_apart = np.abs(distance) > MIN_DISTANCE * own
    return np.where(is_apart, np.sqrt(noise) / np.where(is_apart, np.abs(distance), 1.0), np.inf)


def expected_shares(shares: Vector, errors: Vector) -> Vector:
    """The mean of a normal distribution around each share, between 0 and 1; a share that nothing is known of stays."""
    is_known = errors < MAX_ERROR
    s = np.where(is_known, np.maximum(errors, 1e-12), 1.0)
    low, high = -shares / s, (1 - shares) / s
    density = np.sqrt(0.5 / math.pi) * (exp_normal(-(low**2) / 2) - exp_normal(-(high**2) / 2))
    expected = np.where(is_known, shares + s * density / (normal_cdf(high) - normal_cdf(low)), shares)
    return np.asarray(expected / expected.sum())


@dataclass(frozen=True, eq=False)
class _Moments:
    """E[h] = Σ_k π_k E[h | k] with h the probabilities that belong to some shares."""

    probs: Floats
    labeled_probs: Floats
    labels: NDArray[np.intp]
    source: Vector

    def at(self, shares: Vector) -> tuple[Floats, Floats, Floats]:
        """The means of the labeled samples of each class, a row each, and h of both samples."""
        ratio = shares / self.source
        h, labeled = adapted(self.probs, ratio), adapted(self.labeled_probs, ratio)
        return class_means(labeled, self.labels, len(shares)), h, labeled

    def errors(self, shares: Vector, labeled: Floats, means: Floats) -> Vector:
        """Standard errors of the solution π, if ``shares`` are the true ones."""
        inverse = np.linalg.inv(means)
        of_classes = labeled @ inverse  # their means in the classes are the unit vectors
        within = np.stack([of_classes[self.labels == k].var(axis=0, ddof=1) for k in range(len(shares))])
        counts = np.bincount(self.labels)
        # Not the variance of the new samples: those of a rare class may all be absent.
        of_one = shares * (1 - shares) + shares @ within
        return np.asarray(np.sqrt(of_one / len(self.probs) + (shares**2 / counts) @ within))

    def inverted(self, shares: Vector, level: float) -> tuple[Vector, Vector]:
        """Of each class the shares that a test with their own variance does not reject.

        The other classes keep their proportions. Near 0 an estimated variance is that of a smaller share, and its interval too
        short.
        """
        z = float(normal_quantile(np.array(0.5 + level / 2)))
        ends = np.array([[self._end(shares, k, z, up=up) for k in range(len(shares))] for up in (False, True)])
        return ends[0], ends[1]

    def _end(self, shares: Vector, k: int, z: float, *, up: bool) -> float:
        inside = math.log(shares[k] / (1 - shares[k]))
        outside = MAX_LOG_ODDS if up else -MAX_LOG_ODDS
        for _ in range(SEARCH_STEPS):
            middle = (inside + outside) / 2
            share = 1 / (1 + math.exp(-middle))
            others = shares * (1 - share) / (1 - shares[k])
            others[k] = share
            means, h, labeled = self.at(others)
            value = np.linalg.solve(means.T, h.mean(axis=0))[k]
            is_inside = abs(value - share) <= z * self.errors(others, labeled, means)[k]
            inside, outside = (middle, outside) if is_inside else (inside, middle)
        end = (inside + outside) / 2
        return 1 / (1 + math.exp(-end)) if abs(end) < MAX_LOG_ODDS - 0.5 else float(up)


def shrunk(correction: Vector, noise: Floats) -> Vector:
    """A correction times the part that noise does not explain: nearly all of a large one."""
    return correction * unexplained_part(squared_distance(correction, noise), len(correction) - 1)


def squared_distance(difference: Vector, covariance: Floats) -> float:
    """A χ² statistic of a difference of shares, which sum to 0."""
    return float(difference @ np.linalg.pinv(covariance, rcond=1e-10, hermitian=True) @ difference)


def unexplained_part(chi2: float, least: int) -> float:
    """The part of a difference that noise does not explain; nothing is left where its χ² is at most ``least``."""
    return max(0.0, 1 - least / max(chi2, 1e-300))


def _without_noise(shares: Vector, source: Vector, errors: Vector, chi2: float) -> Vector:
    """Shares nearer to the first mix by the part that noise explains, each by its standard error at most.

    The part is that of James and Stein: the degrees of freedom less 2, so that two or three classes keep their estimates. The
    limit (Efron and Morris 1972) keeps shares that are well known where those of other classes are not.
    """
    move = (1 - unexplained_part(chi2, max(len(source) - 3, 0))) * (source - shares)
    return shares + np.clip(move, -errors, errors)


def class_means(values: Floats, labels: NDArray[np.intp], n_classes: int) -> Floats:
    """The mean of the samples of each class, a row each."""
    return np.stack([values[labels == k].mean(axis=0) for k in range(n_classes)])


def mixture_covariance(values: Floats | None, labeled: Floats, labels: NDArray[np.intp], shares: Vector) -> Floats:
    """The covariance of mean(values) − Σ_k π_k mean(labeled | k); without values that of the second term."""
    return np.asarray(sum(covariance for covariance, _ in _covariances(values, labeled, labels, shares)))


def _covariances(
    values: Floats | None, labeled: Floats, labels: NDArray[np.intp], shares: Vector
) -> list[tuple[Floats, int]]:
    """The terms of this sum, and the degrees of freedom of each."""
    parts = [] if values is None else [(values, 1.0)]
    parts += [(labeled[labels == k], float(share)) for k, share in enumerate(shares)]
    return [(share**2 * np.atleast_2d(np.cov(part, rowvar=False)) / len(part), len(part) - 1) for part, share in parts]


def explained(h: Floats, labeled: Floats, labels: NDArray[np.intp], shares: Vector, inverse: Floats) -> float:
    """The p-value of a test (Hotelling's) that the scores are distributed as some mix of the labeled classes.

    Compared is the share of samples in cells of the score. Estimating π takes the part of the difference that π explains out of
    every sample's indicator, so difference and covariance are those of u = indicator − G h.
    """
    rarest = int(np.bincount(labels).min())
    n_cells = min(N_CELLS, max(3, rarest // MIN_OF_CLASS_IN_CELL))
    edges = np.unique(np.quantile(_score(h), np.linspace(0, 1, n_cells + 1)[1:-1]))
    cells, labeled_cells = (np.searchsorted(edges, _score(x), side="right") for x in (h, labeled))
    n_cells = len(edges) + 1
    one, two = np.eye(n_cells)[cells], np.eye(n_cells)[labeled_cells]
    in_classes = class_means(two, labels, len(shares))
    explained_part = in_classes.T @ inverse
    u, v = one - h @ explained_part.T, two - labeled @ explained_part.T
    difference = u.mean(axis=0) - shares @ class_means(v, labels, len(shares))
    enough = (one.sum(axis=0) >= MIN_IN_CELL) & (two.sum(axis=0) >= MIN_IN_CELL)
    terms = [(part[np.ix_(enough, enough)], n) for part, n in _covariances(u, v, labels, shares)]
    eigenvalues, vectors = np.linalg.eigh(sum(part for part, _ in terms))
    kept = eigenvalues > 1e-8 * max(eigenvalues.max(initial=0), 1e-300)
    if not kept.any():
        return 1.0
    white = vectors[:, kept] / np.sqrt(eigenvalues[kept])
    z, k = white.T @ difference[enough], int(kept.sum())
    # Each term is known from few samples (Nel and van der Merwe 1986); with infinitely many it is a chi-squared test.
    known = sum(((w * w).sum() + np.trace(w) ** 2) / n for w, n in ((white.T @ part @ white, n) for part, n in terms))
    degrees = max((k + k**2) / max(float(known), 1e-300), k)
    return f_tail(float(z @ z) * (degrees - k + 1) / (degrees * k), k, degrees - k + 1)


def _score(h: Floats) -> Vector:
    """Of two classes the probability of the second, of more the largest."""
    return np.asarray(h[:, 1] if h.shape[1] == 2 else h.max(axis=1))


def _interval(value: Vector, error: Vector, level: float) -> tuple[Vector, Vector]:
    """Limits on the scale of log-odds, where the error of a share is nearly normal, if it is away from 0 and 1."""
    z = float(normal_quantile(np.array(0.5 + level / 2)))
    low, high = np.clip(value - z * error, 0, 1), np.clip(value + z * error, 0, 1)
    inside = (value > z * error) & (value < 1 - z * error)
    p = np.where(inside, value, 0.5)
    logit, width = np.log(p / (1 - p)), z * error / (p * (1 - p))
    return (
        np.where(inside, 1 / (1 + np.exp(width - logit)), low),
        np.where(inside, 1 / (1 + np.exp(-width - logit)), high),
    )
