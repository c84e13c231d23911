"""The report as one HTML page: a pure function of the document. The only importer of Jinja2 and Plotly.

The page contains everything (Plotly compressed to a third), and its security policy forbids every request, so that it works
from the file system and sends nothing.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rhocal.errors import FileError, MissingExtraError, RhocalError, one_line
from rhocal.metrics.inference import p_values
from rhocal.reporting.document import FORMAT, SCHEMA, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jinja2 import Environment

PURPOSE = "writing a report page"
N_METHODS_SHOWN = 6
"""Methods whose diagrams are drawn when the page opens; the others can be selected."""
MAX_CELL_CHARACTERS = 180
"""Characters of an option or of a fitted parameter in a table; the document has all of them."""

MEANINGS = {
    "ece": "Expected calibration error: the mean distance between confidence and accuracy.",
    "adaptive_ece": "The same over bins that hold equally many samples.",
    "nll": "Negative log-likelihood of the true labels.",
    "brier": "Mean squared distance between the probabilities and the true labels.",
    "accuracy": "Share of samples whose most probable class is the true one. A calibrated model is right as often as its "
    "confidence states: its accuracy is its mean confidence.",
}
LEVELS = {
    "good": "Calibrated within the tolerance",
    "unsure": "Too few samples to tell",
    "fair": "Calibrated within the tolerance, but not perfectly",
    "doubtful": "Miscalibrated; too few samples to tell how much",
    "bad": "Not calibrated: beyond the tolerance",
}


def check_packages() -> None:
    """Raise an error if a package that a page needs is not installed; called before long work."""
    for package in ("jinja2", "plotly"):
        try:
            import_module(package)
        except ImportError as error:
            raise MissingExtraError(package, "report", PURPOSE) from error


def render_page(document: Mapping[str, Any]) -> str:
    """The page of a document of ``rhocal.reporting.document.build_document``, or of its JSON."""
    templates = load_templates()
    if document.get("format") != FORMAT or document.get("schema") != SCHEMA:
        raise FileError(
            f"not a report of schema {SCHEMA}: format {document.get('format')!r}, schema {document.get('schema')!r}; "
            "write it again with this version of rhocal"
        )
    try:
        return _render(templates, document)
    except RhocalError:
        raise
    except Exception as error:
        # Jinja2 evaluates what stands in the document, which may be anything.
        raise FileError(
            f"not a report of schema {SCHEMA}, or damaged: {type(error).__name__}: {one_line(error)}"
        ) from error


def _render(templates: Environment, document: Mapping[str, Any]) -> str:
    by_name = {method["name"]: method for method in document["methods"]}
    return templates.get_template("report.html.j2").render(
        doc=document,
        before=by_name[document["before"]],
        after=by_name.get(document["headline"]),
        meanings=MEANINGS,
        levels=LEVELS,
        shown_at_first=N_METHODS_SHOWN,
        data=embed_json(document),
        style=read_template("report.css"),
        script=read_template("report.js"),
        plotly=_plotly(),
    )


def embed_json(document: Mapping[str, Any]) -> str:
    """JSON for a script element: no text in it can end the element or begin a comment."""
    text = to_json(document)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def number(value: float | None, digits: int = 4) -> str:
    """A number with a fixed number of decimals."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def signed(value: float | None, digits: int = 4) -> str:
    """A difference, with its sign."""
    return "–" if value is None else f"{value:+.{digits}f}".replace("-", "−")


def sentence(verdict: str) -> str:
    """A verdict after its level in words, which is not repeated."""
    text = verdict.removeprefix("too few samples to tell: ")
    return f"{text[:1].upper()}{text[1:]}"


def keep_units(sentence: str) -> str:
    """A sentence in which no line break separates a number from its unit."""
    return sentence.replace(" %", "\u00a0%").replace(" ± ", "\u00a0±\u00a0")


def p_value(value: float | None) -> str:
    """A p-value with three decimals."""
    return "–" if value is None else p_values.shown_p(value)


def equals_p(value: float, *, at_resolution: bool = False) -> str:
    """A p-value after "p"; that it is at most that, where draws cannot show a smaller one."""
    return f"p {p_values.equals_p(value, value if at_resolution else 0.0)}"


def cell(value: Any) -> str:
    """An option or a fitted parameter as a short text."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, list):
        text = ", ".join(cell(item) for item in value)
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CELL_CHARACTERS else f"{text[:MAX_CELL_CHARACTERS]}…"


FILTERS: dict[str, Callable[..., str]] = {
    "number": number,
    "signed": signed,
    "p": p_value,
    "equals_p": equals_p,
    "cell": cell,
    "keep_units": keep_units,
    "sentence": sentence,
}
"""Filters of the template."""


@cache
def load_templates() -> Environment:
    """The templates, each compiled once: this takes longer than filling it."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("jinja2", "report", PURPOSE) from error
    templates = Environment(
        loader=PackageLoader("rhocal.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    templates.filters |= FILTERS
    return templates


def read_template(name: str) -> str:
    """A file beside the templates."""
    return (files("rhocal") / "reporting" / "templates" / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Plotly's bundle, compressed, as text; the page decompresses it."""
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped] # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("plotly", "report", PURPOSE) from error
    packed = gzip.compress(get_plotlyjs().encode(), compresslevel=9, mtime=0)
    return base64.b64encode(packed).decode("ascii")
