"""ONNX: outputs that a model computes from its scores are calibrated with them, or named."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import rhocal
from helpers import run, synthetic
from onnx_models import M, answer, graph, node, saved
from rhocal.errors import RhocalWarning
from rhocal.numerics.special import softmax
from rhocal.onnx import export, parity


@pytest.fixture(scope="module")
def data():
    logits, labels = synthetic(600, M, seed=1)
    return logits.astype(np.float32), labels


def value(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def selecting(*nodes, extra, opset=17):
    """A model with probabilities, and what is made of them."""
    probs = [node("Softmax", "x", "p", axis=-1), node("Identity", "p", "probs")]
    model = graph(*probs, *nodes, outputs=["probs"], opset=opset, extra=extra)
    for name, number in (("two", 2), ("last", -1)):
        model.graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [1], [number]))
    return model


@pytest.fixture(scope="module")
def moving(data):
    """A calibrator that changes decisions."""
    logits, labels = data
    return rhocal.VectorScaling().fit(logits, np.where(np.arange(len(labels)) % 3 == 0, 0, labels))


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_what_is_chosen_from_probabilities_is_chosen_again(moving, data, tmp_path, kind, opset):
    cal = moving
    if kind == "probs":
        cal = rhocal.VectorScaling().fit(softmax(data[0]), data[1] * (np.arange(len(data[1])) % 3 > 0), kind="probs")
    largest = (
        helper.make_node("ReduceMax", ["p", "last"], ["confidence"], keepdims=0)
        if opset >= 18
        else helper.make_node("ReduceMax", ["p"], ["confidence"], axes=[1], keepdims=0)
    )
    model = selecting(
        helper.make_node("TopK", ["probs", "two"], ["best", "places"], axis=-1),
        helper.make_node("Cast", ["places"], ["label"], to=TensorProto.INT32),
        largest,
        extra=[value("best", ["batch", 2]), value("label", ["batch", 2], TensorProto.INT32), value("confidence", ["batch"])],
        opset=opset,
    )  # fmt: skip
    done = export(cal, saved(model, tmp_path), tmp_path / "out.onnx", scores="probs")
    assert (done.chosen, done.stale) == (("best", "label", "confidence"), ())
    probs, best, label, confidence = answer(tmp_path / "out.onnx", data[0], "probs", "best", "label", "confidence")
    np.testing.assert_array_equal(confidence, probs.max(axis=1))
    np.testing.assert_array_equal(label, np.argsort(-probs, axis=1, kind="stable")[:, :2])
    np.testing.assert_array_equal(best, np.take_along_axis(probs, label.astype(int), axis=1))
    assert (label[:, 0] != data[0].argmax(axis=1)).any()


def test_a_selection_that_is_not_of_the_calibrated_scores_is_not_written(moving, tmp_path, monkeypatch):
    model = selecting(
        helper.make_node("TopK", ["probs", "two"], ["best", "places"], axis=-1), extra=[value("best", ["batch", 2])]
    )
    monkeypatch.setattr("rhocal.onnx.consumers._is_along", lambda *_: True)
    model.graph.node[2].attribute.append(helper.make_attribute("largest", 0))
    with pytest.raises(parity.ParityError, match="nothing was written: output best"):
        export(moving, saved(model, tmp_path), tmp_path / "out.onnx", scores="probs")


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ([node("ReduceMax", "x", "most", axes=[1], keepdims=0)], ["batch"]),  # the largest logit
        ([node("ReduceMax", "probs", "most", axes=[0], keepdims=0)], [M]),  # of a class
        ([node("ReduceMax", "probs", "m", axes=[1], keepdims=0), node("Log", "m", "most")], ["batch"]),
        ([node("Neg", "probs", "n"), node("ReduceMax", "n", "most", axes=[1], keepdims=0)], ["batch"]),
    ],
)
def test_outputs_that_stay_uncalibrated_are_named(moving, tmp_path, nodes, shape):
    path = saved(selecting(*nodes, extra=[value("most", shape)]), tmp_path)
    with pytest.warns(RhocalWarning, match="still computed from uncalibrated scores: most"):
        done = export(moving, path, tmp_path / "out.onnx", scores="probs")
    assert (done.chosen, done.stale) == ((), ("most",))


def test_the_command_names_outputs_that_stay_uncalibrated(moving, tmp_path):
    moving.save(tmp_path / "cal.safetensors")
    path = saved(selecting(node("ReduceMax", "x", "most", axes=[1]), extra=[value("most", ["batch", 1])]), tmp_path)
    result = run("export", tmp_path / "cal.safetensors", path, "-o", tmp_path / "out.onnx", "--scores", "probs")
    assert result.returncode == 0
    assert "still computed from uncalibrated scores: most" in result.stderr
    assert "probs is proved with onnxruntime" in result.stdout
