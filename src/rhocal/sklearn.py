"""What scikit-learn asks of a calibrator. The only importer of scikit-learn."""

from __future__ import annotations

from typing import Any

from rhocal.errors import MissingExtraError


def calibrator_tags() -> Any:
    """Tags of a classifier whose input are logits."""
    try:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "sklearn", "this") from error
    return Tags(
        estimator_type="classifier",
        target_tags=TargetTags(required=True),
        classifier_tags=ClassifierTags(),
        input_tags=InputTags(),
    )
