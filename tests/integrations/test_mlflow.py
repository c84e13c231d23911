"""Calibrators as models of MLflow, and the evaluator that MLflow finds as a plug-in."""

import json
from importlib.metadata import entry_points

import numpy as np
import pytest

import rhocal
from rhocal.errors import InputError

mlflow = pytest.importorskip("mlflow", reason="pip install mlflow; `make integrations` runs this")
pytest.importorskip("sklearn", reason="mlflow.models.evaluate needs scikit-learn")
from rhocal.integrations.mlflow import CalibrationEvaluator, load_calibrator, log_model, save_model  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of MLflow

NAMES = np.array(["ant", "bee", "cat"])


@pytest.fixture(autouse=True)
def store(tmp_path):
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    mlflow.set_experiment(mlflow.create_experiment("e", artifact_location=(tmp_path / "artifacts").as_uri()) and "e")
    yield
    mlflow.set_tracking_uri(None)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(800, 3))
    return 3 * truth, NAMES[(truth + rng.gumbel(size=truth.shape)).argmax(axis=1)]


@pytest.fixture(scope="module")
def cal(data):
    return rhocal.VectorScaling().fit(*data)


def test_a_logged_model_predicts_as_the_calibrator(cal, data):
    pandas = pytest.importorskip("pandas")
    logits = data[0]
    with mlflow.start_run():
        info = log_model(cal, "calibrator", metadata={"team": "x"})
    model = mlflow.pyfunc.load_model(info.model_uri)
    np.testing.assert_array_equal(model.predict(logits), cal.predict_proba(logits))
    np.testing.assert_array_equal(model.predict(logits[:2].tolist()), cal.predict_proba(logits[:2]))
    mixed = pandas.DataFrame(logits, columns=NAMES)[["cat", "ant", "bee"]]
    np.testing.assert_array_equal(model.predict(mixed), cal.predict_proba(logits))
    by_name = {name: logits[:, k] for k, name in reversed(list(enumerate(NAMES)))}
    np.testing.assert_array_equal(model.predict(by_name), cal.predict_proba(logits))
    other = mlflow.pyfunc.load_model(info.model_uri, model_config={"output": "predicted"})
    np.testing.assert_array_equal(other.predict(logits), cal.predict(logits))
    assert repr(load_calibrator(info.model_uri)) == repr(cal)
    assert model.metadata.metadata == {"team": "x"}


def test_nothing_is_pickled(cal, tmp_path):
    save_model(cal, tmp_path / "model", output="logits")
    assert not list((tmp_path / "model").rglob("*.pkl"))
    assert f"rhocal=={rhocal.__version__}" in (tmp_path / "model" / "requirements.txt").read_text()
    with pytest.raises(InputError, match="output='prob': there are probs, logits, predicted"):
        log_model(cal, output="prob")


def test_the_evaluator_logs_what_evaluate_gives(cal, data):
    pandas = pytest.importorskip("pandas")
    logits, labels = data
    frame = pandas.DataFrame(logits, columns=NAMES).assign(y=labels)
    with mlflow.start_run() as run:
        info = log_model(cal)
        result = mlflow.models.evaluate(
            info.model_uri, frame, targets="y", model_type="classifier", evaluators="rhocal",
            evaluator_config={"metric_prefix": "test_"},
        )  # fmt: skip
    want = rhocal.evaluate(cal.predict_proba(logits), labels).metrics("test_")
    assert result.metrics == pytest.approx(want)
    stored = mlflow.get_run(run.info.run_id).data.metrics
    assert {name: stored[name] for name in want} == pytest.approx(want)
    text = mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/test_rhocal_evaluation.json")
    assert json.loads(text)["n_samples"] == 800


def test_a_column_of_probabilities_and_one_of_classes(cal, data, caplog):
    pandas = pytest.importorskip("pandas")
    logits, labels = data
    frame = pandas.DataFrame({"y": labels, "p": list(cal.predict_proba(logits)), "best": cal.predict(logits)})
    config = {"classes": list(NAMES), "metrics": ["ece"]}
    result = mlflow.models.evaluate(
        data=frame, targets="y", predictions="p", model_type="classifier", evaluators="rhocal", evaluator_config=config
    )
    assert result.metrics["ece"] == pytest.approx(rhocal.metrics.ece(cal.predict_proba(logits), data[1], classes=NAMES))
    assert "nll" not in result.metrics
    none = mlflow.models.evaluate(
        data=frame, targets="y", predictions="best", model_type="classifier", evaluators="rhocal"
    )
    assert none.metrics == {}
    assert "gives no probabilities" in caplog.text


def test_a_classifier_of_scikit_learn(data):
    pandas = pytest.importorskip("pandas")
    from sklearn.naive_bayes import GaussianNB

    logits, labels = data
    model = GaussianNB().fit(logits, labels)
    frame = pandas.DataFrame(logits, columns=["x", "y", "z"]).assign(target=labels)
    with mlflow.start_run():
        info = mlflow.sklearn.log_model(model, name="model", serialization_format="cloudpickle")
        result = mlflow.models.evaluate(
            info.model_uri, frame, targets="target", model_type="classifier", evaluators="rhocal"
        )
    assert result.metrics["nll"] == pytest.approx(rhocal.metrics.nll(model.predict_proba(logits), labels))


def test_mlflow_finds_the_plug_in():
    (point,) = entry_points(group="mlflow.model_evaluator", name="rhocal")
    assert point.load() is CalibrationEvaluator
    assert "rhocal" in mlflow.models.list_evaluators()
    assert not CalibrationEvaluator.can_evaluate(model_type="regressor", evaluator_config={})
