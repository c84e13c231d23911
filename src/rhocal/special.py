"""Formulas without a subject: the stable softmax family, norms, the smooth maximum. Classes are the last axis."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Floats = NDArray[np.floating[Any]]
"""Float32 or float64 of any shape."""

Vector = NDArray[np.float64]
"""One number a sample (or a parameter), in float64."""

BLOCK_ENTRIES = 1 << 17
"""Entries handled at a time: a float64 block and its exponentials stay inside a 2 MiB second-level cache."""


COMFORT = 1e6
"""Between one over this and this, powers up to ``STEEPEST`` are far from the ends of single precision."""

STEEPEST = 4.0


def row_blocks(n_rows: int, n_columns: int, entries: int = BLOCK_ENTRIES) -> Iterator[slice]:
    """Cut the rows of an array so that a block fits the cache."""
    step = max(1, entries // max(1, n_columns))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def over_blocks(shape: tuple[int, ...], work: Callable[[slice], None]) -> None:
    """Do some work on every block of rows; with several threads where there is enough of it (NumPy releases the lock).

    What a block's work gives depends on its rows alone, so the number of threads changes nothing but the time.
    """
    n_rows, n_columns = shape
    blocks = list(row_blocks(n_rows, n_columns))
    n_threads = min(_threads(), len(blocks) // 4)
    if n_threads < 2:
        for rows in blocks:
            work(rows)
        return

    def share(k: int) -> None:
        for rows in blocks[k::n_threads]:
            work(rows)

    with ThreadPoolExecutor(n_threads) as pool:
        for _ in pool.map(share, range(n_threads)):
            pass


def _threads() -> int:
    """As many as OMP_NUM_THREADS says, as for other numerical libraries, else one for each core we may use."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    if said.isdigit():
        return max(1, int(said))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def dot(a: Vector, b: Vector) -> Vector:
    """Σ a·b over the last axis. Not ``@``: BLAS would wake its threads for one sum, which takes longer than the sum."""
    return np.asarray(np.einsum("...i,i->...", a, b))


FEW_COLUMNS = 48
"""Up to here rows are reduced column by column: NumPy's own reductions spend up to 30 times as long on short rows."""


def row_max(z: Floats) -> Floats:
    """The largest entry of every row."""
    if z.shape[1] > FEW_COLUMNS:
        return np.asarray(z.max(axis=1))
    top = z[:, 0].copy()
    for j in range(1, z.shape[1]):
        np.maximum(top, z[:, j], out=top)
    return top


def row_sum(z: Floats) -> Floats:
    """The sum of every row, in its own type; of long rows by a dot product with ones, which is the fastest."""
    if z.shape[1] > FEW_COLUMNS:
        return np.asarray(np.vecdot(z, np.ones(z.shape[1], z.dtype)))
    total = z[:, 0].copy()
    for j in range(1, z.shape[1]):
        total += z[:, j]
    return total


def row_argmax(z: Floats) -> NDArray[np.intp]:
    """The column of the largest entry of every row, the first if there are several."""
    if z.shape[1] > FEW_COLUMNS:
        return z.argmax(axis=1)
    found, top = np.zeros(len(z), np.intp), row_max(z)
    for j in range(z.shape[1] - 1, -1, -1):
        found[z[:, j] == top] = j
    return found


def exp_normal(exponents: Floats) -> Floats:
    """Exp in place, of exponents up to 0, that never gives a subnormal number: these make every step ten times slower.

    What is smaller than the smallest normal number (1e−38 in single precision) becomes that number.
    """
    lowest = np.log(np.finfo(exponents.dtype).tiny) + 0.1
    if exponents.min() < lowest:
        np.maximum(exponents, exponents.dtype.type(lowest), out=exponents)
    return np.asarray(np.exp(exponents, out=exponents))


def row_means(z: Floats) -> Vector:
    """Mean of every row, block by block."""
    means = np.empty(len(z))

    def work(rows: slice) -> None:
        means[rows] = row_sum(z[rows])

    over_blocks(z.shape, work)
    return means / z.shape[1]


def log_softmax(z: Floats) -> Floats:
    """Log-probabilities; never −inf for finite logits."""
    shifted = z - row_max(z)[:, None]
    shifted -= np.log(row_sum(exp_normal(shifted.copy())))[:, None]
    return shifted


def softmax(z: Floats) -> Floats:
    """Probabilities, one row a sample."""
    p = exp_normal(z - row_max(z)[:, None])
    p /= row_sum(p)[:, None]
    return p


