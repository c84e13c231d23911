"""The documents keep up with the tables."""

import re
from pathlib import Path

import pytest

from helpers import ROOT
from rhocal.calibrators import CALIBRATORS
from rhocal.objectives import OBJECTIVES

DOCS = ROOT / "docs"
PAGES = dict(
    re.findall(r"`([\w:-]+)`[^|\]\n]*\]\((methods/[\w-]+\.md)\)", (DOCS / "methods.md").read_text(encoding="utf-8"))
)
PAGES |= dict.fromkeys(("svs:field", "sms:field"), "methods/chain.md")


@pytest.mark.parametrize("name", CALIBRATORS)
def test_every_method_has_its_page(name):
    text = (DOCS / PAGES[name]).read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert f"`{name}`" in text or ":" in name
    assert "decision" in text, "whether it keeps the decision"
    assert "sample" in text.lower(), "how many samples it needs"


def test_every_objective_is_in_the_document():
    text = (DOCS / "objectives.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in OBJECTIVES)


DOCUMENTS = [
    path
    for path in ROOT.rglob("*.md")  # of a template the page made from it is looked at
    if not path.name.endswith("template.md")
    and not {".venv", ".pytest_cache", "build"} & set(path.relative_to(ROOT).parts)
]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / Path(target)).exists(), f"{path.name} links to {target}"
