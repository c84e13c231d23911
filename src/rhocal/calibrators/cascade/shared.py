"""A shared stage: a map with the same numbers for every class.

u + α·gap + Σ_q v_q·max(x, −q) + γ·[top], with x the smoothed log-probabilities of u, gap = x − max x, and α and γ linear in a
context of the sample. A scale, which is one for top and tail, trades NLL against ECE; here each part of the tail has a slope.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.cascade.scores import smoothed_log_probs
from rhocal.calibrators.scale.features import KNOTS, STANDARD, Standardization, margin_spline, standardize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.numerics.special import Vector

TAIL_KNOTS = (1.0, 2.0, 4.0, 6.0, 9.0)
"""Where the slope in the log-probability may change: at 0.37, 0.14, 0.018, 0.0025 and 0.00012."""

MAX_SECOND_MARGIN = 3.0
"""Beyond, the third class does not matter."""


def context(ops: Ops, log_norm: Value, x: Value, n_classes: int) -> Value:
    """Numbers of a sample that α and γ depend on: log-norm, entropy, the margin up to knots, the second margin."""
    top = ops.top(x, min(3, n_classes))
    first, second = ops.column(top, 0), ops.column(top, 1)
    columns = [log_norm, -ops.sum(ops.exp(x) * x), margin_spline(ops, first - second)]
    if n_classes > 2:
        columns.append(ops.minimum(second - ops.column(top, 2), MAX_SECOND_MARGIN))
    return ops.concat(columns)


def entry_features(ops: Ops, x: Value, is_top: Value | None) -> list[Value]:
    """The features of an entry: gap, tail at each knot, and whether it is the top class (None: without)."""
    tail = [ops.maximum(x, -knot) for knot in TAIL_KNOTS]
    return [x - ops.max(x), *tail, *([] if is_top is None else [is_top])]


def shared_stage(ops: Ops, parameters: Parameters, log_norm: Value, is_top: Value | None, u: Value) -> Value:
    """The stage on logits u; ``is_top`` is None for a stage without features of the top class."""
    x = smoothed_log_probs(ops, parameters, u)
    c = standardize(ops, context(ops, log_norm, x, int(parameters["n_classes"])), parameters)
    gap, *others = entry_features(ops, x, is_top)
    out = u + gap * (parameters["gap_bias"] + ops.sum(parameters["gap"] * c))
    for k, tail in enumerate(others[: len(TAIL_KNOTS)]):
        out = out + tail * parameters["tail"][k]
    if is_top is not None:
        out = out + is_top * (parameters["top_bias"] + ops.sum(parameters["top"] * c))
    return out


@dataclass(frozen=True, eq=False)
class SharedWeights:
    """The numbers of a shared stage."""

    standard: Standardization
    weights: Vector
    """gap, gap × context; tail at each knot; top, top × context if it has them."""

    @classmethod
    def zero(cls, standard: Standardization, *, has_top: bool) -> SharedWeights:
        """The stage that changes nothing."""
        return cls(standard, np.zeros(sum(part_sizes(len(standard.mean), has_top=has_top))))

    @classmethod
    def from_arrays(cls, standard: Vector, weights: Vector) -> SharedWeights:
        """From the arrays of an artifact; see ``arrays``."""
        return cls(Standardization(*standard), weights)

    @property
    def arrays(self) -> tuple[Vector, Vector]:
        """How the context is standardized (a row each of ``STANDARD``), and the weights."""
        return np.stack([getattr(self.standard, name) for name in STANDARD]), self.weights

    @property
    def has_top(self) -> bool:
        """Whether it has features of the top class."""
        n_context = len(self.standard.mean)
        return len(self.weights) == sum(part_sizes(n_context, has_top=True))

    @property
    def parameters(self) -> dict[str, Any]:
        """As ``shared_stage`` takes them."""
        gap, tail, *top = self.split()
        numbers = {"gap_bias": gap[:1], "gap": gap[1:], "tail": tail}
        if top:
            numbers |= {"top_bias": top[0][:1], "top": top[0][1:]}
        return {**numbers, **{name: getattr(self.standard, name) for name in STANDARD}}

    def split(self) -> Sequence[Vector]:
        """The weights of gap, tail and top."""
        sizes = part_sizes(len(self.standard.mean), has_top=self.has_top)
        return np.split(self.weights, np.cumsum(sizes)[:-1])


def n_context_columns(n_classes: int) -> int:
    """How many columns ``context`` gives."""
    return 2 + len(KNOTS) + (n_classes > 2)


def part_sizes(n_context: int, *, has_top: bool) -> list[int]:
    """How many weights belong to gap, tail and top."""
    return [1 + n_context, len(TAIL_KNOTS), *([1 + n_context] if has_top else [])]
