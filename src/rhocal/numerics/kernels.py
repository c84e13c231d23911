"""The compiled passes over logits (``_kernels.c``), where they could be built.

Each function here does what its namesake in ``passes.py`` or ``special.py`` does in NumPy, in one pass over memory and several
threads, and returns None where the compiled pass does not take the arrays: their callers then compute in NumPy. With
``RHOCAL_KERNELS=0`` in the environment NumPy does everything.

Compiled passes check their arguments and write into arrays of their caller; here these arrays are allocated and rows are shared
among threads.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np

from rhocal.errors import RhocalWarning, warn
from rhocal.numerics.threads import in_threads, threads

try:
    from rhocal.numerics import _kernels
except ImportError:  # there was no compiler
    is_built = False
else:
    is_built = True

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Vector = NDArray[np.float64]

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")

INTERFACE = 8
"""The interface number of ``_kernels.c``: it goes up when an entry is added, or its arguments or its result change."""


def is_current() -> bool:
    """Whether the library was compiled from sources with the same interface; a warning if it was not."""
    interface = getattr(_kernels, "INTERFACE", None)
    if interface != INTERFACE:
        warn(
            f"the compiled passes have interface {interface}, but {INTERFACE} is needed: they were built from other sources. "
            "NumPy computes instead, more slowly; pip install --force-reinstall rhocal (in a checkout: pip install -e .) "
            "builds them again",
            RhocalWarning,
        )
    return bool(interface == INTERFACE)


is_enabled = is_built and os.environ.get("RHOCAL_KERNELS") != "0" and is_current()
"""Whether compiled passes are used: built, current and not switched off."""

if is_enabled:  # these need nothing allocated, and no threads
    dot, gaps = _kernels.dot, _kernels.gaps

MIN_SHARED_STEPS = 2_500_000
"""From so many steps on rows are shared among threads. A step is what ``scan`` does with one entry; starting a thread takes as
long as some 200,000."""

STEPS_WITH_EXP, STEPS_WITH_SUMS = 2, 4
"""Steps for each entry of passes with an exponential, and of those with many sums."""

MAX_COLUMNS_WITH_TIMES = 255
"""Columns of rows in which a column counts several times: one less than ``LONG_ROW`` of ``_kernels_math.h``."""

STEPS_OF_A_DRAW = 8
"""Steps of drawing one label."""

STEPS_OF_A_LINE = 20
"""Steps of finding the knots around one score, and the value of the line between them."""

CLASS_SUMS_RANGES = 8
"""Ranges of rows whose sums over columns are added up: not the number of threads, which must not change a result."""

GRID = tuple(1 + k / 4 for k in range(9))
"""The ρ whose norms come in one pass."""


class Scan(NamedTuple):
    """Numbers of every row, from one pass."""

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
        is_enabled and z.ndim == 2 and z.size > 0 and z.flags.c_contiguous
        and z.dtype.char in "fd" and z.dtype.isnative
    )  # fmt: skip


def scan(z: Floats) -> Scan | None:
    """Largest entry, its column, and sum of every row."""
    if not supports_matrix(z):
        return None
    n = len(z)
    column, top, total = np.empty(n, np.intp), np.empty(n), np.empty(n)
    least = _on_rows(z.size, n, _kernels.scan, z, column, top, total)
    return Scan(column, top, total, min(least))


def scan_into(z: Floats, column: NDArray[np.intp], top: Vector, total: Vector) -> float:
    """``scan`` of a few rows that ``supports_matrix`` takes, into arrays that are there; the smallest entry."""
    return _kernels.scan(z, 0, len(z), column, top, total)


def norms_of_row(z: Floats, total: Vector | None, top: Vector) -> Vector:
    """``norms`` of a single row for all of ``GRID``, minus its mean where the sum is given."""
    out = np.empty((len(GRID), 1))
    _kernels.norms(z, 0, 1, total, None if total is None else top, out)
    return out


def largest_of_row(z: Floats, k: int) -> list[float]:
    """The k largest entries of a single row, largest first."""
    out = np.empty((1, min(k, z.shape[1])))
    _kernels.largest(z, 0, 1, out)
    return out[0].tolist()


def largest(z: Floats, k: int) -> Vector | None:
    """The k largest entries of every row, largest first."""
    if not supports_matrix(z):
        return None
    out = np.empty((len(z), min(k, z.shape[1])))
    _on_rows(z.size, len(z), _kernels.largest, z, out)
    return out


def norms(z: Floats, rhos: Sequence[float], *, center: bool, rows: Scan | None = None) -> Vector | None:
    """‖z‖_ρ of every row for every ρ, all of them in ``GRID``; ``rows`` is the scan of z, if there was one."""
    if not supports_matrix(z) or any(rho not in GRID for rho in rhos):
        return None
    out = np.empty((len(GRID), len(z)))
    rows = (rows or scan(z)) if center else None
    total, top = (None, None) if rows is None else (rows.total, rows.top)
    _on_rows(STEPS_WITH_SUMS * z.size, len(z), _kernels.norms, z, total, top, out)
    return out.T if tuple(rhos) == GRID else out[[GRID.index(rho) for rho in rhos]].T


def supports_times(z: Floats, times: Vector | None) -> bool:
    """Whether the compiled passes take this array with columns that count several times, or once each (None)."""
    return supports_matrix(z) and (times is None or z.shape[1] <= MAX_COLUMNS_WITH_TIMES)


def curve(z: Floats, top: Vector, scale: Vector, order: int, times: Vector | None = None) -> tuple[Vector, ...] | None:
    """L and its derivatives up to an order (1, 2 or 3) at every row's scale; ``times`` is how often each column counts."""
    if not supports_times(z, times):
        return None
    out = np.empty((order + 1, len(z)))
    _on_rows(STEPS_WITH_EXP * z.size, len(z), _kernels.curve, z, top, scale, times, out)
    return tuple(out)


