"""scikit-learn: a meta-estimator around any classifier, metrics as scorers, a display. The only importer of scikit-learn."""

from __future__ import annotations

from rhocal.errors import MissingExtraError

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as error:
    raise MissingExtraError("scikit-learn", "sklearn", "rhocal.sklearn") from error

from rhocal.sklearn.classifier import CalibratedClassifier
from rhocal.sklearn.display import ReliabilityDisplay
from rhocal.sklearn.scorers import scorer
from rhocal.sklearn.tags import calibrator_tags, framed

__all__ = [
    "CalibratedClassifier",
    "ReliabilityDisplay",
    "calibrator_tags",
    "framed",
    "register_onnx_converter",
    "scorer",
]


def register_onnx_converter() -> None:
    """Teach skl2onnx the class ``CalibratedClassifier``: pipelines that end in one can be converted then."""
    from rhocal.onnx.scikit_learn import register  # noqa: PLC0415 - onnx is there when it is asked for

    register(CalibratedClassifier)
