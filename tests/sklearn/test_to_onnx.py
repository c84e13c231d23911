"""A calibrated classifier in one call as an ONNX model: probabilities and labels are those of Python."""

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import rhocal
from rhocal.errors import InputError
from rhocal.sklearn import CalibratedClassifier, register_onnx_converter

skl2onnx = pytest.importorskip("skl2onnx")
pytestmark = pytest.mark.filterwarnings("ignore")


def table(n_classes):
    shape = {"n_samples": 400, "n_features": 8, "n_informative": 6, "n_classes": n_classes}
    X, y = make_classification(**shape, flip_y=0.2, random_state=n_classes)  # noqa: N806
    return X.astype(np.float32), y


def lightgbm(X, y):  # noqa: N803
    model = pytest.importorskip("lightgbm").LGBMClassifier(n_estimators=10, verbose=-1, n_jobs=1)
    return CalibratedClassifier(make_pipeline(StandardScaler(), model), "vector", cv=2).fit(X, y)


def xgboost(X, y):  # noqa: N803
    model = pytest.importorskip("xgboost").XGBClassifier(n_estimators=10, n_jobs=1)
    return CalibratedClassifier(model, "vector", cv=2).fit(X, y)


def of(classifier, method="vector", **options):
    return lambda X, y: CalibratedClassifier(classifier, method, cv=2, **options).fit(X, y)  # noqa: N803


MODELS = {
    "linear": of(LogisticRegression()),
    "pipeline": of(make_pipeline(StandardScaler(), LogisticRegression()), "rho-norm", ensemble=False),
    "forest": of(RandomForestClassifier(10, random_state=0), "isotonic"),
    "bayes": of(GaussianNB(), "platt"),
    "margin": of(LinearSVC()),
    "lightgbm": lightgbm,
    "xgboost": xgboost,
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_one_call_gives_what_python_gives(name, n_classes, tmp_path):
    X, y = table(n_classes)  # noqa: N806
    model = MODELS[name](X, np.array(["no", "yes", "other"])[y] if name == "linear" else y)
    model.to_onnx(tmp_path / "model.onnx")
    label, probs = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"X": X})
    np.testing.assert_allclose(probs, model.predict_proba(X), rtol=0, atol=2e-6)
    np.testing.assert_array_equal(label, model.predict(X))


def test_columns_of_several_types(tmp_path):
    X, y = table(3)  # noqa: N806
    frame = pd.DataFrame(X[:, :2], columns=["u", "v"]).assign(word=np.where(X[:, 2] > 0, "x", "y"))
    columns = make_column_transformer((StandardScaler(), ["u", "v"]), (OneHotEncoder(), ["word"]))
    model = of(make_pipeline(columns, LogisticRegression()))(frame, y)
    model.to_onnx(tmp_path / "model.onnx", frame)
    feed = {name: frame[[name]].to_numpy().astype(object if name == "word" else np.float32) for name in frame}
    _, probs = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["label", "probabilities"], feed)
    np.testing.assert_allclose(probs, model.predict_proba(frame), rtol=0, atol=1e-6)


def test_a_pipeline_that_ends_in_a_calibrated_classifier():
    X, y = table(3)  # noqa: N806
    model = make_pipeline(StandardScaler(), CalibratedClassifier(LogisticRegression(), "platt", cv=2)).fit(X, y)
    register_onnx_converter()
    made = skl2onnx.to_onnx(model, X[:1], options={"zipmap": False}, target_opset=17)
    label, probs = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"X": X})
    np.testing.assert_allclose(probs, model.predict_proba(X), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(label, model.predict(X))


def test_frames_of_scikit_learn_inside():
    X, y = table(3)  # noqa: N806
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(8)])
    model = of(make_pipeline(StandardScaler().set_output(transform="pandas"), LogisticRegression()))(frame, y)
    plain = of(make_pipeline(StandardScaler(), LogisticRegression()))(frame, y)
    np.testing.assert_allclose(model.predict_proba(frame), plain.predict_proba(frame), rtol=0, atol=1e-12)


def test_what_cannot_be_converted_is_an_error(tmp_path):
    X, y = table(2)  # noqa: N806
    with pytest.raises(InputError, match="skl2onnx cannot convert"):
        of(NearestCentroid())(X, y).to_onnx(tmp_path / "model.onnx")
    with pytest.raises(InputError, match="cannot be exported"):
        of(LogisticRegression(), rhocal.calibrator("multi-domain"))(X, y).to_onnx(tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()
