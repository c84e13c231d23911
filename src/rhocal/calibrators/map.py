"""A fitted calibrator as numbers and a formula over ``Ops``: what every backend carries out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rhocal.data.predictions import SMALLEST_PROB, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.numerics.portable.ops import Constants, Formula, Ops, Value

BEHIND = 3
"""How far behind the top class the others stay at least, in logits and in steps of the type: enough to be seen in
probabilities."""


@dataclass(frozen=True)
class Portable:
    """Numbers and formula of a fitted map."""

    constants: dict[str, NDArray[Any]]
    formula: Formula
    unshifted: Formula | None = None
    """The same without the shift of a row, where ``formula`` makes one: a second map behind this one may see it."""
    wide: bool = False
    """Whether it should be worked out in double precision where there is one."""
    keeps_decision: bool = False
    kind: Kind = "logits"
    """What goes in."""
    n_classes: int = 0


def calibrated(ops: Ops, portable: Portable, constants: Constants, scores: Value, *, probs: bool) -> Value:
    """Calibrated logits (up to a shift of a row, which softmax does not see) or probabilities of outside scores."""
    z = as_logits(ops, portable.kind, scores)
    out = portable.formula(ops, constants, z)
    if portable.keeps_decision:
        out = led(ops, out, z)
    return ops.softmax(out) if probs else out


def as_logits(ops: Ops, kind: Kind, scores: Value) -> Value:
    """As ``Predictions.logits`` has it."""
    if kind == "logits":
        return scores
    if kind == "probs":
        return ops.log(ops.maximum(scores, SMALLEST_PROB))
    return ops.maximum(scores, LOWEST)


LOWEST = -69.07755278982137
"""The logarithm of ``SMALLEST_PROB``."""


def led(ops: Ops, out: Value, z: Value) -> Value:
    """The same with the class ahead in z at 0 and all others behind it: rounding cannot change the decision."""
    behind = ops.minimum(out - ops.max(out), -BEHIND * ops.eps)
    return ops.where(z < ops.max(z), behind, 0.0)


def scaled(constants: dict[str, NDArray[Any]], scale: Formula) -> Portable:
    """Logits times a scale, the largest at 0: taken away first it costs no digits."""
    return Portable(
        constants,
        lambda ops, c, z: scale(ops, c, z) * (z - ops.max(z)),
        unshifted=lambda ops, c, z: scale(ops, c, z) * z,
    )


def chained(first: Portable, second: Portable) -> Portable:
    """The second map on what the first gives."""

    def formula(ops: Ops, c: Constants, z: Value) -> Value:
        between = (first.unshifted or first.formula)(ops, part(c, "first"), z)
        return second.formula(ops, part(c, "second"), between)

    stages = {"first": first, "second": second}
    constants = {f"{stage}.{name}": value for stage, one in stages.items() for name, value in one.constants.items()}
    keeps_decision = first.keeps_decision and second.keeps_decision
    return Portable(constants, formula, wide=first.wide or second.wide, keeps_decision=keeps_decision)


def log_mean(members: Sequence[Portable]) -> Portable:
    """Log of the mean of several maps' probabilities, of which none is below ``SMALLEST_PROB``."""

    def formula(ops: Ops, c: Constants, z: Value) -> Value:
        total = None
        for k, member in enumerate(members):
            p = ops.softmax(member.formula(ops, part(c, str(k)), z))
            total = p if total is None else total + p
        assert total is not None
        return ops.log(ops.maximum(total / float(len(members)), SMALLEST_PROB))

    constants = {f"{k}.{name}": v for k, one in enumerate(members) for name, v in one.constants.items()}
    return Portable(constants, formula, wide=any(one.wide for one in members))


def part(constants: Constants, stage: str) -> Constants:
    """The numbers of one of several maps."""
    prefix = stage + "."
    return {name.removeprefix(prefix): value for name, value in constants.items() if name.startswith(prefix)}
