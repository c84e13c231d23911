"""The border: outside data becomes one checked, frozen value, and nobody behind it checks again.

What the numbers *are* is said (``kind``), never guessed from the values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from rhocal.errors import InputError, SuspiciousInputWarning, warn
from rhocal.numerics.special import Floats, lowest, scan, widened
from rhocal.numerics.threads import row_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.kernels import Scan

Kind = Literal["logits", "probs", "log_probs"]
KINDS = get_args(Kind)

SMALLEST_PROB = 1e-30
"""Probabilities below this are raised to it before the logarithm, and counted in ``Predictions.n_clipped``."""

SMALL = 1 << 24
"""Entries (64 MB in single precision) up to which scores are put in order row by row."""

_SMALLEST = {"probs": SMALLEST_PROB, "log_probs": np.log(SMALLEST_PROB)}

# How far a row of probabilities may be from 1: what rounding each of many entries to that type can add up to.
SUM_TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 1e-3, "float64": 1e-3}


@dataclass(frozen=True)
class Predictions:
    """Checked scores (n_samples × n_classes, float32 or float64) with what is known about them.

    ``labels`` are column numbers; ``classes[labels]`` are the names the caller uses.
    """

    scores: Floats
    """As they came; ``kind`` says what they are."""
    kind: Kind
    labels: NDArray[np.intp] | None
    weights: NDArray[np.float64] | None
    classes: NDArray[Any]
    n_ignored: int = 0
    groups: NDArray[Any] | None = None
    """The domain of every sample, if said."""

    @cached_property
    def seen(self) -> Scan:
        """Largest score, its column, and sum of every row; the border has looked at them already."""
        return scan(self.scores)

    def _having_seen(self, seen: Scan) -> Predictions:
        self.__dict__["seen"] = seen  # not a field: ``replace`` with other scores must not carry it over
        return self

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.scores)

    @property
    def n_classes(self) -> int:
        """Number of columns."""
        return self.scores.shape[1]

    @cached_property
    def logits(self) -> Floats:
        """The scores as logits; of probabilities their logarithm, none smaller than that of ``SMALLEST_PROB``."""
        if self.kind == "logits":
            return self.scores
        raised = np.maximum(self.scores, np.asarray(_SMALLEST[self.kind], self.scores.dtype))
        return np.log(raised) if self.kind == "probs" else raised

    @cached_property
    def n_clipped(self) -> int:
        """How many probabilities had to be raised to ``SMALLEST_PROB``."""
        return 0 if self.kind == "logits" else int(np.count_nonzero(self.scores < _SMALLEST[self.kind]))

    def take(self, rows: NDArray[np.intp]) -> Predictions:
        """The same predictions for some of the samples."""
        part = replace(
            self,
            scores=self.scores[rows],
            labels=None if self.labels is None else self.labels[rows],
            weights=None if self.weights is None else self.weights[rows],
            groups=None if self.groups is None else self.groups[rows],
        )
        return part._having_seen(self.seen.take(rows)) if "seen" in self.__dict__ else part  # noqa: SLF001 - our own


def predictions(
    values: Any,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    classes: Any = None,
    kind: Kind = "logits",
    ignore_index: int | None = None,
    class_axis: int = -1,
    groups: Any = None,
    name: str = "logits",
) -> Predictions:
    """Check outside data and freeze it.

    Parameters
    ----------
    values
        Scores: array, list, data frame or tensor of shape (n_samples, n_classes), any shape with the classes on
        ``class_axis``, or binary scores of shape (n_samples,) or (n_samples, 1), positive meaning ``classes[1]``.
    labels
        One label for each sample: column numbers, or values of ``classes``.
    sample_weight
        Non-negative weights, one for each sample; a weight of 2 means the sample stood there twice.
    classes
        The label that each column stands for. Without it, or if they are texts, integer labels are column numbers; other
        labels must then show every class (they are sorted).
    kind
        ``"logits"``, ``"probs"`` or ``"log_probs"``.
    ignore_index
        Samples with this label are left out (−100 for tokens and pixels).
    class_axis
        The axis of the classes, 1 for (N, C, H, W).
    groups
        The domain of each sample: texts or whole numbers.
    name
        How messages call ``values``.
    """
    if kind not in KINDS:
        raise InputError(f"kind is one of {', '.join(KINDS)}; got {kind!r}")
    scores, stored = _floats(values, name)
    table = _in_rows(_as_table(scores, class_axis, kind, name))
    names = None if classes is None else _class_names(classes, table.shape[1])
    flat = None if labels is None else _flat(labels, "labels", len(table), name)
    weights = None if sample_weight is None else _weights(sample_weight, len(table), name)
    domains = None if groups is None else _groups(groups, len(table), name)

    n_ignored = 0
    if ignore_index is not None and flat is not None:
        kept = flat != ignore_index
        n_ignored = len(flat) - int(kept.sum())
        if n_ignored:
            table, flat = table[kept], flat[kept]
            weights = None if weights is None else weights[kept]
            domains = None if domains is None else domains[kept]
    if len(table) == 0:
        reason = f"every one of the {n_ignored} labels is ignore_index={ignore_index}" if n_ignored else "it is empty"
        raise InputError(f"{name} has no samples: {reason}")
    if weights is not None and not weights.any():
        raise InputError("sample_weight is zero for every sample; at least one must be positive")

    codes = None
    if flat is not None:
        codes, names = _codes(flat, names, table.shape[1])
    columns = np.arange(table.shape[1]) if names is None else names
    data = Predictions(table, kind, codes, weights, columns, n_ignored, domains)
    if labels is None and kind == "logits" and (lowest(table) or 0) < 0:
        return data  # finite, and nobody would take them for probabilities: rows need not be looked at one by one
    return data._having_seen(_check_scores(table, kind, SUM_TOLERANCE.get(stored, 1e-3), name))  # noqa: SLF001 - our own


def _floats(values: Any, name: str) -> tuple[Floats, str]:
    """The values as float32 or float64, and the name of the type they were stored in."""
    if hasattr(values, "detach"):  # a torch tensor, recognised without importing torch
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":
            return values.float().numpy(), "bfloat16"
        values = values.numpy()
    if hasattr(values, "tocsr"):
        raise InputError(f"{name} is sparse; logits of every class are needed, as a dense array (toarray())")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} is not a rectangular array: {error}") from error
    stored = array.dtype.name
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"{name} holds values that are not numbers: {error}") from error
    if array.dtype.kind not in "iubfV":  # V: bfloat16, which NumPy does not know
        hint = ". Complex data not supported" if array.dtype.kind == "c" else ""
        raise InputError(f"{name} must hold real numbers; got dtype {stored}{hint}")
    return _widened(array, stored, name)


def _widened(array: NDArray[Any], stored: str, name: str) -> tuple[Floats, str]:
    """Real numbers of any type as float32 or float64."""
    if stored in {"float32", "float64"}:
        return array, stored
    if stored == "float16" and array.dtype.isnative:
        return widened(np.ascontiguousarray(array)), stored
    if stored in {"float16", "bfloat16"}:
        return array.astype(np.float32), stored
    if array.dtype.kind == "V":
        raise InputError(f"{name} must hold real numbers; got dtype {stored}")
    return array.astype(np.float64), "float64"


def _as_table(scores: Floats, class_axis: int, kind: Kind, name: str) -> Floats:
    """Shape (n_samples, n_classes), whatever came."""
    if scores.ndim == 0:
        raise InputError(f"{name} must have shape (n_samples, n_classes); got a single number")
    if not -scores.ndim <= class_axis < scores.ndim:
        raise InputError(f"class_axis={class_axis} does not exist in {name} of shape {scores.shape}")
    if scores.ndim == 1 or (scores.ndim == 2 and scores.shape[1] == 1 and class_axis in {-1, 1}):
        return _from_binary(scores.reshape(-1), kind)
    n_classes = scores.shape[class_axis]
    if n_classes < 2:
        raise InputError(f"{name} of shape {scores.shape} has {n_classes} classes on axis {class_axis}; need 2 or more")
    return np.moveaxis(scores, class_axis, -1).reshape(-1, n_classes)


def _in_rows(table: Floats) -> Floats:
    """Rows one after the other in memory, as passes want them; large arrays stay as they are: a copy might not find room."""
    return np.ascontiguousarray(table) if table.size <= SMALL else table


def _from_binary(score: Floats, kind: Kind) -> Floats:
    """Two columns from one score for the second class."""
    if kind == "logits":  # sigmoid(s) = softmax(−s/2, s/2), with rows of mean zero
        return np.stack([-score / 2, score / 2], axis=1)
    p = np.exp(score) if kind == "log_probs" else score
    both = np.stack([1 - p, p], axis=1)
    if kind == "log_probs":
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(both)
    return both


def _flat(values: Any, what: str, n: int, name: str) -> NDArray[Any]:
    """One value for each sample."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.size != n or array.ndim == 0:
        raise InputError(f"{what} and {name} differ in length: {array.size} {what}, {n} samples")
    return array.reshape(-1)


