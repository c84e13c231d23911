"""The scale of one sample in plain Python numbers: an operation on arrays takes a microsecond, however small they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.portable.program import Instruction, Program, ProgramOps, Value
from rhocal.errors import InputError
from rhocal.numerics import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rhocal.calibrators.map import Map
    from rhocal.numerics.special import Floats

TEXTS = {
    "add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}", "divide": "{0} / {1}", "less": "{0} < {1}",
    "less_equal": "{0} <= {1}", "maximum": "{0} if {0} > {1} else {1}", "minimum": "{0} if {0} < {1} else {1}",
    "where": "{1} if {0} else {2}", "power": "{0} ** {1}", "exp": "exp({0})", "log": "log({0})", "abs": "abs({0})",
    "sqrt": "sqrt({0})", "tanh": "tanh({0})",
}  # fmt: skip
"""Instructions number by number, in Python."""


class RecordedFeatures:
    """``SampleFeatures`` whose answers are inputs of a program."""

    groups: NDArray[Any] | None = None

    def __init__(self, program: Program) -> None:
        self.program = program
        self.inputs: list[tuple[str, Any]] = []

    def norm(self, rho: Any, *, center: bool) -> Value:
        if float(rho) not in kernels.GRID:
            raise InputError("a norm that the compiled passes do not have")
        return self._input("centered norm" if center else "norm", kernels.GRID.index(float(rho)))

    def centered_top(self, k: int) -> Value:
        parts = [self._input("centered", rank) for rank in range(k)]
        return ProgramOps(self.program).concat(parts) if k > 1 else parts[0]

    def margin(self) -> Value:
        return self._input("margin", 1)

    def largest(self, k: int) -> Value:
        raise NotImplementedError  # formulas of the k best take the other way

    def masked_largest(self, k: int) -> Value | None:
        raise NotImplementedError

    def _input(self, name: str, place: int) -> Value:
        if (name, place) not in self.inputs:
            self.inputs.append((name, place))
        return self.program.add("input", (), 1, self.inputs.index((name, place)))


@dataclass(frozen=True)
class ScalarFormula:
    """A scale formula as a Python function of the features that it reads."""

    inputs: tuple[tuple[str, int], ...]
    function: Callable[..., float]
    n_largest: int
    is_centered: bool
    """Whether norms are those of rows minus their mean."""

    @classmethod
    def from_map(cls, map_: Map) -> ScalarFormula | None:
        """The formula of a map; None where it reads anything else than norms and largest logits."""
        assert map_.scale is not None
        program = Program(0)
        features = RecordedFeatures(program)
        try:
            result = program.value(map_.scale(ProgramOps(program), map_.parameters, features))
            function = _function(program.instructions, result.index)
        except (InputError, KeyError, TypeError, AttributeError, NotImplementedError):
            return None
        names = {name for name, _ in features.inputs}
        if {"norm", "centered norm"} <= names:
            return None
        n_largest = max((place + 1 for name, place in features.inputs if name in {"centered", "margin"}), default=0)
        return cls(tuple(features.inputs), function, n_largest, "centered norm" in names)

    def scale(self, logits: Floats, top: Any, total: Any) -> Any:
        """The scale of a single row, whose largest entry and sum are known; None where a number leaves its range."""
        largest = norms = None
        m = logits.shape[1]
        mean = float(total[0]) / m
        values = []
        for name, place in self.inputs:
            if name.endswith("norm"):
                if norms is None:
                    norms = kernels.norms_of_row(logits, total if self.is_centered else None, top)
                values.append(float(norms[place, 0]))
                continue
            if place == 0:
                values.append(float(top[0]) - mean)
                continue
            if largest is None:
                largest = kernels.largest_of_row(logits, self.n_largest)
            if name == "margin":
                values.append(largest[0] - largest[1])
            elif place < len(largest):
                values.append(largest[place] - mean)
            else:
                return None
        try:
            scale = self.function(*values)
        except (ArithmeticError, ValueError):
            return None
        return np.array([min(scale, float(np.finfo(logits.dtype).max))]) if scale > 0 else None


def _function(instructions: list[Instruction], result: int) -> Callable[..., float]:
    """Python code of a program whose inputs and result are single numbers."""
    names: list[list[str]] = []
    lines, inputs = [], 0
    for k, one in enumerate(instructions):
        args = [names[arg] for arg in one.args]
        if one.op == "input":
            names.append([f"x{one.data}"])
            inputs = max(inputs, one.data + 1)
        elif one.op == "constant":
            names.append([f"({value!r})" for value in one.data])
        elif one.op == "concat":
            names.append([name for arg in args for name in arg])
        elif one.op == "column":
            names.append([args[0][one.data]])
        else:
            texts = _texts(one, args)
            names.append([f"v{k}_{column}" for column in range(len(texts))])
            lines += [f"    {name} = {text}" for name, text in zip(names[-1], texts, strict=True)]
    arguments = ", ".join(f"x{k}" for k in range(inputs))
    source = "\n".join([f"def scale({arguments}):", *lines, f"    return {names[result][0]}"])
    scope: dict[str, Any] = {name: getattr(math, name) for name in ("exp", "log", "sqrt", "tanh")}
    exec(compile(source, "<scale of one sample>", "exec"), scope)  # noqa: S102 - numbers and names of our own
    function: Callable[..., float] = scope["scale"]
    return function


def _texts(one: Instruction, args: list[list[str]]) -> list[str]:
    """What the numbers of a result are computed from."""
    if one.op in {"sum", "mean"}:
        total = " + ".join(args[0])
        return [total if one.op == "sum" else f"({total}) / {len(args[0])}"]
    if one.op == "max":
        return [f"max({', '.join(args[0])})" if len(args[0]) > 1 else args[0][0]]
    if one.op == "matmul":
        return [
            " + ".join(f"{x} * {row[k]!r}" for x, row in zip(args[0], one.data, strict=True)) for k in range(one.width)
        ]
    columns = ([arg[k if len(arg) > 1 else 0] for arg in args] for k in range(one.width))
    return [TEXTS[one.op].format(*column) for column in columns]
