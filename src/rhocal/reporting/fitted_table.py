"""Tables that fit their terminal: numbers and names stay whole, texts wrap between words, and columns are left out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

PADDING = 3
"""Characters of a column beside its cells: two spaces and a line."""


@dataclass
class FittedTable:
    """Rows under a header, below a title. No cell is shortened.

    A column keeps its cells on one line, unless it is one of ``texts``, which wrap between words. If the table is wider than
    the terminal, columns of ``optional`` are left out, the first one first, and a line below the table names them. A name that
    is wider than what remains is broken onto lines.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    title: str = ""
    texts: Sequence[str] = ()
    optional: Sequence[str] = ()
    left: Sequence[str] = ()
    """Columns to the left besides the first one and the texts; the others are numbers, to the right."""
    show_header: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Title, table, and which columns were left out."""
        shown = list(range(len(self.header)))
        left_out: list[str] = []
        for name in self.optional:
            if _total(self._least(shown)) <= options.max_width:
                break
            left_out.append(name)
            shown.remove(self.header.index(name))
        if self.title:
            yield Text(self.title, style="table.title")
        yield self._table(shown, options.max_width)
        if left_out:
            needed = _total(self._least(range(len(self.header))))
            yield Text(
                f"left out to fit {options.max_width} characters: {', '.join(left_out)} "
                f"(a terminal of {needed} shows them; --json has all)"
            )

    def _table(self, shown: Sequence[int], max_width: int) -> Table:
        table = Table(show_header=self.show_header)
        for k, width in zip(shown, self._widths(shown, max_width), strict=True):
            is_left = k == 0 or self.header[k] in {*self.texts, *self.left}
            table.add_column(self.header[k], justify="left" if is_left else "right", width=width, overflow="fold")
        for row in self.rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in (row[k] for k in shown)))
        return table

    def _widths(self, shown: Sequence[int], max_width: int) -> list[int]:
        """As wide as the cells; if that is too wide the widest column becomes narrower, at first where only words wrap."""
        widths = [max(map(cell_len, self._lines(k))) for k in shown]
        for least in (self._least(shown), [1] * len(shown)):
            while _total(widths) > max_width:
                wider = [k for k, width in enumerate(widths) if width > least[k]]
                if not wider:
                    break
                widths[max(wider, key=widths.__getitem__)] -= 1
        return widths

    def _least(self, shown: Sequence[int]) -> list[int]:
        """The widths at which every number, name and word is whole."""
        return [
            max(
                map(cell_len, chain(self._header(k).split(), *(self._unbroken(row[k], k) for row in self.rows))),
                default=1,
            )
            for k in shown
        ]

    def _lines(self, k: int) -> list[str]:
        return [self._header(k), *(line for row in self.rows for line in str(row[k]).split("\n"))]

    def _unbroken(self, cell: str | Text, k: int) -> list[str]:
        return str(cell).split() if self.header[k] in self.texts else str(cell).split("\n")

    def _header(self, k: int) -> str:
        return self.header[k] if self.show_header else ""


def _total(widths: Sequence[int]) -> int:
    """The width of a table with its lines."""
    return sum(widths) + PADDING * len(widths) + 1
