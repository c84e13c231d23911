"""How scale calibrators are fitted: an objective of the samples' scales, searched on the fast profile, finished exactly."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rhocal import solve
from rhocal.errors import BoundaryWarning, ConvergenceWarning
from rhocal.objectives import NLL, Objective
from rhocal.profile import FEW_CLASSES, Profile, Table
from rhocal.statistics import Facts, HasCurve, of_scale

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rhocal.special import Vector


SCALE_RANGE = 1e6
"""Scales are searched from 1/this to this, in units of 1/spread of the logits."""

SUBSAMPLE = 2000
"""Samples that place the centre of the table."""


@dataclass(frozen=True)
class ScaleFit:
    """A tune set ready for fitting scales: its profile, the fast way to evaluate it, and a safe start."""

    profile: Profile
    fast: HasCurve
    log_scale: float
    """log of the NLL-optimal single scale."""
    bounds: tuple[float, float]
    """Bounds on log scale."""
    n_evaluations: int = 0
    kappa: float = 0.0

    @classmethod
    def of(cls, profile: Profile, kappa: float = 0.0) -> ScaleFit:
        """Find the NLL-optimal temperature; with many classes also build the table around it."""
        bounds = log_scale_bounds(profile)
        start = float(np.clip(-np.log(max(profile.spread, 1e-300)), *bounds))
        fast: HasCurve = profile
        if profile.n_classes > FEW_CLASSES:
            rows = np.random.default_rng(0).choice(profile.n_samples, SUBSAMPLE, p=profile.weights)
            few = profile.take(rows)
            start = float(cls(few, few, start, bounds).single(NLL()).x[0])
            fast = Table.around(profile, start)
        nll = cls(profile, fast, start, bounds).single(NLL())
        return cls(profile, fast, float(nll.x[0]), bounds, nll.n_evaluations, kappa)

    def take(self, rows: NDArray[np.intp]) -> ScaleFit:
        """Some of the samples, with equal weights."""
        profile = self.profile.take(rows)
        fast: HasCurve = profile if self.fast is self.profile else self.fast.take(rows, profile)  # type: ignore[attr-defined]
        return replace(self, profile=profile, fast=fast)

    def weighted(self, weights: Vector) -> ScaleFit:
        """The same samples with other weights (which sum to 1), such as zeros for the fold held out."""
        return replace(self, profile=replace(self.profile, weights=weights))

    @property
    def facts(self) -> Facts:
        """What objectives know besides the statistics."""
        return Facts(self.profile.correct, self.profile.weights, self.profile.n_classes)

    def prepared(self, objective: Objective) -> Objective:
        """The objective with its data-dependent thresholds, taken at the NLL-optimal temperature."""
        scale = np.full(self.profile.n_samples, np.exp(self.log_scale))
        return objective.prepared(
            of_scale(self.profile, self.fast, scale, objective.needs, self.kappa).values, self.facts
        )

    def evaluate(self, objective: Objective, scale: Vector, *, exact: bool = False) -> tuple[float, Vector]:
        """Value of the objective at every sample's scale, and its derivative in each scale."""
        curves: HasCurve = self.profile if exact else self.fast
        stats = of_scale(self.profile, curves, scale, objective.needs, self.kappa)
        value, slopes = objective.evaluate(stats.values, self.facts)
        return value, sum((slope * stats.slopes[name] for name, slope in slopes.items()), np.zeros(len(scale)))

    def confidence(self, scale: Vector) -> Vector:
        """Confidence of every sample at its scale."""
        return of_scale(self.profile, self.fast, scale, {"confidence"}).values["confidence"]

    def single(self, objective: Objective) -> solve.Minimum:
        """The best single scale (x = log scale) under an objective, on the fast profile.

        NLL is convex in the scale. Other objectives are not: the whole range around the NLL optimum is looked at.
        """

        def fun(log_scale: float) -> tuple[float, float]:
            value, slope = self.evaluate(objective, np.full(self.profile.n_samples, np.exp(log_scale)))
            return value, float(slope.sum()) * float(np.exp(log_scale))

        low, high = self.bounds
        if isinstance(objective, NLL):
            return solve.convex(fun, self.log_scale, low, high)
        return solve.scan(fun, max(low, self.log_scale - 3), min(high, self.log_scale + 3))

    def finish(
        self,
        objective: Objective,
        scales: Callable[[Vector], tuple[Vector, Vector]],
        minimum: solve.Minimum,
        bounds: list[tuple[float, float]],
    ) -> solve.Minimum:
        """Exact optimum next to the fast one. ``scales`` gives the scales and their derivatives (n_params × n)."""
        if self.fast is self.profile:
            return minimum

        def function(*, exact: bool) -> solve.VectorFunction:
            def fun(x: Vector) -> tuple[float, Vector]:
                scale, slopes = scales(x)
                value, slope = self.evaluate(objective, scale, exact=exact)
                return value, slopes @ slope

            return fun

        return solve.polish(function(exact=True), function(exact=False), minimum, bounds)


def log_scale_bounds(profile: Profile) -> tuple[float, float]:
    """Between which log scales a fit may search.

    If no sample is wrong, every proper objective wants an infinite scale. Then the largest scale allowed is the one whose
    mean confidence is (n + 1) / (n + 2): the rule of succession for n right out of n.
    """
    unit = -np.log(max(profile.spread, 1e-300))
    low, high = unit - np.log(SCALE_RANGE), unit + np.log(SCALE_RANGE)
    if profile.spread > 0 and (profile.label_gap >= 0).all():
        wanted = (profile.total_weight + 1) / (profile.total_weight + 2)

        def gap(log_scale: float) -> tuple[float, float]:
            scale = np.full(profile.n_samples, np.exp(log_scale))
            return 0.0, float(profile.weights @ np.exp(-profile.curve(scale).value)) - wanted

        high = float(solve.convex(gap, unit, low, high).x[0])
    return low, high


def bound_reached(log_scale: float, bounds: tuple[float, float], *, stacklevel: int) -> str:
    """Say in words, and as a warning, that the optimum lies at a bound."""
    low, high = bounds
    message = ""
    if log_scale >= high - 1e-9:
        message = (
            "no tune sample is wrong, so the data asks for infinite confidence; the mean confidence was stopped at "
            "(n + 1) / (n + 2)"
        )
    elif log_scale <= low + 1e-9:
        message = "the logits are no better than chance on the tune set, so the probabilities are (nearly) uniform"
    if message:
        warnings.warn(message, BoundaryWarning, stacklevel=stacklevel)
    return message


def warn_unless(*, converged: bool, what: str, stacklevel: int) -> None:
    """Not converged is visible: a flag in the evidence and a warning."""
    if not converged:
        warnings.warn(
            f"{what}: the optimiser stopped before its tolerance was met (solution_.converged is False)",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )
