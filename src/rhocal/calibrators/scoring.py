"""What a fitted calibrator does with scores: validate them, apply its map, and return the result in their shape."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.top_k import apply_top_k
from rhocal.data.arrays import check_tensor, is_dask, is_tensor, restore_shape, unpack_lists
from rhocal.data.columns import check_frame, frame_columns, shown
from rhocal.data.predictions import Kind, Predictions
from rhocal.data.score_names import score_name
from rhocal.data.scores import is_single_column
from rhocal.data.spec import InputSpec
from rhocal.data.top_k import TopK, refuse_for_top_k
from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.calibrators.base import Calibrator
    from rhocal.numerics.special import Floats


def calibrated_logits(calibrator: Calibrator, data: Predictions) -> Floats:
    """Calibrated logits of validated data, whose classes may stand in another order than those of the fit."""
    ordered, order = data.in_order_of(calibrator.classes_)
    if order is None:
        return calibrator.map_.logits(data)
    if data.positive is not None and calibrator.positive_ not in {None, data.positive}:
        raise InputError(
            f"positive={data.positive!r} is stated, but the calibrator was fitted on {shown(calibrator.classes_.tolist())} "
            f"with {calibrator.positive_!r} as the positive class; state that of the fit"
        )
    return calibrator.map_.logits(ordered)[:, np.argsort(order)]


def apply_map(calibrator: Calibrator, scores: Any, output: Any, kind: Kind | None, class_axis: int, groups: Any) -> Any:
    """Calibrated logits or probabilities in the shape of the scores; a tensor on its device, a lazy Dask array."""
    calibrator._fitted()  # noqa: SLF001 - our own
    if isinstance(scores, TopK):
        refuse_for_top_k(kind=kind in {"logits", "probs"}, class_axis=class_axis != -1, groups=groups is not None)
        calibrated = apply_top_k(calibrator, scores)
        return np.exp(calibrated.log_probs) if output == "probs" else calibrated
    if is_dask(scores):
        from rhocal.dask.applying import apply_lazily  # noqa: PLC0415 - Dask is there if its arrays are

        return apply_lazily(calibrator, scores, output, kind, class_axis, groups)
    if is_tensor(scores):
        scores = check_tensor(scores, "logits")
        from rhocal.torch.device import calibrated_tensor  # noqa: PLC0415 - torch is imported if its tensors are

        calibrator.check_groups(groups)
        return calibrated_tensor(calibrator, scores, output, kind or calibrator.kind_, class_axis, groups)
    data = validated_scores(calibrator, scores, kind, class_axis, groups)
    out = calibrator.map_.probs(data) if output == "probs" else calibrator.map_.logits(data)
    return restore_shape(out, scores, class_axis)


def validated_scores(
    calibrator: Calibrator, logits: Any, kind: Kind | None, class_axis: int, groups: Any = None
) -> Predictions:
    """Scores that are to be calibrated, with the classes of the fit in its order."""
    calibrator.check_groups(groups)
    logits = unpack_lists(logits, "logits")
    classes = calibrator._fitted().classes_  # noqa: SLF001 - our own
    n_classes = np.shape(logits)[class_axis] if np.ndim(logits) > 1 else 2
    if n_classes not in {len(classes), 1 if len(classes) == 2 else len(classes)}:
        columns = frame_columns(logits)
        if columns is not None and len(columns) == n_classes:
            check_frame(columns, classes, calibrator.columns_)
        raise InputError(
            f"logits have {n_classes} classes (shape {np.shape(logits)}), but this {type(calibrator).__name__} was fitted "
            f"with {len(classes)}; a single sample has shape (1, {len(classes)})"
        )
    spec = InputSpec(kind or calibrator.kind_, class_axis=class_axis)
    columns = frame_columns(logits)
    if columns is not None and calibrator.columns_ is not None and set(columns) == set(calibrator.columns_):
        logits = np.asarray(logits)[:, [columns.index(name) for name in calibrator.columns_]]
        columns = calibrator.columns_
        spec = replace(spec, columns_of_fit=columns)
    elif columns is not None:
        check_frame(columns, classes, calibrator.columns_)
    if columns is not None:
        spec = replace(spec, classes=classes, columns=columns)
    is_named = calibrator.positive_ is not None or score_name(logits) is not None
    if is_named and is_single_column(logits, class_axis):
        spec = replace(spec, classes=classes, positive=calibrator.positive_)
    return Predictions.from_arrays(logits, groups=groups, spec=spec).in_order_of(classes)[0]
