"""Samples as metrics read them. A number is computed when a metric first reads it, and once."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np

from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.data.top_k import TopK, refuse_for_top_k
from rhocal.errors import InputError
from rhocal.numerics import kernels
from rhocal.numerics.bins import BinSums, sums_by_confidence
from rhocal.numerics.caching import cached_property
from rhocal.numerics.special import Vector, exp_normal, row_sum
from rhocal.numerics.threads import over_blocks, row_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from rhocal.data.predictions import Kind

T = TypeVar("T")

NOT_COMPUTED: Any = object()
"""The value of a field that was not given and is computed when it is first read."""


class Lazy(Generic[T]):
    """A field of a dataclass that is either given or computed from the data when it is first read.

    Dataclasses hand the value given to ``__init__`` to ``__set__``, and ask ``__get__`` for the default. So ``replace``
    and plain construction work as with any dataclass.
    """

    def __init__(self, compute: Callable[[Scored], T]) -> None:
        self.compute = compute

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, scored: Scored | None, owner: type | None = None) -> T:
        if scored is None:
            return cast("T", NOT_COMPUTED)
        known = scored.__dict__
        if self.name not in known:
            known[self.name] = self.compute(scored)
        return cast("T", known[self.name])

    def __set__(self, scored: Scored, value: T) -> None:
        if value is not NOT_COMPUTED:
            scored.__dict__[self.name] = value


def _weights(scored: Scored) -> Vector:
    return scored.source.counts if scored.has_probs else np.ones(scored.n_samples)


def _confidence(scored: Scored) -> Vector:
    return scored.top_of_probs[0] if scored.source.kind == "probs" else np.exp(-scored.log_total)


def _correct(scored: Scored) -> Vector:
    return (
        scored.top_of_probs[1] if scored.source.kind == "probs" else (scored.predicted == scored.labels).astype(float)
    )


def _sum_squares(scored: Scored) -> Vector:
    return scored.over_classes(lambda p: np.einsum("ij,ij->i", p, p))


@dataclass(frozen=True, eq=False, repr=False)
class Scored:
    """A few numbers per sample, and the probabilities in blocks of rows for metrics that need all of them.

    The logits are kept, never a table of probabilities: 1,000,000 × 1,000 costs no more than the logits themselves.
    """

    confidence: Lazy[Vector] = Lazy(_confidence)
    correct: Lazy[Vector] = Lazy(_correct)
    log_label: Lazy[Vector] = Lazy(lambda scored: scored.label_gap - scored.log_total)
    sum_squares: Lazy[Vector] = Lazy(_sum_squares)
    weights: Lazy[Vector] = Lazy(_weights)
    rows: Lazy[NDArray[np.intp]] = Lazy(lambda scored: np.arange(scored.n_samples))
    """The rows of the predictions that the samples are; they are selected together with the other fields."""
    data: InitVar[Predictions | None] = None
    draw_scale: InitVar[Vector | None] = None
    """What a drawn label of each sample adds to weighted sums, where weights correct a selection; else it follows from them."""

    def __post_init__(self, data: Predictions | None, draw_scale: Vector | None) -> None:
        self.__dict__["data"] = data
        self.__dict__["draw_scale"] = draw_scale

    @classmethod
    def from_predictions(cls, data: Predictions, draw_scale: Vector | None = None) -> Scored:
        """The samples of validated predictions with labels.

        Of answers the confidence is the probability that they are right, however small it is.
        """
        assert data.labels is not None
        samples = cls(data=data, draw_scale=draw_scale)
        if not data.of_answers:
            return samples
        right = samples.one_class(data.positive_column)
        return cls(confidence=right.confidence, correct=right.correct, data=data, draw_scale=draw_scale)

    @classmethod
    def from_arrays(
        cls, probs: Any, labels: Any, sample_weight: Any, kind: Kind, *, purpose: str = "a metric", name: str = "",
        classes: Any = None, positive: Any = None,
    ) -> Scored:  # fmt: skip
        """Validate arrays. ``purpose`` is what needs the labels, ``name`` the argument, for messages."""
        if labels is None:
            raise InputError(f"labels are missing; {purpose} needs one label for each sample")
        if isinstance(probs, TopK):
            from rhocal.metrics.top_k import score_top_k  # noqa: PLC0415 - it imports this module
            from rhocal.profile.top_k import labeled_top_k  # noqa: PLC0415 - needed for top-k data alone

            refuse_for_top_k(kind=kind == "logits", positive=positive is not None)
            return score_top_k(labeled_top_k(probs, labels, sample_weight, classes))
        spec = InputSpec(kind, classes, positive=positive)
        return cls.from_predictions(
            Predictions.from_arrays(probs, labels, weights=sample_weight, name=name or kind, spec=spec)
        )

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.source.n_samples if self.has_probs else len(self.confidence)

    @property
    def has_probs(self) -> bool:
        """Whether the probability of every class is known, not confidence and correctness only."""
        return self.__dict__["data"] is not None

    @property
    def accuracy(self) -> float:
        """The (weighted) share of right decisions."""
        return float(self.weights @ self.correct / self.weights.sum())

    @property
    def mean_confidence(self) -> float:
        """The (weighted) mean."""
        return float(self.weights @ self.confidence / self.weights.sum())

    @property
    def weighted(self) -> bool:
        """Whether the samples may differ in weight."""
        return "weights" in self.__dict__ or (self.has_probs and self.source.weights is not None)

    @cached_property
    def source(self) -> Predictions:
        """The predictions of these samples, if they are known."""
        data: Predictions | None = self.__dict__["data"]
        if data is None:
            raise AttributeError(
                "these samples hold confidence and correctness only, not the probability of each class"
            )
        rows: NDArray[np.intp] | None = self.__dict__.get("rows")
        if rows is None or np.array_equal(rows, np.arange(data.n_samples)):
            return data
        return data.take(rows)

    @property
    def labels(self) -> NDArray[np.intp]:
        """The column of every sample's label."""
        assert self.source.labels is not None
        return self.source.labels

    @cached_property
    def top_of_probs(self) -> tuple[Vector, Vector]:
        """Confidence and correctness from probabilities, without taking logarithms."""
        scan = self.source.seen
        return scan.top / scan.total, (scan.column == self.labels).astype(np.float64)

    @cached_property
    def predicted(self) -> NDArray[np.intp]:
        """The column of every sample's largest logit."""
        return self.source.seen.column

    @cached_property
    def top(self) -> Vector:
        """The largest logit."""
        return self.source.logits[np.arange(self.source.n_samples), self.predicted].astype(np.float64)

    @cached_property
    def label_gap(self) -> Vector:
        """Logit of the label minus the largest."""
        return self.source.logits[np.arange(self.source.n_samples), self.labels].astype(np.float64) - self.top

    @cached_property
    def log_total(self) -> Vector:
        """The log of Σ_j exp(z_j − max z), which is minus the log of the confidence."""
        curve = kernels.curve(self.source.logits, self.top, np.ones(self.source.n_samples), 1)
        if curve is not None:
            return curve[0]
        total = np.empty(self.source.n_samples)

        def work(rows: slice) -> None:
            total[rows] = row_sum(exp_normal(self.source.logits[rows] - self.top[rows, None]))

        over_blocks(self.source.logits.shape, work)
        return np.log(total)

    @cached_property
    def entropy(self) -> Vector:
        """−Σ p log p = log Σ exp(z) − E_p[z]."""
        curve = kernels.curve(self.source.logits, self.top, np.ones(self.source.n_samples), 1)
        if curve is not None:
            return curve[0] - curve[1]
        mean = np.empty(self.source.n_samples)

        def work(rows: slice) -> None:
            z = self.source.logits[rows] - self.top[rows, None]
            mean[rows] = np.einsum("ij,ij->i", np.exp(z - self.log_total[rows, None]), z)

        over_blocks(self.source.logits.shape, work)
        return self.log_total - mean

    @cached_property
    def ranked(self) -> BinSums:
        """Sums at every distinct confidence, in ascending order: the input of ranking and equal-mass metrics."""
        return sums_by_confidence(self.confidence, self.correct, self.weights)

    def probs(self, rows: slice | NDArray[np.intp]) -> Vector:
        """The probabilities of some of the samples."""
        shifted = self.source.logits[rows] - self.top[rows, None]  # first: a sum with a logit of 1e8 has no digits left
        return np.exp(shifted - self.log_total[rows, None])

    def blocks(self) -> Iterator[tuple[slice, Vector]]:
        """All probabilities, a block of rows at a time."""
        for rows in row_blocks(*self.source.logits.shape):
            yield rows, self.probs(rows)

    def over_classes(self, formula: Callable[[Vector], Vector]) -> Vector:
        """One number per sample, from its probabilities."""
        out = np.empty(self.source.n_samples)

        def work(rows: slice) -> None:
            out[rows] = formula(self.probs(rows))

        over_blocks(self.source.logits.shape, work)
        return out

    def top_k(self, k: int) -> Scored:
        """The question "is the label among the k most probable classes?": its probability, and the answer."""
        m = self.source.n_classes
        mass = self.over_classes(lambda p: np.partition(p, m - k, axis=1)[:, m - k :].sum(axis=1))
        hit = np.empty(self.source.n_samples)
        for rows in row_blocks(*self.source.logits.shape):
            z, label = self.source.logits[rows], self.labels[rows]
            own = z[np.arange(len(z)), label][:, None]
            # A tie goes to the class that stands first, as in the top class.
            ahead = (z > own).sum(axis=1) + ((z == own) & (np.arange(m) < label[:, None])).sum(axis=1)
            hit[rows] = ahead < k
        return Scored(confidence=np.minimum(mass, 1), correct=hit, weights=self.weights)

    def one_class(self, k: int) -> Scored:
        """The question "is the label class k?"."""
        log_p = (self.source.logits[:, k] - self.top) - self.log_total
        return Scored(confidence=np.exp(log_p), correct=(self.labels == k).astype(np.float64), weights=self.weights)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Scored:
        """Some of the samples."""
        known = {field.name: self.__dict__[field.name][rows] for field in fields(self) if field.name in self.__dict__}
        if self.has_probs:
            known["rows"] = self.rows[rows]
        scale = self.__dict__["draw_scale"]
        return Scored(data=self.__dict__["data"], draw_scale=None if scale is None else scale[rows], **known)
