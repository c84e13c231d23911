"""What a cascade reads of a sample: smoothed log-probabilities, the direction of its logits and their norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rhocal.calibrators.scale.features import SOFT_ZERO

if TYPE_CHECKING:
    from rhocal.numerics.ops import Ops, Parameters, Value

MAX_GAP = 50.0
"""Scaled logits this far below the largest are equal: their probability is 0, and a mask of −1e9 must not set the direction."""

SMALLEST_SQUARE = 1e-9
"""Added to the squared norm: a row of equal logits has the direction 0."""


@dataclass(frozen=True, eq=False)
class BaseScores:
    """Of every sample, with the NLL-optimal scale β."""

    log_probs: Value
    """x = log((1 − ε)·softmax(βz) + ε/m)."""
    direction: Value
    """βz minus its mean, divided by its norm."""
    log_norm: Value
    is_top: Value
    """1 for the largest logit (for each of several), else 0."""


def base_scores(ops: Ops, parameters: Parameters, logits: Value) -> BaseScores:
    """The scores of logits; ``parameters`` has β as ``scale``, ε as ``mix`` and m as ``n_classes``."""
    scaled = ops.maximum(parameters["scale"] * (logits - ops.max(logits)), -MAX_GAP)
    centered = scaled - ops.mean(scaled)
    square = ops.sum(centered * centered)
    return BaseScores(
        smoothed_log_probs(ops, parameters, scaled),
        centered / ops.sqrt(square + SMALLEST_SQUARE),
        ops.log(ops.sqrt(square + SMALLEST_SQUARE) + SOFT_ZERO),
        ops.where(scaled < 0.0, 0.0, 1.0),
    )


def smoothed_log_probs(ops: Ops, parameters: Parameters, u: Value) -> Value:
    """log((1 − ε)·softmax(u) + ε/m): no sample is further than log(m/ε) from its label."""
    mix = parameters["mix"]
    return ops.log((1.0 - mix) * ops.softmax(u) + mix / parameters["n_classes"])
