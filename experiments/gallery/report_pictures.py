"""Pictures of reports for the README and the documentation: docs/images/*.png. Needs Chromium.

rhocal demo -o build/demo && python experiments/gallery/report_pictures.py build/demo
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

OUTPUT = Path(__file__).parents[2] / "docs" / "images"
N_COLORS = 96
"""Colors of a picture: pages are flat, and files stay small."""


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    pictures = {
        "demo": ("report.html", "light", 1180, 700),
        "report": ("images.html", "light", 1180, 1240),
        "report-dark": ("images.html", "dark", 1180, 1240),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (page_name, scheme, width, height) in pictures.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto((folder / page_name).as_uri())
            page.wait_for_timeout(1500)  # diagrams are drawn when they come into view
            picture = Image.open(io.BytesIO(page.screenshot()))
            picture.convert("RGB").quantize(N_COLORS).save(OUTPUT / f"{name}.png", optimize=True)
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
