"""The scales of ρ-Norm Scaling as functions of two or three numbers, and the search for the best of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rhocal import optimize
from rhocal.calibrators.scale.gaps import SMALLEST_DENOMINATOR, GapObjective
from rhocal.numerics.bins import BinSums
from rhocal.numerics.special import Vector, dot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators.scale.scale_search import ScaleSearch
    from rhocal.objectives import Objective

VERY_MANY = 100_000
"""From so many samples on a search begins with a subsample."""

N_SEARCH_SAMPLES = 20_000
"""Samples that such a search begins with."""

COLD_SHARES = (1.0, 0.2)
"""Shares of β where a search begins without a neighbor."""


class FixedNorm:
    """The scales 1/(γ‖z‖_ρ + β) for one ρ, in coordinates that do not depend on the size of the logits.

    x = (v, w): scale = e^v / ((1 − w)·r + w) with r = ‖z‖_ρ over its mean. v is the log scale of an average sample and
    w in [0, 1] the share of β; w = 1 is temperature scaling.
    """

    def __init__(self, search: ScaleSearch, rho: float, norm: Vector) -> None:
        self.search, self.rho, self.norm = search, rho, norm
        self.bounds = [search.bounds, (0.0, 1.0)]

    @cached_property
    def mean(self) -> float:
        """Mean norm of a sample."""
        return float(dot(self.search.profile.weights, self.norm)) or 1.0  # a product of BLAS may wait for its threads

    @cached_property
    def relative(self) -> Vector:
        """The norm of every sample over their mean."""
        return self.norm / self.mean

    def take(self, rows: NDArray[np.intp]) -> FixedNorm:
        """The same coordinates for some of the samples, with equal weights."""
        part = FixedNorm(self.search.take(rows), self.rho, self.norm[rows])
        part.mean = self.mean
        return part

    def scales(self, x: Vector) -> tuple[Vector, Vector]:
        """The scale of every sample and its derivatives."""
        v, w = x
        mix = np.maximum((1 - w) * self.relative + w, SMALLEST_DENOMINATOR)
        scale = np.exp(v) / mix
        return scale, np.stack([scale, scale * (self.relative - 1) / mix])

    def parameters(self, x: Vector) -> tuple[float, float, float]:
        """ρ, γ, β."""
        v, w = x
        return self.rho, float(np.exp(-v) * (1 - w) / self.mean), float(np.exp(-v) * w)

    def starts(self, log_scale: float) -> list[Vector]:
        """Temperature scaling, and (almost) pure normalisation."""
        return [np.array([log_scale, share]) for share in COLD_SHARES]


class LearnedNorm:
    """The same with ρ as a third coordinate, between the ends of the grid."""

    def __init__(self, search: ScaleSearch, rhos: Sequence[float], *, center: bool) -> None:
        self.search, self.center = search, center
        self.bounds = [search.bounds, (0.0, 1.0), (min(rhos), max(rhos))]

    def scales(self, x: Vector) -> tuple[Vector, Vector]:
        """The scale of every sample and its derivatives."""
        norm, slope = self.search.profile.norm_slope(x[2], center=self.center)
        fixed = FixedNorm(self.search, x[2], norm)
        scale, slopes = fixed.scales(x[:2])
        d_relative = slope / fixed.mean - fixed.relative * float(self.search.profile.weights @ slope) / fixed.mean
        d_rho = -scale * (scale * np.exp(-x[0])) * (1 - x[1]) * d_relative
        return scale, np.vstack([slopes, d_rho])

    def parameters(self, x: Vector) -> tuple[float, float, float]:
        """ρ, γ, β."""
        norm, _ = self.search.profile.norm_slope(x[2], center=self.center)
        return FixedNorm(self.search, float(x[2]), norm).parameters(x[:2])

    def starts(self, log_scale: float) -> list[Vector]:
        """Three different ρ."""
        low, high = self.bounds[2]
        return [np.array([log_scale, 0.5, low + t * (high - low)]) for t in (0.25, 0.5, 0.9)]


Norm = FixedNorm | LearnedNorm


class NormSearch:
    """Descents for one norm after the other: each begins where the last ones lead to, with the Hessian that the last had."""

    def __init__(self, target: Objective, search: ScaleSearch) -> None:
        self.target, self.search = target, search
        self.last: tuple[optimize.Minimum, NDArray[np.float64] | None] | None = None
        self.before: optimize.Minimum | None = None
        self.hessians: dict[Norm, NDArray[np.float64] | None] = {}
        self.gaps: dict[Norm, GapObjective] = {}
        self.rows: NDArray[np.intp] | None = None
        self.coarse: NormSearch | None = None

    @cached_property
    def temperature(self) -> optimize.Minimum:
        """The best single scale."""
        return self.search.single_scale_near_nll(self.target)

    def minimum(self, norm: Norm) -> optimize.Minimum:
        """The optimum of this norm; where a warm start ends above temperature scaling, the cold starts are tried too.

        With very many samples it is that of a subsample; ``refined`` takes all of them, for the norm that is chosen.
        """
        if isinstance(norm, FixedNorm) and norm.search.profile.n_samples >= VERY_MANY:
            return self._minimum_of_subsample(norm)
        reached = []
        if self.last is not None:
            reached.append(self._descend(norm, self._start(self.last[0]), self.last[1]))
        if not reached or reached[0][0].value > self.temperature.value:
            cold = norm.starts(float(self.temperature.x[0]))
            for start in cold:  # the next one need not begin its Hessian with differences again
                reached.append(self._descend(norm, start, reached[-1][1] if reached else None))
        lowest, hessian = min(reached, key=lambda pair: pair[0].value)
        self._remember(norm, lowest, hessian)
        return lowest

    def _start(self, last: optimize.Minimum) -> Vector:
        """Where the next optimum may be: from one ρ to the next they move evenly."""
        return last.x if self.before is None else 2 * last.x - self.before.x

    def _remember(self, norm: Norm, minimum: optimize.Minimum, hessian: NDArray[np.float64] | None) -> None:
        self.before = None if self.last is None else self.last[0]
        self.last, self.hessians[norm] = (minimum, hessian), hessian

    def minimum_and_ece(self, norm: Norm, n_bins: int) -> tuple[optimize.Minimum, float]:
        """The optimum of this norm, and the ECE there of all samples."""
        minimum = self.minimum(norm)
        return minimum, self.ece(norm, minimum.x, n_bins)

    def ece(self, norm: Norm, x: Vector, n_bins: int) -> float:
        """The ECE of all samples at a point."""
        facts = self.search.facts
        return BinSums.of(self.confidence(norm, x), facts.correct, n_bins=n_bins, weights=facts.weights).error(1)

    def _minimum_of_subsample(self, norm: FixedNorm) -> optimize.Minimum:
        if self.rows is None or self.coarse is None:
            p = norm.search.profile.weights
            self.rows = np.random.default_rng(0).choice(len(p), N_SEARCH_SAMPLES, p=p)
            self.coarse = NormSearch(self.target, norm.search.take(self.rows))
        part = norm.take(self.rows)
        minimum = self.coarse.minimum(part)
        self.hessians[norm] = self.coarse.hessians[part]
        return minimum

    def refined(self, norm: Norm, minimum: optimize.Minimum) -> optimize.Minimum:
        """The optimum of this norm to the last digits, as far as rounding lets it be seen: it is known roughly."""
        exact, self.hessians[norm] = self._descend(norm, minimum.x, self.hessians[norm], 1e-13)
        n_evaluations = minimum.n_evaluations + exact.n_evaluations
        return replace(exact, converged=exact.converged or minimum.converged, n_evaluations=n_evaluations)

    def finished(self, norm: Norm, minimum: optimize.Minimum) -> optimize.Minimum:
        """The optimum of this norm on the logits themselves, next to that on the table."""
        if not isinstance(norm, FixedNorm) or not norm.search.sees_gaps(self.target):
            return norm.search.finish(self.target, norm.scales, minimum, norm.bounds)
        exact = GapObjective(norm.search, self.target, norm.relative, exact=True)
        polished = optimize.newton_2d(exact, pair(minimum.x), norm.bounds, optimize.ROUNDING, last_step=True)
        return replace(polished, n_evaluations=minimum.n_evaluations + polished.n_evaluations)

    def confidence(self, norm: Norm, x: Vector) -> Vector:
        """Confidence of every sample at the optimum of a norm."""
        if norm in self.gaps:
            return self.gaps[norm].confidence(*pair(x))
        return norm.search.confidence(norm.scales(x)[0])

    def _descend(
        self, norm: Norm, start: Vector, hessian: NDArray[np.float64] | None, tolerance: float = optimize.TOLERANCE
    ) -> tuple[optimize.Minimum, NDArray[np.float64] | None]:
        if isinstance(norm, FixedNorm) and norm.search.sees_gaps(self.target):
            gaps = self.gaps.setdefault(norm, GapObjective(norm.search, self.target, norm.relative))
            return optimize.newton_2d(gaps, pair(start), norm.bounds, tolerance), None

        def fun(x: Vector) -> tuple[float, Vector]:
            scale, slopes = norm.scales(x)
            value, slope = norm.search.evaluate(self.target, scale)
            return value, dot(slopes, slope)

        reached = optimize.quasi_newton(fun, start, norm.bounds, hessian, tolerance)
        if hessian is None or reached[0].converged:
            return reached
        return optimize.quasi_newton(
            fun, reached[0].x, norm.bounds, None, tolerance
        )  # a Hessian of elsewhere can mislead


def pair(x: Vector) -> tuple[float, float]:
    """Two plain numbers."""
    v, w = x.tolist()
    return v, w
