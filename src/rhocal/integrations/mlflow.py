"""Calibrators as models of MLflow, and calibration metrics in ``mlflow.models.evaluate``. The only importer of MLflow.

>>> from rhocal.integrations.mlflow import log_model  # doctest: +SKIP
>>> info = log_model(cal, "calibrator")  # doctest: +SKIP
>>> mlflow.pyfunc.load_model(info.model_uri).predict(logits)  # doctest: +SKIP

A logged model is the artifact of the calibrator (``cal.save``), read by this module: nothing is pickled. MLflow finds the
evaluator ``rhocal`` as a plug-in.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal import __version__
from rhocal.calibrators.applying import OUTPUT_METHODS
from rhocal.calibrators.artifact import load
from rhocal.errors import InputError, MissingExtraError
from rhocal.evaluation.evaluate import evaluate

try:
    import mlflow as _mlflow
    from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator
except ImportError as error:
    raise MissingExtraError("mlflow", "mlflow", "models of MLflow") from error

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator

ARTIFACT = "calibrator.safetensors"

engine: Any = _mlflow
logger = logging.getLogger(__name__)


def log_model(calibrator: Calibrator, name: str = "calibrator", *, output: str = "probs", **arguments: Any) -> Any:
    """Log a fitted calibrator as a model of the flavor ``pyfunc``, in the active run.

    Parameters
    ----------
    calibrator
        A fitted calibrator.
    name
        Name of the model.
    output
        What ``predict`` gives: ``"probs"``, calibrated ``"logits"`` or the ``"predicted"`` class. Whoever loads the model may
        ask for another one: ``mlflow.pyfunc.load_model(uri, model_config={"output": "predicted"})``.
    arguments
        Of ``mlflow.pyfunc.log_model``: ``registered_model_name``, ``signature``, ``metadata`` and others.

    Returns
    -------
    mlflow.models.model.ModelInfo
        With ``model_uri``, for ``mlflow.pyfunc.load_model``.
    """
    with tempfile.TemporaryDirectory() as folder:
        return engine.pyfunc.log_model(name=name, **_pyfunc(calibrator, Path(folder), output, arguments))


def save_model(calibrator: Calibrator, path: str | Path, *, output: str = "probs", **arguments: Any) -> None:
    """Write a fitted calibrator to a folder as a model of the flavor ``pyfunc``; as ``log_model``."""
    with tempfile.TemporaryDirectory() as folder:
        engine.pyfunc.save_model(str(path), **_pyfunc(calibrator, Path(folder), output, arguments))


def load_calibrator(model_uri: str) -> Calibrator:
    """The calibrator of a logged model."""
    model = engine.pyfunc.load_model(model_uri).get_raw_model()
    if not hasattr(model, "calibrator_of_rhocal"):
        raise InputError(f"{model_uri}: this model was not logged by rhocal.integrations.mlflow.log_model")
    calibrator: Calibrator = model.calibrator_of_rhocal
    return calibrator


def _pyfunc(calibrator: Calibrator, folder: Path, output: str, arguments: dict[str, Any]) -> dict[str, Any]:
    _check_output(output)
    calibrator.save(folder / ARTIFACT)
    defaults = {"pip_requirements": [f"rhocal=={__version__}"], "model_config": {"output": output}}
    return {"loader_module": __name__, "data_path": str(folder / ARTIFACT), **defaults, **arguments}


def _check_output(output: str) -> str:
    if output not in OUTPUT_METHODS:
        raise InputError(f"output={output!r}: there are {', '.join(OUTPUT_METHODS)}")
    return output


class CalibratorModel:
    """What MLflow calls: ``predict`` on arrays, frames and columns of lists."""

    def __init__(self, calibrator: Calibrator, output: str) -> None:
        self.calibrator_of_rhocal, self.output = calibrator, output
        self.classes_ = calibrator.classes_

    def predict(self, model_input: Any) -> NDArray[Any]:
        """Probabilities of every sample, or what ``output`` asks for."""
        result: NDArray[Any] = getattr(self.calibrator_of_rhocal, OUTPUT_METHODS[self.output])(_scores(model_input))
        return result

    def predict_proba(self, model_input: Any) -> NDArray[Any]:
        """Probabilities of every sample."""
        return self.calibrator_of_rhocal.predict_proba(_scores(model_input))

    def get_raw_model(self) -> CalibratorModel:
        """The model itself: evaluators of MLflow look for its ``predict_proba``."""
        return self


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> CalibratorModel:
    """The door that MLflow opens a model by."""
    return CalibratorModel(load(path), _check_output((model_config or {}).get("output", "probs")))


def _scores(values: Any) -> Any:
    """Rows of scores. Columns with names are matched by name; the lists of a request have none."""
    if isinstance(values, dict):
        import pandas as pd  # noqa: PLC0415 - MLflow needs it

        return pd.DataFrame(values)
    return np.asarray(values) if isinstance(values, list) else values


class CalibrationEvaluator(ModelEvaluator):  # type: ignore[misc]
    """The evaluator ``rhocal`` of ``mlflow.models.evaluate(..., model_type="classifier")``.

    It logs the numbers of ``rhocal.evaluate`` and the whole evaluation as ``rhocal_evaluation.json``. Options in
    ``evaluator_config`` are ``metric_prefix``, and ``metrics``, ``kind``, ``classes`` and ``positive`` of ``rhocal.evaluate``.
    """

    @classmethod
    def can_evaluate(cls, *, model_type: str | None, **_: Any) -> bool:
        """Classifiers."""
        return model_type == "classifier"

    def evaluate(
        self,
        *,
        dataset: Any,
        run_id: str,
        evaluator_config: dict[str, Any] | None = None,
        model: Any = None,
        **_: Any,
    ) -> Any:
        """Log the metrics of the probabilities of a model, or of a column of predictions."""
        options = dict(evaluator_config or {})
        prefix = options.pop("metric_prefix", "") or ""
        chosen = {name: options[name] for name in ("metrics", "kind", "classes", "positive") if name in options}
        probs, classes = _probabilities(model, dataset)
        if probs is None:
            logger.warning(
                "the model gives no probabilities: its calibration was not evaluated. Pass a model with predict_proba, or a "
                "column of predictions with a list of probabilities for each sample"
            )
            return EvaluationResult(metrics={}, artifacts={}, run_id=run_id)
        if classes is not None:
            chosen.setdefault("classes", classes)
        evaluation = evaluate(probs, np.asarray(dataset.labels_data), **chosen)
        values = evaluation.metrics(prefix)
        engine.log_metrics(values, run_id=run_id)
        engine.log_text(evaluation.to_json(), f"{prefix}rhocal_evaluation.json", run_id=run_id)
        return EvaluationResult(metrics=values, artifacts={}, run_id=run_id)


def _probabilities(model: Any, dataset: Any) -> tuple[Any, Any]:
    """The probabilities that a model or a column of predictions gives, and its classes if it states them."""
    if model is None:
        return _matrix(dataset.predictions_data), None
    try:
        raw = model.get_raw_model()
    except (AttributeError, NotImplementedError):
        raw = None
    features = dataset.features_data
    if hasattr(raw, "predict_proba"):
        return raw.predict_proba(features), getattr(raw, "classes_", None)
    return _matrix(model.predict(features)), None


def _matrix(scores: Any) -> Any:
    """A matrix of probabilities, or a frame whose columns are classes; None for predicted classes."""
    if getattr(scores, "ndim", 1) == 1:
        scores = np.asarray(scores)
        if len(scores) and np.ndim(scores[0]) == 1:
            scores = np.stack([np.asarray(row) for row in scores])
    return scores if np.ndim(scores) == 2 and np.shape(scores)[1] > 1 else None