def _weights(values: Any, n: int, name: str) -> NDArray[np.float64]:
    flat = _flat(values, "sample_weight", n, name)
    try:
        weights = flat.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must hold numbers: {error}") from error
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"sample_weight must be finite and not negative; {int(bad.sum())} are not, the first is "
            f"{weights[row]:g} at row {row}"
        )
    return weights


def _groups(values: Any, n: int, name: str) -> NDArray[Any]:
    """Texts or whole numbers, one for each sample."""
    flat = _flat(values, "groups", n, name)
    if flat.dtype.kind == "O" and all(isinstance(group, str) for group in flat):
        flat = flat.astype(str)
    if flat.dtype.kind == "O" and all(isinstance(group, int | np.integer) for group in flat):
        flat = flat.astype(np.int64)
    if flat.dtype.kind == "f" and (np.isfinite(flat) & (flat == np.round(flat))).all():
        flat = flat.astype(np.int64)
    if flat.dtype.kind not in "iubU":
        raise InputError(
            f"groups must be texts or whole numbers, one for each sample and none missing; got dtype {flat.dtype}"
        )
    return flat if flat.dtype.kind == "U" else flat.astype(np.int64)


def _class_names(classes: Any, m: int) -> NDArray[Any]:
    names = np.asarray(classes)
    if names.dtype.kind == "O" and all(isinstance(name, str) for name in names.flat):
        names = names.astype(str)
    if names.ndim != 1 or len(names) != m:
        raise InputError(f"classes must name the {m} columns; got shape {names.shape}")
    unique, counts = np.unique(names, return_counts=True)
    if len(unique) != m:
        raise InputError(f"classes must differ; {unique[counts > 1].tolist()[0]!r} stands there {counts.max()} times")
    return names


