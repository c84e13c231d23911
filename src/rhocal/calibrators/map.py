"""A fitted map as a value: a formula over ``Ops`` and its numbers, which NumPy, torch and ONNX carry out."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.logit_sizes import MAX_LOGIT, MAX_SINGLE_LOGIT
from rhocal.data.predictions import SMALLEST_PROB, Kind
from rhocal.errors import InputError
from rhocal.numerics.masks import MASKED_LOGIT
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.numerics.ops import DOUBLE_EPS, Ops, Parameters, Value
from rhocal.numerics.scaling import keep_decision, scaled, scaled_softmax
from rhocal.numerics.special import Floats, Vector, row_argmax, row_max
from rhocal.numerics.threads import BLOCK_ENTRIES, row_blocks
from rhocal.profile.profile import Profile
from rhocal.profile.sample_features import BestFeatures, LogitFeatures, ProfileFeatures, SampleFeatures

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.ops import Formula

ScaleFormula = Callable[[Ops, Parameters, SampleFeatures], Value]
"""Features of every sample → its scale, a column or one number for all."""

SCALED_ENTRIES = 1 << 22
"""Entries whose scales are computed together before their probabilities: a small share of any large output."""

BEHIND = 3
"""How far behind the top class the others stay at least, in logits and in steps of the type: enough to be seen in
probabilities."""


LARGEST_SINGLE, SINGLE_EPS = float(np.finfo(np.float32).max), float(np.finfo(np.float32).eps)

NEAR = 2.0**-20
"""Share of a gap within which the rounding of a difference in single precision can matter."""

LOST_BY_DOUBLE = 2.0**-55
"""How far, in gaps, half a difference may be from half the gap, a power of 2, to be rounded to it in double precision."""


def unchanged(_ops: Ops, _parameters: Parameters, logits: Value) -> Value:
    """The logits as they are."""
    return logits


@dataclass(frozen=True, eq=False)
class Map:
    """Calibrated logits are ``formula``, times ``scale`` where there is one. Both are functions of a module."""

    formula: Formula
    parameters: Parameters
    """Fitted arrays, and plain values such as names and flags."""
    scale: ScaleFormula | None = None
    """The scale of what the formula gives. It is apart because softmax of scaled logits is one compiled step, and because a
    shift before the product costs no digits."""
    keeps_decision: bool = False
    is_neutral_mean: bool = False
    """Whether the formula reads the mean of the other entries in place of a mask, not what is far below them."""
    is_wide: bool = False
    """Whether it needs double precision where there is one."""
    block_entries: int = BLOCK_ENTRIES
    """Entries that NumPy maps at a time."""
    kind: Kind = "logits"
    """What goes in."""
    n_classes: int = 0
    mask_gap: float = np.inf
    """How far below the largest logit of its row an entry is a mask. A masked class gets no probability, and is in no feature
    of its sample."""
    smallest_prob: float = SMALLEST_PROB
    """What smaller probabilities are raised to before the logarithm, where scores are probabilities."""
    single_column: int = 1
    """The class of two that a single score belongs to, by its column; exported maps have that of the positive class."""
    fitted: Mapping[str, Any] = field(default_factory=dict)
    """The fitted attributes of the calibrator, by name: what an artifact stores."""

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The parameters that are arrays: what another backend must hold."""
        return {name: value for name, value in self.parameters.items() if isinstance(value, np.ndarray)}

    def logits(self, data: Predictions) -> Floats:
        """Calibrated logits in the type of the logits."""
        data = self._with_resolution(data)
        out = np.empty(data.logits.shape, data.output_type)
        end = 0.5 * float(np.finfo(out.dtype).max)  # a calibrated logit may be too large for the type
        for rows, block, masked in self._mapped(data):
            if self.scale is None:
                out[rows] = np.clip(block, -end, end)
                if self.keeps_decision:
                    keep_decision(out[rows], data.logits[rows])
            elif block.dtype == out.dtype:
                scaled(block, self._scale(block, data, rows, masked), out[rows])
            else:
                out[rows] = np.clip(scaled(block, self._scale(block, data, rows, masked)), -end, end)
            if masked is not None:
                depth = np.minimum(MASKED_LOGIT, -2 * np.abs(row_max(out[rows]).astype(np.float64)))
                np.copyto(out[rows], np.maximum(depth, -2 * end)[:, None].astype(out.dtype), where=masked)
        return out

    def probs(self, data: Predictions) -> Floats:
        """Calibrated probabilities in the type of the logits; softmax comes before the result is rounded to it."""
        data = self._with_resolution(data)
        out = np.empty(data.logits.shape, data.output_type)
        for rows, block, masked in self._mapped(data):
            scale = np.ones(1) if self.scale is None else self._scale(block, data, rows, masked)
            if masked is not None:
                depth = MASKED_LOGIT / np.clip(scale, 1e-200, 1)[:, None]
                out[rows] = scaled_softmax(np.where(masked, depth, block - row_max(block)[:, None]), scale)
            elif block.dtype == out.dtype:
                scaled_softmax(block, scale, out[rows])
            else:
                out[rows] = scaled_softmax(block, scale)
            if self.keeps_decision and (self.formula is not unchanged or block.dtype != out.dtype):
                keep_decision(out[rows], data.logits[rows])
        return out

    def predicted(self, data: Predictions) -> NDArray[np.intp]:
        """Column of the predicted class; read off the logits as they came where the decision is kept."""
        data = self._with_resolution(data)
        return row_argmax(data.logits if self.keeps_decision else self.probs(data))

    def scales(self, samples: Predictions | Profile) -> Vector:
        """The scale of every sample; of a profile, whose logits may be gone, if the formula changes nothing."""
        assert self.scale is not None
        if isinstance(samples, Profile):
            assert self.formula is unchanged
            scale = np.ravel(self.scale(NUMPY, self.parameters, ProfileFeatures(samples)))
            return np.array(np.broadcast_to(scale, samples.top.shape))
        samples = self._with_resolution(samples)
        parts = [
            np.broadcast_to(self._scale(block, samples, rows, masked), len(block))
            for rows, block, masked in self._mapped(samples)
        ]
        return np.concatenate(parts)

    def _with_resolution(self, data: Predictions) -> Predictions:
        """The same with zeros among probabilities raised to what they meant in the calibration set."""
        is_known = data.kind == "logits" or data.smallest_prob is not None
        return data if is_known else replace(data, smallest_prob=self.smallest_prob)

    def _mapped(self, data: Predictions) -> Iterator[tuple[slice, Floats, NDArray[np.bool_] | None]]:
        """What the formula gives for every block of rows, and which entries are masked, if any is."""
        low, high = data.span if data.kind == "logits" else (0.0, 0.0)
        is_extreme = max(-low, high) > MAX_SINGLE_LOGIT
        if high > MAX_LOGIT:
            raise InputError(
                f"logits must not exceed {MAX_LOGIT:g}; the largest is {high:g}. Divide them by a constant"
            )
        if low < -MAX_LOGIT and (lowest_top := float(row_max(data.logits).min())) < -MAX_LOGIT:
            raise InputError(
                f"the largest logit of every row must be at least {-MAX_LOGIT:g}; that of one is {lowest_top:g}. Divide "
                "logits by a constant"
            )
        entries = SCALED_ENTRIES if self.formula is unchanged else self.block_entries
        for rows in row_blocks(data.n_samples, data.n_classes, entries):
            block, masked = data.precise_logits(rows) if self.is_wide else data.logits[rows], None
            holds_lowest = LARGEST_SINGLE < self.mask_gap < math.inf and low <= -LARGEST_SINGLE
            if holds_lowest:  # as in ``calibrate``
                lowest = (block == -LARGEST_SINGLE) & (row_max(block) > -LARGEST_SINGLE)[:, None]
                block = np.where(lowest, -np.finfo(np.float64).max, block.astype(np.float64))
            if high / 2 - low / 2 >= self.mask_gap / 2 or holds_lowest or block.dtype != data.logits.dtype:
                came_in = replace(self, kind=data.kind)  # logits have masks, also after a fit on probabilities
                block, masked = formula_output(NUMPY, came_in, self.parameters, block.astype(np.float64, copy=False))
                masked = None if masked is None or not masked.any() else masked
            elif self.formula is not unchanged:
                block = self.formula(NUMPY, self.parameters, block.astype(np.float64, copy=False))
            elif is_extreme:
                block = block.astype(np.float64, copy=False)
            yield rows, block, masked

    def _scale(self, block: Floats, data: Predictions, rows: slice, masked: NDArray[np.bool_] | None) -> Vector:
        assert self.scale is not None
        groups = None if data.groups is None else data.groups[rows]
        features = LogitFeatures(NUMPY, block, groups, masked)
        return np.ravel(self.scale(NUMPY, self.parameters, features)).astype(np.float64)


