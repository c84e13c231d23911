"""A calibrator behind a user's model: at its logits, or in the place of its final Softmax."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import onnx
from onnx import TensorProto, helper

from rhocal import __version__
from rhocal.calibrators.exporting import exported_map
from rhocal.errors import InputError, one_line
from rhocal.onnx.classifiers import (
    Label,
    check_class_order,
    emit_label,
    find_label,
    gives_probs,
    standard_opset,
    upgraded,
    without_zip_maps,
)
from rhocal.onnx.consumers import select_again, stale_outputs
from rhocal.onnx.graph import PREFIX, DecisionOutputs, GraphSpec, emit
from rhocal.onnx.ops import ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Collection

    from rhocal.calibrators import Calibrator

OLDEST_OPSET = 13
"""Before it Softmax means something else, and reductions take their axes otherwise."""

LARGEST_FILE = 2**31 - 2**20
"""Bytes that one file of the format can hold; more go into a file of their own beside it."""

NORMALIZERS = {"Softmax": "probs", "LogSoftmax": "log_probs"}
RESHAPING = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "Clip"}
TRANSPARENT = {"Identity", "Cast"}
"""Nodes through which a final Softmax is still seen."""


@dataclass(frozen=True)
class Place:
    """Where the calibrator goes."""

    name: str
    """The output of the model that becomes calibrated."""
    source: str
    """The tensor it reads in the new model: the input of the Softmax it replaces, or what was the output before."""
    replaces: str
    """The kind of node it replaces, or nothing."""
    spec: GraphSpec
    label: Label | None = None
    """The output of the model that holds the predicted class, if there is one."""
    was: str = ""
    """What the output held before: ``logits``, ``probs`` or ``log_probs``."""
    selections: tuple[Any, ...] = ()
    """Other nodes that choose among the scores, and choose among the calibrated ones now."""
    chosen: tuple[str, ...] = ()
    """The outputs that hold what they choose."""
    stale: tuple[str, ...] = ()
    """Outputs that are still computed from scores that are not calibrated."""


def attach(
    model: Any, cal: Calibrator, scores: str | None = None, *, write: str = "same", class_axis: int = -1
) -> tuple[Any, Place]:
    """A copy of an ONNX model whose output ``scores`` is calibrated, and whose label is decided from it; all else stays.

    What converters of scikit-learn and boosting libraries write is taken as well: an opset that is too old is upgraded, and a
    list of dictionaries (ZipMap) becomes a tensor.

    Parameters
    ----------
    scores
        The name of the model's output that holds them; may be left out if there is only one that fits.
    write
        ``"same"``: logits stay logits, and where a final Softmax is replaced probabilities stay probabilities.
        ``"probs"`` or ``"logits"`` say otherwise.
    class_axis
        The axis of the classes.
    """
    if write not in {"same", "probs", "logits"}:
        raise InputError(f"write is same, probs or logits; got {write!r}")
    map_ = exported_map(cal)
    check_model(model)
    model = upgraded(without_zip_maps(model), OLDEST_OPSET)
    value = chosen_output(model, scores, map_.n_classes, class_axis)
    place = find_place(model, value, cal, write, class_axis, standard_opset(model) or 0)
    check_class_order(place.label, cal.classes_)
    prefix = unused_prefix(model.graph)
    before = f"{prefix}{place.name}_before"
    place = replace(place, source=place.source or before)
    new = onnx.ModelProto()
    new.CopyFrom(model)
    graph = new.graph
    rename(graph, place.name, before)
    decisions = decision_outputs(cal, {value.name for value in graph.output})
    builder = emit(map_, place.source, place.name, place.spec, prefix, decisions)
    if decisions is not None:
        n_axes = max(len(shape_of(value) or (0, 0)) - (not place.spec.flat), 0)
        graph.output.extend(decisions.values([None] * n_axes, place.spec.perm[-1] if place.spec.perm else -1))
    if place.label is not None:
        label = next(value for value in graph.output if value.name == place.label.value.name)
        rename(graph, label.name, f"{prefix}{label.name}_before")
        rank = len(shape_of(value) or ())
        emit_label(builder, replace(place.label, value=label), place.name, place.spec, rank, map_.single_column)
    place = _connect(graph, builder, place, before, class_axis, len(shape_of(value) or ()))
    if place.replaces:
        _drop_unused(graph, before)
    props = {prop.key: prop.value for prop in new.metadata_props}
    helper.set_model_props(new, {**props, **about(cal)})
    return new, place


def _connect(graph: Any, builder: Any, place: Place, before: str, class_axis: int, rank: int) -> Place:
    """Append the calibrator, and let what else is chosen from the scores be chosen from the calibrated ones."""
    own, behind, selections = list(graph.node), list[Any](), list[Any]()
    if not place.spec.one_score:
        kind = place.was if place.spec.output == place.was else None
        own, behind, selections = select_again(graph, before, place.name, class_axis, rank, kind)
    stale = stale_outputs(graph, own, before, place.source)
    nodes = [*own, *builder.nodes, *behind]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(builder.initializers)
    written = {name for node in behind for name in node.output}
    chosen = tuple(value.name for value in graph.output if value.name in written)
    return replace(place, selections=tuple(selections), chosen=chosen, stale=tuple(stale))


def decision_outputs(cal: Calibrator, taken: Collection[str] = ()) -> DecisionOutputs | None:
    """The outputs of a calibrator's policy, if it has one, under names that are free."""
    if cal.policy_ is None:
        return None
    names = [name if name not in taken else f"{PREFIX}{name}" for name in ("decided", "action", "set")]
    return DecisionOutputs(cal.policy_, cal.classes_, *names)


