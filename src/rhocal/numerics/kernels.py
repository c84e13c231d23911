"""The door to the compiled passes over logits (``_kernels.c``), where they could be built.

Each function here does what its namesake in ``passes.py`` or ``special.py`` does in NumPy, in one pass over memory and several
threads; those ask ``serves`` first. With ``RHOCAL_KERNELS=0`` in the environment NumPy does everything.

Compiled passes check their arguments and write into arrays of their caller; here these arrays are made and rows are shared
among threads.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np

from rhocal.numerics.threads import in_threads, threads

try:
    from rhocal.numerics import _kernels
except ImportError:  # there was no compiler
    is_built = False
else:
    is_built = True

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Vector = NDArray[np.float64]

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")

ready = is_built and os.environ.get("RHOCAL_KERNELS") != "0"
"""Whether the compiled passes are there and wanted."""

MANY_STEPS = 2_500_000
"""From here on rows are shared among threads. A step is what ``scan`` does with one entry; starting a thread takes as long as
some 200,000."""

HEAVY, HEAVIER = 2, 4
"""Steps for each entry of passes with an exponential, and of those with many sums."""

FEW_ROWS = 16
"""Up to here sums of products are taken row by row: a call costs as much as a thousand products."""

GRID = tuple(1 + k / 4 for k in range(9))
"""The ρ whose norms come in one pass."""


class Scan(NamedTuple):
    """What one look at every row finds."""

    column: NDArray[np.intp]
    """Column of the largest entry, the first if there are several."""
    top: Vector
    total: Vector
    """Sum; not finite if any entry is not, or if it overflows."""
    least: float
    """Nothing is smaller, in any row."""

    def take(self, rows: NDArray[np.intp] | slice) -> Scan:
        """The same for some of the rows."""
        return Scan(self.column[rows], self.top[rows], self.total[rows], self.least)


def supports_matrix(z: NDArray[Any]) -> bool:
    """Whether the compiled passes take this array: rows of float32 or float64, one after the other in memory."""
    return (
        ready and z.ndim == 2 and z.size > 0 and z.flags.c_contiguous
        and z.dtype.char in "fd" and z.dtype.isnative
    )  # fmt: skip


def supports_vectors(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether ``dot`` takes these: float64, a vector or a few rows one after the other in memory, and a vector."""
    few = a.ndim == 1 or (a.ndim == 2 and len(a) <= FEW_ROWS)
    return ready and few and a.dtype.char == b.dtype.char == "d" and a.flags.c_contiguous and b.flags.c_contiguous


def scan(z: Floats) -> Scan:
    """Largest entry, its column, and sum of every row."""
    n = len(z)
    column, top, total = np.empty(n, np.intp), np.empty(n), np.empty(n)
    least = _on_rows(z.size, n, _kernels.scan, z, column, top, total)
    return Scan(column, top, total, min(least))


def largest(z: Floats, k: int) -> Vector:
    """The k largest entries of every row, largest first."""
    n, m = z.shape
    found = np.empty((n, min(k, m)))
    _on_rows(z.size, n, _kernels.largest, z, found)
    return found


def norms(z: Floats, rhos: list[float], *, center: bool, seen: Scan | None = None) -> Vector:
    """‖z‖_ρ of every row for every ρ, all of them in ``GRID``; ``seen`` is the scan of z, if there was one."""
    found = np.empty((len(GRID), len(z)))
    if center and seen is None:
        seen = scan(z)
    total, top = (seen.total, seen.top) if center and seen is not None else (None, None)
    _on_rows(HEAVIER * z.size, len(z), _kernels.norms, z, total, top, found)
    return found.T if rhos == list(GRID) else found[[GRID.index(rho) for rho in rhos]].T


def curve(z: Floats, top: Vector, scale: Vector, order: int) -> tuple[Vector, ...]:
    """L and its derivatives up to an order (1, 2 or 3) at every row's scale."""
    found = np.empty((order + 1, len(z)))
    _on_rows(HEAVY * z.size, len(z), _kernels.curve, z, top, scale, found)
    return tuple(found)


def moments(z: Floats, top: Vector, scales: Vector) -> Vector:
    """The sums of ``Passes.moments`` (3 × 5 × n_samples)."""
    found = np.empty((15, len(z)))
    _on_rows(HEAVIER * z.size, len(z), _kernels.moments, z, top, scales, found)
    return found.reshape(3, 5, -1)


def moments_at(z: Floats, top: Vector, scale: Vector) -> Vector:
    """The sums of ``Passes.moments_at`` (9 × n_samples)."""
    found = np.empty((9, len(z)))
    _on_rows(HEAVIER * z.size, len(z), _kernels.moments_at, z, top, scale, found)
    return found


def interpolated(matrix: Vector, scales: Vector, sums: Vector) -> Vector:
    """From the sums of ``moments`` (15 × n_samples, in a new array: they are lost) to what ``curve_table.py`` makes of them."""
    _on_rows(2 * sums.size, sums.shape[1], _kernels.interpolate, sums, matrix, scales)
    return sums


