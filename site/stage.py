"""Collect the pages of the documentation site: docs/ at its root, other pages where they are, reference pages from the code.

    python site/stage.py build/docs/pages

Every page that docs/ links to, directly or through others, is taken along. Links are rewritten to where their target is staged;
a link to a folder leads to its README.md.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from reference import reference_pages

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)?(#[^)\s]*)?(\))")
FENCE = re.compile(r"^(```.*?^```|~~~.*?^~~~)", re.MULTILINE | re.DOTALL)


def staged(path: Path) -> Path:
    """Where a file of the repository lies in the site."""
    return path.relative_to(DOCS) if path.is_relative_to(DOCS) else path.relative_to(ROOT)


def target_of(page: Path, address: str) -> Path:
    """The file of the repository that a link of a page means."""
    target = (page.parent / address).resolve()
    if target.is_dir():
        target = target / "README.md"
    if not target.is_file():
        raise SystemExit(f"{page.relative_to(ROOT)} links to {address}, which does not exist")
    return target


def rewritten(page: Path, text: str, found: list[Path]) -> str:
    """The text with links as the site needs them; what they lead to is added to ``found``."""

    def link(match: re.Match[str]) -> str:
        before, address, anchor, after = match.groups()
        if not address or "://" in address or address.startswith("mailto:"):
            return match[0]
        if page.is_relative_to(DOCS) and address.startswith("reference/"):  # written by reference.py
            return match[0]
        target = target_of(page, address)
        found.append(target)
        relative = os.path.relpath(staged(target), staged(page).parent).replace(os.sep, "/")
        return f"{before}{relative}{anchor or ''}{after}"

    parts = FENCE.split(text)
    return "".join(part if part.startswith(("```", "~~~")) else LINK.sub(link, part) for part in parts)


def stage(output: Path) -> int:
    """Write all pages; returns their number."""
    shutil.rmtree(output, ignore_errors=True)
    todo = [*sorted(DOCS.rglob("*.md")), ROOT / "CHANGELOG.md"]
    done: set[Path] = set()
    while todo:
        path = todo.pop()
        if path in done:
            continue
        done.add(path)
        target = output / staged(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(rewritten(path, path.read_text(encoding="utf-8"), todo), encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    for name, text in reference_pages().items():
        page = output / "reference" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    shutil.copytree(Path(__file__).parent / "assets", output / "assets")
    return len(done)


if __name__ == "__main__":
    print(f"{stage(Path(sys.argv[1]))} files")