def scale_map(scale: ScaleFormula, **parameters: Any) -> Map:
    """Logits times a scale; numbers among the parameters become arrays."""
    numbers = {name: np.asarray(value) if isinstance(value, float) else value for name, value in parameters.items()}
    return Map(unchanged, numbers, scale, keeps_decision=True)


def best_scale(k: int, scale: ScaleFormula, ops: Ops, parameters: Parameters, sample: SampleFeatures) -> Value:
    """A scale that reads the k largest logits of a sample and no others."""
    return scale(ops, parameters, BestFeatures(ops, sample, k))


def calibrate(
    ops: Ops, map_: Map, parameters: Parameters, scores: Value, *, probs: bool, is_rounded: bool = False
) -> Value:
    """Calibrated probabilities, or logits up to a shift of a row, of outside scores, by any backend.

    ``parameters`` are those of the map as the backend holds them. The result of a double computation ``is_rounded`` if the
    caller needs it in single precision.
    """
    z = as_logits(ops, map_.kind, scores, map_.smallest_prob)
    if map_.kind == "logits" and LARGEST_SINGLE < map_.mask_gap < math.inf:
        # The lowest number of single precision stands for −∞ in any type, except in rows of it alone. It must lie deeper than
        # logits that only double precision can hold.
        lifted = ops.where(z < -LARGEST_SINGLE, z, ops.where(z <= -LARGEST_SINGLE, -math.inf, z))
        z = ops.where(ops.max(z) <= -LARGEST_SINGLE, z, lifted)
    out, masked = formula_output(ops, map_, parameters, z)
    if map_.scale is not None:
        out = map_.scale(ops, parameters, LogitFeatures(ops, out, masked=masked)) * (out - ops.max(out))
    if map_.keeps_decision:
        out = put_ahead(ops, out, z, SINGLE_EPS if is_rounded else ops.eps)
    if masked is not None:
        out = put_behind(ops, out, masked)
    out = ops.keep_nan(out, scores)
    return ops.softmax(out) if probs else out


