"""The page of a report; what a browser makes of it is in test_report_browser.py."""

import json
import re
import sys
from html.parser import HTMLParser
from importlib.resources import files

import pytest

import reports
import rhocal
from helpers import synthetic
from rhocal.data.predictions import Predictions
from rhocal.errors import MissingExtraError
from rhocal.reporting.document import build_document, to_json
from rhocal.reporting.page import embed_json, equals_p, load_templates, render_page
from rhocal.reporting.sections.methods import describe_fit
from rhocal.reporting.sections.provenance import Provenance


@pytest.fixture(scope="module")
def quiet():
    return reports.quiet()


def test_members_of_a_list_are_numbered():
    logits, labels = synthetic(600, 3)
    cal = rhocal.calibrator("average").fit(logits, labels)
    assert [child["method"] for child in describe_fit(cal)["children"].values()] == ["field", "svs"]
    page = render_page(build_document(Predictions.from_arrays(logits, labels), {"a": cal}, Provenance.now("x")))
    assert "component" in page
    auto = rhocal.AutoCalibrator().fit(logits, labels)
    assert describe_fit(auto)["children"]["chosen"]["method"] == auto.chosen_.label


class Page(HTMLParser):
    """Elements and texts of a page, with what may load something."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.headings, self.ids = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        self.links += [attrs[k] for k in ("src", "href", "srcset", "action", "data") if attrs.get(k)]
        self.ids += [attrs["id"]] if "id" in attrs else []
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        for required in {"img": "alt", "html": "lang"}.get(tag, "").split():
            assert required in attrs
        assert not [name for name in attrs if name.startswith("on")]


def test_the_page_is_whole_and_asks_for_nothing(quiet):
    text = render_page(quiet[0])
    assert len(text.encode()) < 6_000_000
    parsed = Page(text)
    assert set(parsed.links) <= {"#main", "data:,"}
    assert parsed.tags.count("h1") == 1
    assert all(b - a <= 1 for a, b in zip(parsed.headings, parsed.headings[1:], strict=False))
    assert len(parsed.ids) == len(set(parsed.ids))
    assert "default-src 'none'" in text
    for part in ("How to reproduce", "How to cite", "Where it is worst", "arXiv:2412.15301", "0" * 64):
        assert part in text


def test_the_page_is_a_pure_function_of_the_json(quiet):
    again = json.loads(to_json(quiet[0]))
    assert again == quiet[0]
    assert render_page(again) == render_page(quiet[0])


def test_embedded_json_cannot_end_its_element():
    hostile = reports.hostile()
    text = embed_json(hostile)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == hostile
    tags = Page(render_page(hostile)).tags
    assert tags.count("img") == 0
    assert tags.count("b") == 0
    assert tags.count("script") == 3  # the document, Plotly, ours


def test_missing_extra_is_said(quiet, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    load_templates.cache_clear()
    with pytest.raises(MissingExtraError, match=r"rhocal\[report\]"):
        render_page(quiet[0])


def luminance(colour):
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("selector", [":root {", ':root[data-theme="dark"] {', ':root:not([data-theme="light"]) {'])
def test_contrast(selector):
    """WCAG AA: 4.5 to 1 for every text on every ground it stands on."""
    css = (files("rhocal") / "reporting" / "templates" / "report.css").read_text(encoding="utf-8")
    block = css[css.index(selector) :].partition("}")[0]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
    pairs = [(text, ground) for text in ("ink", "soft", "accent") for ground in ("page", "card")]
    pairs += [(level, f"{level}-back") for level in ("good", "fair", "bad")] + [("ink", "fair-back")]
    for text, ground in [*pairs, ("good", "card"), ("bad", "card")]:
        a, b = sorted((luminance(colours[text]), luminance(colours[ground])))
        assert (b + 0.05) / (a + 0.05) >= 4.5, (text, ground)


def test_p_values_at_their_resolution_are_bounds():
    """Draws cannot show a p-value below 2 / (1 + their number): the page writes that it is at most that."""
    logits, labels = synthetic(2000, 4, scale=3.0)
    cal = rhocal.TemperatureScaling().fit(*synthetic(2000, 4, scale=3.0, seed=1))
    document = build_document(Predictions.from_arrays(logits, labels), {"t": cal}, Provenance.now("x"))
    found = document["methods"][1]["differences"]
    assert found["nll"]["at_resolution"]
    assert not found["ece"]["at_resolution"]  # a normal distribution has no resolution
    assert equals_p(0.002, at_resolution=True) == "p ≤ 0.002"
    assert equals_p(0.002) == "p = 0.002"
    assert equals_p(1e-9) == "p ≤ 0.001"  # the same form where digits are the limit
    assert equals_p(0.0034, at_resolution=True) == "p ≤ 0.004"  # rounded up: it stays true


def test_an_error_rate_is_shown_beside_that_of_the_most_frequent_class():
    logits, labels = rhocal.demo_logits("test", "table")
    found = rhocal.report(logits, labels, kind="logits", classes=["no", "yes"])
    always = found.document["decisions"]["always"]
    assert always == {"class": "no", "error": pytest.approx(labels.mean())}
    assert "always predicts" in found.html


def test_two_models_are_named_instead_of_before_and_after():
    logits, labels = synthetic(300, 3)
    page = rhocal.report({"Old": logits, "New": 2 * logits}, labels, kind="logits").html
    cards = page.split('<div class="cards">')[1].split("</section>")[0]
    assert "before" not in cards
    assert cards.count("Old") == 4
