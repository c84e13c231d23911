"""How scale calibrators are fitted: an objective of the samples' scales, searched on the fast profile, finished exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rhocal import optimize
from rhocal.numerics.caching import cached_property
from rhocal.numerics.special import dot
from rhocal.objectives import NLL, Objective
from rhocal.profile.curve_table import Table
from rhocal.profile.statistics import Facts, HasCurve, nll_by_scale, of_scale

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector
    from rhocal.profile.profile import Profile


SCALE_RANGE = 1e6
"""Scales are searched from 1/this to this, in units of 1/spread of the logits."""

MAX_CLASSES_WITHOUT_TABLE = 2
"""Up to here a search evaluates curves directly: a pass takes less than one over their table, and norms spread too wide for
one ring of it."""

TYPICAL_LOG_DISTANCE = 2.0
"""Where a search begins: log of the scaled distance of the largest logit from the mean, on most networks about that."""

SCAN_REACH = 1.3
"""How far around the NLL optimum, in log scale, objectives that are not convex are scanned at first."""

SUBSAMPLE_SHARES = (0.01, 0.1)
"""Shares of the samples that find the neighborhood of the optimum, one after the other."""

MIN_SUBSAMPLE_ENTRIES = 30_000
"""Entries that a subsample has at least: fewer would save nothing."""

HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ divided by the golden ratio, an odd number: multiplying by it spreads nearby numbers evenly."""

MAX_ERRORS = 10.0
"""Wrong samples up to which the scale that the right ones support is computed: a dozen passes over the logits."""

LAST_STEP = 0.01
"""In log scale. The error left after a step is about its cube."""


