"""Profiles of top-k data. The rest is spread by a power law: columns that stand for many classes each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.labels.per_sample import class_names, cluster_numbers, sample_groups, sample_labels, sample_weights
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.data.top_k import SMALLEST_LOG
from rhocal.errors import InputError
from rhocal.numerics import kernels
from rhocal.numerics.masks import gap_beyond
from rhocal.numerics.special import rho_norms
from rhocal.numerics.threads import in_threads, row_blocks
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.data.top_k import TopK
    from rhocal.numerics.special import Vector


def profile_top_k(
    data: TopK,
    labels: Any,
    sample_weight: Any = None,
    *,
    classes: Any = None,
    ignore_index: int | None = None,
    rest_scale: float = 1.0,
    is_cut: bool = True,
) -> Profile:
    """The profile of top-k data, for ``fit_profile``. A label that is not among the k best is one of the rest.

    ``classes`` are the labels of the columns that ``data.indices`` count; without them labels are column numbers. Samples with
    the label ``ignore_index`` (−100 for tokens without a target) are left out. Which class of the rest a label is, is not
    known: its log-probability is the expected one, under the probabilities scaled by ``rest_scale``. Features of a sample are
    those of its k best classes, which are known; without ``is_cut`` those of all its classes, which are estimated.

    Examples
    --------
    >>> import numpy as np
    >>> import rhocal
    >>> data = rhocal.TopK.from_arrays(np.log([[0.6, 0.2], [0.5, 0.4]]), [[7, 2], [0, 9]], n_classes=1000)
    >>> rhocal.profile_top_k(data, [7, 9]).n_samples
    2
    """
    samples = labeled_top_k(data, labels, sample_weight, classes, ignore_index)
    return profile_labeled_top_k(samples, rest_scale=rest_scale, is_cut=is_cut)


def profile_labeled_top_k(samples: LabeledTopK, *, rest_scale: float = 1.0, is_cut: bool = True) -> Profile:
    """The same for samples that are validated."""
    data, columns, weights = samples.data, samples.labels, samples.weights
    values, counts = data.tail
    is_label = data.indices == columns[:, None]
    top = data.log_probs[:, 0].copy()  # compiled passes take vectors without gaps
    least = np.minimum(data.log_probs[:, -1], data.rest)
    share = counts * np.exp(rest_scale * (values - values[:, :1]))
    rest = (share * values).sum(axis=1) / np.maximum(share.sum(axis=1), 1e-300)
    label_logit = np.where(is_label.any(axis=1), (is_label * data.log_probs).sum(axis=1), rest)
    k = data.log_probs.shape[1]
    n_best = k if is_cut and k > 1 else None  # the best alone has neither a margin nor a norm
    return Profile(
        passes=TopKPasses(np.column_stack([data.log_probs, values]), np.r_[np.ones(k), counts], n_best),
        n_best=n_best,
        mask_gap=gap_beyond(max(-SMALLEST_LOG, float((top - least).max()))),
        classes=samples.classes,
        kind="log_probs",
        top=top,
        label_gap=label_logit - top,
        correct=is_label[:, 0].astype(np.float64),
        labels=columns.astype(np.int32),
        predicted=data.indices[:, 0].astype(np.int32),
        weights=weights / weights.sum(),
        total_weight=float(weights.sum()),
        clusters=samples.clusters,
    )


@dataclass(frozen=True, eq=False)
class LabeledTopK:
    """The samples of top-k data that count, with what belongs to them."""

    data: TopK
    labels: NDArray[np.intp]
    """Column numbers."""
    weights: Vector
    classes: NDArray[Any]
    """The name of each column."""
    rows: NDArray[np.intp] | None
    """Which samples they are; None for all."""
    clusters: NDArray[np.intp] | None = None
    """The number of the cluster of each sample; None if samples are independent."""

    def take(self, rows: NDArray[np.intp]) -> LabeledTopK:
        """Some of the samples."""
        return LabeledTopK(
            self.data.take(rows),
            self.labels[rows],
            self.weights[rows],
            self.classes,
            rows if self.rows is None else self.rows[rows],
            None if self.clusters is None else self.clusters[rows],
        )

    @property
    def predicted(self) -> NDArray[Any]:
        """The best class of each sample."""
        return np.asarray(self.classes[self.data.indices[:, 0]])

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the best class of each sample is its label."""
        return np.asarray(self.data.indices[:, 0] == self.labels)

    @property
    def answers(self) -> Predictions:
        """The best class of each sample as an answer that is right or wrong, with its confidence."""
        weights = None if (self.weights == 1).all() else self.weights
        spec = InputSpec("probs", np.array([0, 1]), positive=1, of_answers=True)
        confidence = np.exp(np.minimum(self.data.log_probs[:, 0], 0.0))
        return Predictions.from_arrays(confidence, self.correct.astype(int), weights=weights, spec=spec)


