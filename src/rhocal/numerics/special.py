"""Numerically stable formulas: the softmax family, norms, the smooth maximum. Classes are the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rhocal.numerics import kernels
from rhocal.numerics.threads import BLOCK_ENTRIES, in_threads, over_blocks, row_blocks, scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Floats = NDArray[np.floating[Any]]
"""Float32 or float64 of any shape."""

Vector = NDArray[np.float64]
"""One number per sample (or parameter), in float64."""

MAX_UNSCALED = 1e6
"""Between 1 over this and this, powers up to ``MAX_UNSCALED_RHO`` neither overflow nor underflow in single precision."""

MAX_UNSCALED_RHO = 4.0


MAX_DOT_ROWS = 16
"""Up to so many rows ``dot`` takes one product after the other: a call costs as much as a thousand products of numbers."""


def dot(a: Vector, b: Vector) -> Vector:
    """Σ a·b over the last axis. Not ``@``: BLAS would wake its threads for one sum, which takes longer than the sum."""
    if not (kernels.is_enabled and a.flags.c_contiguous and b.flags.c_contiguous):
        return np.asarray(np.einsum("...i,i->...", a, b))
    if a.ndim == 1:
        return np.array(kernels.dot(a, b))
    return dots(a, b) if len(a) <= MAX_DOT_ROWS else np.asarray(np.einsum("ki,i->k", a, b))


def dots(rows: Iterable[Vector], b: Vector) -> Vector:
    """Σ a·b of each of several vectors with b."""
    return np.array([dot(row, b) for row in rows])


MAX_DOT_ENTRIES = 1 << 13
"""Entries of a dot product that BLAS computes on one thread."""

MAX_COLUMNWISE = 48
"""Up to here rows are reduced column by column: NumPy's own reductions spend up to 30 times as long on short rows."""

MAX_OFFSET = 4.0
"""Mean of a row, in distances between it and the largest entry, above which its sum in single precision is too coarse."""


def row_max(z: Floats) -> Floats:
    """The largest entry of every row."""
    if z.shape[1] > MAX_COLUMNWISE:
        return np.asarray(z.max(axis=1))
    top = z[:, 0].copy()
    for j in range(1, z.shape[1]):
        np.maximum(top, z[:, j], out=top)
    return top


def row_sum(z: Floats) -> Floats:
    """The sum of every row, in its own type; of long rows by a dot product with ones, which is the fastest."""
    if z.shape[1] > MAX_DOT_ENTRIES:
        whole = z.shape[1] - z.shape[1] % MAX_DOT_ENTRIES
        return np.asarray(
            row_sum(z[:, :whole].reshape(-1, MAX_DOT_ENTRIES)).reshape(len(z), -1).sum(axis=1) + row_sum(z[:, whole:])
        )
    if z.shape[1] > MAX_COLUMNWISE:
        return np.asarray(np.vecdot(z, np.ones(z.shape[1], z.dtype)))
    total = z[:, 0].copy() if z.shape[1] else np.zeros(len(z), z.dtype)
    for j in range(1, z.shape[1]):
        total += z[:, j]
    return total


def row_dot(a: Floats, b: Floats) -> Floats:
    """Σ a·b of every row, in their own type."""
    n, m = a.shape
    if m <= MAX_COLUMNWISE:
        return row_sum(a * b)
    if m <= MAX_DOT_ENTRIES:
        return np.asarray(np.vecdot(a, b))
    whole = m - m % MAX_DOT_ENTRIES  # a piece of a row at a time: for more, BLAS would start its own threads
    parts = np.vecdot(a[:, :whole].reshape(n, -1, MAX_DOT_ENTRIES), b[:, :whole].reshape(n, -1, MAX_DOT_ENTRIES))
    return np.asarray(parts.sum(axis=1) + np.vecdot(a[:, whole:], b[:, whole:]))


def row_argmax(z: Floats) -> NDArray[np.intp]:
    """The column of the largest entry of every row, the first if there are several."""
    if z.shape[1] > MAX_COLUMNWISE:
        return z.argmax(axis=1)
    column, top = np.zeros(len(z), np.intp), row_max(z)
    for j in range(z.shape[1] - 1, -1, -1):
        column[z[:, j] == top] = j
    return column


