"""The two terms of the paper: square calibration error, and divergence from the uncalibrated distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rhocal.errors import InputError
from rhocal.numerics.special import dot
from rhocal.objectives.base import Objective, Single, Slopes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.numerics.special import Vector
    from rhocal.profile.statistics import Facts


@dataclass(frozen=True, repr=False)
class SCE(Single):
    """Square calibration error of a random mini-batch taken as one bin (paper, Eq. 4), in expectation over the draw.

    With d = correct − confidence and a batch D of ``batch_size`` draws with replacement,
    E[(mean_D d)²] = mean(d)² + Var(d) / batch_size. The second term makes the parameters identifiable: the first alone
    is zero on a whole curve. ``batch_size=inf`` leaves the first alone, which on one drawn batch is the paper's loss.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling(rhocal.SCE()).fit(logits, labels)
    >>> round(calibrator.temperature_, 2)
    2.39
    """

    batch_size: float = 128
    name = "sce"
    statistics = frozenset({"confidence"})

    def __post_init__(self) -> None:
        if not self.batch_size >= 1:
            raise InputError(f"sce: batch_size must be at least 1; got {self.batch_size!r}")

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        d = facts.correct - values["confidence"]
        mean = float(dot(d, facts.weights))
        value = mean**2 + float(dot((d - mean) ** 2, facts.weights)) / self.batch_size
        return value, {"confidence": -2 * facts.weights * (mean + (d - mean) / self.batch_size)}

    @property
    def gap_weights(self) -> tuple[float, float, float]:
        return (1 - 1 / self.batch_size, 1 / self.batch_size, 0.0)

    def on_batch(self) -> Objective:
        return SCE(math.inf)


@dataclass(frozen=True, repr=False)
class KL(Single):
    """Divergence between the calibrated distribution g and the original s (paper, Eq. 5).

    direction
        ``to-base`` is KL(g‖s), as the equation is printed; ``from-base`` is KL(s‖g), as its text reads ("s replaces the
        label").
    reduction
        ``mean`` over samples and classes (the only one that fits the published values), ``samples``: mean over samples,
        ``sum``: over a mini-batch of ``batch_size`` as printed.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling(rhocal.NLL() + 0.1 * rhocal.KL(direction="from-base")).fit(logits, labels)
    >>> round(calibrator.temperature_, 2)
    2.35
    """

    direction: str = "to-base"
    reduction: str = "mean"
    batch_size: float = 128
    name = "kl"

    def __post_init__(self) -> None:
        if self.direction not in {"to-base", "from-base"}:
            raise InputError(f"kl: direction is to-base or from-base; got {self.direction!r}")
        if self.reduction not in {"mean", "samples", "sum"}:
            raise InputError(f"kl: reduction is mean, samples or sum; got {self.reduction!r}")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.statistic})

    @property
    def statistic(self) -> str:
        """The statistic of its direction."""
        return "kl_to_base" if self.direction == "to-base" else "kl_from_base"

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        factor = {"mean": 1 / facts.n_classes, "samples": 1.0, "sum": self.batch_size}[self.reduction]
        return factor * float(dot(values[self.statistic], facts.weights)), {self.statistic: factor * facts.weights}