def softmax(z: Floats, scale: Vector, out: Floats | None = None) -> Floats:
    """softmax(scale · z) of every row in the type of z; one scale a row, or one for all.

    The first of the largest entries of a row is so afterwards: where rounding puts one before it, it is lifted a little.
    """
    found = np.empty_like(z) if out is None else out
    _on_rows(HEAVY * z.size, len(z), _kernels.softmax, z, scale, found)
    return found


def least(z: Floats) -> float | None:
    """The smallest entry; None if not every entry is finite."""
    parts = _on_rows(z.size, z.size, _kernels.ends, z.reshape(-1))
    return min(low for _, low, _ in parts) if all(is_finite for is_finite, _, _ in parts) else None


def ends(x: Vector) -> tuple[float, float]:
    """The smallest and the largest of some numbers."""
    _, low, high = _kernels.ends(x, 0, len(x))
    return low, high


def bin_sums(confidence: Vector, correct: Vector, weights: Vector | None, *, n_bins: int, edge: float) -> Vector:
    """Weight, confidence and correctness added up in equal-width bins (3 × n_bins)."""

    def work(confidence: Vector, start: int, stop: int) -> Vector:
        sums = np.zeros((3, n_bins))
        _kernels.bins(confidence, start, stop, correct, weights, edge, sums)
        return sums

    return _added(_on_rows(8 * len(confidence), len(confidence), work, confidence))


def bin_sums_of(
    probs: Floats, labels: NDArray[np.int64], *, n_bins: int, edge: float, tolerance: float
) -> Vector | None:
    """The same straight from probabilities; None if something about them or the labels is not as it should be."""

    def work(probs: Floats, start: int, stop: int) -> Vector | None:
        sums = np.zeros((3, n_bins))
        return sums if _kernels.bin_rows(probs, start, stop, labels, edge, tolerance, sums) else None

    parts = _on_rows(HEAVY * probs.size, len(probs), work, probs)
    found = [part for part in parts if part is not None]
    return _added(found) if len(found) == len(parts) else None


def ring(c: Vector, scale: Vector, log_centre: float | Vector, order: int, edge: float = np.inf) -> tuple[Vector, ...]:
    """L and its derivatives in the scale from polynomials of t = (log scale − log_centre) / log 2, one a sample.

    ``c`` are their coefficients (n_powers × n_samples), lowest power first. Beyond |t| = ``edge`` a curve goes on along its
    tangent, as far down as 0.
    """
    n = c.shape[1]
    found = np.empty((order + 1, n))
    middle, own = (0.0, log_centre) if isinstance(log_centre, np.ndarray) else (float(log_centre), None)
    _on_rows(c.size, n, _kernels.ring, c, scale, middle, own, edge, found)
    return tuple(found)


def gap_sums(
    curves: Vector,
    relative: Vector,
    x: tuple[float, float],
    samples: tuple[Vector, Vector, Vector],
    shares: tuple[float, float],
    middle: float | None,
) -> tuple[Vector, Vector, int]:
    """The sums of ``gaps.sums``, confidences, and how many samples lie outside the ring.

    ``curves`` are the coefficients of a ring around ``middle``, or, where that is None, L and two derivatives in the scale;
    ``samples`` are label gap, correctness and weight; ``shares`` those of the squared gap and of NLL.
    """
    sums, confidence = np.empty(12), np.empty(len(relative))
    beyond = _kernels.gaps(curves, middle, relative, *x, *samples, *shares, sums, confidence)
    return sums, confidence, beyond


def dot(a: Vector, b: Vector) -> float:
    """Σ a·b of two vectors."""
    return _kernels.dot(a, b)


def widened(half: NDArray[np.float16]) -> NDArray[np.float32] | None:
    """Half precision as float32; None if an entry is not finite."""
    found = np.empty(half.shape, np.float32)
    flat, wide = half.reshape(-1), found.reshape(-1)
    return found if all(_on_rows(flat.size, flat.size, _kernels.widen, flat, wide)) else None


def _added(parts: list[Vector]) -> Vector:
    return parts[0] if len(parts) == 1 else np.sum(parts, axis=0)


def _on_rows(
    n_steps: int,
    n_rows: int,
    kernel: Callable[Concatenate[A, int, int, P], R],
    array: A,
    *args: P.args,
    **options: P.kwargs,
) -> list[R]:
    """A kernel on all rows of an array: in ranges and several threads where there is much to do.

    More ranges than threads even out the load.
    """
    if n_steps < MANY_STEPS or threads() == 1:
        return [kernel(array, 0, n_rows, *args, **options)]
    n_ranges = min((2 if n_steps < 10 * MANY_STEPS else 4) * threads(), n_rows)
    cuts = [n_rows * k // n_ranges for k in range(n_ranges + 1)]
    return in_threads(lambda k: kernel(array, cuts[k], cuts[k + 1], *args, **options), range(n_ranges))