def _codes(labels: NDArray[Any], names: NDArray[Any] | None, m: int) -> tuple[NDArray[np.intp], NDArray[Any] | None]:
    """Labels as column numbers."""
    if labels.dtype.kind == "f":
        if not (np.isfinite(labels) & (labels == np.round(labels))).all():
            bad = labels[~(np.isfinite(labels) & (labels == np.round(labels)))][0]
            raise InputError(
                f"labels must be column numbers or names of classes; got {bad!r}. Unknown label type: continuous"
            )
        labels = labels.astype(np.int64)
    if labels.dtype.kind == "b" and names is None:
        labels = labels.astype(np.int64)
    by_number = names is None or names.dtype.kind in "US"  # a number is never one of the texts
    if by_number and labels.dtype.kind in "iu":
        if labels.size and not (labels.min() >= 0 and labels.max() < m):
            bad = (labels < 0) | (labels >= m)
            row = int(bad.argmax())
            ignored = labels[row] == -100
            raise InputError(
                f"labels must be column numbers from 0 to {m - 1}; {int(bad.sum())} are not, the first is "
                f"{labels[row]} at row {row}",
                argument="ignore_index=-100" if ignored else "classes",
                remedy="leave such samples out" if ignored else "name the columns",
            )
        return labels.astype(np.intp, copy=False), names
    return _codes_by_name(labels, names, m)


