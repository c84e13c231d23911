"""What scores are, for functions that take a fitted calibrator: what it was fitted on states it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rhocal.calibrators.base import Calibrator
from rhocal.data.columns import name_key
from rhocal.data.labels.columns import NUMBER
from rhocal.data.labels.per_sample import class_names, positive_column
from rhocal.data.spec import InputSpec, Kind
from rhocal.data.top_k import TopK
from rhocal.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRUTH = {"False", "True"}
"""Truth values as names of classes, of which the second is the positive one."""


def check_calibrator(calibrator: Any, logits: Any, task: str, *, may_be_none: bool = False) -> None:
    """Raise an error unless there is a fitted calibrator (or none), and scores of every class; ``task`` asks for them."""
    if isinstance(logits, TopK):
        raise InputError(f"logits: {task} needs the scores of every class; rhocal.TopK holds those of the k best")
    if isinstance(calibrator, Calibrator):
        calibrator._fitted()  # noqa: SLF001 - our own
    elif calibrator is not None or not may_be_none:
        other = ", or None for the scores as they are, comes first" if may_be_none else " comes first"
        raise InputError(f"calibrator: a fitted calibrator{other}; got {type(calibrator).__name__}")


def spec_of_fit(
    calibrator: Calibrator | None,
    *,
    kind: Kind | None = None,
    classes: Any = None,
    ignore_index: int | None = None,
    class_axis: int = -1,
    positive: Any = None,
) -> InputSpec:
    """What the caller states; what is left open is as in the fit of the calibrator.

    What a single column is scores of is never stated here: with a calibrator it is as in its fit, like in ``predict_proba``.
    ``positive`` counts without a calibrator.
    """
    if calibrator is None:
        return InputSpec(kind or "logits", classes, ignore_index, class_axis, positive)
    column_class = class_of_column(calibrator)
    if classes is not None and column_class not in list(classes):
        column_class = None
    spec = InputSpec(kind or calibrator.kind_, classes, ignore_index, class_axis, column_class)
    if classes is not None:
        return spec
    return replace(
        spec, classes=calibrator.classes_, columns_of_fit=calibrator.columns_, labels_count_columns=True
    )  # labels that are whole numbers came with the columns


def class_of_column(calibrator: Calibrator) -> Any:
    """The class of two that a single column is scores of; None with more classes."""
    if len(calibrator.classes_) != 2:
        return None
    return calibrator.classes_[1].item() if calibrator.positive_ is None else calibrator.positive_


def named_positive(positive: Any, calibrator: Calibrator | None, classes: Any) -> Any:
    """The name of a positive class that may be given as a column number; without a calibrator as it was given."""
    if positive is None or calibrator is None:
        return positive
    names = stated_classes(calibrator, classes)
    return names[positive_column(positive, names)].item()


def positive_of_fit(positive: Any, calibrator: Calibrator, what: str) -> int:
    """The column of the positive class of two: as stated, else as in the fit, else the second, where classes are numbers.

    Of classes that are texts the second is so by the alphabet alone, or by the order of the columns: that is an error.
    ``what`` needs the class.
    """
    classes = calibrator.classes_
    stated = calibrator.positive_ if positive is None else positive
    if stated is not None:
        return positive_column(stated, classes)
    names = classes.tolist()
    if classes.dtype.kind == "U" and not all(NUMBER.fullmatch(name) or name_key(name) in TRUTH for name in names):
        raise InputError(
            f"{what}, and it was not stated which of {names[0]} and {names[1]} that is",
            argument="positive",
            remedy="name the positive class",
        )
    return 1


def stated_classes(calibrator: Calibrator, classes: Any) -> NDArray[Any]:
    """The classes in the order that the caller states, else that of the calibrator."""
    return calibrator.classes_ if classes is None else class_names(classes, len(calibrator.classes_))
