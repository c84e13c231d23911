"""Several models on the same samples: their scores, validated, with the columns of all in the same order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rhocal.data.sources import as_source
from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.data.predictions import Predictions
    from rhocal.data.spec import InputSpec


def model_predictions(
    models: Mapping[Any, Any], labels: Any, weights: Any = None, groups: Any = None, *, spec: InputSpec
) -> dict[str, Predictions]:
    """Name → predictions. Unless the classes are stated, columns are matched with those of the first model."""
    found: dict[str, Predictions] = {}
    for name, scores in models.items():
        try:
            found[str(name)] = as_source(scores, labels, weights, groups, spec=spec).predictions
        except InputError as error:
            if len(models) == 1:
                raise
            raise InputError(f"model {name!r}: {error}") from error
        if spec.classes is None:
            spec = replace(spec, classes=found[str(name)].classes)
    return found