HALF_SIGN_AND_SIZE = np.int32(-0x70002000)
"""Bits of a single-precision number that a half-precision one, shifted to its place, can set."""


def widened(stored: NDArray[Any]) -> NDArray[np.float32]:
    """Half precision (or the bits of bfloat16 as uint16) as float32, the same numbers.

    Sign and digits are moved to their places and a product with 2^112 mends the exponent: four times as fast as NumPy's
    own cast, which goes number by number. Infinity and NaN take that slower way.
    """
    if stored.dtype == np.float16 and (wide := kernels.widened(stored)) is not None:
        return wide
    out = np.empty(stored.shape, np.float32)
    flat, wide = stored.reshape(-1), out.reshape(-1)
    for start in range(0, len(flat), BLOCK_ENTRIES):
        part, bits = flat[start : start + BLOCK_ENTRIES], wide[start : start + BLOCK_ENTRIES].view(np.int32)
        if stored.dtype == np.uint16:
            bits[:] = part
            np.left_shift(bits, 16, out=bits)
            continue
        short = part.view(np.int16)
        if np.bitwise_and(short, 0x7FFF).max(initial=0) >= 0x7C00:
            wide[start : start + BLOCK_ENTRIES] = part
            continue
        bits[:] = short
        np.left_shift(bits, 13, out=bits)
        np.bitwise_and(bits, HALF_SIGN_AND_SIZE, out=bits)
        np.multiply(bits.view(np.float32), np.float32(2.0**112), out=bits.view(np.float32))
    return out


def exp_normal(exponents: Floats) -> Floats:
    """Exp in place, of exponents up to 0, that never gives a subnormal number: these make every step ten times slower.

    What is smaller than the smallest normal number (1e−38 in single precision) becomes that number.
    """
    lowest = np.log(np.finfo(exponents.dtype).tiny) + 0.1
    if exponents.min() < lowest:
        np.maximum(exponents, exponents.dtype.type(lowest), out=exponents)
    return np.asarray(np.exp(exponents, out=exponents))


def ends(z: Floats) -> tuple[float, float] | None:
    """The smallest and the largest entry; None if not every entry is finite."""
    if z.dtype == np.float16:
        parts = [ends(widened(np.ascontiguousarray(z[rows]))) for rows in row_blocks(*z.shape)]
        finite = [part for part in parts if part is not None]
        if not finite or len(finite) < len(parts):
            return None
        return min(low for low, _ in finite), max(high for _, high in finite)
    if kernels.supports_matrix(z):
        return kernels.ends(z)
    low, high = float(z.min(initial=np.inf)), float(z.max(initial=-np.inf))
    return (low, high) if np.isfinite(low) and np.isfinite(high) else None


def scan(z: Floats) -> kernels.Scan:
    """Largest entry, its column, and sum of every row, and the smallest entry of all."""
    if z.dtype == np.float16:
        blocks = list(row_blocks(*z.shape))
        parts = in_threads(lambda rows: scan(widened(np.ascontiguousarray(z[rows]))), blocks)
        column, top, total = (np.concatenate([part[k] for part in parts]) for k in range(3))
        return kernels.Scan(column, top, total, min(part.least for part in parts))
    if (rows_scanned := kernels.scan(z)) is not None:
        return rows_scanned
    column, top, total = np.empty(len(z), np.intp), np.empty(len(z)), np.empty(len(z))

    def work(rows: slice) -> None:
        column[rows], top[rows] = row_argmax(z[rows]), row_max(z[rows])
        with np.errstate(over="ignore", invalid="ignore"):  # validated where the sums are used
            total[rows] = sums_of_offset_rows(z[rows], row_sum(z[rows]), top[rows])

    over_blocks(z.shape, work)
    return kernels.Scan(column, top, total, float(z.min(initial=np.inf)))


