"""What serving APIs give: the log-probabilities of the k best classes, and how much the rest has together.

How the rest is spread over its classes is not known. It is taken to be even, which makes every scale method work on such
samples as on whole rows: the rest is one column that stands for many. How wrong that can be is bounded for each sample
(``rest_bounds``): no class of the rest is above the k-th best, and together they have what they have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators import ScaleCalibrator
    from rhocal.numerics.special import Vector

SMALLEST_LOG = float(np.log(1e-30))
"""Log of the rest's total where there is nothing left."""


@dataclass(frozen=True)
class TopKPasses:
    """Passes over rows whose last column stands for several equal classes (see ``rhocal.profile.passes``)."""

    z: Vector
    times: Vector
    """How many classes each column stands for."""

    def take(self, rows: NDArray[np.intp]) -> TopKPasses:
        return TopKPasses(self.z[rows], self.times)

    def means(self) -> Vector:
        return np.asarray(self.z @ self.times / self.times.sum())

    def largest(self, k: int) -> Vector:
        spread = np.repeat(self.z, np.minimum(self.times, k).astype(int), axis=1)
        return np.asarray(-np.sort(-spread, axis=1)[:, :k])

    def norms(self, rhos: Sequence[float], *, center: bool) -> Vector:
        return np.stack([self.norm_slope(rho, center=center)[0] for rho in rhos], axis=1)

    def norm_slope(self, rho: float, *, center: bool) -> tuple[Vector, Vector]:
        size = np.abs(self.z - self.means()[:, None]) if center else np.abs(self.z)
        unit = np.maximum(size.max(axis=1), 1e-300)
        a = size / unit[:, None]
        logs = np.log(np.maximum(a, 1e-300))
        powers = a**rho
        total = powers @ self.times
        norm = unit * total ** (1 / rho)
        return norm, norm * (((powers * logs) @ self.times) / total / rho - np.log(total) / rho**2)

    def curve(self, top: Vector, scale: Vector, order: int) -> tuple[Vector, ...]:
        z = self.z - top[:, None]
        e = np.exp(z * scale[:, None]) * self.times
        total = e.sum(axis=1)
        m1, m2, m3 = ((e * z**k).sum(axis=1) / total for k in (1, 2, 3))
        return (np.log(total), m1, np.maximum(m2 - m1**2, 0), m3 - 3 * m1 * m2 + 2 * m1**3)[: order + 1]

    def moments(self, top: Vector, scales: Vector) -> Vector:
        z = self.z - top[:, None]
        e = np.exp(z * scales[:, None, None]) * self.times
        return np.stack([(e * z**k).sum(axis=2) for k in range(3)])

    def moments_at(self, top: Vector, scale: Vector) -> Vector:
        z = self.z - top[:, None]
        orders = ((0.5, range(2)), (1.0, range(5)), (2.0, range(2)))
        return np.stack(
            [(np.exp(f * scale[:, None] * z) * self.times * z**k).sum(axis=1) for f, ks in orders for k in ks]
        )


@dataclass(frozen=True)
class TopK:
    """Samples of which the k best classes are known."""

    log_probs: Vector
    """Of the k best, largest first (n_samples × k)."""
    indices: NDArray[np.intp]
    rest: Vector
    """Log of the total probability of all others."""
    n_classes: int

    @classmethod
    def of(cls, values: Any, indices: Any, rest_log_mass: Any, n_classes: int) -> TopK:
        """Check what came."""
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
        if np.abs(total - 1).max() > 0.02:
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
    def k(self) -> int:
        """How many are known."""
        return self.log_probs.shape[1]

    @property
    def passes(self) -> TopKPasses:
        """As rows of log-probabilities, the rest spread evenly."""
        even = self.rest - np.log(self.n_classes - self.k)
        times = np.r_[np.ones(self.k), float(self.n_classes - self.k)]
        return TopKPasses(np.column_stack([self.log_probs, even]), times)

    def profile(self, labels: Any, sample_weight: Any = None) -> Profile:
        """What ``fit_profile`` of scale calibrators takes. A label that is not among the k best is one of the rest."""
        codes = np.asarray(labels)
        if codes.shape != self.rest.shape or codes.dtype.kind not in "iu":
            raise InputError(
                f"labels must be {len(self.rest)} column numbers; got {codes.dtype} of shape {codes.shape}"
            )
        if codes.min() < 0 or codes.max() >= self.n_classes:
            raise InputError(f"labels must be column numbers from 0 to {self.n_classes - 1}")
        weights = np.ones(len(codes)) if sample_weight is None else np.asarray(sample_weight, np.float64)
        hit = self.indices == codes[:, None]
        passes, top = self.passes, self.log_probs[:, 0]
        own = np.where(hit.any(axis=1), (hit * self.log_probs).sum(axis=1), passes.z[:, -1])
        return Profile(
            passes=passes,
            classes=np.arange(self.n_classes),
            kind="log_probs",
            top=top,
            label_gap=own - top,
            correct=hit[:, 0].astype(np.float64),
            weights=weights / weights.sum(),
            total_weight=float(weights.sum()),
        )

    def calibrated(self, calibrator: ScaleCalibrator, labels_known: Any = None) -> tuple[Vector, Vector, Vector]:
        """Calibrated probabilities of the k best, the rest spread evenly, and bounds of the top class's for any spread."""
        codes = np.zeros(len(self.rest), np.intp) if labels_known is None else labels_known
        scale = calibrator.map_.scales(self.profile(codes))
        best = np.exp(scale[:, None] * (self.log_probs - self.log_probs[:, :1]))
        known = best.sum(axis=1)
        even = self._even(scale)
        low, high = rest_bounds(self.log_probs[:, -1], self.rest, self.n_classes - self.k, scale)
        shift = np.exp(-scale * self.log_probs[:, 0])
        return best / (known + even * shift)[:, None], 1 / (known + high * shift), 1 / (known + low * shift)

    def _even(self, scale: Vector) -> Vector:
        n_rest = self.n_classes - self.k
        return np.asarray(np.exp(scale * self.rest + (1 - scale) * np.log(n_rest)))


def rest_bounds(least: Vector, rest: Vector, n_rest: int, scale: Vector) -> tuple[Vector, Vector]:
    """Between which values Σ p_j^σ over the rest lies, whatever its spread.

    p^σ is concave for σ ≤ 1: even is the largest, and as uneven as may be the smallest: as many classes as possible at the
    k-th best probability, one with what is left. For σ > 1 it is the other way round.

    >>> low, high = rest_bounds(np.log([0.1]), np.log([0.25]), 100, np.array([0.5]))
    >>> low.round(4).tolist(), high.round(4).tolist()  # 2·√.1 + √.05 and 100·√.0025
    ([0.8561], [5.0])
    """
    cap, total = np.exp(least), np.exp(rest)
    full = np.minimum(np.floor(total / cap), n_rest)
    uneven = full * cap**scale + np.maximum(total - full * cap, 0) ** scale
    even = n_rest * (total / n_rest) ** scale
    return np.minimum(uneven, even), np.maximum(uneven, even)