def put_behind(ops: Ops, out: Value, masked: Value) -> Value:
    """The same with masked classes far below the largest of the others, whatever stands in their place."""
    top = ops.max(ops.where(masked, -math.inf, out))
    return ops.where(masked, MASKED_LOGIT - 2.0 * ops.abs(top), out)


def formula_output(ops: Ops, map_: Map, parameters: Parameters, logits: Value) -> tuple[Value, Value | None]:
    """What the formula gives, and which entries are masked: there, what stands as deep as the least deep mask.

    The formula reads masks twice as deep: rounding must not make them classes again for the maps that it is made of.
    """
    if map_.mask_gap == math.inf or map_.kind != "logits":
        return map_.formula(ops, parameters, logits), None
    top = ops.max(logits)
    masked = is_below(ops, logits, top, map_.mask_gap)
    if map_.formula is unchanged:
        return ops.where(masked, top - map_.mask_gap, logits), masked
    shallow = ops.where(masked, top - 2.0 * map_.mask_gap, logits)
    if map_.is_neutral_mean:
        shallow = ops.where(masked, ops.mean_where_not(masked, shallow), logits)
    out = put_behind(ops, map_.formula(ops, parameters, shallow), masked)
    return ops.where(masked, ops.max(out) - map_.mask_gap, out), masked


def is_below(ops: Ops, x: Value, top: Value, gap: float) -> Value:
    """Whether an entry lies at least ``gap`` below the top, as double precision rounds their difference.

    Single precision adds what the difference lost by rounding (Knuth's two-sum), up to what double precision loses too: near
    the limit both call the same entries masked.
    """
    half, half_top = x * 0.5, top * 0.5  # halves do not overflow
    if ops.eps < DOUBLE_EPS:
        return half - half_top <= -0.5 * gap
    finite = ops.maximum(half, -0.5 * LARGEST_SINGLE)  # ∞ minus ∞ is no number
    rounded = finite - half_top
    back = rounded - finite
    lost = (finite - (rounded - back)) - (half_top + back)
    excess = (half - half_top) + 0.5 * gap
    return excess + ops.where(ops.abs(excess) < NEAR * gap, lost, 0.0) <= LOST_BY_DOUBLE * gap


