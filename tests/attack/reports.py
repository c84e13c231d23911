"""Reports: hostile names never become markup, and the JSON of a report is not believed."""

from __future__ import annotations

import json
import warnings
from functools import cache

import numpy as np
from tests.attack import REFUSED, Counts, rounds
from tests.attack._calibrators import fitted
from tests.attack.artifacts import change_card

from rhocal.data.predictions import Predictions
from rhocal.data.spreadsheet_cells import cell_text, text_cell
from rhocal.reporting.document import build_document, to_json
from rhocal.reporting.model_card import code, plain
from rhocal.reporting.page import render_page
from rhocal.reporting.sections.provenance import InputFile, Provenance

MARK = "<script>mark()</script>"
PIECES = (
    MARK,
    "</script>",
    "<img src=x onerror=mark()>",
    "{{ 7*7 }}",
    "{% x %}",
    "'",
    '"',
    "`",
    "|",
    "\n",
    "=1+1",
    "&lt;",
)
PIECES += ("\u2028", "]]>", "<!--", "*", "a", "-1", "@x", "\t", "+", "\\", "[x](javascript:y)")


def run(rng_seed, seconds):
    """Attack until the seconds are over."""
    counts = Counts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rng in rounds(rng_seed, seconds):
            attack_document(counts, rng)
            for _ in range(50):
                attack_names(counts, rng)
    return counts


@cache
def document():
    """A small report."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(200, 3)), rng.integers(3, size=200)
    data = Predictions.from_arrays(logits, labels)
    source = Provenance.now("x", ["rhocal"], [InputFile("d.npz", 1, "0" * 64)])
    return json.loads(to_json(build_document(data, {"temperature": fitted("temperature", 3)}, source)))


def attack_document(counts, rng):
    """A value somewhere in the document is replaced or removed, or every text in it is hostile."""
    text = json.dumps(document())
    changed = json.loads(text)
    if rng.random() < 0.3:
        changed, what = with_texts(changed, rng), "hostile texts"
    else:
        what = change_card(rng, changed)
    page = counts.attempt(f"report with {what}", lambda: render_page(changed))
    if page is not REFUSED:
        counts.check(f"report with {what}: markup", MARK not in page and "onerror=mark()>" not in page)


def with_texts(value, rng):
    """The same with hostile texts where the page shows texts that others chose."""
    if isinstance(value, dict):
        free = {"title", "commands", "files", "name", "note"}
        return {k: hostile(rng) if k in free and isinstance(v, str) else with_texts(v, rng) for k, v in value.items()}
    return [with_texts(one, rng) for one in value] if isinstance(value, list) else value


def hostile(rng):
    return "".join(PIECES[k] for k in rng.integers(len(PIECES), size=rng.integers(1, 6)))


def attack_names(counts, rng):
    """Text in Markdown is one line without markup; a cell of a table is no formula, and comes back."""
    name = hostile(rng)
    text = counts.attempt("card", lambda: plain(name))
    is_safe = "<" not in text and "\n" not in text and not _unescaped(text, "`*[|")
    counts.check(f"card of {name!r}: {text!r}", is_safe)
    shown = counts.attempt("card", lambda: code(name))
    counts.check(f"code of {name!r}", "\n" not in shown and shown.startswith("`"))
    cell = counts.attempt("cell", lambda: text_cell(name))
    counts.check(f"cell of {name!r}", cell_text(cell) == name and (cell[:1] not in set("=+-@\t\r") or _is_number(cell)))


def _unescaped(text, characters):
    return any(c in characters and (k == 0 or text[:k][::-1].find("\\") != 0) for k, c in enumerate(text))


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True
