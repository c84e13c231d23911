"""Several models on the same samples: their scores, validated, with the columns of all in the same order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rhocal.data.columns import frame_columns, shown
from rhocal.data.score_names import score_name
from rhocal.data.sources import Source, as_source
from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.data.spec import InputSpec


def model_predictions(
    models: Mapping[Any, Any], labels: Any, weights: Any = None, groups: Any = None, *, spec: InputSpec
) -> dict[str, Predictions]:
    """Name → predictions. Unless the classes are stated, columns are matched with those of the first model."""
    predictions: dict[str, Predictions] = {}
    classes_by_name = None
    for name, scores in models.items():
        if str(name) in predictions:
            raise InputError(f"two models have the name {str(name)!r}; names are compared as texts")
        if classes_by_name is not None:
            check_unnamed(f"model {name!r}", scores, classes_by_name)
        try:
            predictions[str(name)] = as_source(scores, labels, weights, groups, spec=spec).predictions
        except InputError as error:
            if len(models) == 1:
                raise
            raise InputError(f"model {name!r}: {error}") from error
        if spec.classes is None:
            spec = replace(spec, classes=predictions[str(name)].classes)
            classes_by_name = spec.classes if has_names(scores) else None
    return predictions


def has_names(scores: Any) -> bool:
    """Whether the columns of scores have names."""
    is_named = isinstance(scores, Source) and (scores.spec.classes is not None or scores.spec.columns is not None)
    return is_named or frame_columns(scores) is not None or score_name(scores) is not None


def check_unnamed(who: str, scores: Any, classes: NDArray[Any]) -> None:
    """Raise an error for columns without names after a frame whose names have another order than sorted labels.

    By themselves, the columns of an array belong to the sorted labels.
    """
    if has_names(scores) or classes.dtype.kind != "U" or classes.tolist() == sorted(classes.tolist()):
        return
    raise InputError(
        f"{who}: the columns have no names, so that they may be in the order of the columns before ({shown(classes)}) or in "
        "that of the sorted labels",
        argument="classes",
        remedy="name the label of each column, in order",
    )