def moments(z: Floats, top: Vector, scales: Vector, times: Vector | None = None) -> Vector | None:
    """The sums of ``Passes.moments`` (3 × 5 × n_samples)."""
    if not supports_times(z, times):
        return None
    out = np.empty((15, len(z)))
    _on_rows(STEPS_WITH_SUMS * z.size, len(z), _kernels.moments, z, top, scales, times, out)
    return out.reshape(3, 5, -1)


def moments_at(z: Floats, top: Vector, scale: Vector, times: Vector | None = None) -> Vector | None:
    """The sums of ``Passes.moments_at`` (9 × n_samples)."""
    if not supports_times(z, times):
        return None
    out = np.empty((9, len(z)))
    _on_rows(STEPS_WITH_SUMS * z.size, len(z), _kernels.moments_at, z, top, scale, times, out)
    return out


def interpolate(matrix: Vector, scales: Vector, sums: Vector) -> Vector:
    """From the sums of ``moments`` (15 × n_samples, in a new array: they are lost) to what ``curve_table.py`` makes of them."""
    _on_rows(2 * sums.size, sums.shape[1], _kernels.interpolate, sums, matrix, scales)
    return sums


def softmax(z: Floats, scale: Vector, out: Floats | None = None) -> Floats | None:
    """softmax(scale · z) of every row in the type of z; one scale a row, or one for all.

    The first of the largest entries of a row is so afterwards: where rounding puts one before it, it is lifted a little.
    """
    if not supports_matrix(z):
        return None
    out = np.empty_like(z) if out is None else out
    _on_rows(STEPS_WITH_EXP * z.size, len(z), _kernels.softmax, z, scale, out)
    return out