def check_model(model: Any, *, full_check: bool = False) -> None:
    """Raise an error for a model that is not valid: a graph with a cycle, nodes without inputs, tensors of unknown origin.

    A model that is too large for one file of the format is not checked in whole, but its nodes must be in order.
    """
    try:
        if model.ByteSize() < LARGEST_FILE:
            onnx.checker.check_model(model, full_check=full_check)
    except Exception as error:  # errors of ONNX are of several types
        raise InputError(f"the ONNX model is not valid: {one_line(error)}") from error
    later = {name for node in model.graph.node for name in node.output if name}
    for node in model.graph.node:
        unmade = [name for name in node.input if name in later]
        if unmade:
            raise InputError(f"the ONNX model is not valid: tensor {unmade[0]!r} is read before it is computed")
        later.difference_update(node.output)


def about(cal: Calibrator) -> dict[str, str]:
    """Metadata of the calibrator in an exported model."""
    return {"rhocal.method": cal.label, "rhocal.version": __version__, "rhocal.calibrator": repr(cal)}


def chosen_output(model: Any, name: str | None, n_classes: int, class_axis: int) -> Any:
    """The output to calibrate."""
    outputs = list(model.graph.output)
    listed = "; ".join(describe(value) for value in outputs)
    if name is not None:
        for value in outputs:
            if value.name == name:
                return _checked(value, n_classes, class_axis)
        raise InputError(f"the model has no output {name!r}; it has {listed}")
    if len(outputs) == 1:
        return _checked(outputs[0], n_classes, class_axis)
    fitting = [value for value in outputs if fits(value, n_classes, class_axis)]
    if len(fitting) == 1:
        return fitting[0]
    raise InputError(
        f"the model has several outputs: {listed}", argument="scores", remedy="name the one that holds the scores"
    )


def describe(value: Any) -> str:
    """Name, type and shape."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        return f"{value.name} (not a tensor)"
    kind = ELEMENTS.get(tensor.elem_type, TensorProto.DataType.Name(tensor.elem_type).lower())
    return f"{value.name} ({kind}, {shape_of(value)})"


def shape_of(value: Any) -> list[Any] | None:
    """Lengths, names and None for what is not known."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]


def fits(value: Any, n_classes: int, class_axis: int) -> bool:
    """Whether an output can hold the scores."""
    try:
        _checked(value, n_classes, class_axis)
    except InputError:
        return False
    shape = shape_of(value)
    return shape is not None and isinstance(shape[class_axis], int)


def _checked(value: Any, n_classes: int, class_axis: int) -> Any:
    if not value.type.HasField("tensor_type"):
        raise InputError(f"output {value.name} is not a tensor")
    if value.type.tensor_type.elem_type not in ELEMENTS:
        raise InputError(f"output {describe(value)} does not hold floating-point scores")
    shape = shape_of(value)
    if shape is None:
        return value
    if not shape or not -len(shape) <= class_axis < len(shape):
        raise InputError(f"output {describe(value)} has no axis {class_axis}")
    n_columns = shape[class_axis]
    one_score = n_classes == 2 and (n_columns == 1 or len(shape) == 1)
    if isinstance(n_columns, int) and n_columns != n_classes and not one_score:
        raise InputError(
            f"output {describe(value)} has {n_columns} classes on axis {class_axis}, but the calibrator was fitted with "
            f"{n_classes}",
            argument="class_axis",
            remedy="name the axis of the classes",
        )
    return value