@dataclass(frozen=True)
class ScaleSearch:
    """A calibration set ready for fitting scales: its profile, the fast way to evaluate it, and a safe start."""

    profile: Profile
    rough_log_scale: float
    """Log of the NLL-optimal single scale, as far as a share of the samples shows it."""
    bounds: tuple[float, float]
    """Bounds on log scale."""
    kappa: float = 0.0
    table: Table | None = None
    """A table already built, for parts of a fit."""
    whole: ScaleSearch | None = None
    """What this is a part of."""
    is_errorless: bool = False
    """Whether NLL falls up to the upper bound of a single scale, as where no sample is wrong. Then every family ends there: the
    likelihood cannot tell how scales differ between samples."""

    @classmethod
    def from_profile(cls, profile: Profile, kappa: float = 0.0) -> ScaleSearch:
        """Find the neighborhood of the NLL-optimal temperature on a share of the samples."""
        n, n_classes, log_spread = len(profile.weights), len(profile.classes), math.log(profile.spread or 1.0)
        low, high = scale_range(profile)
        supported = succession_bound(profile)
        bounds = low, high if supported is None else supported
        start = min(max(TYPICAL_LOG_DISTANCE - log_spread, bounds[0]), bounds[1])
        n_before = 0
        for share in SUBSAMPLE_SHARES:
            n_few = int(max(n * share, MIN_SUBSAMPLE_ENTRIES / n_classes))
            if 2 * n_before < n_few < n / 2:
                subsample = profile.take(drawn_rows(profile, n_few))
                start = float(optimize.newton(nll_by_scale(subsample), start, *bounds, last_step=0.1).x[0])
                n_before = n_few
        without_optimum = supported is not None and nll_falls_at(profile, supported)
        return cls(profile, start, bounds, kappa, is_errorless=without_optimum)

    @cached_property
    def nll(self) -> optimize.Minimum:
        """The NLL-optimal single scale (x = log scale) of all samples, exactly; a part takes it from the whole."""
        if self.whole is not None:
            return self.whole.nll
        return optimize.newton(nll_by_scale(self.profile), self.rough_log_scale, *self.bounds, last_step=LAST_STEP)

    @property
    def log_scale(self) -> float:
        """Log of the NLL-optimal single scale."""
        return float(self.nll.x[0])

    @cached_property
    def fast(self) -> HasCurve:
        """What a search evaluates: the profile itself with few classes or a saved table, else a table around the optimum."""
        if self.profile.n_classes <= MAX_CLASSES_WITHOUT_TABLE or self.profile.passes is None:
            return self.profile
        return self.table or Table(self.profile, self.rough_log_scale)

    def take(self, rows: NDArray[np.intp]) -> ScaleSearch:
        """Some of the samples, with equal weights."""
        profile = self.profile.take(rows)
        table = self.fast.take(rows, profile) if isinstance(self.fast, Table) else None
        return replace(self, profile=profile, table=table, whole=self)

    def weighted(self, weights: Vector) -> ScaleSearch:
        """The same samples with other weights (which sum to 1), such as zeros for the fold held out."""
        table = self.fast if isinstance(self.fast, Table) else None
        return replace(self, profile=replace(self.profile, weights=weights), table=table, whole=self)

    @property
    def facts(self) -> Facts:
        """What objectives know besides the statistics."""
        return Facts(self.profile.correct, self.profile.weights, self.profile.n_classes, self.profile.clusters)

    def prepared(self, objective: Objective) -> Objective:
        """The objective with its data-dependent thresholds, taken at the NLL-optimal temperature."""
        if not objective.needs_preparation:
            return objective
        scale = np.full(self.profile.n_samples, np.exp(self.log_scale))
        return objective.prepare(
            of_scale(self.profile, self.fast, scale, objective.needs, self.kappa).values, self.facts
        )

    def evaluate(self, objective: Objective, scale: Vector, *, exact: bool = False) -> tuple[float, Vector]:
        """Value of the objective at every sample's scale, and its derivative in each scale."""
        curves: HasCurve = self.profile if exact else self.fast
        stats = of_scale(self.profile, curves, scale, objective.needs, self.kappa)
        value, slopes = objective.evaluate(stats.values, self.facts)
        return value, sum((slope * stats.slopes[name] for name, slope in slopes.items()), np.zeros(len(scale)))

    def values(self, objectives: Sequence[Objective], scale: Vector) -> list[float]:
        """Values of several objectives at every sample's scale."""
        needs = frozenset().union(*(objective.needs for objective in objectives))
        stats = of_scale(self.profile, self.fast, scale, needs, self.kappa)
        return [objective.evaluate(stats.values, self.facts)[0] for objective in objectives]

    def slopes_on(self, rows: NDArray[np.intp], objective: Objective, scales: Vector) -> Vector:
        """Derivatives of the objective of one mini-batch in the scale of each of its samples, for several sets of scales."""
        part = self.take(np.tile(rows, len(scales)))
        stats = of_scale(part.profile, part.fast, scales.ravel(), objective.needs, self.kappa)
        facts = Facts(self.profile.correct[rows], np.full(len(rows), 1 / len(rows)), self.profile.n_classes)
        scale_slopes = np.zeros_like(scales)
        for k in range(len(scales)):
            batch = slice(k * len(rows), (k + 1) * len(rows))
            _, slopes = objective.evaluate({name: value[batch] for name, value in stats.values.items()}, facts)
            for name, slope in slopes.items():
                scale_slopes[k] += slope * stats.slopes[name][batch]
        return scale_slopes

    def confidence(self, scale: Vector) -> Vector:
        """Confidence of every sample at its scale."""
        return of_scale(self.profile, self.fast, scale, {"confidence"}).values["confidence"]

    def single_scale(self, objective: Objective) -> optimize.Minimum:
        """The best single scale (x = log scale) under an objective, on the fast profile.

        NLL is convex in the scale. Other objectives are not: the neighborhood of the NLL optimum is scanned, and what lies
        beyond it if the best point is at its edge.
        """

        def fun(log_scale: float) -> tuple[float, float]:
            value, slope = self.evaluate(objective, np.full(self.profile.n_samples, np.exp(log_scale)))
            return value, float(slope.sum()) * float(np.exp(log_scale))

        if isinstance(objective, NLL):
            return optimize.convex(fun, self.log_scale, *self.bounds)
        return optimize.scan(fun, self.log_scale, SCAN_REACH, *self.bounds)

    def finish(
        self,
        objective: Objective,
        scales: Callable[[Vector], tuple[Vector, Vector]],
        minimum: optimize.Minimum,
        bounds: list[tuple[float, float]],
    ) -> optimize.Minimum:
        """Exact optimum next to the fast one. ``scales`` gives the scales and their derivatives (n_params × n)."""
        if self.fast is self.profile and minimum.converged:
            return minimum

        def function(*, exact: bool) -> optimize.VectorFunction:
            def fun(x: Vector) -> tuple[float, Vector]:
                scale, slopes = scales(x)
                value, slope = self.evaluate(objective, scale, exact=exact)
                return value, dot(slopes, slope)

            return fun

        return optimize.polish(function(exact=True), function(exact=False), minimum, bounds)


