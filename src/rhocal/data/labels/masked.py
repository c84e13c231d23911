"""Labels of masked classes: a class that cannot occur did, so the label or the mask of that row is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.scores import in_memory
from rhocal.errors import InputError, SuspiciousInputWarning, warn
from rhocal.numerics.masks import MASK_VOID, MIN_MASK_GAP, beyond, mask_gap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Vector

CERTAIN_VOID = 2.0**9
"""How many times deeper than a mask must lie a label is refused, whatever the other entries are: a classifier that is wrong by
thousands is not."""

MIN_EQUAL_MASKS = 10
"""That many entries so deep that are all one number are masks at any depth."""

MAX_SHARE_FAR = 0.05
"""Where more labels lie far below the other logits, no single row dominates a fit."""


def refuse_infinite_labels(data: Predictions, name: str) -> None:
    """Raise an error if the logit of a label is −∞. Other masks are known by comparison with other rows, which blocks lack."""
    if data.labels is None:
        return
    infinite = np.isneginf(data.label_scores)
    if infinite.any():
        raise _refusal(data, name, int(infinite.argmax()), "-inf")


def refuse_masked_labels(data: Predictions) -> None:
    """Raise an error before a fit if the label of a row with a weight is certainly a masked class, in finite logits."""
    far = _far_labels(data)
    certain = None if far is None else _certain(data, *far)
    if certain is not None and certain.any():
        row = int(certain.argmax())
        raise _refusal(data, "labels", row, f"{data.label_scores[row]:g}")


def _certain(data: Predictions, rows: NDArray[np.bool_], gap: float) -> NDArray[np.bool_]:
    """Which of the far labels are masked classes for certain."""
    logits, label, top = in_memory(data.scores), data.label_scores, data.seen.top
    half_depth = top / 2 - label / 2
    rows = rows & (np.abs(top) < half_depth / MASK_VOID * 2)  # else the logits of the row are as large as the depth
    certain = rows & ((half_depth >= CERTAIN_VOID * gap / 2) | (label == float(np.finfo(logits.dtype).min)))
    if rows.any() and not certain.any():
        least, most, count = beyond(logits, top, gap)
        certain = rows if least == most and count >= MIN_EQUAL_MASKS else certain
    return np.asarray(certain)


def warn_of_far_labels(data: Predictions) -> None:
    """Warn if the labels of a few rows lie so far below all other logits that these rows dominate a fit."""
    far = _far_labels(data)
    if far is None or far[0].mean() > MAX_SHARE_FAR or _certain(data, *far).any():
        return  # what is certain is refused
    row = int(far[0].argmax())
    depth = data.seen.top[row] - data.label_scores[row]
    others = f" ({int(far[0].sum()):,} such rows)" if far[0].sum() > 1 else ""
    warn(
        f"logits: the label of row {_number(data, row)}, class {_class(data, row)}, lies {depth:,.4g} below the largest logit "
        f"of its row{others}; logits that deep are taken for masks elsewhere. A single such row dominates the fit. If its "
        "logit is a mask, correct the label or leave the row out",
        SuspiciousInputWarning,
    )


def _far_labels(data: Predictions) -> tuple[NDArray[np.bool_], float] | None:
    """Rows with a weight whose labels lie where the other entries make them masks, and the gap of masks; None if none do."""
    if data.labels is None or data.kind != "logits":
        return None
    low, high = data.span
    if high / 2 - low / 2 < MIN_MASK_GAP / 2:
        return None
    half_depth: Vector = data.seen.top / 2 - data.label_scores / 2
    far = half_depth >= MIN_MASK_GAP / 2
    if data.weights is not None:
        far &= data.weights > 0
    if not far.any():
        return None
    gap = mask_gap(in_memory(data.scores), data.seen.top)
    far &= half_depth >= gap / 2
    return (far, gap) if far.any() else None


def _refusal(data: Predictions, name: str, row: int, logit: str) -> InputError:
    return InputError(
        f"{name}: the label of row {_number(data, row)} is a class whose logit is {logit}, a masked one: class "
        f"{_class(data, row)}. Correct the label or the mask, or leave the row out"
    )


def _number(data: Predictions, row: int) -> int:
    return row if data.rows is None else int(data.rows[row])


def _class(data: Predictions, row: int) -> Any:
    assert data.labels is not None
    return str(data.classes[data.labels[row]])[:40]
