"""Tags and output containers of calibrators for scikit-learn."""

from __future__ import annotations

from typing import Any

from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags, TransformerTags

from rhocal.errors import MissingExtraError


def calibrator_tags() -> Any:
    """Tags of a classifier whose input are logits."""
    return Tags(
        estimator_type="classifier",
        target_tags=TargetTags(required=True),
        classifier_tags=ClassifierTags(),
        transformer_tags=TransformerTags(),
        input_tags=InputTags(),
    )


def framed(values: Any, columns: Any, index: Any, container: str | None) -> Any:
    """A data frame of what ``transform`` gives, by scikit-learn's own adapters."""
    from sklearn.utils._set_output import ADAPTERS_MANAGER  # noqa: PLC0415 - private, and only there

    try:
        frame = ADAPTERS_MANAGER.adapters[container].create_container(values, values, columns=columns)
    except ImportError as error:
        raise MissingExtraError(str(container), "pandas", f"set_output(transform={container!r})") from error
    if index is not None and container == "pandas":
        frame.index = index
    return frame
