"""A fitted map as a program: a list of instructions on the scores of one sample, for JSON, SQL and other languages.

``ProgramOps`` records what the formula of a map does. A value has one number for each class, or a single one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.exporting import exported_map
from rhocal.calibrators.map import calibrate, two_columns
from rhocal.errors import InputError
from rhocal.numerics.ops import Ops, Parameters
from rhocal.numerics.special import DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rhocal.calibrators import Calibrator

LARGE = 1e200
"""In place of infinity, which few languages can write down; log-odds are cut at 1e100."""

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Instruction:
    """One operation on results of earlier ones, which ``args`` counts from 0."""

    op: str
    args: tuple[int, ...]
    width: int
    """Numbers of its result."""
    data: Any = None
    """What else it needs: numbers of ``constant`` and ``matmul``, tables for each column, k of ``column`` and ``top``."""


@dataclass
class Program:
    """Instructions in order, and which of them hold the results."""

    n_inputs: int
    instructions: list[Instruction] = field(default_factory=list)
    probs: int = -1
    scores: int = -1
    """What the predicted class is the largest of: calibrated logits of maps that keep the decision, else probabilities."""
    known: dict[Key, int] = field(default_factory=dict)

    def add(self, op: str, args: Sequence[Value], width: int, data: Any = None) -> Value:
        """Record an instruction; one that is there already is not repeated."""
        places = tuple(value.index for value in args)
        key = (op, places, width, repr(data) if isinstance(data, float | int | None) else str(data))
        if key not in self.known:
            self.known[key] = len(self.instructions)
            self.instructions.append(Instruction(op, places, width, data))
        return Value(self, self.known[key], width)

    def value(self, x: Any) -> Value:
        """A recorded value; numbers become a constant."""
        if isinstance(x, Value):
            return x
        array = np.ravel(np.asarray(x))
        if array.dtype.kind != "b":
            array = np.clip(array.astype(np.float64), -LARGE, LARGE)
        return self.add("constant", (), len(array), array.tolist())


def _operator(op: str, *, is_swapped: bool = False) -> Callable[[Value, Any], Value]:
    def apply(self: Value, other: Any) -> Value:
        pair = (self.program.value(other), self) if is_swapped else (self, self.program.value(other))
        return self.program.add(op, pair, max(pair[0].width, pair[1].width))

    return apply


class Value:
    """The result of an instruction, with Python's operators."""

    __array_ufunc__ = None  # NumPy leaves operators to this class

    def __init__(self, program: Program, index: int, width: int) -> None:
        self.program, self.index, self.width = program, index, width

    __add__, __radd__ = _operator("add"), _operator("add", is_swapped=True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", is_swapped=True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", is_swapped=True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", is_swapped=True)
    __lt__, __gt__ = _operator("less"), _operator("less", is_swapped=True)
    __le__, __ge__ = _operator("less_equal"), _operator("less_equal", is_swapped=True)

    def __neg__(self) -> Value:
        return 0.0 - self


class ProgramOps(Ops):
    """Records operations, in double precision."""

    tiny, eps = float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).eps)

    def __init__(self, program: Program) -> None:
        self.program = program

    def max(self, x: Any) -> Value:
        return self._reduce("max", x)

    def sum(self, x: Any) -> Value:
        return self._reduce("sum", x)

    def mean(self, x: Any) -> Value:
        return self._reduce("mean", x)

    def cumsum(self, x: Any) -> Value:
        return self._map("cumsum", x)

    def sort(self, x: Any) -> Value:
        return self._map("sort", x)

    def exp(self, x: Any) -> Value:
        return self._map("exp", x)

    def log(self, x: Any) -> Value:
        return self._map("log", x)

    def abs(self, x: Any) -> Value:
        return self._map("abs", x)

    def sqrt(self, x: Any) -> Value:
        return self._map("sqrt", x)

    def tanh(self, x: Any) -> Value:
        return self._map("tanh", x)

    def maximum(self, x: Any, y: Any) -> Value:
        return self._map("maximum", x, y)

    def minimum(self, x: Any, y: Any) -> Value:
        return self._map("minimum", x, y)

    def power(self, x: Any, exponent: Any) -> Value:
        return self._map("power", x, exponent)

    def where(self, condition: Any, x: Any, y: Any) -> Value:
        return self._map("where", condition, x, y)

    def keep_nan(self, out: Any, x: Any) -> Value:
        return self.program.value(out)

    def _map(self, op: str, *arguments: Any) -> Value:
        """An operation number by number."""
        values = [self.program.value(argument) for argument in arguments]
        return self.program.add(op, values, max(value.width for value in values))

    def _reduce(self, op: str, x: Any) -> Value:
        return self.program.add(op, (self.program.value(x),), 1)

    def top(self, x: Any, k: int) -> Value:
        value = self.program.value(x)
        return self.program.add("top", (value,), min(k, value.width), min(k, value.width))

    def matmul(self, x: Any, weight: Any) -> Value:
        return self.program.add("matmul", (self.program.value(x),), weight.shape[1], np.asarray(weight).tolist())

    def concat(self, parts: Sequence[Any]) -> Value:
        values = [self.program.value(part) for part in parts]
        return self.program.add("concat", values, sum(value.width for value in values))

    def column(self, x: Any, k: int) -> Value:
        return self.program.add("column", (self.program.value(x),), 1, k)

    def round_noise(self, score: Any) -> Value:
        return self.program.add("round", (score,), score.width, DIGITS)

    # Tables -----------------------------------------------------------------------------------------------------------

    def locate(self, table: Any, starts: Any, width: int, score: Any, *, count_equal: bool = False) -> Value:
        """One instruction with the edges of each column, without those that no score can pass."""
        rows = [row[np.isfinite(row)].tolist() for row in np.asarray(table).reshape(len(starts), width)]
        score = self.program.value(score)
        return self.program.add("locate_equal" if count_equal else "locate", (score,), score.width, rows)

    def take(self, table: Any, index: Any) -> Any:
        """Entries of a table at ``locate(…) + starts``."""
        if not isinstance(index, Value):
            return np.asarray(table)[index]
        last = self.program.instructions[index.index]
        places = [self.program.instructions[place] for place in last.args]
        if last.op != "add" or {part.op for part in places} - {"locate", "locate_equal"} != {"constant"}:
            raise not_expressible()
        (place,) = (k for k, part in zip(last.args, places, strict=True) if part.op != "constant")
        (starts,) = (part.data for part in places if part.op == "constant")
        sizes = [len(row) + 1 for row in self.program.instructions[place].data]
        rows = [
            np.clip(np.asarray(table, np.float64)[int(k) : int(k) + n], -LARGE, LARGE).tolist()
            for k, n in zip(starts, sizes, strict=True)
        ]
        return self.program.add("lookup", (Value(self.program, place, index.width),), index.width, rows)

    def take_in_rows(self, x: Any, index: Any) -> Value:
        raise not_expressible()

    def interpolate(self, lines: Parameters, score: Any) -> Value:
        edges = np.asarray(lines["edges"]).reshape(-1, lines["width"])
        values = np.asarray(lines["line_value"]).reshape(len(edges), -1)[:, 1:]
        rows = []
        for x, y in zip(edges, values, strict=True):
            n = int(np.isfinite(x).sum())
            rows.append([x[:n].tolist(), y[:n].tolist()])
        score = self.program.value(score)
        return self.program.add("interpolate", (score,), score.width, rows)


