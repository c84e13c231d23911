"""ONNX models of classifiers as other libraries write them: what comes out gives calibrated probabilities and labels."""

import warnings

import numpy as np
import onnx
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rhocal
from helpers import run
from rhocal.errors import InputError
from rhocal.onnx import attach, export, parity

N_FEATURES = 12


def table(n_classes):
    shape = {"n_samples": 1500, "n_features": N_FEATURES, "n_informative": 8, "n_classes": n_classes}
    X, y = make_classification(**shape, flip_y=0.25, random_state=n_classes)  # noqa: N806
    y[500:1000][::3] = (
        0  # other samples than it was trained on have more of the first class: calibration changes decisions
    )
    return X.astype(np.float32), y


def lightgbm_model(X, y):  # noqa: N803
    lightgbm, tools = pytest.importorskip("lightgbm"), pytest.importorskip("onnxmltools")
    from onnxmltools.convert.common.data_types import FloatTensorType

    model = lightgbm.LGBMClassifier(n_estimators=10, verbose=-1).fit(X, y)
    return model, tools.convert_lightgbm(model, initial_types=[("input", FloatTensorType([None, N_FEATURES]))])


def xgboost_model(X, y):  # noqa: N803
    xgboost, tools = pytest.importorskip("xgboost"), pytest.importorskip("onnxmltools")
    from onnxmltools.convert.common.data_types import FloatTensorType

    model = xgboost.XGBClassifier(n_estimators=40).fit(X, y)
    return model, tools.convert_xgboost(model, initial_types=[("input", FloatTensorType([None, N_FEATURES]))])


def catboost_model(X, y, folder):  # noqa: N803
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostClassifier(iterations=40, verbose=0, allow_writing_files=False).fit(X, y)
    model.save_model(str(folder / "cat.onnx"), format="onnx")
    return model, onnx.load(folder / "cat.onnx")


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
def test_boosters_are_calibrated_through_the_command(library, n_classes, tmp_path):
    X, y = table(n_classes)  # noqa: N806
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if library == "catboost":
            model, graph = catboost_model(X[:500], y[:500], tmp_path)
        else:
            model, graph = {"lightgbm": lightgbm_model, "xgboost": xgboost_model}[library](X[:500], y[:500])
    onnx.save(graph, tmp_path / "model.onnx")
    cal = rhocal.StructuredScaling().fit(model.predict_proba(X[500:1000]), y[500:1000], kind="probs")
    cal.save(tmp_path / "cal.safetensors")
    out = run("export", tmp_path / "cal.safetensors", tmp_path / "model.onnx", "-o", tmp_path / "out.onnx").stdout
    assert "is decided from" in " ".join(out.split())
    label, probs = outputs(onnx.load(tmp_path / "out.onnx"), X[1000:])
    want = cal.predict_proba(np.asarray(model.predict_proba(X[1000:]), dtype=np.float64))
    np.testing.assert_allclose(probs, want, atol=1e-6, rtol=0)
    np.testing.assert_array_equal(label, probs.argmax(axis=1))
    # Calibration changed some decisions: the label of the model would be wrong.
    assert (label != model.predict(X[1000:]).ravel()).any()


def outputs(model, X):  # noqa: N803
    """The label and the probabilities that a model gives, in this order."""
    found = parity.session(model).run(None, {model.graph.input[0].name: X})
    return sorted(found, key=np.ndim)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("names", [None, "abcd"])
@pytest.mark.parametrize(
    "classifier",
    [
        LogisticRegression(C=100),
        RandomForestClassifier(20, random_state=0),
        GaussianNB(),
        MLPClassifier((10,), max_iter=40, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore")
def test_classifiers_of_scikit_learn_with_their_labels(classifier, names, n_classes):
    skl2onnx = pytest.importorskip("skl2onnx")
    X, y = table(n_classes)  # noqa: N806
    y = y if names is None else np.array(list(names))[y]
    pipeline = make_pipeline(StandardScaler(), classifier).fit(X[:500], y[:500])
    cal = rhocal.StructuredScaling().fit(
        pipeline.predict_proba(X[500:1000]), y[500:1000], kind="probs", classes=pipeline.classes_
    )
    model, place = attach(skl2onnx.to_onnx(pipeline, X[:1]), cal)
    label, probs = outputs(model, X[1000:])
    assert place.label is not None
    np.testing.assert_array_equal(label, cal.classes_[probs.argmax(axis=1)])
    want = cal.predict_proba(pipeline.predict_proba(X[1000:]))
    # Thresholds of trees in single precision move a few rows.
    assert np.quantile(np.abs(probs - want).max(axis=1), 0.98) < 1e-4
    assert (label != pipeline.predict(X[1000:])).any()


def test_classes_in_another_order_are_refused():
    skl2onnx = pytest.importorskip("skl2onnx")
    X, y = table(3)  # noqa: N806
    model = LogisticRegression().fit(X, np.array(["a", "b", "c"])[y])
    cal = rhocal.StructuredScaling().fit(
        model.predict_proba(X)[:, ::-1], np.array(["a", "b", "c"])[y], kind="probs", classes=["c", "b", "a"]
    )
    with pytest.raises(InputError, match="the same in another order"):
        attach(skl2onnx.to_onnx(model, X[:1]), cal)


def test_probabilities_of_a_classifier_are_not_taken_for_logits():
    skl2onnx = pytest.importorskip("skl2onnx")
    X, y = table(3)  # noqa: N806
    model = LogisticRegression().fit(X, y)
    cal = rhocal.TemperatureScaling().fit(model.decision_function(X), y)
    with pytest.raises(InputError, match="holds probabilities"):
        attach(skl2onnx.to_onnx(model, X[:1]), cal)


def test_the_label_of_a_network_is_decided_again(tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(800, 4))
    labels = np.where(rng.random(800) < 0.4, 0, logits.argmax(axis=1))
    cal = rhocal.VectorScaling().fit(logits, labels)
    x, label = (
        onnx.helper.make_tensor_value_info("x", 1, ["n", 4]),
        onnx.helper.make_tensor_value_info("label", 7, ["n"]),
    )
    nodes = [
        onnx.helper.make_node("Identity", ["x"], ["logits"]),
        onnx.helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
    ]
    scores = onnx.helper.make_tensor_value_info("logits", 1, ["n", 4])
    graph = onnx.helper.make_graph(nodes, "network", [x], [scores, label])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "in.onnx",
    )
    done = export(cal, tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert done.label == "label"
    got, calibrated = outputs(onnx.load(tmp_path / "out.onnx"), logits.astype(np.float32))
    np.testing.assert_array_equal(got, calibrated.argmax(axis=1))
    assert (got != logits.argmax(axis=1)).any()
