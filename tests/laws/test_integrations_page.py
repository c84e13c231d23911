"""The documentation shows the programs that `make integrations` runs, and docs/integrations.md has a row for each."""

import sys

import pytest

from helpers import ROOT


@pytest.fixture
def integrations(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks" / "integrations"), *sys.path])
    import integrations

    return integrations


def test_the_page_shows_the_programs_that_run(integrations):
    page = integrations.PAGE.read_text(encoding="utf-8")
    assert integrations.page_with_programs(page) == page, "run `make integrations`"
    for example in integrations.examples():
        assert f"| {example.head['title']} |" in page, "run `make integrations`"
        assert example.n_lines >= 1
    for path in integrations.OTHER_PAGES:
        other = path.read_text(encoding="utf-8")
        assert "<!-- example: " in other
        assert integrations.page_with_programs(other) == other, "run `make integrations`"