def not_expressible() -> InputError:
    """The error for maps with other operations than the instructions."""
    return InputError("this method cannot be written as a program for JSON or SQL; export it to ONNX")


def trace(calibrator: Calibrator, *, is_single_score: bool = False) -> Program:
    """The program of a fitted calibrator: scores of its ``kind_`` in, probabilities out.

    With ``is_single_score`` one score goes in, that of the positive class (by default the second of two).
    """
    map_ = exported_map(calibrator)
    if is_single_score and map_.n_classes != 2:
        raise InputError(f"one score is for two classes; the calibrator was fitted with {map_.n_classes}")
    program = Program(1 if is_single_score else map_.n_classes)
    ops = ProgramOps(program)
    scores = program.add("input", (), program.n_inputs)
    if is_single_score:
        scores = two_columns(ops, map_, scores)
    try:
        out = program.value(calibrate(ops, map_, map_.parameters, scores, probs=False))
    except (TypeError, AttributeError, NotImplementedError) as error:
        raise not_expressible() from error
    probs = ops.softmax(out)
    program.probs, program.scores = probs.index, (out if map_.keeps_decision else probs).index
    return _without_unused(program)


def _without_unused(program: Program) -> Program:
    """The instructions that results depend on, counted anew."""
    needed, waiting = set(), [program.probs, program.scores]
    while waiting:
        place = waiting.pop()
        if place not in needed:
            needed.add(place)
            waiting += program.instructions[place].args
    order = sorted(needed)
    new = {place: k for k, place in enumerate(order)}
    kept = [
        Instruction(one.op, tuple(new[arg] for arg in one.args), one.width, one.data)
        for one in (program.instructions[place] for place in order)
    ]
    return Program(program.n_inputs, kept, new[program.probs], new[program.scores])
