"""Small ONNX models whose input is the scores of a classifier."""

import onnx
import onnxruntime
from onnx import TensorProto, helper

M = 5
"""Classes."""


def graph(*nodes, outputs, dtype=TensorProto.FLOAT, opset=17, shape=("batch", M), extra=()):
    """A model whose input x is the scores."""
    model = helper.make_model(
        helper.make_graph(
            list(nodes), "model", [helper.make_tensor_value_info("x", dtype, shape)],
            [helper.make_tensor_value_info(name, dtype, shape) for name in outputs] + list(extra),
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        producer_name="somebody",
    )  # fmt: skip
    model.ir_version = 8
    helper.set_model_props(model, {"author": "me"})
    return model


def node(op, source, target, **attributes):
    return helper.make_node(op, [source], [target], **attributes)


def saved(model, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    return path


def answer(path, x, *names):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(list(names) or None, {session.get_inputs()[0].name: x})
