"""Cells of CSV files that a spreadsheet would compute.

Names of classes, files and groups are text that others choose. A spreadsheet takes ``=1+1`` or ``@SUM(A1)`` for a formula and
carries it out. A quote before it makes it text; it is removed when the file is read, so that names come back as they were.
"""

from __future__ import annotations

import re
from typing import Any

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_QUOTED = re.compile(r"'+[=+\-@\t\r]")


def text_cell(value: Any) -> Any:
    """A text with a quote in front if a spreadsheet would take it for a formula; numbers, also as texts, as they are.

    >>> [text_cell(value) for value in ("=1+1", "-1.5", "cat", -2, "'=x")]
    ["'=1+1", '-1.5', 'cat', -2, "''=x"]
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) and not _is_number(value) else value


def cell_text(value: str) -> str:
    """The text that ``text_cell`` wrote.

    >>> [cell_text(value) for value in ("'=1+1", "-1.5", "'quoted'", "''=x")]
    ['=1+1', '-1.5', "'quoted'", "'=x"]
    """
    return value[1:] if _QUOTED.match(value) else value


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
