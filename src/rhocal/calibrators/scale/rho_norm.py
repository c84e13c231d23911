"""ρ-Norm Scaling: p = softmax(z / (γ‖z‖_ρ + β))."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from rhocal import optimize
from rhocal.calibrators.fitted_values import SMALLEST_POSITIVE
from rhocal.calibrators.guard import score_in_sample
from rhocal.calibrators.map import Map, scale_map
from rhocal.calibrators.options import Fitted, option
from rhocal.calibrators.registry import PAPER
from rhocal.calibrators.scale import temperature
from rhocal.calibrators.scale.gaps import SMALLEST_DENOMINATOR
from rhocal.calibrators.scale.rho_search import (
    FixedNorm,
    LearnedNorm,
    Norm,
    NormSearch,
    Trial,
    fixed_norms,
)
from rhocal.calibrators.scale.scale import ScaleCalibrator
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.calibrators.solutions import equal_logits_solution, solution_at
from rhocal.errors import InputError
from rhocal.numerics.bins import N_BINS
from rhocal.numerics.kernels import GRID
from rhocal.numerics.special import Vector
from rhocal.objectives import Objective, batch_size_of, objective, with_batch_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.numerics.special import Vector
    from rhocal.profile.profile import Profile
    from rhocal.profile.sample_features import SampleFeatures


ALPHAS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""The weights of the KL term that ``alpha="auto"`` tries."""

SMALLEST_DIVISOR = 1e-30
"""What logits are divided by at least; a row of zeros has norm 0. A fit needs logits of ``MIN_LOGIT``, and single precision
tells differences of logits apart down to 1e-38: no backend is off by more than 1e-8."""


