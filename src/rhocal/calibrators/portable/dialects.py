"""What differs between dialects of SQL: quotes, names of functions and types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rhocal.errors import InputError

SMALLEST_EXPONENT = -300.0
"""Of e^x in dialects that raise an error where a result underflows."""


@dataclass(frozen=True)
class Dialect:
    """A dialect of SQL."""

    name: str
    quote: str = '"'
    """Around names; inside it is doubled, or follows a backslash where ``escapes_names``."""
    has_escapes: bool = False
    """Whether a backslash in a text begins an escape."""
    double: str = "DOUBLE PRECISION"
    greatest: str = "GREATEST"
    least: str = "LEAST"
    power: str = "POWER"
    max_arguments: int = 50
    underflows: bool = False
    """Whether a result too small for the type is an error."""
    stage: str = "AS"
    """Before the text of a common table expression. Planners that put such texts into each other would write a program
    down many times over; MATERIALIZED keeps them apart."""
    escapes_names: bool = False
    """Whether a backslash in a name begins an escape."""
    has_text_numbers: bool = False
    """Whether cells of any column may be texts, and a cast makes a number of every text."""

    def identifier(self, name: str) -> str:
        """A name in quotes."""
        if not name or any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
            raise InputError(
                f"{name!r} cannot be the name of a column or table in SQL: it is empty or has control characters"
            )
        if self.escapes_names:
            return self.quote + name.replace("\\", "\\\\").replace(self.quote, "\\" + self.quote) + self.quote
        return self.quote + name.replace(self.quote, 2 * self.quote) + self.quote

    def score(self, name: str) -> str:
        """A column as a number. SQLite makes 0 of a text that is none: there such cells are NULL, as missing ones are."""
        column = self.identifier(name)
        cast = f"CAST({column} AS {self.double})"
        if not self.has_text_numbers:
            return cast
        is_number = f"CASE WHEN json_valid({column}) THEN json_type({column}) IN ('integer', 'real') END"
        text = f"CASE WHEN {is_number} THEN {cast} END"
        return f"CASE typeof({column}) WHEN 'real' THEN {column} WHEN 'integer' THEN {cast} WHEN 'text' THEN {text} END"

    def table(self, name: str) -> str:
        """The name of a table, with its schema before a dot."""
        return ".".join(self.identifier(part) for part in name.split("."))

    def literal(self, value: Any) -> str:
        """A class as a value."""
        if isinstance(value, bool | np.bool_):
            return "TRUE" if value else "FALSE"
        if isinstance(value, int | np.integer):
            return str(int(value))
        if isinstance(value, float | np.floating):
            return number(float(value))
        text = str(value)
        if "\0" in text:
            raise InputError(f"the class {text!r} cannot be written in SQL: it has a null character")
        if self.has_escapes:
            text = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
        else:
            text = text.replace("'", "''")
        return f"'{text}'"


DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect("duckdb", double="DOUBLE", stage="AS MATERIALIZED"),
        Dialect("bigquery", "`", has_escapes=True, double="FLOAT64", escapes_names=True),
        Dialect("snowflake", has_escapes=True, double="DOUBLE"),
        Dialect("postgres", underflows=True, stage="AS MATERIALIZED"),
        Dialect("spark", "`", has_escapes=True, double="DOUBLE"),
        Dialect(
            "sqlite",
            double="REAL",
            greatest="MAX",
            least="MIN",
            power="POW",
            stage="AS MATERIALIZED",
            has_text_numbers=True,
        ),
    )
}


def number(value: float) -> str:
    """A number with an exponent: without one some dialects take it for a decimal of fixed precision."""
    text = f"{value:.17g}"
    text = text if "e" in text else text + "e0"
    return f"({text})" if value < 0 else text