def _codes_by_name(labels: NDArray[Any], names: NDArray[Any] | None, m: int) -> tuple[NDArray[np.intp], NDArray[Any]]:
    if labels.dtype.kind == "O":
        if any(label is None or label != label for label in labels.flat):  # noqa: PLR0124 - NaN is not itself
            raise InputError("labels hold missing values (None or NaN); leave those samples out")
        if all(isinstance(label, str) for label in labels.flat):
            labels = labels.astype(str)
    try:
        if names is None:
            names = np.unique(labels)
            if len(names) != m:
                raise InputError(
                    f"labels show {len(names)} different values, but there are {m} columns; pass classes= with the "
                    "label of each column, in order"
                )
        order = np.argsort(names, kind="stable")
        found = np.searchsorted(names[order], labels)
    except TypeError as error:
        raise InputError(f"labels and classes must be of one sortable type: {error}") from error
    codes = order[np.minimum(found, m - 1)]
    unseen = names[codes] != labels
    if np.any(unseen):
        shown = ", ".join(repr(value) for value in np.unique(labels[unseen])[:5].tolist())
        raise InputError(f"labels hold {int(unseen.sum())} values that are not in classes, such as {shown}")
    return codes.astype(np.intp), names


def _check_scores(table: Floats, kind: Kind, tolerance: float, name: str) -> Scan:
    seen = scan(table)
    if not np.isfinite(seen.total).all():  # a sum is finite only if every term is; it may also be an overflow
        _check_finite(table, allow_minus_inf=kind == "log_probs", name=name)
    if kind == "logits":
        _suspect_probs(seen, name)
    elif kind == "probs":
        _check_probs(table, seen, tolerance, name)
    else:
        probs = np.exp(np.minimum(table, 1))
        _check_probs(probs, scan(probs), tolerance, f"exp({name})")
    return seen


def _check_finite(table: Floats, *, allow_minus_inf: bool, name: str) -> None:
    """Look at every entry."""
    bad_rows: list[int] = []
    n_bad = 0
    for rows in row_blocks(*table.shape):
        block = table[rows]
        bad = ~(np.isfinite(block) | (np.isneginf(block) if allow_minus_inf else False))
        n_bad += int(bad.sum())
        bad_rows += (np.flatnonzero(bad.any(axis=1)) + rows.start).tolist()
    if bad_rows:
        value = next(v for v in table[bad_rows[0]] if not np.isfinite(v))
        raise InputError(
            f"{name} must be finite; {n_bad} entries in {len(bad_rows)} rows are NaN or infinite, the first is "
            f"{value} in row {bad_rows[0]}. Leave those rows out, or replace masked classes by a large negative number"
        )


def _check_probs(table: Floats, seen: Scan, tolerance: float, name: str) -> None:
    away = np.abs(seen.total - 1)
    if away.max() <= tolerance and seen.least >= 0:
        return
    outside = ((table < 0) | (table > 1 + tolerance)).any(axis=1)
    if outside.any():
        row = int(outside.argmax())
        raise InputError(
            f"{name} must lie between 0 and 1; row {row} goes from {table[row].min():g} to {table[row].max():g}",
            argument="kind='logits'",
            remedy="use them as logits",
        )
    row = int(away.argmax())
    raise InputError(
        f"{name}: each row must sum to 1 (within {tolerance:g}); row {row} sums to {table[row].sum():g}",
        argument="kind='logits'",
        remedy="use them as logits",
    )


def _suspect_probs(seen: Scan, name: str) -> None:
    if seen.least >= 0 and np.abs(seen.total[:1000] - 1).max() < 1e-3:
        warn(
            f"{name}: the rows look like probabilities (not negative, sum 1) and are used as logits, as declared",
            SuspiciousInputWarning,
            argument="kind='probs'",
            remedy="use them as probabilities",
        )
