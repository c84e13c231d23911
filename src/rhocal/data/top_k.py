"""Top-k data, as serving APIs return it: the log-probabilities of the k best classes, and the total of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rhocal.errors import InputError, one_line
from rhocal.numerics.caching import cached_property

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector

SMALLEST_LOG = float(np.log(1e-30))
"""Log of the rest's total where there is nothing left."""

DEEPEST_LOG = -1e6
"""Log of a total that is as good as nothing at every scale; products with it do not overflow."""

SUM_TOLERANCE = 0.02
"""How far the k best and the rest together may be from 1."""

N_ROUNDINGS = 16
"""Rounding errors of 1, in the type of the values, that the total of the k best may have: a logarithm of a sum of exponentials
of logits of 10 to 20 has as many."""

N_STRETCHES = 24
"""Stretches of ranks that stand for the rest, each longer than the one before."""

MAX_POWER = 200.0
"""Of a rest that has next to nothing."""

MIN_POWER = 1e-4
N_POWERS = 4096
"""Powers that are tabulated, of which 0 is an even spread."""


@dataclass(frozen=True)
class TopK:
    """Samples of which the k best classes are known. How the rest is spread over its classes is not known.

    ``fit``, ``predict_proba`` and ``scale`` of methods that scale, ``rhocal.evaluate`` and metrics take it in place of logits.

    Examples
    --------
    >>> import numpy as np
    >>> import rhocal
    >>> log_probs = np.log([[0.6, 0.2], [0.5, 0.4]])
    >>> data = rhocal.TopK.from_arrays(log_probs, [[7, 2], [0, 9]], n_classes=1000)
    >>> data.n_samples, data.n_rest
    (2, 998)
    """

    log_probs: Vector
    """Of the k best, largest first (n_samples × k)."""
    indices: NDArray[np.intp]
    """Their columns."""
    rest: Vector
    """Log of the total probability of all others."""
    n_classes: int
    rest_error: float = 0.0
    """How far the total of the others may be from the true one: where it is what the k best leave of 1, their rounding."""

    @classmethod
    def from_arrays(
        cls,
        values: Any,
        indices: Any,
        rest_log_mass: Any = None,
        n_classes: int | None = None,
        *,
        kind: str = "log_probs",
    ) -> Self:
        """Validate the probabilities of the k best classes.

        Parameters
        ----------
        values, indices
            Log-probabilities of the k best classes and their columns, shape (n_samples, k).
        rest_log_mass
            Log of the total probability of all other classes, shape (n_samples,). None: what the k best leave of 1, which
            lies between 0 and (n_classes − k) times the k-th best. Of saturated samples that is known to the rounding
            of the values only; bounds allow for it. −inf, a rest of nothing, counts as 1e-30.
        n_classes
            Number of classes, the size of the vocabulary.
        kind
            What ``values`` are: ``"log_probs"`` or ``"probs"``.
        """
        if n_classes is None:
            raise InputError("n_classes is missing: the number of all classes, such as the size of the vocabulary")
        if isinstance(n_classes, bool) or not hasattr(n_classes, "__index__"):
            raise InputError(f"n_classes is a whole number; got {n_classes!r}")
        log_probs, columns = _as_log_probs(values, kind), _as_array(indices, "indices")
        dtype = _as_array(values, "values").dtype
        epsilon = float(np.finfo(dtype if dtype.kind == "f" else np.float64).eps)
        _check_known(log_probs, columns, n_classes)
        n, k = log_probs.shape
        rest = _rest(log_probs, rest_log_mass, n_classes)
        if rest.shape != (n,):
            raise InputError(f"rest_log_mass has shape (n_samples,) = ({n},); got {rest.shape}")
        if not np.isfinite(rest).all():
            raise InputError("rest_log_mass must be finite, or −inf for a rest of nothing")
        total = np.exp(log_probs).sum(axis=1) + np.exp(rest)
        is_stated = rest_log_mass is not None  # otherwise a total below 1 is what the bound of the rest leaves
        away = np.abs(total - 1) if is_stated else total - 1
        if away.max() > SUM_TOLERANCE:
            row = int(away.argmax())
            raise InputError(
                f"values are log-probabilities that sum to 1 with the rest; row {row} sums to {total[row]:g}"
            )
        order = np.argsort(-log_probs, axis=1, kind="stable")
        log_probs, columns = (np.take_along_axis(part, order, axis=1) for part in (log_probs, columns))
        most = log_probs[:, -1] + np.log(n_classes - k)
        excess = np.exp(rest) - np.exp(most)
        if (excess > SUM_TOLERANCE).any():
            row = int(excess.argmax())
            raise InputError(f"row {row}: the rest has more than its classes can have, each below the {k}-th best")
        # The total of a saturated row is a rounding error of 1 − Σp.
        error = 0.0 if is_stated else N_ROUNDINGS * epsilon
        return cls(log_probs, columns.astype(np.intp), np.minimum(rest, most), n_classes, error)

    def take(self, rows: NDArray[np.intp]) -> Self:
        """Some of the samples."""
        return type(self)(self.log_probs[rows], self.indices[rows], self.rest[rows], self.n_classes, self.rest_error)

    @cached_property
    def tail(self) -> tuple[Vector, Vector]:
        """Log-probabilities of the rest by stretches of ranks (n_samples × stretches), and the classes of each stretch."""
        return power_law_tail(self.log_probs[:, -1], self.rest, self.log_probs.shape[1], self.n_classes)

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return len(self.rest)

    @property
    def n_rest(self) -> int:
        """Number of classes of the rest."""
        return self.n_classes - self.log_probs.shape[1]


