"""The report as one HTML page: a pure function of the document. The only room that knows Jinja2 and Plotly.

Everything is inside the page (Plotly compressed to a third), and its policy forbids every request, so that it works from
the file system and tells nobody that it was opened.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rhocal.errors import FileError, MissingExtraError
from rhocal.evaluation.evaluation import shown_p
from rhocal.reporting.report import FORMAT, SCHEMA, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PURPOSE = "writing a report page"
SHOWN_AT_FIRST = 6
"""Methods whose diagrams are drawn when the page opens; the others are a tick away."""
LONGEST_CELL = 60
"""Characters of an option or of a fitted parameter in a table; all of it is in the document."""

MEANINGS = {
    "ece": "Expected calibration error: how far confidence is from accuracy, on average.",
    "adaptive_ece": "The same over bins that hold equally many samples.",
    "nll": "Negative log-likelihood: how surprised the model is by the true labels.",
    "brier": "Mean squared distance between the probabilities and the truth.",
    "accuracy": "Share of samples whose most probable class is the true one.",
}
LEVELS = {
    "good": "Confidence can be trusted",
    "unsure": "No error can be seen, but little could be",
    "fair": "Nearly: small errors remain",
    "bad": "Confidence cannot be trusted yet",
}


def page(document: Mapping[str, Any]) -> str:
    """The page of a document that ``rhocal.reporting.report.document`` made (or its JSON, read again)."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("jinja2", "report", PURPOSE) from error
    if document.get("format") != FORMAT or document.get("schema") != SCHEMA:
        raise FileError(
            f"not a report of schema {SCHEMA}: format {document.get('format')!r}, schema {document.get('schema')!r}; "
            "write it again with this version of rhocal"
        )
    environment = Environment(
        loader=PackageLoader("rhocal.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= FILTERS
    by_name = {method["name"]: method for method in document["methods"]}
    return environment.get_template("report.html.j2").render(
        doc=document,
        before=by_name[document["before"]],
        after=by_name.get(document["headline"]),
        meanings=MEANINGS,
        levels=LEVELS,
        shown_at_first=SHOWN_AT_FIRST,
        data=embedded(document),
        style=_part("report.css"),
        script=_part("report.js"),
        plotly=_plotly(),
    )


def embedded(document: Mapping[str, Any]) -> str:
    """JSON that can stand inside a script element: no text in it can end the element or begin a comment."""
    text = to_json(document)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def number(value: float | None, digits: int = 4) -> str:
    """A figure with a fixed number of decimals."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def signed(value: float | None, digits: int = 4) -> str:
    """A difference, with its sign."""
    return "–" if value is None else f"{value:+.{digits}f}".replace("-", "−")


def tidy(sentence: str) -> str:
    """A sentence in which no number loses its unit at the end of a line."""
    return sentence.replace(" %", "\u00a0%").replace(" ± ", "\u00a0±\u00a0")


def p_value(value: float | None) -> str:
    """A chance, three digits."""
    return "–" if value is None else shown_p(value)


def equals_p(value: float) -> str:
    """The same after "p"."""
    return f"p {'' if value < 0.001 else '= '}{shown_p(value)}"


def cell(value: Any) -> str:
    """An option or a fitted parameter as a short text."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, list):
        text = ", ".join(cell(item) for item in value)
        return text if len(text) <= 3 * LONGEST_CELL else f"{text[: 3 * LONGEST_CELL]}…"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 3 * LONGEST_CELL else f"{text[: 3 * LONGEST_CELL]}…"


FILTERS: dict[str, Callable[..., str]] = {
    "number": number,
    "signed": signed,
    "p": p_value,
    "equals_p": equals_p,
    "cell": cell,
    "tidy": tidy,
}
"""How the template writes values."""


def _part(name: str) -> str:
    return (files("rhocal") / "reporting" / "templates" / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Plotly's own bundle, compressed, as text; the page unpacks it."""
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped] # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("plotly", "report", PURPOSE) from error
    packed = gzip.compress(get_plotlyjs().encode(), compresslevel=9, mtime=0)
    return base64.b64encode(packed).decode("ascii")