def drawn_rows(profile: Profile, n: int) -> NDArray[np.intp]:
    """About n of the samples, drawn by a hash of their numbers: the order of the samples changes nothing.

    Where most samples are equal the hash draws too many or too few of them; then rows at regular places are taken.
    """
    numbers = profile.mean_gap - np.pi * profile.label_gap
    hashes = (numbers.view(np.uint64) * HASH_MULTIPLIER) >> np.uint64(11)
    rows = np.flatnonzero(hashes < n * profile.weights * 2.0**53)
    return rows if n < 2 * len(rows) < 4 * n else evenly_spaced_rows(profile.weights, n)


def evenly_spaced_rows(weights: Vector, n: int) -> NDArray[np.intp]:
    """Some of the samples, in proportion to their weights, spread evenly over all: sorted data is no worse than shuffled."""
    reached = np.cumsum(weights)
    return np.minimum(np.searchsorted(reached, (np.arange(n) + 0.5) * (reached[-1] / n)), len(weights) - 1)


def is_errorless(profile: Profile) -> bool:
    """Whether the likelihood has no optimum that as many right samples support; see ``succession_bound``."""
    bound = succession_bound(profile)
    return bound is not None and nll_falls_at(profile, bound)


def nll_falls_at(profile: Profile, log_scale: float) -> bool:
    """Whether a larger scale than this has a lower NLL."""
    has_errors = bool((profile.label_gap[profile.weights > 0] < 0).any())
    return not has_errors or nll_by_scale(profile)(log_scale)[1] < 0


def scale_range(profile: Profile) -> tuple[float, float]:
    """The widest range of log scales."""
    unit = -math.log(profile.spread or 1.0)  # 0 where the logits of a sample are equal: every scale is as good
    return unit - math.log(SCALE_RANGE), unit + math.log(SCALE_RANGE)


def succession_bound(profile: Profile) -> float | None:
    """The largest log scale that the right samples support, where few samples are wrong; None where it does not matter.

    If no sample is wrong, or none by more than a near tie, the optimum of every proper objective is an infinite scale, or one
    that a single near tie decides. The bound is the scale at which the mean confidence of the right samples is
    (n + 1) / (n + 2): the rule of succession for n right out of n. With more errors than ``MAX_ERRORS`` the likelihood is far
    below it. Samples without weight do not count.
    """
    is_right = profile.label_gap >= 0
    n_right = profile.total_weight * float(profile.weights @ is_right)
    if not profile.spread > 0 or n_right == 0 or profile.total_weight - n_right > MAX_ERRORS:
        return None
    weights = profile.weights * is_right
    weights /= weights.sum()
    confidence = (n_right + 1) / (n_right + 2)

    def gap(log_scale: float) -> tuple[float, float]:
        scale = np.full(profile.n_samples, np.exp(log_scale))
        return 0.0, float(weights @ np.exp(-profile.curve(scale, order=1).value)) - confidence

    low, high = scale_range(profile)
    return float(optimize.convex(gap, (low + high) / 2, low, high).x[0])
