"""A calibrator as nodes between two named tensors, and as a model of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from rhocal import __version__
from rhocal.calibrators.map import calibrate, two_columns
from rhocal.calibrators.policies.policy import decide_rows
from rhocal.onnx.classifiers import Label, name_classes
from rhocal.onnx.ops import Builder, Node, OnnxOps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.map import Map
    from rhocal.calibrators.policies.policy import Policy

OPSET = 17
"""Of models of our own: old enough for every runtime in use."""

IR_VERSION = 8
"""That belongs to it."""

PREFIX = "rhocal_"


@dataclass(frozen=True)
class GraphSpec:
    """What a graph takes and gives."""

    output: str
    """``probs``, ``logits`` or ``log_probs``."""
    element: int = TensorProto.FLOAT
    """The type of the tensors at both ends."""
    opset: int = OPSET
    perm: tuple[int, ...] | None = None
    """The order of axes that puts the classes last, if they are not."""
    one_score: bool = False
    """One score for the positive class of two, in an axis of length 1 or (``flat``) without an axis."""
    flat: bool = False


@dataclass(frozen=True, eq=False)
class DecisionOutputs:
    """The policy of a graph, and the names of its outputs."""

    policy: Policy
    classes: NDArray[Any]
    decided: str = "decided"
    action: str = "action"
    set: str = "set"
    """The prediction sets, if the policy has them."""

    def values(self, shape: list[Any], axis: int = -1) -> list[Any]:
        """Descriptions of the outputs; ``shape`` is without the axis of the classes, which sets have at ``axis``."""
        element = TensorProto.STRING if self.classes.dtype.kind not in "iub" else TensorProto.INT64
        values = [
            helper.make_tensor_value_info(self.decided, element, shape),
            helper.make_tensor_value_info(self.action, TensorProto.INT64, shape),
        ]
        if self.policy.sets is not None:
            at = axis % (len(shape) + 1)
            wide = [*shape[:at], len(self.classes), *shape[at:]]
            values.append(helper.make_tensor_value_info(self.set, TensorProto.BOOL, wide))
        return values


def emit_decisions(builder: Builder, ops: OnnxOps, probs: Node, outputs: DecisionOutputs, spec: GraphSpec) -> None:
    """Nodes that decide from probabilities with the classes on the last axis; sets have the axes of the scores."""
    numbers = {**outputs.policy.arrays, "order": np.arange(len(outputs.classes), dtype=np.float64)}
    held = {name: builder.constant(f"policy_{name}", value) for name, value in numbers.items()}
    column, automated, included = decide_rows(ops, outputs.policy, held, probs)
    column, automated = (
        builder.node("Cast", builder.node("Squeeze", one, builder.number([-1], "i")), kind="i", to=TensorProto.INT64)
        for one in (column, automated)
    )
    if included is not None:
        if spec.perm:
            included = builder.node("Transpose", included, perm=[int(k) for k in np.argsort(spec.perm)])
        node = helper.make_node(
            "Cast", [included.name], [outputs.set], name=f"{builder.prefix}set_node", to=TensorProto.BOOL
        )
        builder.nodes.append(node)
    decided = outputs.values([])[0]
    name_classes(builder, column, Label(decided, outputs.classes))
    builder.nodes.append(
        helper.make_node("Identity", [automated.name], [outputs.action], name=f"{builder.prefix}action_node")
    )


def emit(
    map_: Map,
    source: str,
    target: str,
    spec: GraphSpec,
    prefix: str = PREFIX,
    decisions: DecisionOutputs | None = None,
) -> Builder:
    """Nodes from the tensor ``source`` (scores) to the tensor ``target``, and to decisions if there is a policy."""
    double = map_.is_wide or spec.element == TensorProto.DOUBLE
    builder = Builder(prefix, spec.opset, np.float64 if double else np.float32)
    ops = OnnxOps(builder, map_.n_classes)
    x = Node(builder, source, "f")
    x = builder.cast(x, TensorProto.DOUBLE if double else TensorProto.FLOAT)
    if spec.flat:
        x = builder.node("Unsqueeze", x, builder.number([-1], "i"))
    elif spec.perm:
        x = builder.node("Transpose", x, perm=spec.perm)
    if spec.one_score:
        x = two_columns(ops, map_, x)
    held = {name: builder.constant(name.replace(".", "_"), value) for name, value in map_.arrays.items()}
    is_rounded = spec.element != TensorProto.DOUBLE
    out = calibrate(ops, map_, {**map_.parameters, **held}, x, probs=spec.output == "probs", is_rounded=is_rounded)
    if decisions is not None:
        emit_decisions(builder, ops, out if spec.output == "probs" else ops.softmax(out), decisions, spec)
    if spec.output == "log_probs":
        out = ops.log_softmax(out)
    if spec.one_score:
        own = ops.column(out, map_.single_column)
        out = own - ops.column(out, 1 - map_.single_column) if spec.output == "logits" else own
    if spec.flat:
        out = builder.node("Squeeze", out, builder.number([-1], "i"))
    elif spec.perm:
        out = builder.node("Transpose", out, perm=[int(k) for k in np.argsort(spec.perm)])
    builder.nodes.append(helper.make_node("Cast", [out.name], [target], name=f"{prefix}result_node", to=spec.element))
    used = {name for node in builder.nodes for name in node.input}
    builder.initializers = [one for one in builder.initializers if one.name in used]
    return builder


def standalone(
    map_: Map,
    spec: GraphSpec,
    *,
    names: tuple[str, str],
    about: dict[str, str],
    decisions: DecisionOutputs | None = None,
) -> Any:
    """A model that is nothing but the calibrator, and its policy if it has one."""
    builder = emit(map_, names[0], names[1], spec, decisions=decisions)
    width = 1 if spec.one_score else map_.n_classes
    shape: list[Any] = ["n_samples"] if spec.flat else ["n_samples", width]
    if spec.perm:
        shape = [f"axis_{k}" for k in range(len(spec.perm))]
        shape[spec.perm[-1]] = width
    values = [helper.make_tensor_value_info(name, spec.element, shape) for name in names]
    if decisions is not None:
        axis = len(shape) if spec.flat else (spec.perm[-1] if spec.perm else len(shape) - 1)
        values += decisions.values([name for k, name in enumerate(shape) if k != axis], axis)
    graph = helper.make_graph(builder.nodes, "calibrator", values[:1], values[1:], builder.initializers)
    model = helper.make_model(
        graph,
        producer_name="rhocal",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", spec.opset)],
    )
    model.ir_version = max(IR_VERSION, helper.find_min_ir_version_for([helper.make_opsetid("", spec.opset)]))
    helper.set_model_props(model, about)
    return model
