"""The result of a solver, and the evidence of a fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rhocal.numerics.special import Vector

ScalarFunction = Callable[[float], tuple[float, float]]
"""x → value, slope."""

CurvedFunction = Callable[[float], tuple[float, float, float, float, float]]
"""log s → value and first three derivatives in s of a function convex in s, and s."""

Curved = tuple[float, tuple[float, float], tuple[float, float, float]]
"""Of a function of two variables: value, gradient, and the second derivatives vv, vw, ww."""

VectorFunction = Callable[[Vector], tuple[float, Vector]]
"""x → value, gradient."""


@dataclass(frozen=True)
class HeldOutScores:
    """NLL and Brier score of a fit and of references.

    These are the identity and temperature scaling on held-out samples, or temperature scaling alone on the samples of the fit
    (``in_sample``).
    """

    nll: Mapping[str, float]
    brier: Mapping[str, float]
    reference: str
    """The one of identity and temperature scaling with the lower NLL."""
    above: Mapping[str, float]
    """How far the fit is above it, in ``nll`` and ``brier``, and the standard errors of these differences."""
    n_samples: int
    """Samples that were scored."""
    in_sample: bool = False
    """Whether the samples are those of the fit. So it is for ``rho-norm``, ``rho-norm-paper`` and ``temperature-avuc``, of at
    most three numbers, whose NLL in sample is too low by some 3/n at most; the Brier score is that of the top label then."""
    fell_back_to: str = ""
    """What a guarded method uses instead of its own fit."""
    above_of_choice: Mapping[str, float] | None = None
    """Where scores are those of nested choices: ``above`` of the method that all folds choose, which the guard reads."""

    @property
    def method(self) -> str:
        """The name of the fit: the one that is not a reference."""
        (name, *_) = (name for name in self.nll if name not in {"identity", "temperature"})
        return name

    @property
    def summary(self) -> str:
        """Both scores of the fit beside those of temperature scaling, in one line."""
        samples, top = ("calibration", "top-label ") if self.in_sample else ("held-out", "")
        scores = ((self.nll, "NLL"), (self.brier, f"{top}Brier"))
        parts = (f"{title} {by[self.method]:.4f} (temperature {by['temperature']:.4f})" for by, title in scores)
        return f"on {self.n_samples:,} {samples} samples {', '.join(parts)}"

    def sentence(self, name: str) -> str:
        """The comparison in words."""
        samples = "calibration" if self.in_sample else "held-out"
        return (
            f"NLL {self.nll[name]:.4f} and Brier score {self.brier[name]:.4f} on {self.n_samples:,} {samples} samples; "
            f"{self.reference} has {self.nll[self.reference]:.4f} and {self.brier[self.reference]:.4f}"
        )


@dataclass(frozen=True)
class DecisionChange:
    """How many calibration samples have another predicted class after a fit, and what that does to accuracy on them."""

    n_samples: int
    """Samples that were looked at: the calibration set, or some of it."""
    n_changed: int
    accuracy_before: float = 0.0
    accuracy_after: float = 0.0
    low: float = 0.0
    """The 95 % interval of the difference of both accuracies on other samples, if the map were not fitted to these."""
    high: float = 0.0

    @property
    def sentence(self) -> str:
        """What a fit does, as the end of a sentence."""
        if not self.n_changed:
            return f"changes none of {self.n_samples:,} predictions on the calibration set"
        difference = self.accuracy_after - self.accuracy_before
        return (
            f"changes {self.n_changed:,} of {self.n_samples:,} predictions on the calibration set; accuracy there goes from "
            f"{self.accuracy_before:.4f} to {self.accuracy_after:.4f} ({difference:+.4f}, 95 % interval {self.low:+.4f} to "
            f"{self.high:+.4f}; the fit has seen these samples, new ones may gain less)"
        )


@dataclass(frozen=True)
class Solution:
    """The evidence of a fit."""

    objective: str
    value: float
    """The objective on the calibration set."""
    converged: bool
    n_evaluations: int
    at_bound: str = ""
    """Why the optimum is at a bound, in words; empty if it is inside."""
    trials: tuple[Mapping[str, Any], ...] = ()
    """Every candidate (ρ, α, …) with its values."""
    held_out: HeldOutScores | None = None
    """The comparison with the identity and with temperature scaling; None where samples are too few to hold some out."""
    decisions: DecisionChange | None = None
    """What the fit does to predicted classes; None where its calibration set has no logits, or is inside another fit."""


@dataclass(frozen=True)
class Minimum:
    """The point at which a solver stopped."""

    x: Vector
    value: float
    converged: bool
    n_evaluations: int
