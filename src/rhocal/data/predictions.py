"""Predictions: validated scores with labels, weights and groups. What is behind them is not validated again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from rhocal.data.arrays import Scores, check_containers, scan_scores
from rhocal.data.columns import class_order, frame_columns
from rhocal.data.labels.class_order import in_class_order, positive_class, single_column_name
from rhocal.data.labels.masked import refuse_infinite_labels
from rhocal.data.labels.per_sample import class_names, cluster_numbers, sample_groups, sample_labels, sample_weights
from rhocal.data.logit_sizes import MAX_LOGIT, MAX_SINGLE_LOGIT, MIN_SINGLE_LOGIT, check_size
from rhocal.data.resolution import SMALLEST_PROB, Resolution
from rhocal.data.scores import SUM_TOLERANCE, as_matrix, check_scores, finite_masks, in_memory
from rhocal.data.spec import KINDS, InputSpec, Kind
from rhocal.errors import InputError
from rhocal.numerics.caching import cached_property
from rhocal.numerics.masks import MASK_DEPTH, MIN_MASK_GAP, deepen, gap_beyond, is_masked, mask_gap, without_masks
from rhocal.numerics.special import Floats, Vector, ends, widened
from rhocal.numerics.threads import in_threads, row_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from rhocal.numerics.kernels import Scan

R = TypeVar("R")

__all__ = ["KINDS", "SMALLEST_PROB", "SUM_TOLERANCE", "Kind", "Predictions"]

_PLAIN = {np.ndarray, type(None)}
"""Containers that are read as they are."""

_SMALLEST = {"probs": SMALLEST_PROB, "log_probs": np.log(SMALLEST_PROB)}


def _count_up(classes: NDArray[Any]) -> bool:
    """Whether classes are the numbers of their columns."""
    return classes.dtype.kind in "iu" and bool((classes == np.arange(len(classes))).all())


def _part(values: NDArray[Any] | None, rows: NDArray[np.intp] | slice) -> NDArray[Any] | None:
    """The values of some rows, if there are values."""
    return None if values is None else values[rows]


def _concat(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """The values of several blocks, if the first has values."""
    return None if parts[0] is None else np.concatenate([part for part in parts if part is not None])


@dataclass(frozen=True)
class Predictions:
    """A validated block: scores (n_samples × n_classes) with what is known about them.

    ``labels`` are column numbers; ``classes[labels]`` are the names the caller uses.
    """

    scores: Scores
    """As they are stored, float16 to float64, or on their device; ``kind`` states what they are. In memory only logits stay in
    half precision."""
    kind: Kind
    labels: NDArray[np.intp] | None
    weights: NDArray[np.float64] | None
    classes: NDArray[Any]
    n_ignored: int = 0
    groups: NDArray[Any] | None = None
    """The group of every sample, if known."""
    clusters: NDArray[np.intp] | None = None
    """The number of the cluster of every sample; None if samples are independent."""
    block: int = 0
    """The number of the block in its source."""
    rows: NDArray[np.intp] | None = None
    """The rows of the block that these are; None for all of them."""
    positive: Any = None
    """The name of the positive class of two, if it was stated."""
    mask_gap: float | None = None
    """How far below the largest logit of its row an entry is a mask; None: nobody has looked (see ``prepared``)."""
    smallest_prob: float | None = None
    """What smaller probabilities are raised to before the logarithm; None: ``SMALLEST_PROB`` (see ``prepared``)."""
    of_answers: bool = False
    """Whether samples are answers, and the positive class is that they are right."""
    stored_labels: Any = None
    """Labels that are copied to the output and not validated, where the work needs none."""
    score_column: str | None = None
    """The name of a single column of scores, where it states the positive class."""
    is_widened: bool = False
    """Whether scores in single precision are kept in double, because masks need the room."""

    @classmethod
    def from_arrays(
        cls,
        scores: Any,
        labels: Any = None,
        *,
        weights: Any = None,
        groups: Any = None,
        clusters: Any = None,
        spec: InputSpec | None = None,
        block: int = 0,
        name: str = "logits",
    ) -> Self:
        """Validate arrays.

        Parameters
        ----------
        scores
            Array, list, data frame or tensor of shape (n_samples, n_classes), any shape with the classes on
            ``spec.class_axis``, or binary scores of shape (n_samples,) or (n_samples, 1): those of ``spec.positive``, which
            becomes ``classes[1]``.
        labels
            One label for each sample: column numbers, or values of ``spec.classes``. Without classes, or if these are
            texts, integer labels are column numbers. Other labels are matched with the names of the columns of a data
            frame; the columns of an array belong to the sorted labels, which must then show every class. Texts of numbers
            ("10") and texts with numbers that sort in another order ("c2", "c10") need ``spec.classes``.
        weights
            Non-negative weights, one for each sample; a weight of 2 counts a sample twice.
        groups
            The group of each sample: texts or whole numbers.
        clusters
            What each sample belongs to (its question, its patient). Samples of a cluster may depend on each other.
        spec
            What the scores are.
        block
            The number of the block in its source.
        name
            How messages call ``scores``.
        """
        spec = spec or InputSpec()
        if not _PLAIN.issuperset(map(type, (scores, labels, weights, groups))):
            scores, labels, weights, groups = check_containers(scores, labels, weights, groups, name)
        column_names = spec.columns or (None if isinstance(scores, np.ndarray) else frame_columns(scores))
        table, stored, shape, is_single = as_matrix(scores, name, spec)
        names = None if spec.classes is None else class_names(spec.classes, table.shape[1])
        place = None
        if column_names is not None:
            table, names, place = in_class_order(table, names, labels, spec, column_names)
        if len(table) == 0:
            raise InputError(f"{name} has no samples: it is empty")
        sample_weight = None if weights is None else sample_weights(weights, shape, name)
        domains = None if groups is None else sample_groups(groups, shape, name)
        numbers = None if clusters is None else cluster_numbers(clusters, shape, name)
        columns, rows, n_ignored = None, None, 0
        if labels is not None:
            columns, names, rows = sample_labels(labels, names, shape, table.shape[1], name, spec.ignore_index)
            columns = columns if place is None else place[columns]
        score_column = single_column_name(scores, spec) if is_single else None
        positive, is_reversed = positive_class(
            spec.positive, score_column, labels, names, table.shape[1], is_single=is_single
        )
        if is_reversed:
            names = (np.arange(2) if names is None else names)[::-1]
            columns = None if columns is None else 1 - columns
        if rows is not None:
            n_ignored = len(table) - len(rows)
            table, sample_weight, domains = table[rows], _part(sample_weight, rows), _part(domains, rows)
            numbers = None if numbers is None else cluster_numbers(numbers[rows], len(rows), name)
        if sample_weight is not None and not sample_weight.any():
            raise InputError("sample_weight is zero for every sample; at least one must be positive")
        classes = np.arange(table.shape[1]) if names is None else names
        data = cls(
            table, spec.kind, columns, sample_weight, classes, n_ignored, domains, numbers, block, rows, positive=positive,
            of_answers=spec.of_answers and len(classes) == 2,
            score_column=score_column if spec.positive is None and positive is not None else None,
        )  # fmt: skip
        if column_names and names is not None and not is_single:
            column_names = tuple(str(one) for one in names)  # in the order of the classes by now
        is_quick = labels is None and spec.kind == "logits"
        tolerance = SUM_TOLERANCE.get(stored, SUM_TOLERANCE["float64"])
        return data._checked(tolerance, name, column_names or (), is_quick=is_quick, is_single=is_single)

    def _checked(self, tolerance: float, name: str, columns: Sequence[str], *, is_quick: bool, is_single: bool) -> Self:
        """The same with its scores checked; −∞ in logits becomes the lowest finite number."""
        table = self.scores
        if is_quick and isinstance(table, np.ndarray) and (span := ends(table)) is not None and span[0] < 0:
            self.__dict__["span"] = span
            return self  # finite, and nobody would take them for probabilities: rows need not be scanned one by one
        data = self._with_scan(seen := check_scores(table, self.kind, tolerance, name, columns, is_single=is_single))
        if self.kind == "logits" and seen.least == -np.inf:
            refuse_infinite_labels(data, name)
            finite = finite_masks(table)
            is_widened = isinstance(table, np.ndarray) and table.itemsize < 8 == in_memory(finite).itemsize
            data = self._replaced(scan_scores(finite), scores=finite, is_widened=is_widened)
        return data

    def _replaced(self, seen: Scan, **changes: Any) -> Self:
        return replace(self, **changes)._with_scan(seen)  # noqa: SLF001 - our own

    @cached_property
    def seen(self) -> Scan:
        """Largest score, its column, and sum of every row; validation has computed them already."""
        return scan_scores(self.scores)

    def _with_scan(self, seen: Scan) -> Self:
        self.__dict__["seen"] = seen  # not a field: ``replace`` with other scores must not carry it over
        return self

    @cached_property
    def shared(self) -> dict[Any, Any]:
        """What fits on these samples need more than once, by all that it depends on besides the samples."""
        return {}

    @cached_property
    def span(self) -> tuple[float, float]:
        """Two numbers between which all scores lie."""
        return self.seen.least, float(self.seen.top.max())

    @cached_property
    def resolution(self) -> Resolution | None:
        """How finely probabilities are counted; None of logits."""
        if self.kind == "logits":
            return None
        of_scores = Resolution.from_probs if self.kind == "probs" else Resolution.from_log_probs
        return of_scores(in_memory(self.scores), self.total_weight)

    def prepared(self, gap: float | None = None, smallest_prob: float | None = None) -> Self:
        """The same as fits read it: with masks recognized, all of them equally deep, where a fit cannot overflow.

        ``gap`` is how far below the largest logit of its row an entry is a mask, and ``smallest_prob`` what smaller
        probabilities are raised to, if that is known; else both are found here.
        """
        if self.mask_gap is not None:
            return self
        if self.kind != "logits":
            assert self.resolution is not None
            smallest = self.resolution.smallest_prob(self.n_classes) if smallest_prob is None else smallest_prob
            return self._replaced(self.seen, mask_gap=np.inf, smallest_prob=smallest)
        low, high = self.span
        size = max(-low, high)
        is_whole = gap is None  # one block of a stream may be smaller than the others
        if is_whole:
            check_size(size)
        is_near = high / 2 - low / 2 < MIN_MASK_GAP / 2
        if gap is None and is_near:
            gap = gap_beyond(high - low)
        elif gap is None:
            label_gap = None if self.labels is None else self.seen.top / 2 - self.label_scores / 2
            gap = mask_gap(in_memory(self.scores), self.seen.top, label_gap)
        if max(high, gap, -float(self.seen.top.min(initial=0))) > MAX_LOGIT:
            raise InputError(
                f"logits must lie between {-MAX_LOGIT:g} and {MAX_LOGIT:g}; they go from {low:g} to {high:g}. Divide them by a "
                "constant"
            )
        is_wide = getattr(self.scores, "dtype", None) == np.float64
        has_room = is_wide or size == 0 or MIN_SINGLE_LOGIT <= size <= MAX_SINGLE_LOGIT
        if high / 2 - low / 2 < gap / 2 and has_room:
            return self._replaced(self.seen, mask_gap=gap)
        deep = deepen(in_memory(self.scores), self.seen.top, gap)
        if is_whole:
            check_size(float(np.abs(without_masks(deep, self.seen.top, gap, center=False)).max()))
        return replace(self, scores=deep, mask_gap=gap)

    @property
    def has_masks(self) -> bool:
        """Whether some entry is masked; of ``prepared`` predictions."""
        return self.mask_gap is not None and self.span[1] - self.span[0] >= MASK_DEPTH / 2 * self.mask_gap

    @property
    def label_scores(self) -> Vector:
        """The score of the label of every sample."""
        assert self.labels is not None
        if isinstance(self.scores, np.ndarray):
            return self.scores[np.arange(len(self.labels)), self.labels].astype(np.float64)
        return self.scores.gather(self.labels)

    @property
    def masked(self) -> NDArray[np.bool_] | None:
        """Which entries are masked, None if none is; of ``prepared`` predictions."""
        if not self.has_masks:
            return None
        assert self.mask_gap is not None
        return is_masked(self.logits, self.seen.top, self.mask_gap)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.scores)

    @property
    def total_weight(self) -> float:
        """Weight of all samples; without weights their number."""
        return float(self.n_samples if self.weights is None else self.weights.sum())

    @property
    def counts(self) -> Vector:
        """How many samples each counts as: its weight, 1 where none was stated."""
        return np.ones(self.n_samples) if self.weights is None else self.weights

    @property
    def n_classes(self) -> int:
        """Number of columns."""
        return self.scores.shape[1]

    @property
    def positive_column(self) -> int:
        """The column of the positive class of two: the one stated, else the second."""
        return 1 if self.positive is None else int(np.flatnonzero(self.classes == self.positive)[0])

    @cached_property
    def logits(self) -> Floats:
        """The scores as logits in float32 or float64, in memory; of probabilities their logarithm, at least that of
        ``smallest_prob``.
        """  # noqa: D205
        scores = in_memory(self.scores)
        if scores.dtype == np.float16:
            scores = widened(np.ascontiguousarray(scores))
        return scores if self.kind == "logits" else self._logarithm(scores)

    def precise_logits(self, rows: slice = slice(None)) -> Floats:
        """The logits of some rows, in double precision where they are logarithms of probabilities.

        Steps and steep lines would magnify what a logarithm in single precision rounds.
        """
        if self.kind == "logits":
            return self.logits[rows]
        return self._logarithm(in_memory(self.scores[rows]).astype(np.float64, copy=False))

    def _logarithm(self, scores: Floats) -> Floats:
        """Probabilities, or their logarithms, as logits in their own type."""
        smallest = self.smallest_prob or SMALLEST_PROB
        least = smallest if self.kind == "probs" else np.log(smallest)
        raised = np.maximum(scores, np.asarray(least, scores.dtype))
        return np.log(raised) if self.kind == "probs" else raised

    @property
    def output_type(self) -> np.dtype[Any]:
        """The type of calibrated scores: that of the logits as they came, single precision at least."""
        return np.dtype(np.float32) if self.is_widened else self.logits.dtype

    @cached_property
    def n_clipped(self) -> int:
        """How many probabilities are below ``SMALLEST_PROB``: these count as 0."""
        return 0 if self.kind == "logits" else int(np.count_nonzero(in_memory(self.scores) < _SMALLEST[self.kind]))

    def take(self, rows: NDArray[np.intp] | slice) -> Self:
        """Some of the samples; those of a slice share the memory of these."""
        part = replace(
            self,
            scores=self.scores[rows],
            labels=_part(self.labels, rows),
            weights=_part(self.weights, rows),
            groups=_part(self.groups, rows),
            clusters=_part(self.clusters, rows),
            rows=np.arange(self.n_samples)[rows] if self.rows is None else self.rows[rows],
        )
        if "span" in self.__dict__:
            part.__dict__["span"] = self.span
        return part._with_scan(self.seen.take(rows)) if "seen" in self.__dict__ else part  # noqa: SLF001 - our own

    def with_weights(self, weights: NDArray[np.float64]) -> Self:
        """The same samples with other weights."""
        other = replace(self, weights=weights)
        other.__dict__.update({name: self.__dict__[name] for name in ("span", "seen") if name in self.__dict__})
        return other

    def in_order_of(self, classes: NDArray[Any]) -> tuple[Self, NDArray[np.intp] | None]:
        """The same with its columns in the order of these classes, and that order; None where they stand in it already."""
        # Names are compared one by one: not for each request of a service, whose columns count or are those of the fit.
        is_same = self.classes is classes or _count_up(self.classes)
        order = None if is_same else class_order(self.classes.tolist(), classes.tolist())
        if order is None:
            return self, None
        labels = None if self.labels is None else np.argsort(order).astype(np.intp)[self.labels]
        scores = np.ascontiguousarray(in_memory(self.scores)[:, order])
        return replace(self, scores=scores, labels=labels, classes=self.classes[order]), order

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """The samples of several, one after the other."""
        is_weighted = any(part.weights is not None for part in parts)
        weights = np.concatenate([part.counts for part in parts]) if is_weighted else None
        return replace(
            parts[0],
            scores=np.concatenate([in_memory(part.scores) for part in parts]),
            labels=_concat([part.labels for part in parts]),
            weights=None if weights is None or (weights == 1).all() else weights,
            groups=_concat([part.groups for part in parts]),
            clusters=None,
            n_ignored=sum(part.n_ignored for part in parts),
            rows=None,
        )

    def over_row_blocks(self, work: Callable[[Self], R], entries: int) -> list[R]:
        """The results for row blocks of about so many entries, in threads; what a block computes is released after it."""
        n_samples, n_classes = self.scores.shape
        if n_samples * n_classes <= entries:
            return [work(self)]
        slices = list(row_blocks(n_samples, n_classes, entries))
        return in_threads(lambda rows: work(self.take(rows)), slices)

    def row_blocks(self, entries: int) -> Iterator[Self]:
        """The samples in row blocks of about so many entries, which share the memory of these."""
        for rows in row_blocks(self.n_samples, self.n_classes, entries):
            yield self.take(rows)
