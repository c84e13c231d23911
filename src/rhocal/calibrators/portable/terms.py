"""The instructions of a program as expressions of SQL, one for each column."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rhocal.calibrators.portable.dialects import SMALLEST_EXPONENT, number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rhocal.calibrators.portable.dialects import Dialect
    from rhocal.calibrators.portable.program import Instruction, Program

Place = tuple[int, int]
"""An instruction and the column of its result."""


@dataclass(frozen=True)
class Term:
    """An expression with ``{0}``, ``{1}``, … for its parts."""

    template: str
    parts: tuple[Place, ...] = ()
    is_input: bool = False

    @property
    def uses(self) -> Counter[Place]:
        """How often each part is written."""
        uses: Counter[Place] = Counter()
        for k, part in enumerate(self.parts):
            uses[part] += self.template.count(f"{{{k}}}")
        return uses


def terms(program: Program, dialect: Dialect) -> dict[Place, Term]:
    """The expression of every column of every instruction."""
    known: dict[Place, Term] = {}
    for k, instruction in enumerate(program.instructions):
        widths = [program.instructions[arg].width for arg in instruction.args]
        columns = _columns(instruction, widths, dialect)
        known |= {(k, column): term for column, term in enumerate(columns)}
    return known


def _columns(one: Instruction, widths: Sequence[int], dialect: Dialect) -> list[Term]:
    """The terms of an instruction."""

    def parts(column: int) -> tuple[Place, ...]:
        return tuple((arg, column if width > 1 else 0) for arg, width in zip(one.args, widths, strict=True))

    columns = range(one.width)
    if one.op in ELEMENTWISE:
        template = ELEMENTWISE[one.op](dialect)
        return [Term(template, parts(k)) for k in columns]
    if one.op in TABLES:
        table = TABLES[one.op]
        return [Term(table(one.data[k if len(one.data) > 1 else 0], dialect), parts(k)) for k in columns]
    if not one.args:
        return (
            [_constant(value) for value in one.data] if one.op == "constant" else [Term("", is_input=True)] * one.width
        )
    if one.op == "concat":
        return [Term("{0}", ((arg, k),)) for arg, width in zip(one.args, widths, strict=True) for k in range(width)]
    return _of_rows(one, tuple((one.args[0], k) for k in range(widths[0])), dialect)


def _constant(value: float | bool) -> Term:  # noqa: FBT001
    return Term(("TRUE" if value else "FALSE") if isinstance(value, bool) else number(value))


def _of_rows(one: Instruction, parts: tuple[Place, ...], dialect: Dialect) -> list[Term]:
    """Terms that read a whole row."""
    names = [f"{{{k}}}" for k in range(len(parts))]
    if one.op == "column":
        return [Term("{0}", (parts[one.data],))]
    if one.op == "max":
        return [Term(nested(dialect, dialect.greatest, names), parts)]
    if one.op in {"sum", "mean"}:
        total = summed(names)
        return [Term(total if one.op == "sum" else f"({total} / {number(len(parts))})", parts)]
    if one.op == "cumsum":
        return [Term(summed(names[: k + 1]), parts[: k + 1]) for k in range(len(parts))]
    if one.op == "matmul":
        return [
            Term(summed([f"({name} * {number(row[k])})" for name, row in zip(names, one.data, strict=True)]), parts)
            for k in range(one.width)
        ]
    # The rank of an entry counts those before it; the entry of each rank is picked.
    ranks = range(len(parts)) if one.op == "sort" else [len(parts) - 1 - k for k in range(one.width)]
    return [Term(_of_rank(names, rank), parts) for rank in ranks]


def _of_rank(names: Sequence[str], rank: int) -> str:
    """The entry that has so many before it in ascending order; of equal ones the first stands first."""
    cases = []
    for k, name in enumerate(names):
        before = [
            f"CASE WHEN {other} {'<=' if j < k else '<'} {name} THEN 1 ELSE 0 END"
            for j, other in enumerate(names)
            if j != k
        ]
        cases.append(f"WHEN {' + '.join(before)} = {rank} THEN {name}")
    return f"CASE {' '.join(cases)} END"


# Expressions of any number of parts ------------------------------------------------------------------------------------


def nested(dialect: Dialect, function: str, parts: Sequence[str]) -> str:
    """The largest or smallest of any number of values."""
    parts = list(parts)
    while len(parts) > 1:
        step = dialect.max_arguments
        groups = [parts[k : k + step] for k in range(0, len(parts), step)]
        parts = [f"{function}({', '.join(group)})" if len(group) > 1 else group[0] for group in groups]
    return parts[0]


def summed(parts: Sequence[str]) -> str:
    """A sum without deep nesting."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return f"({summed(parts[:middle])} + {summed(parts[middle:])})"