def class_sums(
    x: Floats, weights: Vector, slope: Vector, bias: Vector, *, is_curvature: bool = False
) -> tuple[float, Vector] | None:
    """Σ w·logsumexp(slope∘x + bias), and the sums of w·p and of w·p∘x over the rows (2 × n_columns), p their softmax.

    With ``is_curvature`` there are three more rows: the sums of w·q, w·q∘x and w·q∘x², q = p(1 − p). Rows of weight 0 are not
    read.
    """
    if not supports_matrix(x):
        return None
    n, m = x.shape
    n_ranges = min(n, CLASS_SUMS_RANGES if STEPS_WITH_SUMS * x.size >= MIN_SHARED_STEPS else 1)

    def work(k: int) -> tuple[float, Vector]:
        out = np.zeros((5, m))
        numbers = (weights, slope, bias, float(is_curvature), np.empty((8, m), x.dtype), out)
        return _kernels.class_sums(x, n * k // n_ranges, n * (k + 1) // n_ranges, *numbers), out

    parts = in_threads(work, range(n_ranges))
    return sum(value for value, _ in parts), _added([out for _, out in parts])[: 5 if is_curvature else 2]


def pool(values: Vector, keys: Vector) -> Vector | None:
    """The non-increasing sequence nearest to every row, in place; entries with equal keys, which are sorted, get one value."""
    if not (supports_matrix(values) and supports_matrix(keys)):
        return None
    _on_rows(STEPS_WITH_SUMS * keys.size, len(keys), _kernels.pool, values, keys, np.empty(keys.shape, np.intp))
    return values


def ends(z: Floats) -> tuple[float, float] | None:
    """The smallest and the largest entry; None if not every entry is finite."""
    parts = _on_rows(z.size, z.size, _kernels.ends, z.reshape(-1))
    if not all(is_finite for is_finite, _, _ in parts):
        return None
    return min(low for _, low, _ in parts), max(high for _, _, high in parts)


def bin_sums(
    confidences: Sequence[Vector], correct: Vector, weights: Vector | None, *, n_bins: int, edge: float
) -> list[Vector] | None:
    """Weight, confidence and correctness added up in equal-width bins (3 × n_bins), for each of several confidences."""
    vectors = (*confidences, correct) if weights is None else (*confidences, correct, weights)
    if not is_enabled or not all(x.flags.c_contiguous and x.dtype.char == "d" for x in vectors):
        return None

    def work(confidence: Vector, start: int, stop: int) -> Vector:
        sums = np.zeros((3, n_bins))
        _kernels.bins(confidence, start, stop, correct, weights, edge, sums)
        return sums

    return [_added(_on_rows(8 * len(x), len(x), work, x)) for x in confidences]


def bin_sums_of(
    probs: Floats, labels: NDArray[np.int64], *, n_bins: int, edge: float, tolerance: float
) -> Vector | None:
    """The same straight from probabilities; None if something about them or the labels is not valid."""

    def work(probs: Floats, start: int, stop: int) -> Vector | None:
        sums = np.zeros((3, n_bins))
        return sums if _kernels.bin_rows(probs, start, stop, labels, edge, tolerance, sums) else None

    parts = _on_rows(STEPS_WITH_EXP * probs.size, len(probs), work, probs)
    valid = [part for part in parts if part is not None]
    return _added(valid) if len(valid) == len(parts) else None


def intervals(values: Vector, edges: Vector) -> tuple[Vector, Vector] | None:
    """How many values are in each interval [edge, next edge) between ascending edges and beyond them, and the largest of each.

    The largest value of an empty interval is −∞.
    """
    if not is_enabled or not (values.flags.c_contiguous and values.dtype.char == "d"):
        return None
    counts, largest = np.zeros((4, len(edges) + 1)), np.full((4, len(edges) + 1), -np.inf)
    _kernels.intervals(edges, values, 0, len(values), counts, largest)
    return counts.sum(axis=0), largest.max(axis=0)


def lines(scores: Vector, knots: Vector, values: Vector) -> Vector | None:
    """Straight lines at every score, a column for each; ``tables.line_tables`` has their knots and values, a row for each."""
    scores = np.ascontiguousarray(scores)
    if not all(supports_matrix(array) and array.dtype.char == "d" for array in (scores, knots, values)):
        return None
    out = np.empty_like(scores)
    _on_rows(STEPS_OF_A_LINE * scores.size, len(scores), _kernels.lines, scores, knots, values, out)
    return out


def round_digits(values: NDArray[Any]) -> bool:
    """Round to 43 binary digits, in place; False where NumPy has to."""
    if not (
        is_enabled and values.size and values.flags.c_contiguous and values.flags.writeable and values.dtype.char == "d"
    ):
        return False
    flat = values.reshape(-1)
    _on_rows(flat.size, flat.size, _kernels.digits, flat)
    return True


def ring(
    c: Vector, scale: Vector, log_center: float | Vector, order: int, edge: float = np.inf
) -> tuple[Vector, ...] | None:
    """L and its derivatives in the scale from polynomials of t = (log scale − log_center) / log 2, one a sample.

    ``c`` are their coefficients (n_powers × n_samples), lowest power first. Beyond |t| = ``edge`` a curve goes on along its
    tangent, as far down as 0.
    """
    if not supports_matrix(c):
        return None
    n = c.shape[1]
    out = np.empty((order + 1, n))
    center, own_center = (0.0, log_center) if isinstance(log_center, np.ndarray) else (float(log_center), None)
    _on_rows(c.size, n, _kernels.ring, c, scale, center, own_center, edge, out)
    return tuple(out)


def widened(half: NDArray[np.float16]) -> NDArray[np.float32] | None:
    """Half precision as float32; None if an entry is not finite."""
    if not is_enabled or not half.flags.c_contiguous:
        return None
    out = np.empty(half.shape, np.float32)
    flat, wide = half.reshape(-1), out.reshape(-1)
    return out if all(_on_rows(flat.size, flat.size, _kernels.widen, flat, wide)) else None


def add_draws(
    sums: Vector, levels: Vector, top: Vector, index: NDArray[np.int64], place: NDArray[np.int64], scale: Vector | None
) -> bool:
    """Add labels drawn from probabilities to ``sums``, replicates in columns; False where NumPy has to."""
    if not is_enabled:
        return False

    def work(levels: Vector, start: int, stop: int) -> bool:
        return _kernels.draws(levels, top, index, place, scale, sums, start, stop)

    n_replicates = sums.shape[1]
    return all(_on_rows(STEPS_OF_A_DRAW * len(levels) * n_replicates, n_replicates, work, levels))


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
    """A kernel on all rows of an array: in ranges and several threads from ``MIN_SHARED_STEPS`` on.

    More ranges than threads even out the load.
    """
    if n_steps < MIN_SHARED_STEPS or threads() == 1:
        return [kernel(array, 0, n_rows, *args, **options)]
    n_ranges = min((2 if n_steps < 10 * MIN_SHARED_STEPS else 4) * threads(), n_rows)
    cuts = [n_rows * k // n_ranges for k in range(n_ranges + 1)]
    return in_threads(lambda k: kernel(array, cuts[k], cuts[k + 1], *args, **options), range(n_ranges))