def refuse_for_top_k(**is_stated: bool) -> None:
    """Raise an error for arguments that top-k data has no use for."""
    reasons = {
        "kind": "TopK.from_arrays states what the values are",
        "class_axis": "the k best are on the last axis",
        "groups": "methods that scale do not use groups",
        "positive": "a positive class is for two classes, with both probabilities",
    }
    for name, stated in is_stated.items():
        if stated:
            raise InputError(f"{name} is not for top-k data: {reasons[name]}; leave it out")


def _check_known(log_probs: Vector, columns: NDArray[Any], n_classes: int) -> None:
    """Check shapes, columns and numbers of the k best classes."""
    if log_probs.ndim != 2 or columns.shape != log_probs.shape:
        raise InputError(f"values and indices have shape (n_samples, k); got {log_probs.shape} and {columns.shape}")
    n, k = log_probs.shape
    if not 1 <= k < n_classes or not n:
        raise InputError(f"k = {k} of n_classes = {n_classes} classes, {n} samples: need 1 ≤ k < n_classes")
    if columns.dtype.kind not in "iu" or columns.min() < 0 or columns.max() >= n_classes:
        raise InputError(f"indices must be column numbers from 0 to {n_classes - 1}")
    in_order = np.sort(columns, axis=1)
    is_repeated = (in_order[:, 1:] == in_order[:, :-1]).any(axis=1)
    if is_repeated.any():
        raise InputError(f"indices of row {int(is_repeated.argmax())} name a class more than once")
    if not np.isfinite(log_probs).all():
        raise InputError("values must be finite; leave out classes without a probability by a smaller k")


def _rest(log_probs: Vector, rest_log_mass: Any, n_classes: int) -> Vector:
    """Log of the total of all other classes: as stated, or what the k best leave, within its bounds."""
    most = log_probs.min(axis=1) + np.log(n_classes - log_probs.shape[1])
    floor = np.minimum(SMALLEST_LOG, most)  # saturated scores: the k-th best may have less than this
    if rest_log_mass is not None:
        stated = _as_numbers(rest_log_mass, "rest_log_mass")
        if stated.shape != floor.shape:
            return stated
        return np.where(np.isneginf(stated), floor, np.maximum(stated, DEEPEST_LOG))
    left = np.maximum(1 - np.exp(log_probs).sum(axis=1), np.exp(SMALLEST_LOG))
    return np.maximum(np.minimum(np.log(left), most), floor)


def _as_array(values: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not one row of k numbers for each sample: {one_line(error)}") from error


def _as_numbers(values: Any, name: str) -> Vector:
    array = _as_array(values, name)
    if array.dtype.kind not in "fiu":
        try:
            array = array.astype(np.float64) if array.dtype.kind == "O" else np.array(None)
        except (TypeError, ValueError, OverflowError):
            array = np.array(None)
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name} must hold numbers; got {np.asarray(values).reshape(-1)[:1].tolist()!r}")
    return array.astype(np.float64)


def _as_log_probs(values: Any, kind: str) -> Vector:
    array = _as_numbers(values, "values")
    if kind == "log_probs":
        return array
    if kind != "probs":
        raise InputError(f"kind is log_probs or probs; got {kind!r}")
    if not (array > 0).all():
        raise InputError("values must be positive probabilities; leave out classes without one by a smaller k")
    return np.log(array)


def power_law_tail(least: Vector, rest: Vector, k: int, n_classes: int) -> tuple[Vector, Vector]:
    """Spread the total of the rest over its classes as a power of their rank that continues the k-th best.

    p_r = p_k · (r/k)^(−a) for the ranks r = k + 1 to n_classes, with a ≥ 0 such that the total is right; ranks are grouped
    into stretches. Of real logits (20 of 100 to 1,000 classes) calibrated confidences are three to five times as close to
    those of all logits as with an even spread.
    """
    ends = np.unique(np.round(np.geomspace(k, n_classes, N_STRETCHES + 1)).astype(np.int64))
    first, last = ends[:-1] + 1, ends[1:]
    counts = (last - first + 1).astype(np.float64)
    log_rank = np.log(np.sqrt(first * last) / k)
    wanted = np.minimum(rest - least, np.log(counts.sum()))  # log of the total in units of p_k
    # log Σ n·exp(−a·log r) falls in a and is the same function for all samples: a table of it, read backwards.
    powers = np.r_[0.0, np.geomspace(MIN_POWER, MAX_POWER, N_POWERS)]
    totals = np.log(np.exp(-powers[:, None] * log_rank) @ counts)
    power = np.interp(wanted, totals[::-1], powers[::-1])
    log_probs = least[:, None] - power[:, None] * log_rank
    total = np.log((counts * np.exp(log_probs - least[:, None])).sum(axis=1)) + least
    return log_probs + (rest - total)[:, None], counts
