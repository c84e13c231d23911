"""Run the snippets of pages and write what they print below them: numbers in the documentation are never typed.

    python site/print_pages.py docs/ten_minutes.md docs/howto.md

A text block belongs to the Python block before it. `tests/laws/test_docs.py` runs the same pages and compares.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def printed_page(text: str, name: str) -> str:
    """The page with the text blocks that its snippets print now."""
    names: dict[str, Any] = {}
    printed = ""

    def block(match: re.Match[str]) -> str:
        nonlocal printed
        if match[1] == "text":
            return f"```text\n{printed}```"
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            exec(compile(match[2], name, "exec"), names)  # noqa: S102 - our own page
        printed = shown.getvalue()
        return match[0]

    return BLOCK.sub(block, text)


def main() -> None:
    paths = [Path(name).resolve() for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for path in paths:
            path.write_text(printed_page(path.read_text(encoding="utf-8"), path.name), encoding="utf-8")


if __name__ == "__main__":
    main()
