"""Profiles of top-k data. The rest is taken to be spread evenly: one column that stands for many classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.label_columns import label_columns
from rhocal.data.labels import per_sample, sample_weights
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.data.top_k import TopK
    from rhocal.numerics.special import Vector


def profile_top_k(data: TopK, labels: Any, sample_weight: Any = None) -> Profile:
    """The profile of top-k data, for ``fit_profile``. A label that is not among the k best is one of the rest."""
    columns, _ = label_columns(per_sample(labels, "labels", data.n_samples, "values"), None, data.n_classes)
    weights = (
        np.ones(data.n_samples) if sample_weight is None else sample_weights(sample_weight, data.n_samples, "values")
    )
    is_label = data.indices == columns[:, None]
    rest = data.rest - np.log(data.n_rest)
    top = data.log_probs[:, 0]
    label_logit = np.where(is_label.any(axis=1), (is_label * data.log_probs).sum(axis=1), rest)
    return Profile(
        passes=TopKPasses(
            np.column_stack([data.log_probs, rest]), np.r_[np.ones(data.log_probs.shape[1]), float(data.n_rest)]
        ),
        classes=np.arange(data.n_classes),
        kind="log_probs",
        top=top,
        label_gap=label_logit - top,
        correct=is_label[:, 0].astype(np.float64),
        labels=columns.astype(np.int32),
        predicted=data.indices[:, 0].astype(np.int32),
        weights=weights / weights.sum(),
        total_weight=float(weights.sum()),
    )


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
