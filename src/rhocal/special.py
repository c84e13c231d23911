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


def row_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Cut the rows of an array so that a block fits the cache."""
    step = max(1, BLOCK_ENTRIES // max(1, n_columns))
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


def log_softmax(z: Floats) -> Floats:
    """Log-probabilities; never −inf for finite logits."""
    shifted = z - z.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def softmax(z: Floats) -> Floats:
    """Probabilities, one row a sample."""
    p = z - z.max(axis=-1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=-1, keepdims=True)
    return p


def rho_norms(z: Floats, rhos: Sequence[float], *, center: bool = False) -> Vector:
    """‖z‖_ρ = (Σ|z_j|^ρ)^(1/ρ) of every row for every ρ, shape (n_rows, n_rhos); with the row mean taken away if asked.

    The largest |z| of a row is taken out before raising to ρ, so that nothing overflows. Powers in quarter steps, which the
    paper's grid takes, need no logarithm: a^(1/4) by two square roots, then products.

    >>> rho_norms(np.array([[3.0, -4.0]]), [1, 2]).round(12).tolist()
    [[7.0, 5.0]]
    """
    norms = np.empty((len(z), len(rhos)))

    def work(rows: slice) -> None:
        size = z[rows] - z[rows].mean(axis=1, keepdims=True) if center else z[rows]
        size = np.abs(size, out=size) if center else np.abs(size)
        largest = size.max(axis=1)
        size /= np.where(largest > 0, largest, 1)[:, None]
        powers, ones = (
            _powers(size, rhos),
            np.ones(size.shape[1], size.dtype),
        )  # a dot product with ones is the fastest sum
        for k, rho in enumerate(rhos):
            norms[rows, k] = largest * np.vecdot(next(powers), ones).astype(np.float64) ** (1 / rho)

    over_blocks(z.shape, work)
    return norms


def _powers(size: Floats, rhos: Sequence[float]) -> Iterator[Floats]:
    """size^ρ for every ρ in turn; each is only valid until the next is asked for."""
    if all(4 * rho == int(4 * rho) for rho in rhos) and sorted(rhos) == list(rhos) and rhos[-1] <= 8:
        quarter = np.sqrt(np.sqrt(size))
        power, have = size.copy(), 1.0
        for rho in rhos:
            while have < rho:
                power *= quarter
                have += 0.25
            yield power
        return
    with np.errstate(divide="ignore"):
        logs = np.log(size)
    for rho in rhos:
        yield np.exp(rho * logs)


def rho_norm_slope(z: Floats, rho: float) -> tuple[Vector, Vector]:
    """‖z‖_ρ of every row and its derivative in ρ.

    With a = |z| / max|z| and S = Σa^ρ: d log‖z‖_ρ / dρ = (Σ a^ρ log a / S) / ρ − log S / ρ².
    """
    norm, slope = np.empty(len(z)), np.empty(len(z))
    for rows in row_blocks(*z.shape):
        size = np.abs(z[rows]).astype(np.float64, copy=False)
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


def log_gamma(x: Vector) -> Vector:
    """The log of Γ(x) for x ≥ 1, to 1e−13: Stirling's series at x + 7, and back with Γ(x + 1) = x Γ(x).

    >>> log_gamma(np.array([1.0, 5.0])).round(12).tolist() == [0.0, np.log(24).round(12)]
    True
    """
    z = x + 7
    below = np.ones_like(x)
    for k in range(7):
        below *= x + k
    s = 1 / z**2
    series = (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188 - s * 691 / 360360))))) / z
    return np.asarray((z - 0.5) * np.log(z) - z + 0.5 * np.log(2 * np.pi) + series - np.log(below))
