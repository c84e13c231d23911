"""A program as one SELECT statement: each result that is used more than once becomes a column of a common table expression."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rhocal import __version__
from rhocal.calibrators.portable.dialects import DIALECTS, Dialect, number
from rhocal.calibrators.portable.program import LARGE, trace
from rhocal.calibrators.portable.terms import Place, nested, summed, terms
from rhocal.data.columns import match_columns, order_of_fit
from rhocal.data.scores import SUM_TOLERANCE
from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rhocal.calibrators import Calibrator
    from rhocal.calibrators.portable.program import Program

MAX_COLUMNS = 1500
"""Columns of a common table expression; databases allow 1,600 and more."""

MAX_CHARACTERS = 1_000_000
"""Of a statement: SQLite, BigQuery and Snowflake take no longer ones."""


def to_sql(
    calibrator: Calibrator,
    dialect: str,
    *,
    table: str = "predictions",
    columns: Sequence[str] | None = None,
    keep: Sequence[str] = (),
) -> str:
    """A SELECT statement that calibrates the scores in ``columns`` of a table.

    It returns the columns ``keep``, then ``prob_<class>`` for each class, ``predicted`` and ``confidence``. Columns are one for
    each class, matched by name where they are named as the classes, or one for the positive class (by default the second of
    two). Rows with a score that is NULL or not finite get NULL, and so do rows of probabilities that do not sum to 1. A logit
    of −infinity is a masked class.
    """
    if dialect not in DIALECTS:
        raise InputError(f"sql: {dialect!r} is not a known dialect; choose from {', '.join(DIALECTS)}")
    classes = calibrator.classes_.tolist()
    columns = list(columns or calibrator.columns_ or (f"logit_{name}" for name in classes))
    if len(columns) != len(classes) and not (len(columns) == 1 and len(classes) == 2):
        raise InputError(
            f"there are {len(classes)} classes and {len(columns)} columns",
            argument="columns",
            remedy="name one column for each class",
        )
    if len(columns) == len(classes):  # names decide, as with data frames
        if calibrator.columns_ is not None and set(columns) == set(calibrator.columns_):
            columns = list(calibrator.columns_)
            order = order_of_fit(columns, calibrator.classes_)
        else:
            order, _ = match_columns(columns, calibrator.classes_, None)
        columns = columns if order is None else [columns[k] for k in order]
    program = trace(calibrator, is_single_score=len(columns) < len(classes))
    names = [*keep, *(f"prob_{name}" for name in classes), "predicted", "confidence"]
    twice = [name for name, n in Counter(name.casefold() for name in names).items() if n > 1]
    if twice:
        raise InputError(f"two columns of the result would be named {twice[0]!r}; databases ignore case in names")
    writer = Writer(program, DIALECTS[dialect])
    text = writer.statement(table, columns, list(keep), classes, calibrator.kind_)
    if len(text) > MAX_CHARACTERS:
        raise InputError(
            f"the statement would have {len(text):,} characters, and databases take {MAX_CHARACTERS:,}; SQL is for small "
            "maps of few classes, export this one to ONNX"
        )
    return f"-- rhocal {__version__}: {calibrator.label}, scores are {calibrator.kind_}\n{text}"


class Writer:
    """The columns of every common table expression, and their text."""

    def __init__(self, program: Program, dialect: Dialect) -> None:
        self.program, self.dialect = program, dialect
        self.terms = terms(program, dialect)
        self.uses = self._count_uses()
        self.level: dict[Place, int] = {}
        for place in self.terms:  # instructions come after what they read
            self.level[place] = max((self._read_level(part) for part in self.terms[place].parts), default=1)

    def _count_uses(self) -> Counter[Place]:
        uses: Counter[Place] = Counter()
        width = self.program.instructions[self.program.probs].width
        results = ((place, k) for place in (self.program.probs, self.program.scores) for k in range(width))
        waiting = list(dict.fromkeys(results))
        uses.update(waiting * 2)  # results are columns
        seen = set(waiting)
        while waiting:
            term = self.terms[waiting.pop()]
            uses.update(term.uses)
            new = dict.fromkeys(part for part in term.parts if part not in seen)
            seen.update(new)
            waiting += new
        return uses

    def is_column(self, place: Place) -> bool:
        """Whether the result has a column of its own; others are written where they are read."""
        term = self.terms[place]
        return term.is_input or (self.uses[place] > 1 and bool(term.parts))

    def _read_level(self, place: Place) -> int:
        """The first expression that can read the result."""
        return self.level[place] + 1 if self.is_column(place) else self.level[place]

    def text(self, place: Place) -> str:
        """An expression over columns of the common table expression before."""
        if self.is_column(place):
            return f"v{place[0]}_{place[1]}"
        return self.expression(place)

    def expression(self, place: Place) -> str:
        """What is computed for a result."""
        term = self.terms[place]
        return term.template.format(*(self.text(part) for part in term.parts))

    def reads(self, place: Place) -> set[Place]:
        """The columns that an expression reads."""
        columns: set[Place] = set()
        waiting = list(self.terms[place].parts)
        while waiting:
            part = waiting.pop()
            if self.is_column(part):
                columns.add(part)
            else:
                waiting += self.terms[part].parts
        return columns

    def statement(
        self, table: str, columns: Sequence[str], keep: Sequence[str], classes: Sequence[object], kind: str
    ) -> str:
        """The whole statement: a stage that names columns, one that checks scores, one for each level, and the results."""
        quote, m = self.dialect.identifier, len(classes)
        kept = [f"k{k}" for k in range(len(keep))]
        scores = [f"{self.dialect.score(name)} AS s{k}" for k, name in enumerate(columns)]
        stages = [
            [*(f"{quote(name)} AS k{k}" for k, name in enumerate(keep)), *scores],
            [
                *kept,
                *(f"s{k}" for k in range(self.program.n_inputs)),
                f"{_validity(self.dialect, kind, len(columns), m)} AS valid",
            ],
            *([*kept, "valid", *level] for level in self._levels(m, kind)),
        ]
        for n_columns in map(len, stages[2:]):
            if n_columns > MAX_COLUMNS:
                raise InputError(
                    f"the statement would have {n_columns:,} columns, more than databases allow ({MAX_COLUMNS:,}); "
                    "SQL is for few classes, export this one to ONNX"
                )
        sources = [self.dialect.table(table), *(f"c{k}" for k in range(len(stages) - 1))]
        parts = [
            f"c{k} {self.dialect.stage} (\n  SELECT {_listed(stage)}\n  FROM {source}\n)"  # noqa: S608 - names are quoted
            for k, (stage, source) in enumerate(zip(stages, sources, strict=True))
        ]
        final = [f"k{k} AS {quote(name)}" for k, name in enumerate(keep)]
        probs = [self.text((self.program.probs, k)) for k in range(m)]
        final += [
            f"CASE WHEN valid THEN {text} END AS {quote(f'prob_{name}')}"
            for text, name in zip(probs, classes, strict=True)
        ]
        final.append(f"{self._predicted(classes)} AS {quote('predicted')}")
        final.append(
            f"CASE WHEN valid THEN {nested(self.dialect, self.dialect.greatest, probs)} END AS {quote('confidence')}"
        )
        return "WITH " + ",\n".join(parts) + f"\nSELECT\n  {_listed(final)}\nFROM c{len(stages) - 1}\n"

    def _levels(self, n_classes: int, kind: str) -> Iterator[list[str]]:
        """The columns of each level: those of earlier levels that are read later, and its own."""
        inputs = [f"v{self._first()}_{k}" for k in range(self.program.n_inputs)]
        used = [place for place in self.terms if self.uses[place] and self.is_column(place)]
        depth = max(self.level[place] for place in used)
        computed = [place for place in used if not self.terms[place].is_input]
        last_read: dict[Place, int] = {}
        for place in computed:
            for part in self.reads(place):
                last_read[part] = max(last_read.get(part, 0), self.level[place])
        for result in (self.program.probs, self.program.scores):
            last_read |= {(result, k): depth + 1 for k in range(n_classes)}
        for level in range(1, depth + 1):
            new = [
                f"{self.expression(place)} AS v{place[0]}_{place[1]}"
                for place in computed
                if self.level[place] == level
            ]
            if level == 1:
                inputs_here = [
                    f"CASE WHEN valid THEN {self._input(k, kind)} END AS {name}" for k, name in enumerate(inputs)
                ]
                yield [*inputs_here, *new]
                continue
            is_read_later = any(last_read.get((self._first(), k), 0) > level for k in range(len(inputs)))
            carried = [
                f"v{place[0]}_{place[1]}"
                for place in computed
                if self.level[place] < level and last_read.get(place, 0) > level
            ]
            yield [*(inputs if is_read_later else []), *carried, *new]

    def _first(self) -> int:
        return next(k for k, one in enumerate(self.program.instructions) if one.op == "input")

    def _input(self, k: int, kind: str) -> str:
        return f"s{k}" if kind == "probs" else f"{self.dialect.greatest}(s{k}, {number(-LARGE)})"

    def _predicted(self, classes: Sequence[object]) -> str:
        scores = [self.text((self.program.scores, k)) for k in range(len(classes))]
        top = nested(self.dialect, self.dialect.greatest, scores)
        cases = " ".join(
            f"WHEN {score} >= {top} THEN {self.dialect.literal(name)}"
            for score, name in zip(scores, classes, strict=True)
        )
        return f"CASE WHEN valid THEN CASE {cases} END END"


def _validity(dialect: Dialect, kind: str, n_columns: int, n_classes: int) -> str:
    """Whether the scores of a row can be calibrated. NaN is above every number, or comparisons with it are false."""
    scores = [f"s{k}" for k in range(n_columns)]
    tests = [f"s{k} <= {number(LARGE)}" for k in range(n_columns)]
    top = nested(dialect, dialect.greatest, scores)
    if n_columns < n_classes and kind != "logits":  # the other probability is what is left
        tests = ["s0 >= 0e0 AND s0 <= 1e0" if kind == "probs" else "s0 <= 0e0"]
    elif kind == "probs":
        tests = [f"s{k} >= 0 AND s{k} <= 1.001e0" for k in range(n_columns)]
        tests.append(f"ABS({summed(scores)} - 1e0) <= {number(SUM_TOLERANCE['float64'])}")
    elif kind == "log_probs":
        exponentials = [f"EXP({dialect.greatest}({dialect.least}(s{k}, 1e0), -3e2))" for k in range(n_columns)]
        tests.append(f"ABS({summed(exponentials)} - 1e0) <= {number(SUM_TOLERANCE['float64'])}")
    else:
        tests.append(f"{top} > {number(-LARGE)}")
    return f"({' AND '.join(tests)})"


def _listed(columns: Sequence[str]) -> str:
    return ",\n    ".join(columns)