def as_logits(ops: Ops, kind: Kind, scores: Value, smallest_prob: float) -> Value:
    """As ``Predictions.logits`` has it."""
    if kind == "logits":
        return scores
    if kind == "probs":
        return ops.log(ops.maximum(scores, smallest_prob))
    return ops.maximum(scores, math.log(smallest_prob))


def two_columns(ops: Ops, map_: Map, score: Value) -> Value:
    """Scores of two classes from one, a column for ``map_.single_column``, as ``Predictions.from_arrays`` makes them."""
    if map_.kind == "logits":
        pair = [score * -0.5, score * 0.5]
    else:
        p = ops.exp(score) if map_.kind == "log_probs" else score
        pair = [1.0 - p, p]
    both = ops.concat(pair if map_.single_column == 1 else pair[::-1])
    return ops.log(both) if map_.kind == "log_probs" else both


def put_ahead(ops: Ops, out: Value, z: Value, eps: float) -> Value:
    """The same with the class ahead in z at 0 and all others behind it: rounding cannot change the decision."""
    behind = ops.minimum(out - ops.max(out), -BEHIND * eps)
    return ops.where(z < ops.max(z), behind, 0.0)


# Maps made of maps -----------------------------------------------------------------------------------------------------


def chain_map(first: Map, second: Map) -> Map:
    """The second map on what the first gives."""
    stages = {"first": first, "second": second}
    return Map(
        partial(chained, without_numbers(first), without_numbers(second)),
        {f"{stage}.{name}": value for stage, map_ in stages.items() for name, value in map_.parameters.items()},
        None if second.scale is None else partial(part_scale, "second", second.scale),
        keeps_decision=first.keeps_decision and second.keeps_decision,
        is_wide=True,  # the second magnifies what a product with the scale of the first would round
        block_entries=max(first.block_entries, second.block_entries),
    )


def chained(first: Map, second: Map, ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """The formula of a chain, without the scale of its second map."""
    numbers = part(parameters, "first")
    between, masked = formula_output(ops, first, numbers, logits)
    if first.scale is not None:
        between = first.scale(ops, numbers, LogitFeatures(ops, between, masked=masked)) * between
    if masked is not None:
        between = put_behind(ops, between, masked)
    return formula_output(ops, second, part(parameters, "second"), between)[0]


def part_scale(stage: str, scale: ScaleFormula, ops: Ops, parameters: Parameters, sample: SampleFeatures) -> Value:
    """The scale of one of several maps."""
    return scale(ops, part(parameters, stage), sample)


def mean_map(members: Sequence[Map]) -> Map:
    """Log of the mean of several maps' probabilities, of which none is below ``SMALLEST_PROB``."""
    return Map(
        partial(log_mean, tuple(without_numbers(member) for member in members)),
        {f"{k}.{name}": value for k, member in enumerate(members) for name, value in member.parameters.items()},
        is_wide=any(member.is_wide for member in members),
        block_entries=max(member.block_entries for member in members),
    )


def log_mean(members: Sequence[Map], ops: Ops, parameters: Parameters, logits: Value) -> Value:
    """The formula of ``mean_map``."""
    probs = [map_probs(ops, member, part(parameters, str(k)), logits) for k, member in enumerate(members)]
    total = functools.reduce(operator.add, probs)
    return ops.log(ops.maximum(total / float(len(members)), SMALLEST_PROB))


def map_probs(ops: Ops, map_: Map, parameters: Parameters, logits: Value) -> Value:
    """The probabilities that a map gives."""
    out, masked = formula_output(ops, map_, parameters, logits)
    if map_.scale is not None:
        out = map_.scale(ops, parameters, LogitFeatures(ops, out, masked=masked)) * (out - ops.max(out))
    return ops.softmax(out if masked is None else put_behind(ops, out, masked))


def without_numbers(map_: Map) -> Map:
    """The formulas of a map, whose numbers stand elsewhere."""
    return replace(map_, parameters={}, fitted={})


def part(parameters: Parameters, stage: str) -> Parameters:
    """The parameters of one of several maps."""
    prefix = stage + "."
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
