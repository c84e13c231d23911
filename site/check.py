"""Try the built site in a real browser: links, console, width of a phone, search, and no request to other hosts.

    python site/check.py build/docs/site

Pages are opened from the file system, as a reader without a network has them. Screenshots go to build/docs/screenshots.
"""

from __future__ import annotations

import re
import shutil
import sys
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
SHOWN = ("index.html", "ten_minutes.html", "howto.html", "reference/python.html", "gallery.html")
"""Pages with screenshots."""
FORMS: dict[str, dict[str, Any]] = {
    "phone": {"viewport": PHONE},
    "desktop": {"viewport": DESKTOP},
    "dark": {"viewport": DESKTOP, "color_scheme": "dark"},
    "print": {"viewport": DESKTOP},
}
"""Name of a screenshot → options of its page."""
QUERY, EXPECTED = "reliability", "gallery"


def broken_links(site: Path) -> Iterator[str]:
    """Links and anchors of all pages that lead nowhere, and addresses of other hosts that a page would load."""
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    anchors = {path: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for path, text in pages.items()}
    for path, text in pages.items():
        if path.name == "404.html":
            continue
        for attribute, raw in re.findall(r'\b(href|src)="([^"]*)"', text):
            address = urlsplit(unescape(raw))
            if address.scheme or address.netloc:
                if attribute == "src" or "stylesheet" in raw:
                    yield f"{path.relative_to(site)} loads {raw}"
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            if not target.exists():
                yield f"{path.relative_to(site)} links to {raw}"
                continue
            fragment = unquote(address.fragment)
            if fragment and not fragment.startswith("__") and fragment not in anchors.get(target, {fragment}):
                yield f"{path.relative_to(site)} links to {raw}: no such anchor"


def browse(site: Path, pictures: Path) -> Iterator[str]:
    """What is wrong in the browser."""
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=PHONE)
        page.on(
            "console",
            lambda message: problems.append(f"{page.url}: {message.text}") if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
        page.on("request", lambda request: _only_files(request.url, page.url, problems))
        for path in sorted(set(site.rglob("*.html")) - {site / "404.html"}):  # a server alone shows that one
            page.goto(path.as_uri())
            width = page.evaluate("document.documentElement.scrollWidth")
            if width > PHONE["width"]:
                problems.append(f"{path.relative_to(site)} is {width} px wide on a phone")
        _search(page, site, problems)
        pictures.mkdir(parents=True, exist_ok=True)
        for name in SHOWN:
            for form, options in FORMS.items():  # a page remembers its colors: each form has one of its own
                shown = browser.new_page(**options)
                shown.emulate_media(media="print" if form == "print" else "screen")
                shown.goto((site / name).as_uri())
                shown.screenshot(path=pictures / f"{Path(name).stem}-{form}.png")
                shown.close()
        browser.close()
    yield from dict.fromkeys(problems)


def _only_files(address: str, page: str, problems: list[str]) -> None:
    if urlsplit(address).scheme not in {"file", "data", "blob", "about"}:
        problems.append(f"{page} requests {address}")


def _search(page: Any, site: Path, problems: list[str]) -> None:
    """Search from the file system finds a page."""
    page.set_viewport_size(DESKTOP)
    page.goto((site / "index.html").as_uri())
    page.locator("input.md-search__input").click()
    page.keyboard.type(QUERY)
    try:
        page.wait_for_selector(".md-search-result__item a", timeout=15_000)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        problems.append(f"search for {QUERY!r} finds nothing: {type(error).__name__}")
        return
    found = page.locator(".md-search-result__item a").evaluate_all("links => links.map(link => link.href)")
    if not any(EXPECTED in address for address in found):
        problems.append(f"search for {QUERY!r} does not find the {EXPECTED}: {found[:5]}")


def main() -> None:
    site = Path(sys.argv[1]).resolve()
    problems = list(broken_links(site))
    n_pages = len(list(site.rglob("*.html")))
    if shutil.which("chromium") is None:
        print("chromium is not installed; the browser check is skipped")
    else:
        problems += browse(site, site.parent / "screenshots")
    for problem in problems:
        print(problem)
    print(f"{n_pages} pages, {len(problems)} problems")
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