def sums_of_offset_rows(z: Floats, total: Floats, top: Vector) -> Vector:
    """Sums of rows; in double precision where one in single precision would cost digits of differences to the mean."""
    sums, mean = total.astype(np.float64), total.astype(np.float64) / z.shape[1]
    if z.dtype == np.float32:
        rows = np.abs(mean) > MAX_OFFSET * (top - mean)
        sums[rows] = z[rows].sum(axis=1, dtype=np.float64)
    return sums


def largest(z: Floats, k: int) -> Vector:
    """The k largest entries of every row, largest first; fewer if there are fewer (n_rows × k)."""
    if (compiled := kernels.largest(z, k)) is not None:
        return compiled
    n, m = z.shape
    k = min(k, m)
    out = np.empty((n, k))
    for rows in row_blocks(n, m):
        out[rows] = -np.sort(-np.partition(z[rows], m - k, axis=1)[:, m - k :], axis=1)
    return out


def log_softmax(z: Floats) -> Floats:
    """Log-probabilities; never −inf for finite logits."""
    shifted = z - row_max(z)[:, None]
    shifted -= np.log(row_sum(exp_normal(shifted.copy())))[:, None]
    return shifted


def top_probability(z: Floats) -> Vector:
    """The largest probability of every row, from logits."""
    return np.exp(row_max(log_softmax(z)).astype(np.float64))


def softmax(z: Floats) -> Floats:
    """Probabilities, one row per sample."""
    if (probs := kernels.softmax(z, np.ones(1))) is not None:
        return probs
    p = exp_normal(z - row_max(z)[:, None])
    p /= row_sum(p)[:, None]
    return p


def rho_norms(z: Floats, rhos: Sequence[float], *, center: bool = False, rows: kernels.Scan | None = None) -> Vector:
    """‖z‖_ρ = (Σ|z_j|^ρ)^(1/ρ) of every row for every ρ, shape (n_rows, n_rhos); with ``center``, of rows minus their mean.

    ``rows`` is the scan of z, if it is known.

    The largest |z| of a row is taken out before raising to ρ where anything could overflow. Powers in quarter steps, which
    the paper's grid takes, need no logarithm: a^(1/4) by two square roots, then products.

    >>> rho_norms(np.array([[3.0, -4.0]]), [1, 2]).round(12).tolist()
    [[7.0, 5.0]]
    """
    if (compiled := kernels.norms(z, rhos, center=center, rows=rows)) is not None:
        return compiled
    norms = np.empty((len(z), len(rhos)))
    steep = max(rhos) > MAX_UNSCALED_RHO

    def work(rows: slice) -> None:
        if center:
            size = scratch(0, z[rows])
            np.subtract(
                z[rows], row_max(z[rows])[:, None], out=size
            )  # exact where a mean far above the range costs digits
            size -= (row_sum(size) / z.dtype.type(z.shape[1]))[:, None]
            np.abs(size, out=size)
        else:
            size = np.abs(z[rows], out=scratch(0, z[rows]))
        total = row_sum(size)
        if steep or total.max() > MAX_UNSCALED or total.min() < z.shape[1] / MAX_UNSCALED:
            unit = row_max(size)
            size /= np.where(unit > 0, unit, 1)[:, None]
        else:
            unit = np.ones(1, z.dtype)
        for k, (rho, total) in enumerate(zip(rhos, _power_sums(size, rhos), strict=True)):
            norms[rows, k] = unit * total.astype(np.float64) ** (1 / rho)

    over_blocks(z.shape, work)
    return norms


def _power_sums(size: Floats, rhos: Sequence[float]) -> Iterator[Floats]:
    """Σ size^ρ of every row for every ρ in turn.

    In quarter steps size^ρ = size^whole · size^rest, and the sum of the product is one dot product: nothing is written.
    """
    if all(4 * rho == int(4 * rho) for rho in rhos) and min(rhos) >= 1 and max(rhos) <= 8:
        whole, rest = {1: size}, {}
        for rho in rhos:
            n, part = int(rho), rho % 1
            for k in range(2, (n if part else n - 1) + 1):
                if k not in whole:
                    whole[k] = np.multiply(whole[k - 1], size, out=scratch(2 + k, size))
            if part and 0.5 not in rest:
                rest[0.5] = np.sqrt(size, out=scratch(1, size))
            if part in {0.25, 0.75} and 0.25 not in rest:
                rest[0.25] = np.sqrt(rest[0.5], out=scratch(2, size))
            if part == 0.75 and 0.75 not in rest:
                rest[0.75] = np.multiply(rest[0.25], rest[0.5], out=scratch(3, size))
            yield row_sum(size) if rho == 1 else row_dot(whole[n if part else n - 1], rest[part] if part else size)
        return
    with np.errstate(divide="ignore"):
        logs = np.log(size)
    for rho in rhos:
        yield row_sum(np.exp(rho * logs))