def find_place(model: Any, value: Any, cal: Calibrator, write: str, class_axis: int, opset: int) -> Place:
    """Which tensor the calibrator reads and what it writes."""
    last = producer(model.graph, value.name)
    replaces = source = ""
    if last is not None and cal.kind_ == "logits":
        if last.op_type in NORMALIZERS:
            _check_axis(last, class_axis, shape_of(value))
            replaces, source = last.op_type, last.input[0]
        elif last.op_type == "Sigmoid":
            if not _one_score(shape_of(value)):
                raise InputError(
                    f"output {value.name} ends in a Sigmoid for each class, which is not one decision among classes"
                )
            replaces, source = last.op_type, last.input[0]
        else:
            _refuse_hidden_softmax(model.graph, value.name)
    meaning = NORMALIZERS.get(replaces, "probs" if replaces else cal.kind_)
    return Place(
        value.name,
        source,
        replaces,
        GraphSpec(
            meaning if write == "same" else write,
            value.type.tensor_type.elem_type,
            opset,
            _perm(shape_of(value), class_axis, value.name),
            _one_score(shape_of(value)) and len(cal.classes_) == 2,
            len(shape_of(value) or ()) == 1,
        ),
        find_label(model, value.name, len(cal.classes_)),
        meaning,
    )


def _refuse_hidden_softmax(graph: Any, name: str) -> None:
    """Probabilities must not be taken for logits."""
    node = producer(graph, name)
    for _ in range(len(graph.node)):
        if node is None or node.op_type not in RESHAPING:
            break
        node = producer(graph, node.input[0])
    if node is not None and (node.op_type in {*NORMALIZERS, "Sigmoid"} or gives_probs(node)):
        raise InputError(
            f"output {name} holds probabilities: they come from a {node.op_type}. The calibrator was fitted on "
            "logits: export the model without this node, or fit the calibrator on the probabilities",
            argument="kind='probs'",
            remedy="fit on probabilities",
        )


def _one_score(shape: list[Any] | None) -> bool:
    return shape is not None and (len(shape) == 1 or shape[-1] == 1)


def _perm(shape: list[Any] | None, class_axis: int, name: str) -> tuple[int, ...] | None:
    if class_axis == -1:
        return None
    if shape is None:
        raise InputError(f"the number of axes of output {name} is not in the model; class_axis needs it")
    axis = class_axis % len(shape)
    return None if axis == len(shape) - 1 else (*(k for k in range(len(shape)) if k != axis), axis)


def _check_axis(node: Any, class_axis: int, shape: list[Any] | None) -> None:
    axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
    rank = len(shape) if shape else 0
    if axis != class_axis and not (rank and axis % rank == class_axis % rank):
        raise InputError(
            f"the model's {node.op_type} runs over axis {axis}",
            argument=f"class_axis={axis}",
            remedy="calibrate along the same axis",
        )


def producer(graph: Any, name: str) -> Any:
    """The node that makes a tensor, looking through those that change nothing."""
    producers = {output: node for node in graph.node for output in node.output}
    node = producers.get(name)
    for _ in range(len(graph.node)):  # more steps than nodes: a cycle
        if node is None or node.op_type not in TRANSPARENT or node.input[0] not in producers:
            return node
        node = producers[node.input[0]]
    raise InputError(f"the ONNX model is not valid: a cycle leads to tensor {name!r}")


def rename(graph: Any, old: str, new: str) -> None:
    """Give a tensor inside a graph another name; the graph's outputs keep theirs."""
    for node in graph.node:
        for names in (node.input, node.output):
            for k, name in enumerate(names):
                if name == old:
                    names[k] = new
        for inner in inner_graphs(node):
            rename(inner, old, new)
            for output in inner.output:
                output.name = new if output.name == old else output.name
    for value in graph.value_info:
        value.name = new if value.name == old else value.name


def inner_graphs(node: Any) -> list[Any]:
    """The branches and bodies of a node (If, Loop, Scan)."""
    return [g for a in node.attribute for g in (a.g, *a.graphs) if len(g.node) or len(g.output)]


def unused_prefix(graph: Any) -> str:
    """A prefix that no name of the graph begins with: a model may be calibrated twice."""
    names = [name for node in graph.node for name in (*node.input, *node.output, node.name)]
    names += [one.name for one in graph.initializer]
    prefix, k = PREFIX, 1
    while any(name.startswith(prefix) for name in names):
        k += 1
        prefix = f"{PREFIX}{k}_"
    return prefix


def _drop_unused(graph: Any, name: str) -> None:
    """Remove what the calibrator replaced, as far as nothing else reads it."""
    outputs = {value.name for value in graph.output}
    while name:
        used = {one for node in graph.node for one in node.input} | outputs | _inner_inputs(graph)
        node = next((node for node in graph.node if name in node.output), None)
        if name in used or node is None or node.op_type not in {*NORMALIZERS, *TRANSPARENT, "Sigmoid"}:
            return
        final = node.op_type not in TRANSPARENT
        stale = [value for value in graph.value_info if value.name == name]
        name = "" if final else node.input[0]
        graph.node.remove(node)
        for value in stale:
            graph.value_info.remove(value)


def _inner_inputs(graph: Any) -> set[str]:
    names: set[str] = set()
    for node in graph.node:
        for inner in inner_graphs(node):
            names |= {name for inner_node in inner.node for name in inner_node.input} | _inner_inputs(inner)
            names |= {value.name for value in inner.output}
    return names
