"""Scores of any type and shape as a matrix of floating-point numbers, and what is checked about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.arrays import on_device, scan_scores
from rhocal.data.probability_errors import probability_error
from rhocal.data.spec import InputSpec
from rhocal.data.top_k import TopK
from rhocal.errors import InputError, SuspiciousInputWarning, counted, warn
from rhocal.numerics.assignment import best_columns
from rhocal.numerics.special import Floats, row_max, scan, widened
from rhocal.numerics.threads import row_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.data.arrays import Scores
    from rhocal.data.spec import Kind
    from rhocal.numerics.kernels import Scan

MAX_REORDERED_ENTRIES = 1 << 24
"""Entries (64 MB in single precision) up to which scores are put in order row by row."""

MIN_SUSPECTED_SCORES = 20
"""Numbers in a single column that may be suspected of being probabilities; fewer margins may lie in 0 to 1 by chance."""

SUM_TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 1.001e-3, "float64": 1.001e-3}
"""How far the sum of a row of probabilities may be from 1: what rounding each of many entries to that type can add up to.

A sum of 0.999 or 1.001, of three probabilities with three digits, is within it however it is rounded itself.
"""


LARGEST_BESIDE_MASKS = 2.0**-9
"""Logits up to this share of the largest number of their type leave room for masks, which lie ``MASK_VOID`` times as far below
the largest logit of a row as any other does: a factor of 16 is left for gaps and for their comparison by binary exponents."""

MAX_SHARE_OF_CHANCE = 0.5
"""Of the accuracy by chance: a classifier that is right less often is taken for one whose columns are mixed up."""

MIN_RECALL_GAIN = 0.25
"""In the mean recall of the columns that move: what another order than that of the sorted labels must gain to be suspected."""

MIN_OTHER_RECALL = 0.4
"""The mean recall of the moved columns in the other order, below which it is not suspected: columns that are put right name
their classes, while a model of ordinal classes that regresses to the mean names others, which another order hits in part."""

MAX_ORDERED_CLASSES = 1000
"""Classes among whose orders the best is looked for."""

MIN_RIGHT_BY_CHANCE = 25
"""Samples that chance gets right, below which few right ones are no evidence: five standard deviations above none."""


def as_matrix(scores: Any, name: str, spec: InputSpec) -> tuple[Scores, str, tuple[int, ...], bool]:
    """Scores of shape (n_samples, n_classes), in memory or on their device, the name of the type they were stored in, the shape
    that their samples had, and whether they were a single column.
    """  # noqa: D205
    device_scores = None if isinstance(scores, np.ndarray) else on_device(scores, spec.class_axis)
    if device_scores is not None:
        return *device_scores, sample_shape(scores.shape, spec.class_axis), False
    values, stored = as_floats(scores, name, spec)
    table = _in_rows(_as_table(values, spec.class_axis, spec.kind, name))
    return table, stored, sample_shape(values.shape, spec.class_axis), is_single_column(values, spec.class_axis)


def sample_shape(shape: Sequence[int], class_axis: int) -> tuple[int, ...]:
    """The shape of scores without the axis of their classes."""
    if len(shape) < 2:
        return tuple(shape)
    axis = class_axis % len(shape)
    return (*shape[:axis], *shape[axis + 1 :])


def is_single_column(scores: Any, class_axis: int = -1) -> bool:
    """Whether scores are one number for each sample, that of one class of two."""
    shape = np.shape(scores)
    return len(shape) == 1 or (len(shape) == 2 and shape[1] == 1 and class_axis in {-1, 1})


def as_floats(values: Any, name: str, spec: InputSpec) -> tuple[Floats, str]:
    """The values as floating-point numbers, and the name of the type they were stored in.

    A matrix of logits in half precision stays as it is: passes widen it row block by row block.
    """
    if hasattr(values, "detach"):  # a torch tensor, recognised without importing torch
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":
            return values.float().numpy(), "bfloat16"
        values = values.numpy()
    array = _as_array(values, name, spec.kind)
    stored = array.dtype.name
    if array.dtype.isnative and array.dtype.byteorder not in "=|":  # a native order that is spelled out, as Zarr does
        array = array.view(array.dtype.newbyteorder("="))
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{name} holds values that are not numbers: {first_no_number(array, error)}") from error
    if array.dtype.kind not in "iubfV":  # V: bfloat16, which NumPy does not know
        hint = ". Complex data not supported" if array.dtype.kind == "c" else ""
        raise InputError(f"{name} must hold real numbers; got dtype {stored}{hint}")
    is_matrix = array.ndim == 2 and array.shape[1] > 1 and spec.class_axis in {-1, 1}
    if stored == "float16" and array.dtype.isnative and is_matrix and spec.kind == "logits":
        return array, stored
    return _widen(array, stored, name)


def first_no_number(array: NDArray[Any], error: Exception) -> str:
    """Where the first of them stands, and what it is."""
    lengths = [len(row) if isinstance(row, list | tuple | np.ndarray) else None for row in array] if array.ndim else []
    uneven = next((k for k, length in enumerate(lengths) if length is not None and length != lengths[0]), None)
    if uneven is not None and lengths[0] is not None:
        return f"row {uneven} has {counted(int(lengths[uneven] or 0), 'entry', 'entries')}, row 0 has {lengths[0]}"
    for place, value in np.ndenumerate(array):
        try:
            float(value)
        except (TypeError, ValueError, OverflowError):
            row = f"the first is in row {place[0]}" if place else "it is a single value"
            if type(value).__name__ in {"NAType", "NaTType", "NoneType"}:
                return f"{row}, a missing value ({value}). Leave those rows out"
            return f"{row}: {str(value)[:40]!r}"
    return str(error)


def _as_array(values: Any, name: str, kind: Kind) -> NDArray[Any]:
    if isinstance(values, TopK):
        raise InputError(f"{name}: the scores of every class are needed; rhocal.TopK holds those of the k best")
    if hasattr(values, "tocsr"):
        raise InputError(f"{name} is sparse; logits of every class are needed, as a dense array (toarray())")
    if isinstance(values, np.ma.MaskedArray):
        return _filled(values, name, kind)
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} is not a rectangular array: {error}") from error


def _filled(values: Any, name: str, kind: Kind) -> NDArray[Any]:
    """A masked array with −∞ for masked classes."""
    if kind == "probs" and np.ma.getmaskarray(values).any():
        raise InputError(
            f"{name} is a masked array of probabilities; fill it with 0 (filled(0)), so that each row sums to 1"
        )
    filled: NDArray[Any] = values.astype(np.result_type(values.dtype, np.float16)).filled(-np.inf)
    return filled


def _widen(array: NDArray[Any], stored: str, name: str) -> tuple[Floats, str]:
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
    if is_single_column(scores, class_axis):
        score = scores.reshape(-1)
        if kind == "logits" and len(score) >= MIN_SUSPECTED_SCORES and score.min() >= 0 and score.max() <= 1:
            _warn_of_probs(f"{name}: the numbers look like probabilities (a single column, all between 0 and 1)")
        return _from_binary(score, kind)
    n_classes = scores.shape[class_axis]
    if n_classes < 2:
        raise InputError(f"{name} of shape {scores.shape} has {n_classes} classes on axis {class_axis}; need 2 or more")
    return np.moveaxis(scores, class_axis, -1).reshape(-1, n_classes)


def _in_rows(table: Floats) -> Floats:
    """Rows one after the other in memory, as passes want them; large arrays stay as they are: a copy might not find room."""
    return np.ascontiguousarray(table) if table.size <= MAX_REORDERED_ENTRIES else table


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


def check_scores(
    table: Scores, kind: Kind, tolerance: float, name: str, columns: Sequence[str] = (), *, is_single: bool = False
) -> Scan:
    """Check that scores are finite and, if they are probabilities, that rows sum to 1; the scan of the rows.

    ``columns`` are the names of the columns, if they have names; ``is_single``: the first column was computed from the second.
    """
    seen = scan(table) if isinstance(table, np.ndarray) else table.scan()
    if not np.isfinite(seen.total).all():  # a sum is finite only if every term is; it may also be an overflow
        _check_finite(table, allow_minus_inf=kind != "probs", name=name)
    if kind == "logits":
        if seen.least == -np.inf and np.isneginf(seen.top).any():
            row = int(np.isneginf(seen.top).argmax())
            raise InputError(
                f"{name}: every entry of row {row} is -inf, so that no class is left. Leave those rows out"
            )
        _suspect_probs(seen, name)
        return seen
    as_probs = seen
    if kind == "log_probs":
        as_probs = scan_scores(np.exp(np.minimum(table, 1)) if isinstance(table, np.ndarray) else table.exp())
    if not _are_probs(as_probs, tolerance):
        raise probability_error(in_memory(table), kind, tolerance, name, columns, is_single=is_single)
    return seen


def suspect_labels(accuracy: float, total_weight: float, n_classes: int) -> None:
    """Warn if predictions are right far less often than by chance: columns and labels do not belong together then."""
    if n_classes * accuracy < MAX_SHARE_OF_CHANCE and total_weight >= MIN_RIGHT_BY_CHANCE * n_classes:
        of_two = "; a single column of scores may be that of the other class" if n_classes == 2 else ""
        warn(
            f"labels: {100 * accuracy:.1f} % of the predictions are right, where chance gives "
            f"{100 / n_classes:.1f} %. Labels and columns may not belong together{of_two}",
            SuspiciousInputWarning,
            argument="positive" if n_classes == 2 else "classes",
            remedy="name the class of a single column (of two columns: classes)"
            if n_classes == 2
            else "name the label of each column, in order",
        )


def suspect_order(
    predicted: NDArray[np.intp], labels: NDArray[np.intp], weights: NDArray[np.float64] | None, m: int
) -> None:
    """Warn if another order of the columns than that of the sorted labels explains the labels far better.

    What counts is the recall of each class: to name a frequent class more often than not is no evidence, as it would be for
    accuracies. The orders that move k of m columns are at most m^k, so the best of them exceeds k ln m + ln 1e9 (half a
    squared deviate) less than once in 1e9 data sets, if no order is better than another.
    """
    if not 3 <= m <= MAX_ORDERED_CLASSES:
        return
    w = np.ones(len(labels)) if weights is None else weights
    of_label = np.bincount(labels, w, m)
    sizes = np.maximum(of_label**2 / np.maximum(np.bincount(labels, w * w, m), 1e-300), 1e-300)  # effective ones
    recall = np.bincount(predicted * m + labels, w, m * m).reshape(m, m) / np.maximum(of_label, 1e-300)
    if (recall.max(0) <= np.diag(recall)).all():
        return  # no other order is better
    best = best_columns(recall.T)  # the column of each label
    moved = np.flatnonzero((best != np.arange(m)) & (of_label > 0))
    new, old = recall[best[moved], moved], recall[moved, moved]
    gain, error = float((new - old).sum()), float(np.sqrt(((new + old) / sizes[moved]).sum()))
    least = np.sqrt(2 * (len(moved) * np.log(m) + np.log(1e9)))
    is_large = gain >= MIN_RECALL_GAIN * len(moved) and new.sum() >= MIN_OTHER_RECALL * len(moved)
    if len(moved) and is_large and gain >= least * error:
        warn(
            f"labels: the columns have no names and were taken in the order of the sorted labels, but they seem to be in "
            f"another order, which gives {len(moved)} classes a mean recall of {100 * new.mean():.1f} % instead of "
            f"{100 * old.mean():.1f} %",
            SuspiciousInputWarning,
            argument="classes",
            remedy="name the label of each column, in order",
        )


def finite_masks(table: Scores) -> Scores:
    """Logits with the lowest finite number in place of −∞: what lies so deep is a mask.

    Half precision has no room for masks, and single precision none where other logits come near that number: all are stored
    in the next larger type then. The lowest number of single precision is a mask there too, but not in rows of it alone.
    """
    if not isinstance(table, np.ndarray):
        return table.finite_masks()
    if table.dtype == np.float16:
        table = widened(np.ascontiguousarray(table))
    size = max((float(np.abs(finite_part(table[rows])).max()) for rows in row_blocks(*table.shape)), default=0.0)
    if size > LARGEST_BESIDE_MASKS * float(np.finfo(table.dtype).max):
        lowest = np.finfo(table.dtype).min
        low = (table <= lowest) & (row_max(table) > lowest)[:, None]
        table = np.where(low, -np.inf, table.astype(np.float64))
    return np.maximum(table, np.finfo(table.dtype).min)


def finite_part(block: Floats) -> Floats:
    """Logits with 0 in place of −∞."""
    return np.where(np.isneginf(block), block.dtype.type(0), block)


def in_memory(table: Scores) -> Floats:
    """The scores as an array; those on a device are copied."""
    return table if isinstance(table, np.ndarray) else as_floats(table.to_host(), "scores", InputSpec())[0]


def _check_finite(table: Scores, *, allow_minus_inf: bool, name: str) -> None:
    """Look at every entry."""
    bad_rows: list[int] = []
    n_bad = 0
    for rows in row_blocks(*table.shape):
        block = in_memory(table[rows])
        bad = ~(np.isfinite(block) | (np.isneginf(block) if allow_minus_inf else False))
        n_bad += int(bad.sum())
        bad_rows += (np.flatnonzero(bad.any(axis=1)) + rows.start).tolist()
    if bad_rows:
        value = next(v for v in in_memory(table[bad_rows[0] : bad_rows[0] + 1])[0] if not np.isfinite(v))
        raise InputError(
            f"{name} must be finite; {counted(n_bad, 'entry', 'entries')} in {counted(len(bad_rows), 'row')} "
            f"{'is' if n_bad == 1 else 'are'} NaN or infinite, the first is "
            f"{value} in row {bad_rows[0]}. Leave those rows out; masked classes are -inf in logits, or a large negative number"
        )


def _are_probs(seen: Scan, tolerance: float) -> bool:
    return bool(np.abs(seen.total - 1).max() <= tolerance and seen.least >= 0)


def _suspect_probs(seen: Scan, name: str) -> None:
    if seen.least >= 0 and np.abs(seen.total[:1000] - 1).max() < 1e-3:
        _warn_of_probs(f"{name}: the rows look like probabilities (not negative, sum 1)")


def _warn_of_probs(appearance: str) -> None:
    warn(
        f"{appearance} and are used as logits, the default kind",
        SuspiciousInputWarning,
        argument="kind='probs'",
        remedy="use them as probabilities",
    )
