"""The part of a cascade that knows classes: b + s∘x + A·d + tail∘(B·d) + C·kernel(x), each a sum of steps.

Every step of a kind is linear in the same features of the sample, so that steps of a kind add up to one array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from rhocal.numerics.caching import cached_property

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.calibrators.cascade.scores import BaseScores
    from rhocal.numerics.ops import Ops, Parameters, Value

Kind = Literal["bias", "slope", "matrix", "tail", "kernel"]
KINDS: tuple[Kind, ...] = ("bias", "slope", "matrix", "tail", "kernel")

Steps = dict[Kind, Any]
"""The array of each kind of step that a model has taken."""


class StepFeatures:
    """The features of samples that steps are linear in, computed when they are read."""

    def __init__(self, ops: Ops, parameters: Parameters, scores: BaseScores) -> None:
        self.ops, self.parameters, self.scores = ops, parameters, scores

    @cached_property
    def slope(self) -> Value:
        """X minus the mean of its class, in units of one standard deviation."""
        return (self.scores.log_probs - self.parameters["x_mean"]) / self.parameters["x_sd"]

    @cached_property
    def matrix(self) -> Value:
        """1 and the standardized direction of the logits."""
        direction = (self.scores.direction - self.parameters["direction_mean"]) / self.parameters["direction_sd"]
        return self.ops.concat([self.scores.log_norm * 0.0 + 1.0, direction])

    @cached_property
    def mask(self) -> Value:
        """(1 − p)^6, which leaves the top class alone: 0.53 at p = 0.1, 0.016 at p = 0.5."""
        other = 1.0 - self.ops.exp(self.scores.log_probs)
        cube = other * other * other
        return cube * cube

    @cached_property
    def kernel(self) -> Value:
        """exp(−|x − landmark|² / width) for every landmark, x clamped to the range of the calibration set."""
        ops, landmarks = self.ops, self.parameters["landmarks"]
        x = ops.clip(self.slope, self.parameters["x_low"], self.parameters["x_high"])
        distance = ops.sum(x * x) + self.parameters["landmark_squares"] - 2.0 * ops.matmul(x, landmarks)
        return ops.exp(-ops.maximum(distance, 0.0) / self.parameters["width"])


def step_logits(ops: Ops, steps: Mapping[Kind, Any], features: StepFeatures) -> Value:
    """What the steps add to the logits; None if there are none."""
    out: Value = None
    for kind in KINDS:
        if kind in steps:
            part = kind_logits(ops, kind, steps[kind], features)
            out = part if out is None else out + part
    return out


def kind_logits(ops: Ops, kind: Kind, weights: Value, features: StepFeatures) -> Value:
    """What the steps of one kind add."""
    if kind == "bias":
        return weights
    if kind == "slope":
        return features.slope * weights
    if kind == "kernel":
        return ops.matmul(features.kernel, weights)
    product = ops.matmul(features.matrix, weights)
    return product * features.mask if kind == "tail" else product


def add_steps(first: Mapping[Kind, Any], second: Mapping[Kind, Any], rate: float = 1.0) -> Steps:
    """First + rate · second."""
    scaled: Steps = {kind: rate * weights for kind, weights in second.items()}
    return {
        kind: first[kind] + scaled[kind] if kind in first and kind in scaled else first.get(kind, scaled.get(kind))
        for kind in KINDS
        if kind in first or kind in scaled
    }