@dataclass(eq=False, repr=False)
class RhoNormScaling(ScaleCalibrator):
    """A temperature that grows with the amplitude of the logits (the paper's method).

    γ = 0 is temperature scaling, so the fit is never above it on its own objective.

    Parameters
    ----------
    rho
        ``"grid"``: try every ρ of ``grid`` and keep the best under ``selection``; a number; or ``"learn"``: ρ is a
        continuous parameter between the ends of ``grid``, fitted with the others.
    objective
        What to minimize before the KL term is added; see ``rhocal.objectives``. The default is the paper's square
        calibration error with a small share of NLL, chosen on evidence (``experiments/defaults``).
    alpha
        Weight of the KL term, or ``"auto"``: chosen from ``ALPHAS`` like ρ.
    kl
        The form of the KL term (direction and reduction).
    kappa
        Smooth the maximum as the paper does, κ·log Σ exp(p_j/κ), over the two largest probabilities. Not needed: the top
        class of a sample never changes here, so the plain maximum (None) is already smooth.
    batch_size
        Size of the mini-batch whose square calibration error is meant; None: that of the objective (128).
    center
        Take the mean of each row away before the norm. softmax does not see that mean, the norm does.
    solver
        ``"expected"`` minimizes the exact expectation over mini-batches; ``"sgd"`` is Algorithm 1, drawing them.
    selection
        What chooses ρ and α: ``"ece"`` on the calibration set as in the paper, or ``"objective"``.
    n_bins
        Bins of that ECE.
    n_steps, learning_rate, random_state
        For ``solver="sgd"``: steps for each ρ, their length in units of the NLL-optimal temperature, the seed.

    Attributes
    ----------
    rho_, gamma_, beta_, alpha_
        The fitted numbers. ``solution_.trials`` has every ρ and α tried. Of 100,000 samples and more, 20,000 drawn with a fixed
        seed give γ and β of every ρ; the ECE of all of them chooses, and the chosen ρ is fitted on all.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.RhoNormScaling().fit(logits, labels)
    >>> calibrator.rho_, round(calibrator.gamma_, 2), round(calibrator.beta_, 2)
    (2.0, 0.03, 1.93)
    >>> bool((calibrator.predict(logits) == logits.argmax(1)).all())
    True
    """

    name = "rho-norm"
    searches_near_pilot = True

    rho: float | Literal["grid", "learn"] = option("grid", minimum=1, finite=True)
    _: KW_ONLY
    grid: Sequence[float] = option(GRID, minimum=1, finite=True)
    objective: str | Objective = "sce + 0.03*nll"
    alpha: float | Literal["auto"] = option(0.0, minimum=0)
    kl: str | Objective = "kl"
    kappa: float | None = option(None, minimum=0)
    batch_size: float | None = option(None, minimum=1)
    center: bool = True
    solver: Literal["expected", "sgd"] = "expected"
    selection: Literal["ece", "objective"] = "ece"
    n_bins: int = option(N_BINS, minimum=1)
    n_steps: int = option(4000, minimum=1)
    learning_rate: float = option(5.0, above=0)
    random_state: int | None = option(0, minimum=0)

    rho_ = Fitted[float](minimum=1)
    gamma_ = Fitted[float](minimum=0)
    beta_ = Fitted[float](minimum=0, maximum=sys.float_info.max)
    alpha_ = Fitted[float](minimum=0)
    center_ = Fitted[bool](dtype="bool")
    constraints = (
        ("gamma_ or beta_ is positive", lambda fitted: max(fitted["gamma"], fitted["beta"]) >= SMALLEST_POSITIVE),
    )

    @property
    def fits_on(self) -> Literal["rows", "profile"]:
        """The norm for a learned ρ is read from the logits in every step; norms of a grid are in a profile."""
        return "rows" if self.rho == "learn" else "profile"

    @classmethod
    def paper(cls, **options: Any) -> Self:
        """The paper's preset; options given here go before it."""
        return cls(**{**PAPER, **options})

    def _fit(self, data: Profile, start: Map | None = None) -> tuple[Map, optimize.Solution]:
        profile, objectives, forms = data, self._objectives(), self._rhos()
        if not profile.spread > 0:
            map_ = self._new_map(rho=2.0, gamma=0.0, beta=1.0, alpha=0.0, center=self.center)
            return map_, equal_logits_solution("none")
        fit = ScaleSearch.from_profile(profile, kappa=self.kappa or 0.0)
        norms: Sequence[Norm] = (
            [LearnedNorm(fit, forms, center=self.center)]
            if self.rho == "learn"
            else fixed_norms(fit, forms, center=self.center)
        )
        trials: list[Trial] = []
        searches: dict[float, NormSearch] = {}
        for alpha, target in objectives.items():
            prepared = fit.prepared(target)
            searches[alpha] = NormSearch(prepared, fit)
            minima = self._descend(norms, searches[alpha]) if self.solver == "sgd" else None
            trials += searches[alpha].trials(alpha, norms, self.n_bins, minima)
        best = min(trials, key=lambda trial: trial.ece if self.selection == "ece" else trial.minimum.value)
        search = searches[best.alpha]
        held_out = score_in_sample(self.label, fit, *search.at(best))  # the last steps need no table, and release it
        if self.solver == "expected":
            best = search.finish(best)
        solution = solution_at(
            best.minimum,
            objectives[best.alpha],
            "rho-norm scaling",
            trials=tuple(trial.row for trial in trials),
            n_evaluations=sum(trial.minimum.n_evaluations for trial in trials),
            bounds=fit.bounds,
        )
        parameters = {name: best.row[name] for name in ("rho", "gamma", "beta", "alpha")}
        return self._new_map(**parameters, center=self.center), replace(solution, held_out=held_out)

    def _map(self, *, rho: float, gamma: float, beta: float, alpha: float, center: bool) -> Map:
        if gamma == 0:  # no norm need be read
            return scale_map(temperature.scale, temperature=beta)
        return scale_map(scale, rho=rho, gamma=gamma, beta=beta, center=bool(center))

    def _objectives(self) -> dict[float, Objective]:
        """α → the objective with that weight of the KL term."""
        alphas = ALPHAS if self.alpha == "auto" else (self.alpha,)
        terms = [objective(text) for text in ((self.objective, self.kl) if any(alphas) else (self.objective,))]
        if self.batch_size is not None:
            terms = [with_batch_size(term, self.batch_size) for term in terms]
        return {float(alpha): terms[0] + float(alpha) * terms[1] if alpha else terms[0] for alpha in alphas}

    def _rhos(self) -> list[float]:
        """The values of ρ to try, or for ``rho="learn"`` the ends of its range."""
        if self.rho == "learn" and self.solver == "sgd":
            raise InputError("rho='learn' needs solver='expected'; Algorithm 1 searches rho on a grid")
        return [float(rho) for rho in (self.grid if isinstance(self.rho, str) else [self.rho])]

    def _descend(self, tried: Sequence[Norm], search: NormSearch) -> list[optimize.Minimum]:
        """Algorithm 1 for every ρ: gradient descent on mini-batches with γ² and β² as parameters.

        They are counted in units in which the NLL-optimal temperature is 1 and the mean norm is 1, so that one learning
        rate serves networks of every scale; γ² = β² = 1/2 is the start. Exact steps from the end show whether it converged.
        """
        norms = [norm for norm in tried if isinstance(norm, FixedNorm)]
        fit, target = norms[0].search, search.target
        batch_target = target.on_batch()
        unit = np.exp(fit.log_scale)
        relative = np.stack([norm.relative for norm in norms])
        # What a mini-batch needs is read of all samples now, once: a table, and the statistics of the objective.
        fit.evaluate(target, unit / np.maximum((relative[0] + 1) / 2, SMALLEST_DENOMINATOR))

        def gradient(theta: Vector, rows: NDArray[np.intp]) -> Vector:
            r = relative[:, rows]
            scales = unit / np.maximum(theta[:, :1] ** 2 * r + theta[:, 1:] ** 2, SMALLEST_DENOMINATOR)
            slopes = fit.slopes_on(rows, batch_target, scales)
            slopes = -slopes * scales * (scales / unit)  # in this order scales of 1e200 do not overflow
            return 2 * theta * np.stack([(slopes * r).sum(axis=1), slopes.sum(axis=1)], axis=1)

        theta = optimize.sgd(
            gradient,
            np.full((len(norms), 2), np.sqrt(0.5)),
            weights=fit.profile.weights,
            batch_size=batch_size_of(target),
            n_steps=self.n_steps,
            learning_rate=self.learning_rate,
            random_state=self.random_state,
        )
        minima = []
        for norm, (g, b) in zip(norms, theta**2, strict=True):
            x = np.array([fit.log_scale - np.log(g + b), b / (g + b)])
            value, _ = fit.evaluate(target, norm.scales(x)[0])
            converged = optimize.has_converged(value, search.lowest_near(norm, x))
            minima.append(optimize.Minimum(x, value, converged, n_evaluations=self.n_steps))
        return minima


def scale(ops: Ops, parameters: Parameters, sample: SampleFeatures) -> Value:
    """1 / (γ‖z‖_ρ + β) for every sample."""
    norm = sample.norm(parameters["rho"], center=parameters["center"])
    return 1.0 / ops.maximum(parameters["gamma"] * norm + parameters["beta"], SMALLEST_DIVISOR)
