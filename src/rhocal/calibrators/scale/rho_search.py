"""The scales of ρ-Norm Scaling as functions of two or three numbers, and the search for the best of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal import optimize
from rhocal.calibrators.scale.gaps import SMALLEST_DENOMINATOR, gap_sums
from rhocal.calibrators.scale.scale_search import evenly_spaced_rows
from rhocal.numerics import kernels
from rhocal.numerics.bins import equal_width_errors
from rhocal.numerics.caching import cached_property
from rhocal.numerics.special import Vector, dot, dots
from rhocal.profile.curve_table import REACH, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators.scale.scale_search import ScaleSearch
    from rhocal.objectives import Objective
    from rhocal.optimize import Curved
    from rhocal.profile.profile import Profile
    from rhocal.profile.statistics import HasCurve

MIN_SUBSAMPLED_SAMPLES = 100_000
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

    def __init__(self, search: ScaleSearch, rho: float, norm: Vector, mean: float) -> None:
        self.search, self.rho, self.norm, self.mean = search, rho, norm, mean
        self.bounds = [search.bounds, share_bounds(search)]
        self._relative: Vector | None = None

    @property
    def relative(self) -> Vector:
        """The norm of every sample over their mean."""
        if self._relative is None:
            self._relative = self.norm / self.mean
        return self._relative

    def release(self) -> None:
        """Free the memory of ``relative``, which is computed again when it is read."""
        self._relative = None

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
        """Temperature scaling, and (almost) pure normalization."""
        return [np.array([log_scale, share]) for share in COLD_SHARES]


def share_bounds(search: ScaleSearch) -> tuple[float, float]:
    """Between which values the share of β lies; where no sample is wrong it is temperature scaling."""
    return (1.0, 1.0) if search.is_errorless else (0.0, 1.0)


def fixed_norms(search: ScaleSearch, rhos: Sequence[float], *, center: bool) -> list[FixedNorm]:
    """The scales for each of several ρ."""
    norms = search.profile.norms(rhos, center=center)
    means = dots(norms, search.profile.weights).tolist()
    return [FixedNorm(search, rho, norm, mean or 1.0) for rho, norm, mean in zip(rhos, norms, means, strict=True)]


class LearnedNorm:
    """The same with ρ as a third coordinate, between the ends of the grid."""

    def __init__(self, search: ScaleSearch, rhos: Sequence[float], *, center: bool) -> None:
        self.search, self.center = search, center
        self.bounds = [search.bounds, share_bounds(search), (min(rhos), max(rhos))]

    def scales(self, x: Vector) -> tuple[Vector, Vector]:
        """The scale of every sample and its derivatives."""
        fixed, slope = self._fixed(x[2])
        scale, slopes = fixed.scales(x[:2])
        d_relative = slope / fixed.mean - fixed.relative * float(self.search.profile.weights @ slope) / fixed.mean
        d_rho = -scale * (scale * np.exp(-x[0])) * (1 - x[1]) * d_relative
        return scale, np.vstack([slopes, d_rho])

    def parameters(self, x: Vector) -> tuple[float, float, float]:
        """ρ, γ, β."""
        return self._fixed(float(x[2]))[0].parameters(x[:2])

    def starts(self, log_scale: float) -> list[Vector]:
        """Three different ρ."""
        low, high = self.bounds[2]
        return [np.array([log_scale, 0.5, low + t * (high - low)]) for t in (0.25, 0.5, 0.9)]

    def _fixed(self, rho: float) -> tuple[FixedNorm, Vector]:
        """The scales for one ρ, and the derivative of the norm in ρ."""
        norm, slope = self.search.profile.norm_slope(rho, center=self.center)
        return FixedNorm(self.search, rho, norm, float(dot(self.search.profile.weights, norm)) or 1.0), slope


Norm = FixedNorm | LearnedNorm


@dataclass(frozen=True)
class Trial:
    """One ρ and α with the minimum and the ECE there."""

    alpha: float
    norm: Norm
    minimum: optimize.Minimum
    ece: float
    row: Mapping[str, Any]
    """Plain numbers for the evidence."""

    @classmethod
    def from_minimum(cls, alpha: float, norm: Norm, minimum: optimize.Minimum, ece: float) -> Trial:
        """The trial with its row."""
        rho, gamma, beta = norm.parameters(minimum.x)
        numbers = {"rho": rho, "alpha": alpha, "gamma": gamma, "beta": beta, "ece": ece}
        return cls(alpha, norm, minimum, ece, {**numbers, "objective": minimum.value, "converged": minimum.converged})


class GapObjective:
    """An objective of the gap between confidence and correctness (see ``gaps.py``), for one norm after the other."""

    def __init__(self, weights: tuple[float, float, float], profile: Profile, curves: HasCurve) -> None:
        self.square_weight, *shares = weights
        self.shares, self.curves = (shares[0], shares[1]), curves
        self.samples = profile.label_gap, profile.correct, profile.weights
        self.is_compiled = kernels.is_enabled and all(part.flags.c_contiguous for part in self.samples)
        self.ring: tuple[Vector, float] | None = None
        """The polynomials of the ring used last, and its middle."""
        self.own_ring: tuple[Vector, Vector] | None = None
        """The polynomials of rings around every sample's own scale, and their middles."""
        if self.is_compiled and isinstance(curves, Table) and isinstance(curves.log_center, np.ndarray):
            self.own_ring = curves.own_ring
        self.last: tuple[Vector, float, float, Vector] | None = None
        """The norm and the point evaluated last, and the confidences there."""

    def descend(
        self,
        relative: Vector,
        start: Vector,
        bounds: list[tuple[float, float]],
        tolerance: float = optimize.TOLERANCE,
        *,
        last_step: bool = False,
    ) -> optimize.Minimum:
        """The minimum for the scales e^v / ((1 − w)·r + w), where r is one number a sample (``relative``)."""
        return optimize.newton_2d(self.function(relative), pair(start), bounds, tolerance, last_step=last_step)

    def function(self, relative: Vector) -> Callable[[float, float], Curved]:
        """(v, w) → value, gradient (2) and Hessian (vv, vw, ww)."""
        least, most = float(relative.min()), float(relative.max())
        return lambda v, w: self._evaluate(relative, v, w, least, most)

    def confidence(self, relative: Vector, x: Vector) -> Vector:
        """Confidence of every sample; already computed at the point evaluated last."""
        v, w = pair(x)
        if self.last is None or self.last[0] is not relative or self.last[1:3] != (v, w):
            self.function(relative)(v, w)
        assert self.last is not None
        return self.last[3]

    def _evaluate(self, relative: Vector, v: float, w: float, least: float, most: float) -> Curved:
        sums, confidence = self._sums(relative, v, w, least, most)
        self.last = relative, v, w, confidence
        a = self.square_weight
        (d, d_v, d_w, d_vv, d_vw, d_ww), rest = sums.reshape(2, 6).tolist()
        return (
            a * d * d + rest[0],
            (2 * a * d * d_v + rest[1], 2 * a * d * d_w + rest[2]),
            (
                2 * a * (d_v * d_v + d * d_vv) + rest[3],
                2 * a * (d_v * d_w + d * d_vw) + rest[4],
                2 * a * (d_w * d_w + d * d_ww) + rest[5],
            ),
        )

    def _sums(self, relative: Vector, v: float, w: float, least: float, most: float) -> tuple[Vector, Vector]:
        """The sums of ``gap_sums``, from a ring that holds every scale, or from curves at the scales."""
        sums, confidence = np.empty(12), np.empty(len(relative))
        numbers = (relative, v, w, *self.samples, *self.shares, sums, confidence)
        if self.own_ring is not None and kernels.gaps(self.own_ring[0], 0.0, self.own_ring[1], *numbers) == 0:
            return sums, confidence
        low = v - math.log(max((1 - w) * most + w, SMALLEST_DENOMINATOR))
        high = v - math.log(max((1 - w) * least + w, SMALLEST_DENOMINATOR))
        if self.ring is None or not self.ring[1] - REACH <= low <= high <= self.ring[1] + REACH:
            self.ring = self.curves.ring_around(low, high) if isinstance(self.curves, Table) else None
        if self.ring is not None:
            curves, middle = self.ring
        else:
            scale = math.exp(v) / np.maximum((1 - w) * relative + w, SMALLEST_DENOMINATOR)
            curves, middle = np.stack(self.curves.curve(scale, order=2).orders), None
        if not self.is_compiled:
            return gap_sums(curves, middle, relative, (v, w), self.samples, self.shares)
        n_outside = kernels.gaps(curves, middle, None, *numbers)
        assert n_outside == 0, "the ring holds every scale"
        return sums, confidence


