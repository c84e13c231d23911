"""How results leave Python: data frames, and tables for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Literal

from rhocal.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FrameLibrary = Literal["pandas", "polars"]


def to_frame(rows: Sequence[Mapping[str, Any]], library: FrameLibrary, index: str) -> Any:
    """Rows as a data frame. The column ``index`` becomes the index in pandas, and is the first column in polars."""
    if library not in {"pandas", "polars"}:
        raise InputError(f"library is pandas or polars; got {library!r}")
    columns = list(dict.fromkeys([index, *(name for row in rows for name in row)]))
    table = {name: [row.get(name) for row in rows] for name in columns}
    try:
        if library == "pandas":
            import pandas as pd  # noqa: PLC0415

            return pd.DataFrame(table).set_index(index)
        import polars as pl  # noqa: PLC0415

        return pl.DataFrame(table)
    except ImportError as error:
        raise MissingExtraError(library, library, "to_frame()") from error


def html_table(rows: Sequence[Sequence[str]], notes: Sequence[str] = (), title: str = "") -> str:
    """A table for notebooks: the first row is its head, the first column names the rows."""
    head, *body = [[html.escape(cell) for cell in row] for row in rows]
    lines = [f"<p><strong>{html.escape(title)}</strong></p>"] if title else []
    lines.append("<table><thead><tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr></thead><tbody>")
    for first, *others in body:
        cells = "".join(f'<td style="text-align: right">{cell}</td>' for cell in others)
        lines.append(f'<tr><th style="text-align: left">{first}</th>{cells}</tr>')
    lines.append("</tbody></table>")
    lines += [f"<p>{html.escape(note)}</p>" for note in notes]
    return "\n".join(lines)
