"""What else a user's model computes from its scores: selections of them are made again, other outputs are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from rhocal.onnx.parity import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

SELECTIONS = {"ArgMax", "TopK", "ReduceMax"}
"""Nodes that choose among the scores of a row, and compute nothing."""

CARRYING = {
    "Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Slice", "Split", "Gather",
    "ArrayFeatureExtractor",
}  # fmt: skip
"""Nodes through which what was chosen comes to an output."""

SAME_SCORES = {
    "Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Clip", "Softmax", "LogSoftmax", "Sigmoid",
}  # fmt: skip
"""Nodes whose result is the same scores in another form."""


def select_again(
    graph: Any, old: str, new: str, axis: int, rank: int, kind: str | None
) -> tuple[list[Any], list[Any], list[Any]]:
    """The nodes before the calibrator, those behind it, and the selections among these, which read the calibrated scores.

    Selections move that lead to outputs alone. ``kind`` is what both scores are, None where they differ: then only the class
    with the largest score means what it meant. The largest logit is no confidence, and may be meant as it was.
    """
    same = _renamed(graph, old)
    nodes = []
    for node in graph.node:
        nodes.append(onnx.NodeProto())
        nodes[-1].CopyFrom(node)
    moved: set[int] = set()
    selections = []
    for k, node in enumerate(nodes):
        is_certain = node.op_type == "ArgMax" or (kind is not None and (node.op_type == "TopK" or kind != "logits"))
        if node.op_type not in SELECTIONS or node.input[0] not in same or not is_certain:
            continue
        carriers = _carriers(graph, nodes, k)
        if carriers is not None and _is_along(graph, node, axis, rank):
            node.input[0] = new
            selections.append(node)
            moved |= carriers
    own = [node for k, node in enumerate(nodes) if k not in moved]
    return own, [nodes[k] for k in sorted(moved)], selections


def stale_outputs(graph: Any, nodes: Sequence[Any], old: str, source: str) -> list[str]:
    """The outputs that ``nodes``, those of the model itself, compute from scores that are not calibrated."""
    producers = {output: node for node in nodes for output in node.output}
    stale, name = {source, old}, old
    while (node := producers.get(name)) is not None and node.op_type in SAME_SCORES:
        name = node.input[0]
        stale.add(name)
    for node in nodes:
        if stale & reads(node):
            stale |= set(node.output)
    return [value.name for value in graph.output if value.name in stale]


def reads(node: Any) -> set[str]:
    """The tensors that a node reads, also in its branches and bodies."""
    names = set(node.input) - {""}
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            names |= {name for one in inner.node for name in reads(one)} | {value.name for value in inner.output}
    return names


def check_selections(nodes: Sequence[Any], values: Mapping[str, NDArray[Any]], scores: NDArray[Any], axis: int) -> None:
    """Raise an error if what a node chose is not in the calibrated scores where it ought to be."""
    for node in nodes:
        got = values[node.output[0]]
        if node.op_type == "TopK":
            chosen = np.take_along_axis(scores, values[node.output[1]], axis)
            is_right = np.array_equal(got, -np.sort(-scores, axis=axis).take(range(got.shape[axis]), axis))
            is_right &= np.array_equal(got, chosen)
        else:
            choose = np.argmax if node.op_type == "ArgMax" else np.max
            is_right = np.array_equal(got.ravel(), choose(scores, axis=axis).ravel())
        if not is_right:
            raise ParityError(f"nothing was written: output {node.output[0]} is not chosen from the calibrated scores")


def _renamed(graph: Any, name: str) -> set[str]:
    """A tensor under all its names."""
    same = {name}
    pairs = [{node.input[0], node.output[0]} for node in graph.node if node.op_type == "Identity"]
    while any(same & pair and not pair <= same for pair in pairs):
        same |= {one for pair in pairs if same & pair for one in pair}
    return same


def _carriers(graph: Any, nodes: Sequence[Any], place: int) -> set[int] | None:
    """The places of a node and of those behind it; None where they compute something, or nothing that is an output."""
    names, places = set(nodes[place].output), {place}
    for k, node in enumerate(nodes):
        if names & reads(node):
            if node.op_type not in CARRYING:
                return None
            names |= set(node.output)
            places.add(k)
    return places if names & {value.name for value in graph.output} else None


def _is_along(graph: Any, node: Any, axis: int, rank: int) -> bool:
    """Whether a selection is one of the largest scores among the classes."""
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    if node.op_type == "ReduceMax":
        axes = attributes.get("axes")
        if axes is None and len(node.input) > 1:
            axes = constant(graph, node.input[1])
        own = None if axes is None or len(axes) != 1 else int(axes[0])
    else:
        own = attributes.get("axis", -1 if node.op_type == "TopK" else 0)
    if own is None or not attributes.get("largest", 1) or not attributes.get("sorted", 1):
        return False
    return bool(own == axis or (rank and own % rank == axis % rank))


def constant(graph: Any, name: str) -> NDArray[Any] | None:
    """The value of a tensor that is stored in the model, as a vector; None for others."""
    tensor = next((one for one in graph.initializer if one.name == name), None)
    if tensor is None:
        made = next((node for node in graph.node if name in node.output and node.op_type == "Constant"), None)
        tensor = None if made is None else next((one.t for one in made.attribute if one.name == "value"), None)
    return None if tensor is None else np.asarray(numpy_helper.to_array(tensor)).ravel()
