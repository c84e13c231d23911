"""Top-k data, as serving APIs return it: the log-probabilities of the k best classes, and the total of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rhocal.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector

SMALLEST_LOG = float(np.log(1e-30))
"""Log of the rest's total where there is nothing left."""

SUM_TOLERANCE = 0.02
"""How far the k best and the rest together may be from 1."""


@dataclass(frozen=True)
class TopK:
    """Samples of which the k best classes are known. How the rest is spread over its classes is not known."""

    log_probs: Vector
    """Of the k best, largest first (n_samples × k)."""
    indices: NDArray[np.intp]
    """Their columns."""
    rest: Vector
    """Log of the total probability of all others."""
    n_classes: int

    @classmethod
    def from_arrays(cls, values: Any, indices: Any, rest_log_mass: Any, n_classes: int) -> Self:
        """Validate top-k log-probabilities.

        ``values`` and ``indices`` have shape (n_samples, k), ``rest_log_mass`` has shape (n_samples,): the log of the total
        probability of all other classes.
        """
        log_probs, columns = np.asarray(values, np.float64), np.asarray(indices)
        rest = np.maximum(np.asarray(rest_log_mass, np.float64), SMALLEST_LOG)
        if log_probs.ndim != 2 or columns.shape != log_probs.shape or rest.shape != log_probs.shape[:1]:
            raise InputError(
                "values and indices have shape (n_samples, k) and rest_log_mass (n_samples,); got "
                f"{log_probs.shape}, {columns.shape} and {rest.shape}"
            )
        n, k = log_probs.shape
        if not 1 <= k < n_classes or not n:
            raise InputError(f"k = {k} of n_classes = {n_classes} classes, {n} samples: need 1 ≤ k < n_classes")
        if columns.dtype.kind not in "iu" or columns.min() < 0 or columns.max() >= n_classes:
            raise InputError(f"indices must be column numbers from 0 to {n_classes - 1}")
        if not np.isfinite(log_probs).all() or not np.isfinite(rest).all():
            raise InputError("values and rest_log_mass must be finite, or −inf for a rest of nothing")
        total = np.exp(log_probs).sum(axis=1) + np.exp(rest)
        if np.abs(total - 1).max() > SUM_TOLERANCE:
            row = int(np.abs(total - 1).argmax())
            raise InputError(
                f"values are log-probabilities that sum to 1 with the rest; row {row} sums to {total[row]:g}"
            )
        order = np.argsort(-log_probs, axis=1, kind="stable")
        log_probs, columns = (np.take_along_axis(part, order, axis=1) for part in (log_probs, columns))
        even = rest - np.log(n_classes - k)
        if (even > log_probs[:, -1] + 1e-3).any():
            row = int((even - log_probs[:, -1]).argmax())
            raise InputError(f"row {row}: the rest has more than its classes can have, each below the {k}-th best")
        return cls(log_probs, columns.astype(np.intp), rest, n_classes)

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return len(self.rest)

    @property
    def n_rest(self) -> int:
        """Number of classes of the rest."""
        return self.n_classes - self.log_probs.shape[1]
