"""Masked entries of rows of logits: those that state "this class cannot occur", whatever large negative number was used.

A mask is known by comparison: it lies at least ``MIN_MASK_GAP`` below the largest entry of its row, and ``MASK_VOID`` times as
far as any entry that is no mask lies below the largest of its own row. So logits of any size are not taken for masks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics.special import Floats, Vector, largest, widened
from rhocal.numerics.threads import row_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_MASK_GAP = 1024.0
"""An entry that is nearer to the largest of its row is no mask."""

VOID_OCTAVES = 5
MASK_VOID = 2.0**VOID_OCTAVES
"""How many times farther than all other entries a mask lies."""

MASK_DEPTH = 2.0**30
"""Masks are put that many times as deep as they must lie: their exponentials are 0 at every scale that a fit tries, and fourth
powers of it do not overflow in double precision."""

MASKED_LOGIT = -1e30
"""The calibrated logit of a masked class."""

MAX_SHARE_SINGLE = 0.5
"""Share of rows that may be left with one class: if there are more, what lies far away is no mask. The lowest number of a type,
which stands for −∞, is one at any share."""

LOWEST_OCTAVE, HIGHEST_OCTAVE = -1100, 1100
"""Binary exponents of all numbers lie between these."""


def mask_gap(logits: Floats, top: Vector, half_label_gap: Vector | None = None) -> float:
    """How far below the largest entry of its row (``top``) an entry is a mask.

    ``half_label_gap`` is half of how far the label of a row lies below its largest entry: a class that occurred is not masked.
    """
    occupied, runner_up, above_lowest = _octaves(logits, top)
    label = LOWEST_OCTAVE if half_label_gap is None else int(_octave(half_label_gap).max(initial=LOWEST_OCTAVE))
    below = LOWEST_OCTAVE
    for octave in occupied:
        is_void = octave - 1 >= below + VOID_OCTAVES and octave - 1 >= math.log2(MIN_MASK_GAP)
        is_rare = octave > above_lowest or (runner_up >= octave).mean() <= MAX_SHARE_SINGLE
        if is_void and label < octave and is_rare:
            break
        below = octave
    return _beyond(below)


def gap_beyond(reach: float) -> float:
    """The gap from which on entries are masks, if no entry that is none lies farther below the largest of its row."""
    return _beyond(int(np.frexp(reach)[1]))


def _beyond(octave: int) -> float:
    return max(MIN_MASK_GAP, math.ldexp(1.0, min(octave + VOID_OCTAVES, 1000)))


def _octaves(logits: Floats, top: Vector) -> tuple[list[int], Vector, int]:
    """The octaves of gaps to the largest entry, those of runners-up, and the highest of all but the lowest number."""
    counts = np.zeros(HIGHEST_OCTAVE - LOWEST_OCTAVE, np.intp)
    runner_up, lowest, above_lowest = np.empty(len(logits)), float(np.finfo(logits.dtype).min), LOWEST_OCTAVE
    for rows in row_blocks(*logits.shape):
        z = _wide(logits[rows])
        octaves = _octave(top[rows, None] / 2 - z / 2)
        counts += np.bincount(octaves.ravel() - LOWEST_OCTAVE, minlength=len(counts))
        above_lowest = max(above_lowest, int(octaves.max(initial=LOWEST_OCTAVE, where=z > lowest)))
        runner_up[rows] = _octave(top[rows] / 2 - largest(np.ascontiguousarray(z), 2)[:, 1] / 2)
    return (np.flatnonzero(counts[1:]) + LOWEST_OCTAVE + 1).tolist(), runner_up, above_lowest


def _octave(half_gap: Vector) -> Vector:
    """The k with 2^(k − 1) ≤ gap < 2^k; ``LOWEST_OCTAVE`` for a gap of 0."""
    return np.where(half_gap > 0, np.frexp(half_gap)[1] + 1, LOWEST_OCTAVE)


def deepen(logits: Floats, top: Vector, gap: float) -> Vector:
    """The logits in double precision with every mask ``MASK_DEPTH`` times as deep as it must lie."""
    deep = np.empty(logits.shape)
    for rows in row_blocks(*logits.shape):
        z, high = _wide(logits[rows]), top[rows, None]
        deep[rows] = np.where(z / 2 - high / 2 <= -gap / 2, high - MASK_DEPTH * gap, z)  # halves do not overflow
    return deep


def beyond(logits: Floats, top: Vector, gap: float) -> tuple[float, float, int]:
    """The least and the largest of the entries that lie at least ``gap`` below the largest of their row, and their number."""
    least, most, count = math.inf, -math.inf, 0
    for rows in row_blocks(*logits.shape):
        z = _wide(logits[rows])
        far = z[z / 2 - top[rows, None] / 2 <= -gap / 2]
        if len(far):
            least, most, count = min(least, float(far.min())), max(most, float(far.max())), count + len(far)
    return least, most, count


def _wide(block: Floats) -> Vector:
    block = widened(np.ascontiguousarray(block)) if block.dtype == np.float16 else block
    return block.astype(np.float64, copy=False)


def is_masked(deep: Floats, top: Vector, gap: float) -> NDArray[np.bool_]:
    """Which entries of the rows of ``deepen`` are masks."""
    masked: NDArray[np.bool_] = deep - top[:, None] <= -MASK_DEPTH / 2 * gap
    return masked


def without_masks(deep: Floats, top: Vector, gap: float, *, center: bool) -> Vector:
    """The rows of ``deepen`` with the mean of the other entries in place of masks (with ``center``), or 0.

    So means and norms of rows minus their mean (or of rows as they are) are those without the masked classes.
    """
    masked = is_masked(deep, top, gap)
    fill = masked_mean(deep, masked)[:, None] if center else 0.0
    return np.where(masked, fill, deep).astype(np.float64, copy=False)


def masked_mean(z: Floats, masked: NDArray[np.bool_]) -> Vector:
    """The mean of the entries of every row that are not masked."""
    return np.where(masked, 0.0, z).sum(axis=1) / (~masked).sum(axis=1)