def labeled_top_k(
    data: TopK,
    labels: Any,
    sample_weight: Any = None,
    classes: Any = None,
    ignore_index: int | None = None,
    clusters: Any = None,
) -> LabeledTopK:
    """The samples whose label is not ``ignore_index``, with their labels as column numbers."""
    if labels is None:
        raise InputError("labels are missing: top-k data needs one label for each sample")
    n, m = data.n_samples, data.n_classes
    names = None if classes is None else class_names(classes, m)
    columns, names, rows = sample_labels(labels, names, n, m, "values", ignore_index)
    weights = np.ones(n) if sample_weight is None else sample_weights(sample_weight, n, "values")
    groups = None if clusters is None else sample_groups(clusters, n, "values", "clusters")
    if rows is not None:
        data, weights = data.take(rows), weights[rows]
        groups = None if groups is None else groups[rows]
    if not weights.any():
        raise InputError("sample_weight is 0 for every sample")
    numbers = None if groups is None else cluster_numbers(groups, len(groups), "values")
    return LabeledTopK(data, columns, weights, np.arange(m) if names is None else names, rows, numbers)


@dataclass(frozen=True)
class TopKPasses:
    """Passes over rows whose last columns stand for several equal classes each (see ``rhocal.profile.passes``)."""

    z: Vector
    times: Vector
    """How many classes each column stands for."""
    n_best: int | None = None
    """How many columns norms and largest logits are read from; None: all."""

    def take(self, rows: NDArray[np.intp]) -> TopKPasses:
        return TopKPasses(self.z[rows], self.times, self.n_best)

    def means(self) -> Vector:
        return np.asarray(self.z @ self.times / self.times.sum())

    def largest(self, k: int) -> Vector:
        if self.n_best is not None:
            return self.z[:, : min(k, self.n_best)]
        spread = np.repeat(self.z, np.minimum(self.times, k).astype(int), axis=1)
        return np.asarray(-np.sort(-spread, axis=1)[:, :k])

    def norms(self, rhos: Sequence[float], *, center: bool) -> Vector:
        if self.n_best is not None:
            return rho_norms(np.ascontiguousarray(self.z[:, : self.n_best]), rhos, center=center)
        return np.stack([self.norm_slope(rho, center=center)[0] for rho in rhos], axis=1)

    def norm_slope(self, rho: float, *, center: bool) -> tuple[Vector, Vector]:
        if self.n_best is not None:
            return TopKPasses(self.z[:, : self.n_best], np.ones(self.n_best)).norm_slope(rho, center=center)
        size = np.abs(self.z - self.means()[:, None]) if center else np.abs(self.z)
        unit = np.maximum(size.max(axis=1), 1e-300)
        a = size / unit[:, None]
        logs = np.log(np.maximum(a, 1e-300))
        powers = a**rho
        total = np.maximum(powers @ self.times, 1e-300)  # 0 where all logits are equal
        norm = unit * total ** (1 / rho)
        return norm, norm * (((powers * logs) @ self.times) / total / rho - np.log(total) / rho**2)

    def curve(self, top: Vector, scale: Vector, order: int) -> tuple[Vector, ...]:
        if (compiled := kernels.curve(self.z, top, scale, order, self.times)) is not None:
            return compiled
        out = np.empty((order + 1, len(top)))

        def work(rows: slice) -> None:
            z = self.z[rows] - top[rows, None]
            e = np.exp(z * scale[rows, None])
            e *= self.times
            total = e.sum(axis=1)
            moments = [total]
            for _ in range(order):
                e *= z
                moments.append(e.sum(axis=1) / total)
            out[0, rows] = np.log(total)
            if order > 0:
                out[1, rows] = moments[1]
            if order > 1:
                out[2, rows] = np.maximum(moments[2] - moments[1] ** 2, 0)
            if order > 2:
                out[3, rows] = moments[3] - 3 * moments[1] * moments[2] + 2 * moments[1] ** 3

        in_threads(work, list(row_blocks(*self.z.shape)))
        return tuple(out)

    def moments(self, top: Vector, scales: Vector) -> Vector:
        if (compiled := kernels.moments(self.z, top, scales, self.times)) is not None:
            return compiled
        return np.stack([self._moments(top, np.full(len(top), scale), ((1.0, 3),)) for scale in scales], axis=1)

    def moments_at(self, top: Vector, scale: Vector) -> Vector:
        if (compiled := kernels.moments_at(self.z, top, scale, self.times)) is not None:
            return compiled
        return self._moments(top, scale, ((0.5, 2), (1.0, 5), (2.0, 2)))

    def _moments(self, top: Vector, scale: Vector, orders: Sequence[tuple[float, int]]) -> Vector:
        """Σ exp(f·scale·z)·z^k for each factor f and k below its order, as rows."""
        out = np.empty((sum(order for _, order in orders), len(top)))

        def work(rows: slice) -> None:
            z, at = self.z[rows] - top[rows, None], 0
            for factor, order in orders:
                e = np.exp((factor * scale[rows, None]) * z)
                e *= self.times
                for k in range(order):
                    out[at, rows] = e.sum(axis=1)
                    at += 1
                    if k + 1 < order:
                        e *= z

        in_threads(work, list(row_blocks(*self.z.shape)))
        return out