# Functions -------------------------------------------------------------------------------------------------------------


def _power(dialect: Dialect) -> str:
    if dialect.underflows:
        exponent = f"{dialect.greatest}({{1}} * LN({{0}}), {number(SMALLEST_EXPONENT)})"
        return f"CASE WHEN {{0}} > 0 THEN EXP({exponent}) ELSE 0e0 END"
    return f"{dialect.power}({{0}}, {{1}})"


def _exp(dialect: Dialect) -> str:
    floor = SMALLEST_EXPONENT if dialect.underflows else -745.0
    return f"EXP({dialect.greatest}({{0}}, {number(floor)}))"


def _log(dialect: Dialect) -> str:
    return f"LN({dialect.greatest}({{0}}, 2.2250738585072014e-308))"


def _round(dialect: Dialect) -> str:
    """43 binary digits: scaled by a power of 2 in two steps, each of which is finite, rounded, and back."""
    shift = f"(42 - FLOOR(LN({dialect.greatest}(ABS({{0}}), 1e-300)) / LN(2e0)))"
    half, rest = f"{dialect.power}(2e0, FLOOR({shift} / 2))", f"{dialect.power}(2e0, {shift} - FLOOR({shift} / 2))"
    return f"(ROUND({{0}} * {half} * {rest}) / {half} / {rest})"


ELEMENTWISE: dict[str, Callable[[Dialect], str]] = {
    "add": lambda _: "({0} + {1})",
    "subtract": lambda _: "({0} - {1})",
    "multiply": lambda _: "({0} * {1})",
    "divide": lambda _: "({0} / {1})",
    "less": lambda _: "({0} < {1})",
    "less_equal": lambda _: "({0} <= {1})",
    "maximum": lambda dialect: f"{dialect.greatest}({{0}}, {{1}})",
    "minimum": lambda dialect: f"{dialect.least}({{0}}, {{1}})",
    "where": lambda _: "CASE WHEN {0} THEN {1} ELSE {2} END",
    "power": _power,
    "exp": _exp,
    "log": _log,
    "abs": lambda _: "ABS({0})",
    "sqrt": lambda dialect: f"SQRT({dialect.greatest}({{0}}, 0e0))",
    "tanh": lambda dialect: f"(1e0 - 2e0 / (EXP({dialect.least}(2e0 * {{0}}, 3e2)) + 1e0))",
    "round": _round,
}


def _tree(edges: Sequence[float], leaves: Sequence[str], compare: str) -> str:
    """The leaf after the edges that are passed, by halving."""
    if not edges:
        return leaves[0]
    middle = len(edges) // 2
    low = _tree(edges[:middle], leaves[: middle + 1], compare)
    high = _tree(edges[middle + 1 :], leaves[middle + 1 :], compare)
    return f"CASE WHEN {{0}} {compare} {number(edges[middle])} THEN {low} ELSE {high} END"


def _interpolate(lines: Any, dialect: Dialect) -> str:
    knots, values = lines
    if not knots:
        return "0e0"
    leaves = [number(values[0])]
    for k in range(1, len(knots)):
        low, high = sorted(values[k - 1 : k + 1])
        slope = (values[k] - values[k - 1]) / (knots[k] - knots[k - 1]) if knots[k] > knots[k - 1] else 0.0
        line = f"{number(values[k - 1])} + {number(slope)} * ({{0}} - {number(knots[k - 1])})"
        leaves.append(
            number(low)
            if low == high
            else f"{dialect.least}({dialect.greatest}({line}, {number(low)}), {number(high)})"
        )
    leaves.append(number(values[-1]))
    return _tree(knots, leaves, "<=")


TABLES: dict[str, Callable[[Any, Dialect], str]] = {
    "locate": lambda edges, _: _tree(edges, [str(k) for k in range(len(edges) + 1)], "<="),
    "locate_equal": lambda edges, _: _tree(edges, [str(k) for k in range(len(edges) + 1)], "<"),
    "lookup": lambda values, _: _tree([k + 0.5 for k in range(len(values) - 1)], [number(v) for v in values], "<="),
    "interpolate": _interpolate,
}