class NormSearch:
    """Descents for one norm after the other: each begins where the last ones lead to, with the Hessian that the last had."""

    def __init__(self, target: Objective, search: ScaleSearch) -> None:
        self.target, self.search, self.profile = target, search, search.profile
        self.fast = search.fast
        self.gap_weights = target.gap_weights if search.kappa == 0 else None
        self.last: tuple[optimize.Minimum, NDArray[np.float64] | None] | None = None
        self.before: optimize.Minimum | None = None
        self.hessians: dict[Norm, NDArray[np.float64] | None] = {}

    @cached_property
    def gaps(self) -> GapObjective | None:
        """The objective on the curves that a search evaluates, if it is one of the gap."""
        if self.gap_weights is None:
            return None
        table = self.profile.table if self.profile.passes is None else self.fast
        return GapObjective(self.gap_weights, self.profile, table or self.profile)

    @cached_property
    def temperature(self) -> optimize.Minimum:
        """The best single scale (x = log scale) next to the NLL optimum."""
        n, start, bounds = len(self.profile.weights), self.search.rough_log_scale, self.search.bounds
        if self.gaps is not None:
            minimum = self.gaps.descend(np.ones(n), np.array([start, 1.0]), [bounds, (1.0, 1.0)])
            return replace(minimum, x=minimum.x[:1])

        def fun(x: Vector) -> tuple[float, Vector]:
            value, slope = self.search.evaluate(self.target, np.full(n, np.exp(x[0])))
            return value, slope.sum(keepdims=True) * np.exp(x)

        return optimize.quasi_newton(fun, np.array([start]), [bounds])[0]

    @cached_property
    def coarse(self) -> tuple[NDArray[np.intp], NormSearch]:
        """The search on a subsample, and its rows: spread evenly over all of them in an order of their content.

        So neither the order of the samples nor repeating one changes the draw. Samples with the same key are equal, as far as
        a scale is concerned: the key adds all numbers that were read of them, with factors that no two combinations share.
        """
        norms = [value for name, value in sorted(self.profile.kept.items()) if name.startswith("norm ")]
        key = self.profile.mean_gap - np.pi * self.profile.label_gap + math.e * self.profile.correct
        for k, norm in enumerate(norms, 2):
            key += np.sqrt(1 + 1 / k) * norm
        order = np.argsort(key)
        rows = order[evenly_spaced_rows(self.profile.weights[order], N_SEARCH_SAMPLES)]
        return rows, NormSearch(self.target, self.search.take(rows))

    def trials(
        self, alpha: float, norms: Sequence[Norm], n_bins: int, minima: Sequence[optimize.Minimum] | None = None
    ) -> list[Trial]:
        """The optimum of every norm, unless it is given, and the ECE of all samples there."""
        n_together = 1 if len(self.profile.weights) >= MIN_SUBSAMPLED_SAMPLES else len(norms)
        correct, weights = self.profile.correct, self.profile.weights
        reached, errors = list(minima or []), list[float]()
        for start in range(0, len(norms), n_together):
            confidences = []
            for k, norm in enumerate(norms[start : start + n_together], start):
                if minima is None:
                    reached.append(self.minimum(norm))
                confidences.append(self.confidence(norm, reached[k].x))
                if n_together == 1 and isinstance(norm, FixedNorm):
                    norm.release()
            errors += equal_width_errors(confidences, correct, n_bins=n_bins, weights=weights)
        return [Trial.from_minimum(alpha, *parts) for parts in zip(norms, reached, errors, strict=True)]

    def minimum(self, norm: Norm) -> optimize.Minimum:
        """The optimum of this norm; where a warm start ends above temperature scaling, the cold starts are tried too.

        From ``MIN_SUBSAMPLED_SAMPLES`` on it is that of a subsample; ``finish`` takes all samples for the chosen norm.
        """
        if isinstance(norm, FixedNorm) and len(self.profile.weights) >= MIN_SUBSAMPLED_SAMPLES:
            rows, coarse = self.coarse
            part = FixedNorm(coarse.search, norm.rho, norm.norm[rows], norm.mean)
            minimum = coarse.minimum(part)
            self.hessians[norm] = coarse.hessians[part]
            return minimum
        reached = []
        if self.last is not None:
            reached.append(self._descend(norm, self._start(self.last[0]), self.last[1]))
        if not reached or reached[0][0].value > self.temperature.value:
            cold = norm.starts(float(self.temperature.x[0]))
            for start in cold:  # the next one need not begin its Hessian with differences again
                reached.append(self._descend(norm, start, reached[-1][1] if reached else None))
        lowest, hessian = min(reached, key=lambda result: result[0].value)
        self.before = None if self.last is None else self.last[0]
        self.last, self.hessians[norm] = (lowest, hessian), hessian
        return lowest

    def _start(self, last: optimize.Minimum) -> Vector:
        """Where the next optimum may be: from one ρ to the next they move evenly."""
        return last.x if self.before is None else 2 * last.x - self.before.x

    def finish(self, trial: Trial) -> Trial:
        """The trial with the optimum of all samples, on the logits themselves, next to that of the search."""
        minimum = trial.minimum
        if self.fast is self.profile or len(self.profile.weights) >= MIN_SUBSAMPLED_SAMPLES:
            minimum = self._refined(trial.norm, minimum)
        if self.fast is not self.profile:
            minimum = self._polished(trial.norm, minimum)
        return Trial.from_minimum(trial.alpha, trial.norm, minimum, trial.ece)

    def _refined(self, norm: Norm, minimum: optimize.Minimum) -> optimize.Minimum:
        """The optimum of this norm to the last digits that rounding leaves, next to one that is known roughly."""
        exact, self.hessians[norm] = self._descend(norm, minimum.x, self.hessians[norm], 1e-13)
        n_evaluations = minimum.n_evaluations + exact.n_evaluations
        return replace(exact, converged=exact.converged or minimum.converged, n_evaluations=n_evaluations)

    def _polished(self, norm: Norm, minimum: optimize.Minimum) -> optimize.Minimum:
        """The optimum of this norm on the logits themselves, next to that on the table."""
        if not isinstance(norm, FixedNorm) or self.gap_weights is None:
            return self.search.finish(self.target, norm.scales, minimum, norm.bounds)
        self._release_table()
        exact = GapObjective(self.gap_weights, self.profile, self.profile)
        polished = exact.descend(norm.relative, minimum.x, norm.bounds, optimize.ROUNDING, last_step=True)
        return replace(polished, n_evaluations=minimum.n_evaluations + polished.n_evaluations)

    def _release_table(self) -> None:
        """Free the table of the search, 15 numbers a sample: what follows reads the logits."""
        self.__dict__.pop("gaps", None)
        if isinstance(self.fast, Table):
            self.fast.rings.clear()

    def lowest_near(self, norm: Norm, x: Vector) -> float:
        """The value at the local minimum that exact steps reach from x."""
        return self._descend(norm, x, None)[0].value

    def at(self, trial: Trial) -> tuple[Vector, Vector]:
        """Scale and confidence of every sample at the optimum of a trial."""
        x = trial.minimum.x
        return trial.norm.scales(x)[0], self.confidence(trial.norm, x)

    def confidence(self, norm: Norm, x: Vector) -> Vector:
        """Confidence of every sample at the optimum of a norm."""
        if isinstance(norm, FixedNorm) and self.gaps is not None:
            return self.gaps.confidence(norm.relative, x)
        return self.search.confidence(norm.scales(x)[0])

    def _descend(
        self, norm: Norm, start: Vector, hessian: NDArray[np.float64] | None, tolerance: float = optimize.TOLERANCE
    ) -> tuple[optimize.Minimum, NDArray[np.float64] | None]:
        if isinstance(norm, FixedNorm) and self.gaps is not None:
            return self.gaps.descend(norm.relative, start, norm.bounds, tolerance), None

        def fun(x: Vector) -> tuple[float, Vector]:
            scale, slopes = norm.scales(x)
            value, slope = self.search.evaluate(self.target, scale)
            return value, dot(slopes, slope)

        reached = optimize.quasi_newton(fun, start, norm.bounds, hessian, tolerance)
        if hessian is None or reached[0].converged:
            return reached
        # The Hessian of another norm can mislead.
        return optimize.quasi_newton(fun, reached[0].x, norm.bounds, None, tolerance)


def pair(x: Vector) -> tuple[float, float]:
    """Two plain numbers."""
    v, w = x.tolist()
    return v, w
