"""Models as converters of scikit-learn and boosting libraries write them: old opsets, ZipMap, and a label beside the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

from rhocal.errors import InputError
from rhocal.onnx.ops import Builder, Node

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.onnx.graph import GraphSpec

NEW_OPSET, NEW_IR_VERSION = 17, 8
"""What a model gets whose own opset is older than a calibrator needs."""

SINGLE_INPUT = {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}
"""Nodes through which a label is followed to where it is decided."""


def standard_opset(model: Any) -> int | None:
    """The version of the standard operators that a model imports, if it does."""
    return next((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), None)


def upgraded(model: Any, oldest: int) -> Any:
    """The model with standard operators of at least the oldest version; the model itself if it has them."""
    opset = standard_opset(model)
    if opset is not None and opset >= oldest:
        return model
    new = onnx.ModelProto()
    new.CopyFrom(model)
    new.ir_version = max(new.ir_version, NEW_IR_VERSION)
    if opset is None:  # only operators of classifiers (ai.onnx.ml), which stay as they are
        new.opset_import.append(helper.make_opsetid("", NEW_OPSET))
        return new
    try:
        return version_converter.convert_version(new, NEW_OPSET)
    except Exception as error:
        raise InputError(
            f"the model has opset {opset}, a calibrator needs {oldest} or newer, and ONNX cannot convert the model ({error}); "
            "export the model again with a newer opset"
        ) from error


def without_zip_maps(model: Any) -> Any:
    """The model with tensors where outputs are lists of dictionaries (ZipMap); the model itself if it has none."""
    zips = {node.output[0]: node for node in model.graph.node if node.op_type == "ZipMap"}
    if not any(value.name in zips for value in model.graph.output):
        return model
    new = onnx.ModelProto()
    new.CopyFrom(model)
    graph = new.graph
    for k, value in enumerate(list(graph.output)):
        if value.name not in zips:
            continue
        node = next(one for one in graph.node if value.name in one.output)
        labels = _node_labels(node)
        graph.node.append(helper.make_node("Identity", [node.input[0]], [value.name]))
        graph.node.remove(node)
        shape = [None, None if labels is None else len(labels)]
        graph.output[k].CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, shape))
    return new


@dataclass(frozen=True)
class Label:
    """An output that holds the predicted class."""

    value: Any
    classes: NDArray[Any]
    """What it holds for each column of the scores."""


def find_label(model: Any, scores: str, n_classes: int) -> Label | None:
    """The output of a model that is the class decided from its scores."""
    for value in model.graph.output:
        element = value.type.tensor_type.elem_type
        if value.name == scores or element not in {TensorProto.INT64, TensorProto.INT32, TensorProto.STRING}:
            continue
        classes = _decided_classes(model.graph, value.name, n_classes)
        if classes is not None and len(classes) == n_classes and (classes.dtype.kind in "iu") == (element != 8):
            return Label(value, classes)
    return None


def check_class_order(label: Label | None, classes: NDArray[Any]) -> None:
    """Refuse a calibrator whose classes are those of the model in another order."""
    if label is None:
        return
    own, other = label.classes.astype(str).tolist(), classes.astype(str).tolist()
    if own != other and sorted(own) == sorted(other):
        raise InputError(
            f"the model has the classes {own} and the calibrator {other}: the same in another order. Fit the calibrator with "
            "the columns in the order of the model"
        )


def emit_label(
    builder: Builder, label: Label, scores: str, spec: GraphSpec, score_rank: int, single_column: int
) -> None:
    """Nodes that decide the class from calibrated scores; ties go to the first, as in NumPy."""
    decided = Node(builder, scores, "f")
    rank = len(label.value.type.tensor_type.shape.dim)
    if spec.one_score:
        double = builder.cast(decided, TensorProto.DOUBLE if builder.dtype == np.float64 else TensorProto.FLOAT)
        middle = builder.number({"probs": 0.5, "logits": 0.0}.get(spec.output, np.log(0.5)), "f")
        is_second = builder.node("Greater" if single_column == 1 else "Less", double, middle)
        index = builder.node("Cast", is_second, kind="i", to=TensorProto.INT64)
    else:
        axis = -1 if spec.perm is None else int(spec.perm[-1])
        index = builder.node("ArgMax", decided, kind="i", axis=axis, keepdims=int(rank == score_rank))
    if spec.one_score and not spec.flat and rank == 1:
        index = builder.node("Squeeze", index, builder.number([-1], "i"), kind="i")
    name_classes(builder, index, label)


def name_classes(builder: Builder, index: Node, label: Label) -> None:
    """Write the class of each column number."""
    target, element = label.value.name, label.value.type.tensor_type.elem_type
    names = f"{builder.prefix}{target}_classes"
    values = label.classes.astype(object if element == TensorProto.STRING else np.int64)
    if element == TensorProto.STRING:
        names_of_classes: Any = [str(one).encode() for one in values]  # the stubs of ONNX know numbers only
        tensor = helper.make_tensor(names, TensorProto.STRING, [len(values)], names_of_classes)
    else:
        tensor = numpy_helper.from_array(values, names)
    builder.initializers.append(tensor)
    label_values = target if element != TensorProto.INT32 else f"{target}_wide"
    builder.nodes.append(
        helper.make_node("Gather", [names, index.name], [label_values], name=f"{builder.prefix}{target}_node")
    )
    if label_values != target:
        builder.nodes.append(
            helper.make_node(
                "Cast", [label_values], [target], name=f"{builder.prefix}{target}_cast", to=TensorProto.INT32
            )
        )
    # Converters write lengths that are not true ([1] for a batch): only the number of axes is kept.
    for dim in label.value.type.tensor_type.shape.dim:
        dim.Clear()


def gives_probs(node: Any) -> bool:
    """Whether a node is a classifier that ends in a softmax or a logistic function, or normalizes to probabilities."""
    ends = next((attribute.s for attribute in node.attribute if attribute.name == "post_transform"), b"NONE")
    return node.op_type == "Normalizer" or (node.op_type.endswith("Classifier") and ends not in {b"NONE", b""})


def _decided_classes(graph: Any, name: str, n_classes: int) -> NDArray[Any] | None:
    """The classes that an output of labels can take, in the order of the scores' columns."""
    producers = {output: node for node in graph.node for output in node.output}
    seen: set[str] = set()
    table: NDArray[Any] | None = None
    while name in producers and name not in seen:
        seen.add(name)
        node = producers[name]
        labels = _node_labels(node)
        if labels is not None:
            return labels
        if node.op_type == "ArgMax":
            return np.arange(n_classes) if table is None else table
        if node.op_type in {"ArrayFeatureExtractor", "Gather"}:
            table = _constant(graph, node.input[0])
            name = node.input[1]
        elif node.op_type in SINGLE_INPUT:
            name = node.input[0]
        else:
            return None
    return None


def _node_labels(node: Any) -> NDArray[Any] | None:
    for attribute in node.attribute:
        if attribute.name in {"classlabels_int64s", "classlabels_ints"} and len(attribute.ints):
            return np.array(attribute.ints, dtype=np.int64)
        if attribute.name == "classlabels_strings" and len(attribute.strings):
            return np.array([one.decode() for one in attribute.strings])
    return None


def _constant(graph: Any, name: str) -> NDArray[Any] | None:
    tensor = next((one for one in graph.initializer if one.name == name), None)
    if tensor is None:
        return None
    array = np.asarray(numpy_helper.to_array(tensor)).ravel()
    return array.astype(str) if array.dtype.kind in "OS" else array