def rho_norm_slope(z: Floats, rho: float, *, center: bool = False) -> tuple[Vector, Vector]:
    """‖z‖_ρ of every row and its derivative in ρ; with ``center``, of rows minus their mean.

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


DIGITS = 43
"""Binary digits of a score that are not rounding noise."""


def without_noise(score: Vector) -> Vector:
    """The score with 43 binary digits (13 decimal ones).

    Equal probabilities differ in their last digits after a logarithm and a softmax. Which of them is then the larger is
    noise, and nothing may depend on it.
    """
    rounded = score.copy()
    if kernels.round_digits(rounded):
        return rounded
    mantissa, exponent = np.frexp(score)
    return np.ldexp(np.round(mantissa * 2.0**DIGITS) / 2.0**DIGITS, exponent)


def log_gamma(x: Vector) -> Vector:
    """Log of Γ(x)."""
    from scipy.special import gammaln  # noqa: PLC0415 - importing rhocal must not import SciPy

    return np.asarray(gammaln(x))


def normal_cdf(x: Vector) -> Vector:
    """Φ(x): the share of a standard normal distribution below x."""
    from scipy.special import ndtr  # noqa: PLC0415 - importing rhocal must not import SciPy

    return np.asarray(ndtr(x))


def chi2_cdf(statistic: Vector, degrees: Vector) -> Vector:
    """The probability that a χ² variable of so many degrees of freedom, which need not be whole, is at most this large."""
    from scipy.special import chdtr  # noqa: PLC0415 - SciPy takes a tenth of a second to import

    return np.asarray(chdtr(degrees, statistic))


def f_tail(statistic: float, degrees: int, of_variance: float) -> float:
    """The probability that a variable of the F distribution is at least this large."""
    from scipy.special import fdtrc  # noqa: PLC0415 - importing rhocal must not import SciPy

    return float(fdtrc(degrees, of_variance, statistic))


def student_quantile(degrees: float, q: float) -> float:
    """The q-quantile of Student's t distribution; of the normal distribution for infinitely many degrees of freedom."""
    from scipy.special import ndtri, stdtrit  # noqa: PLC0415 - importing rhocal must not import SciPy

    return float(ndtri(q) if np.isinf(degrees) else stdtrit(degrees, q))


def normal_quantile(q: Vector) -> Vector:
    """Φ⁻¹(q)."""
    from scipy.special import ndtri  # noqa: PLC0415 - importing rhocal must not import SciPy

    return np.asarray(ndtri(q))


def binomial_cdf(successes: Vector, trials: Vector, rate: float) -> Vector:
    """The chance of at most so many successes in whole numbers of trials; 1 where there are no trials."""
    from scipy.special import betainc  # noqa: PLC0415 - importing rhocal must not import SciPy

    failures = np.asarray(trials, np.float64) - successes
    chance = betainc(np.maximum(failures, 1e-300), np.asarray(successes) + 1.0, 1 - rate)
    return np.where(failures > 0, chance, 1.0)


def binomial_upper(successes: Vector, trials: Vector, level: float) -> Vector:
    """The rate below which a confidence of ``level`` puts the truth (Clopper and Pearson 1934); 1 without trials."""
    from scipy.special import betaincinv  # noqa: PLC0415 - importing rhocal must not import SciPy

    failures = np.asarray(trials, np.float64) - successes
    bound = betaincinv(np.asarray(successes) + 1.0, np.maximum(failures, 1e-300), level)
    is_known = (failures > 0) & ~np.isnan(bound)  # NaN: failures of 1e-10, say, where weights are rounded
    return np.where(is_known, bound, 1.0)
