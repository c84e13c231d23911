"""The operations of maps as nodes of an ONNX graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from rhocal.numerics.ops import Ops, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

AXES_ARE_INPUTS = 18
"""From this opset on ReduceMax and ReduceMean take their axes as an input."""


class Builder:
    """Nodes and numbers of a graph that grows; all names begin with a prefix, so that they meet no other's."""

    def __init__(self, prefix: str, opset: int, dtype: type[np.floating[Any]]) -> None:
        self.prefix, self.opset, self.dtype = prefix, opset, np.dtype(dtype)
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._numbers: dict[tuple[str, Any], Node] = {}

    def node(self, op: str, *inputs: Node, kind: str = "f", **attributes: Any) -> Node:
        """Add a node with one output that is used."""
        name = f"{self.prefix}{op.lower()}_{len(self.nodes)}"
        outputs = [name] if op != "TopK" else [name, f"{name}_places"]
        self.nodes.append(
            helper.make_node(op, [one.name for one in inputs], outputs, name=f"{name}_node", **attributes)
        )
        return Node(self, name, kind)

    def constant(self, name: str, value: NDArray[Any]) -> Node:
        """Add a fitted number or table; floats in the type of the computation."""
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(self.dtype)
        full = self.prefix + name
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), full))
        return Node(self, full, array.dtype.kind)

    def number(self, value: Any, kind: str) -> Node:
        """A plain number (or short list of whole ones) of the formula."""
        key = (kind, str(value))
        if key not in self._numbers:
            dtype = self.dtype if kind == "f" else np.dtype(np.int64)
            self._numbers[key] = self.constant(f"number_{len(self._numbers)}", np.asarray(value, dtype))
        return self._numbers[key]

    def cast(self, x: Node, to: int) -> Node:
        """Change the type."""
        return self.node("Cast", x, kind="f", to=to)


def _operator(op: str, *, is_swapped: bool = False, kind: str | None = None) -> Callable[[Node, Any], Node]:
    """A Python operator as a node of the graph."""

    def apply(node: Node, other: Any) -> Node:
        value = other if isinstance(other, Node) else node.builder.number(other, node.kind)
        pair = (value, node) if is_swapped else (node, value)
        return node.builder.node(op, *pair, kind=kind or node.kind)

    return apply


class Node:
    """A value of the graph; ``kind`` is that of NumPy's types: f, i or b."""

    def __init__(self, builder: Builder, name: str, kind: str) -> None:
        self.builder, self.name, self.kind = builder, name, kind

    __add__ = __radd__ = _operator("Add")
    __sub__, __rsub__ = _operator("Sub"), _operator("Sub", is_swapped=True)
    __mul__ = __rmul__ = _operator("Mul")
    __truediv__, __rtruediv__ = _operator("Div"), _operator("Div", is_swapped=True)
    __lt__, __le__ = _operator("Less", kind="b"), _operator("LessOrEqual", kind="b")
    __gt__, __ge__ = _operator("Greater", kind="b"), _operator("GreaterOrEqual", kind="b")

    def __neg__(self) -> Node:
        return self.builder.node("Neg", self, kind=self.kind)

    def __getitem__(self, k: int) -> Node:
        return self.builder.node("Gather", self, self.builder.number(k, "i"), axis=0)


class OnnxOps(Ops):
    """Operations as nodes, the classes on the last axis."""

    def __init__(self, builder: Builder, n_classes: int) -> None:
        self.builder, self.n_classes = builder, n_classes
        limits = np.finfo(builder.dtype)
        self.tiny, self.eps = float(limits.tiny), float(limits.eps)

    def max(self, x: Value) -> Value:
        return self._reduced("ReduceMax", x)

    def sum(self, x: Value) -> Value:
        return self.builder.node("ReduceSum", x, self.builder.number([-1], "i"), keepdims=1)

    def mean(self, x: Value) -> Value:
        return self._reduced("ReduceMean", x)

    def cumsum(self, x: Value) -> Value:
        return self.builder.node("CumSum", x, self.builder.number(-1, "i"))

    def sort(self, x: Value) -> Value:
        return self.builder.node("TopK", x, self.builder.number([self.n_classes], "i"), axis=-1, largest=0, sorted=1)

    def top(self, x: Value, k: int) -> Value:
        return self.builder.node("TopK", x, self.builder.number([k], "i"), axis=-1, largest=1, sorted=1)

    def exp(self, x: Value) -> Value:
        return self.builder.node("Exp", x)

    def log(self, x: Value) -> Value:
        return self.builder.node("Log", x)

    def abs(self, x: Value) -> Value:
        return self.builder.node("Abs", x)

    def sqrt(self, x: Value) -> Value:
        return self.builder.node("Sqrt", x)

    def tanh(self, x: Value) -> Value:
        return self.builder.node("Tanh", x)

    def power(self, x: Value, exponent: Value) -> Value:
        return self.builder.node("Pow", x, self._value(exponent))

    def maximum(self, x: Value, y: Value) -> Value:
        return self.builder.node("Max", x, self._value(y))

    def minimum(self, x: Value, y: Value) -> Value:
        return self.builder.node("Min", x, self._value(y))

    def where(self, condition: Value, x: Value, y: Value) -> Value:
        first, second = self._value(x), self._value(y)
        return self.builder.node("Where", condition, first, second, kind=first.kind)

    def take(self, table: Value, index: Value) -> Value:
        return self.builder.node("Gather", table, index, kind=table.kind, axis=0)

    def take_in_rows(self, x: Value, index: Value) -> Value:
        return self.builder.node("GatherElements", x, index, kind=x.kind, axis=-1)

    def matmul(self, x: Value, weight: Value) -> Value:
        return self.builder.node("MatMul", x, weight)

    def concat(self, parts: Sequence[Value]) -> Value:
        return self.builder.node("Concat", *parts, axis=-1)

    def column(self, x: Value, k: int) -> Value:
        return self.builder.node("Gather", x, self.builder.number([k], "i"), axis=-1)

    def _reduced(self, op: str, x: Value) -> Value:
        if self.builder.opset >= AXES_ARE_INPUTS:
            return self.builder.node(op, x, self.builder.number([-1], "i"), keepdims=1)
        return self.builder.node(op, x, axes=[-1], keepdims=1)

    def _value(self, x: Value) -> Node:
        if isinstance(x, Node):
            return x
        return self.builder.number(x, "i" if isinstance(x, int) else "f")


ELEMENTS = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
}
"""Types of outputs that can be calibrated."""