def rho_norms(z: Floats, rhos: Sequence[float], *, center: bool = False) -> Vector:
    """‖z‖_ρ = (Σ|z_j|^ρ)^(1/ρ) of every row for every ρ, shape (n_rows, n_rhos); with the row mean taken away if asked.

    The largest |z| of a row is taken out before raising to ρ where anything could overflow. Powers in quarter steps, which
    the paper's grid takes, need no logarithm: a^(1/4) by two square roots, then products.

    >>> rho_norms(np.array([[3.0, -4.0]]), [1, 2]).round(12).tolist()
    [[7.0, 5.0]]
    """
    norms = np.empty((len(z), len(rhos)))
    steep = max(rhos) > STEEPEST

    def work(rows: slice) -> None:
        if center:
            size = z[rows] - (row_sum(z[rows]) / z.dtype.type(z.shape[1]))[:, None]
            np.abs(size, out=size)
        else:
            size = np.abs(z[rows])
        total = row_sum(size)
        if steep or total.max() > COMFORT or total.min() < z.shape[1] / COMFORT:
            unit = row_max(size)
            size /= np.where(unit > 0, unit, 1)[:, None]
        else:
            unit = np.ones(1, z.dtype)
        for k, (rho, power) in enumerate(zip(rhos, _powers(size, rhos), strict=True)):
            norms[rows, k] = unit * row_sum(power).astype(np.float64) ** (1 / rho)

    over_blocks(z.shape, work)
    return norms


def _powers(size: Floats, rhos: Sequence[float]) -> Iterator[Floats]:
    """size^ρ for every ρ in turn; each is only valid until the next is asked for."""
    quarters = all(4 * rho == int(4 * rho) for rho in rhos) and min(rhos) >= 1 and max(rhos) <= 8
    if quarters and len(rhos) == 1:
        yield _quarter_power(size, rhos[0])
    elif quarters and sorted(rhos) == list(rhos):
        quarter = np.sqrt(np.sqrt(size))
        power, have = size.copy(), 1.0
        for rho in rhos:
            while have < rho:
                power *= quarter
                have += 0.25
            yield power
    else:
        with np.errstate(divide="ignore"):
            logs = np.log(size)
        for rho in rhos:
            yield np.exp(rho * logs)


def _quarter_power(size: Floats, rho: float) -> Floats:
    """size^ρ for a ρ in quarter steps, from products and square roots."""
    whole, rest = divmod(rho, 1)
    power = size.copy()
    for _ in range(int(whole) - 1):
        power *= size
    if rest:
        root = np.sqrt(size)
        if rest >= 0.5:
            power *= root
        if rest != 0.5:
            power *= np.sqrt(root)
    return power


def rho_norm_slope(z: Floats, rho: float, *, center: bool = False) -> tuple[Vector, Vector]:
    """‖z‖_ρ of every row and its derivative in ρ; with the row mean taken away if asked.

    With a = |z| / max|z| and S = Σa^ρ: d log‖z‖_ρ / dρ = (Σ a^ρ log a / S) / ρ − log S / ρ².
    """
    norm, slope = np.empty(len(z)), np.empty(len(z))
    for rows in row_blocks(*z.shape):
        block = z[rows].astype(np.float64, copy=False)
        size = np.abs(block - block.mean(axis=1, keepdims=True) if center else block)
        largest = size.max(axis=1)
        size /= np.where(largest > 0, largest, 1)[:, None]
        logs = np.log(np.maximum(size, np.finfo(np.float64).tiny))
        powers = np.where(size > 0, np.exp(rho * logs), 0)
        total = np.maximum(powers.sum(axis=1), 1)  # an all-zero row: norm 0, slope 0
        norm[rows] = largest * total ** (1 / rho)
        slope[rows] = norm[rows] * ((powers * logs).sum(axis=1) / total / rho - np.log(total) / rho**2)
    return norm, slope


def smooth_maximum(p: Vector, kappa: float) -> tuple[Vector, Vector]:
    """κ·log Σ exp(p_j/κ) of every row (paper, below Eq. 4) and its derivative in every p_j."""
    top = p.max(axis=-1, keepdims=True)
    e = np.exp((p - top) / kappa)
    total = e.sum(axis=-1, keepdims=True)
    return (top + kappa * np.log(total))[..., 0], e / total


def expit(x: Vector) -> Vector:
    """1 / (1 + e^−x), without overflow at either end."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def softplus(x: Vector) -> Vector:
    """log(1 + e^x)."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def log_gamma(x: Vector) -> Vector:
    """Log of Γ(x)."""
    from scipy.special import gammaln  # noqa: PLC0415 - importing us must not cost SciPy

    return np.asarray(gammaln(x))
