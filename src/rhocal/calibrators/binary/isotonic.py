"""Isotonic regression of the hits on the probability, plain and centered."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from rhocal import optimize
from rhocal.calibrators.binary.binary_map import FittedBinaryMap, Lines, Outcomes, smoothed
from rhocal.calibrators.binary.one_vs_rest import ONE_VS_REST, SMOOTHING, BinaryCalibrator, Scope
from rhocal.calibrators.options import Fitted, option
from rhocal.numerics.special import DIGITS, Vector
from rhocal.numerics.tables import steep_lines

STEEP = 2.0**13
"""Rise of a line, while its score grows by its own size, from which on the rounding of a score is worth 1e-9."""

HALF_STEP = 0.98 * 2.0 ** (52 - DIGITS)
"""How far, in steps of double precision, a score is moved when it is rounded; a little less, so that blocks do not touch."""


@dataclass(eq=False, repr=False)
class IsotonicRegression(BinaryCalibrator):
    """The best non-decreasing map of each class's probability (Zadrozny & Elkan 2002). It may change the predicted class.

    Equal probabilities count as one, the blocks of the pooled sequence are joined by straight lines, and beyond the first
    and last the map is constant, as in scikit-learn.

    Parameters
    ----------
    centered
        Centered isotonic regression (Oron & Flournoy 2017): each block is one knot at its mean probability, so that the map
        rises everywhere between the first and the last block instead of standing still inside each.
    scope
        ``"one-vs-rest"``: a map for each class, rows normalized. ``"top"`` or ``"top-capped"``: one for the confidence.
    smoothing
        How many samples the rule of succession adds to a block without a hit, or without a miss; with 0 such a block gives
        exactly 0 or 1 (written as 1e-30), and one surprise makes the NLL very large.

    Attributes
    ----------
    knots_, values_
        The corners of each map, filled up with NaN.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits(name="table")
    >>> calibrator = rhocal.IsotonicRegression().fit(logits, labels)
    >>> float(calibrator.predict_proba(logits)[:, 1].mean().round(3)), float(labels.mean().round(3))
    (0.03400000184774399, 0.034)
    """

    name = "isotonic"
    map = Lines
    has_monotone_bounds = True

    _: KW_ONLY
    centered: bool = False
    scope: Scope = ONE_VS_REST
    smoothing: float = option(SMOOTHING, minimum=0)

    knots_ = Fitted[Vector](shape="maps knots | maps", allows_nan=True, minimum=0, maximum=1, increasing=True)
    values_ = Fitted[Vector](shape="maps knots | maps", allows_nan=True, minimum=0, maximum=1)

    @property
    def joins_misses(self) -> bool:
        return not self.centered

    def _fit_map(self, data: Outcomes) -> FittedBinaryMap:
        return isotonic_lines(data, self.smoothing, centered=self.centered)


def isotonic_lines(data: Outcomes, smoothing: float, *, centered: bool) -> FittedBinaryMap:
    """The isotonic map, with its first and last block kept away from 0 and 1."""
    values, starts = optimize.isotonic(data.rate, data.weight)
    first, last = starts[:-1], starts[1:] - 1
    value = values[first]
    weight = np.add.reduceat(data.weight, first)
    # A block next to the smoothed one must not be overtaken by it.
    smooth = smoothed(value, weight, data.n_classes, smoothing)
    value[0] = min(smooth[0], *value[1:2], 1.0) if value[0] <= 0 else value[0]
    value[-1] = max(smooth[-1], *value[-2:-1], 0.0) if value[-1] >= 1 else value[-1]
    if centered:
        return FittedBinaryMap(Lines(np.add.reduceat(data.weight * data.score, first) / weight, value))
    ends = data.score if data.last is None else data.last
    knots = np.empty(2 * len(value))
    knots[::2], knots[1::2] = data.score[first], ends[last]
    join_rounded(knots, value)
    kept = np.ones(len(knots), np.bool_)
    np.not_equal(knots[1:], knots[:-1], out=kept[1:])  # a block of one score has one knot
    return FittedBinaryMap(Lines(knots[kept], np.repeat(value, 2)[kept]), values=np.repeat(value, np.diff(starts)))


def join_rounded(knots: Vector, value: Vector) -> None:
    """Add the scores that round to the end of a block to it, in place, where the line to the next block is steep.

    A fit rounds scores (``special.without_noise``), and lines are read at scores as they are.
    """
    low, high = knots[1:-1:2], knots[2::2]
    steep = steep_lines(low, high, np.diff(value), STEEP)
    low[steep] += HALF_STEP * np.spacing(low[steep])
    high[steep] -= HALF_STEP * np.spacing(np.nextafter(high[steep], 0))
